-- The ids in the scope of each webhook, which find the webhooks of a link.
CREATE TABLE webhook_scopes (
    id TEXT NOT NULL,
    webhook_seq BIGINT NOT NULL REFERENCES webhooks (seq) ON DELETE CASCADE,
    PRIMARY KEY (id, webhook_seq)
);
CREATE INDEX webhook_scopes_of_webhook ON webhook_scopes (webhook_seq);
-- An entry of an index has at most 2,704 bytes. No link and no folder has a longer id.
INSERT INTO webhook_scopes (id, webhook_seq)
    SELECT DISTINCT e.id, h.seq FROM webhooks h
    CROSS JOIN jsonb_array_elements_text(CAST(
        CASE h.link_scope WHEN 'links' THEN h.link_ids WHEN 'folders' THEN h.folder_ids ELSE '[]' END AS JSONB
    )) AS e (id) WHERE octet_length(e.id) <= 2600;

-- Finds the deliveries that were given up, without reading the others.
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (webhook_seq, seq)
    WHERE due_at IS NULL AND delivered_at IS NULL;
