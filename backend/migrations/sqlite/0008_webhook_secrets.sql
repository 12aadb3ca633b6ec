-- Until `old_secret_until`, deliveries are signed with the secret from before the last rotation as well.
ALTER TABLE webhooks ADD COLUMN old_secret TEXT;
ALTER TABLE webhooks ADD COLUMN old_secret_until BIGINT;
