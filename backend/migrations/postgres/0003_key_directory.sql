-- A text that is another one after every change of the keys, and never comes again: whoever holds a list of keys learns from
-- it whether the list is still the same.
CREATE TABLE key_directory (version TEXT NOT NULL);
INSERT INTO key_directory (version) VALUES (CAST(gen_random_uuid() AS TEXT));
CREATE FUNCTION renew_key_directory() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE key_directory SET version = CAST(gen_random_uuid() AS TEXT);
    RETURN NULL;
END
$$;
CREATE TRIGGER api_keys_changed AFTER INSERT OR UPDATE OR DELETE ON api_keys
FOR EACH STATEMENT EXECUTE FUNCTION renew_key_directory();
