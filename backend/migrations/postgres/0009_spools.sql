-- The number of the last batch of spooled clicks that is recorded, of each spool: a file of one process.
CREATE TABLE spools (id TEXT PRIMARY KEY, recorded BIGINT NOT NULL);
