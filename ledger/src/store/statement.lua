-- One statement about one counter in one window: the same machine as share.rs.
--
-- KEYS[1]  the counter in the window, a hash: `r` the reset number, `s` the sum of all shares, and for each holder
--          `<newest number>:<share>`
-- ARGV     holder, number, used, reset number, seconds until the key expires, and then
--          of a return: keep
--          of an ask: limit, need, cost, hold, gateways that were heard, 1 if nothing is granted
--
-- Answers {reset number} if the statement has a lower one, else {reset number, share, shares of the others}.
local key, holder = KEYS[1], ARGV[1]
local seq, used, reset = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local stored = redis.call('HMGET', key, 'r', 's', holder)
local number, sum, newest, share = tonumber(stored[1] or -1), tonumber(stored[2] or 0), 0, 0
if stored[3] then
  local first, second = string.match(stored[3], '^(%d+):(%d+)$')
  newest, share = tonumber(first), tonumber(second)
end
if reset < number then
  return {number}
end
local is_new = reset > number
if is_new then
  redis.call('DEL', key)
  sum, newest, share = 0, 0, 0
end
local others = sum - share
if seq > newest or seq == newest and #ARGV == 6 then
  share = math.max(share, used)
  if #ARGV == 6 then
    share = math.min(share, used + tonumber(ARGV[6]))
  elseif ARGV[11] == '0' then
    local limit, need, cost, hold = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
    local has, free = share - used, math.max(0, limit - others - share)
    if has + free >= cost then
      local waiting = math.min(math.max(0, need - has), free)
      local ahead = math.floor((free - waiting) / (2 * tonumber(ARGV[10])))
      share = share + waiting + math.min(math.max(0, hold - math.max(has, need)), ahead)
    end
  end
  redis.call('HSET', key, 'r', ARGV[4], 's', others + share, holder, ARGV[2] .. ':' .. share)
  if is_new then
    redis.call('EXPIRE', key, ARGV[5])
  end
end
return {reset, share, others}
