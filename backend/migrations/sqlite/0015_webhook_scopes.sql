-- The ids in the scope of each webhook, which find the webhooks of a link.
CREATE TABLE webhook_scopes (
    id TEXT NOT NULL,
    webhook_seq BIGINT NOT NULL REFERENCES webhooks (seq) ON DELETE CASCADE,
    PRIMARY KEY (id, webhook_seq)
) WITHOUT ROWID;
CREATE INDEX webhook_scopes_of_webhook ON webhook_scopes (webhook_seq);
INSERT INTO webhook_scopes (id, webhook_seq)
    SELECT DISTINCT e.value, h.seq FROM webhooks h
    CROSS JOIN json_each(CASE h.link_scope WHEN 'links' THEN h.link_ids WHEN 'folders' THEN h.folder_ids ELSE '[]' END) e;

-- Finds the deliveries that were given up, without reading the others.
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (webhook_seq, seq)
    WHERE due_at IS NULL AND delivered_at IS NULL;
