-- Links as the events of clicks show them, each once for all clicks that are recorded together. `body` is JSON;
-- `last_event_at` is the instant of the latest of these events.
CREATE TABLE link_snapshots (
    id TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    last_event_at BIGINT NOT NULL
);
CREATE INDEX link_snapshots_by_age ON link_snapshots (last_event_at);

-- With a snapshot, the payload is only the part before the link.
ALTER TABLE webhook_events ADD COLUMN link_snapshot TEXT;
