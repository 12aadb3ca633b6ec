-- The place of a key in a random order of all keys, of which `secret` is the secret: the keys that the service makes up follow
-- each other in it. Where there are links already, `secret` is empty, and the place of a key is the key in lower case.
ALTER TABLE links RENAME COLUMN key_folded TO key_place;
CREATE TABLE key_order (secret TEXT NOT NULL);
INSERT INTO key_order (secret) SELECT CASE WHEN EXISTS (SELECT 1 FROM links) THEN '' ELSE hex(randomblob(32)) END;
