-- A text that is another one after every change of the keys, and never comes again: whoever holds a list of keys learns from
-- it whether the list is still the same.
CREATE TABLE key_directory (version TEXT NOT NULL);
INSERT INTO key_directory (version) VALUES (lower(hex(randomblob(16))));
CREATE TRIGGER api_keys_inserted AFTER INSERT ON api_keys
BEGIN
    UPDATE key_directory SET version = lower(hex(randomblob(16)));
END;
CREATE TRIGGER api_keys_updated AFTER UPDATE ON api_keys
BEGIN
    UPDATE key_directory SET version = lower(hex(randomblob(16)));
END;
CREATE TRIGGER api_keys_deleted AFTER DELETE ON api_keys
BEGIN
    UPDATE key_directory SET version = lower(hex(randomblob(16)));
END;
