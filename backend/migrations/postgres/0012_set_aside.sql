-- The number of clicks after batch `recorded` that are recorded too: those of the first parts of batches that the database
-- refused as a whole.
ALTER TABLE spools ADD COLUMN clicks_ahead BIGINT NOT NULL DEFAULT 0;

-- Clicks that the database refused, for an operator to look at and replay. `clicks` is a batch in the form of the spool, `id` the
-- id of its click, or the spool and the number of a batch that cannot be read.
CREATE TABLE set_aside_clicks (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    reason TEXT NOT NULL,
    clicks BYTEA NOT NULL
);
