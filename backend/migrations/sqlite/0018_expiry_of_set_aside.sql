-- The time of the last click of an entry; of a batch that cannot be read, the time at which it was set aside. Entries from before this
-- migration may be older than they seem.
ALTER TABLE set_aside_clicks ADD COLUMN at BIGINT NOT NULL DEFAULT 0;
UPDATE set_aside_clicks SET at = CAST(strftime('%s', 'now') AS INTEGER) * 1000;
CREATE INDEX set_aside_by_time ON set_aside_clicks (at);
