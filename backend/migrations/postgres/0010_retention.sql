-- The instant, on a UTC hour, before which clicks are deleted or about to be. It never moves back. Rollups stay.
CREATE TABLE retention (kept_from BIGINT NOT NULL);
INSERT INTO retention (kept_from) VALUES (0);

-- The rows from earlier versions, by number, in which visitors' addresses are still to be truncated. The service does so
-- when it opens the database, in steps, and removes the row after the last one.
CREATE TABLE full_addresses (
    source TEXT NOT NULL PRIMARY KEY,
    next_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL
);
INSERT INTO full_addresses (source, next_seq, last_seq) SELECT 'clicks', 1, seq FROM clicks ORDER BY seq DESC LIMIT 1;
INSERT INTO full_addresses (source, next_seq, last_seq)
SELECT 'webhook_events', 1, seq FROM webhook_events ORDER BY seq DESC LIMIT 1;
