-- Resets one counter in one window: the higher number stands, and with it all shares are 0.
--
-- KEYS[1]  the counter in the window, as in statement.lua
-- ARGV     reset number, seconds until the key expires
--
-- Answers {the number that stands}.
local number = tonumber(redis.call('HMGET', KEYS[1], 'r')[1] or -1)
if tonumber(ARGV[1]) <= number then
  return {number}
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'r', ARGV[1], 's', 0)
redis.call('EXPIRE', KEYS[1], ARGV[2])
return {tonumber(ARGV[1])}
