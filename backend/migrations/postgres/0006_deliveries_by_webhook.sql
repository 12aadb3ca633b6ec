-- Deliveries are read webhook by webhook, so that what one has waiting, or one that is disabled, is nothing to the others.
DROP INDEX webhook_deliveries_due;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_seq, due_at, seq) WHERE due_at IS NOT NULL;
