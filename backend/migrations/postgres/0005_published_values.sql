-- Devices, browsers and operating systems as the published API names them. Tablets were not told from phones and
-- computers before.
UPDATE clicks SET
    device = CASE
        WHEN os = 'iPad' OR (os = 'Android' AND user_agent NOT LIKE '%Mobile%') THEN 'Tablet'
        ELSE device END,
    browser = CASE browser
        WHEN 'Internet Explorer' THEN 'IE'
        WHEN 'SamsungBrowser' THEN 'Samsung Internet'
        WHEN 'Google Search App' THEN 'GSA'
        ELSE browser END,
    os = CASE
        WHEN os = 'Mac OSX' THEN 'Mac OS'
        WHEN os IN ('iPhone', 'iPad', 'iPod') THEN 'iOS'
        WHEN os LIKE 'Windows Phone%' THEN 'Windows Phone'
        WHEN os LIKE 'Windows%' THEN 'Windows'
        WHEN os = 'ChromeOS' THEN 'Chrome OS'
        ELSE os END
WHERE os IN ('Mac OSX', 'iPhone', 'iPad', 'iPod', 'Android', 'ChromeOS') OR os LIKE 'Windows%'
    OR browser IN ('Internet Explorer', 'SamsungBrowser', 'Google Search App');

-- The entry of an index has at most 2,704 bytes, and destinations may be longer.
DROP INDEX links_by_url;
CREATE INDEX links_by_url ON links (workspace_seq, md5(url));
