-- The number of the last batch of spooled clicks that is recorded. The batches are in a file of their own.
CREATE TABLE spool (recorded BIGINT NOT NULL);
INSERT INTO spool (recorded) VALUES (0);
