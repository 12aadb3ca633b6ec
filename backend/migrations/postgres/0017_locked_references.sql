-- A transaction that inserts such rows has locked the links, the webhooks and the events that they refer to, once for all rows, and
-- the sweeper locks these before it deletes them. Foreign keys would look for them again for each row, which takes longer than the
-- rows themselves.
ALTER TABLE clicks DROP CONSTRAINT clicks_link_seq_fkey;
ALTER TABLE clicks_hourly DROP CONSTRAINT clicks_hourly_link_seq_fkey;
ALTER TABLE clicks_daily DROP CONSTRAINT clicks_daily_link_seq_fkey;
ALTER TABLE webhook_deliveries DROP CONSTRAINT webhook_deliveries_event_seq_fkey;
ALTER TABLE webhook_deliveries DROP CONSTRAINT webhook_deliveries_webhook_seq_fkey;
