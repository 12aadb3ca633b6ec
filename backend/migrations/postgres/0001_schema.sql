-- Instants are Unix milliseconds. `seq` is the internal, never reused number of a row; `id` is its public name.

CREATE TABLE workspaces (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Only the SHA-256 of a key is kept. `limits` is JSON: class to list of quotas, or null.
CREATE TABLE api_keys (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    sha256 TEXT NOT NULL UNIQUE,
    plan TEXT NOT NULL,
    limits TEXT,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);

-- `key_folded` is the key in lower case: keys that differ only in case are one short link. `details` is JSON: the
-- fields that no query looks at. `archived` is 0 or 1. The campaign parameters are those in the query of `url`.
CREATE TABLE links (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    domain TEXT NOT NULL,
    "key" TEXT NOT NULL,
    key_folded TEXT NOT NULL,
    url TEXT NOT NULL,
    utm_source TEXT,
    utm_medium TEXT,
    utm_campaign TEXT,
    utm_term TEXT,
    utm_content TEXT,
    external_id TEXT,
    tenant_id TEXT,
    folder_id TEXT,
    archived BIGINT NOT NULL,
    details TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (domain, key_folded),
    UNIQUE (workspace_seq, external_id)
);
CREATE INDEX links_of_workspace ON links (workspace_seq, seq);
CREATE INDEX links_by_url ON links (workspace_seq, url);

CREATE TABLE tags (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    name TEXT NOT NULL,
    color TEXT NOT NULL,
    UNIQUE (workspace_seq, name)
);

CREATE TABLE link_tags (
    link_seq BIGINT NOT NULL REFERENCES links (seq) ON DELETE CASCADE,
    tag_seq BIGINT NOT NULL REFERENCES tags (seq) ON DELETE CASCADE,
    PRIMARY KEY (link_seq, tag_seq)
);
CREATE INDEX links_of_tag ON link_tags (tag_seq, link_seq);

CREATE TABLE clicks (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL,
    workspace_seq BIGINT NOT NULL,
    link_seq BIGINT NOT NULL REFERENCES links (seq) ON DELETE CASCADE,
    at BIGINT NOT NULL,
    url TEXT NOT NULL,
    continent TEXT NOT NULL,
    country TEXT NOT NULL,
    region TEXT NOT NULL,
    city TEXT NOT NULL,
    device TEXT NOT NULL,
    browser TEXT NOT NULL,
    os TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    "trigger" TEXT NOT NULL,
    referer TEXT NOT NULL,
    referer_url TEXT NOT NULL,
    ip TEXT NOT NULL
);
CREATE INDEX clicks_of_workspace ON clicks (workspace_seq, at);
CREATE INDEX clicks_of_link ON clicks (link_seq, at);

-- Kept in the transaction that records the clicks, so they always equal the sum of the rows in `clicks`.
CREATE TABLE link_totals (
    link_seq BIGINT NOT NULL PRIMARY KEY REFERENCES links (seq) ON DELETE CASCADE,
    clicks BIGINT NOT NULL,
    last_clicked BIGINT NOT NULL
);

-- `bucket` is the start of the UTC hour or day, in Unix milliseconds.
CREATE TABLE clicks_hourly (
    workspace_seq BIGINT NOT NULL,
    bucket BIGINT NOT NULL,
    link_seq BIGINT NOT NULL REFERENCES links (seq) ON DELETE CASCADE,
    clicks BIGINT NOT NULL,
    PRIMARY KEY (workspace_seq, bucket, link_seq)
);
CREATE INDEX clicks_hourly_of_link ON clicks_hourly (link_seq, bucket);

CREATE TABLE clicks_daily (
    workspace_seq BIGINT NOT NULL,
    bucket BIGINT NOT NULL,
    link_seq BIGINT NOT NULL REFERENCES links (seq) ON DELETE CASCADE,
    clicks BIGINT NOT NULL,
    PRIMARY KEY (workspace_seq, bucket, link_seq)
);
CREATE INDEX clicks_daily_of_link ON clicks_daily (link_seq, bucket);

-- `triggers`, `link_ids` and `folder_ids` are JSON lists.
CREATE TABLE webhooks (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    triggers TEXT NOT NULL,
    link_scope TEXT,
    link_ids TEXT NOT NULL,
    folder_ids TEXT NOT NULL,
    failures BIGINT NOT NULL,
    disabled_at BIGINT,
    created_at BIGINT NOT NULL,
    UNIQUE (workspace_seq, url)
);

-- The outbox: an event is written by the transaction that causes it, once, with one delivery per receiver.
CREATE TABLE webhook_events (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    event TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX webhook_events_by_age ON webhook_events (created_at);

-- `due_at` is null once nothing remains to be done; a worker that takes a delivery moves it ahead by its lease.
CREATE TABLE webhook_deliveries (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_seq BIGINT NOT NULL REFERENCES webhook_events (seq) ON DELETE CASCADE,
    webhook_seq BIGINT NOT NULL REFERENCES webhooks (seq) ON DELETE CASCADE,
    attempts BIGINT NOT NULL,
    due_at BIGINT,
    delivered_at BIGINT
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_of_event ON webhook_deliveries (event_seq);
CREATE INDEX webhook_deliveries_of_webhook ON webhook_deliveries (webhook_seq, seq);

CREATE TABLE webhook_attempts (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    delivery_seq BIGINT NOT NULL REFERENCES webhook_deliveries (seq) ON DELETE CASCADE,
    at BIGINT NOT NULL,
    http_status BIGINT,
    error TEXT,
    response_body TEXT NOT NULL
);
CREATE INDEX webhook_attempts_of_delivery ON webhook_attempts (delivery_seq);
