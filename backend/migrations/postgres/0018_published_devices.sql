-- Devices as new clicks have them. Until now, every Android user agent without `Mobile` was a tablet: televisions and apps too.
UPDATE clicks SET device = 'Smarttv'
WHERE device <> 'Smarttv' AND (os = 'DigitalTV' OR (os = 'Android' AND (
    user_agent LIKE '%TV%' OR user_agent LIKE '%BRAVIA%' OR user_agent LIKE '%AFT%' OR user_agent LIKE '%CrKey%')));
UPDATE clicks SET device = 'Tablet'
WHERE os = 'Android' AND device NOT IN ('Tablet', 'Smarttv')
    AND user_agent LIKE 'Mozilla/%' AND user_agent NOT LIKE '%Mobile%';
UPDATE clicks SET device = 'Mobile'
WHERE os = 'Android' AND device = 'Tablet'
    AND (user_agent NOT LIKE 'Mozilla/%' OR user_agent LIKE '%Mobile%');

-- Referers as filters spell them. Those of apps could contain capital letters.
UPDATE clicks SET referer = CASE WHEN referer ILIKE 'www.%' THEN lower(substr(referer, 5)) ELSE lower(referer) END
WHERE referer <> lower(referer);
