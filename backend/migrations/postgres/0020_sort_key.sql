-- The key by which the short links of a domain are indexed.
ALTER TABLE links RENAME COLUMN key_place TO sort_key;
