-- Instants are Unix milliseconds. `seq` is the internal, never reused number of a row; `id` is its public name.

CREATE TABLE workspaces (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Deleted links, tags, folders and webhooks belong to workspace 0, which has no keys, until their rows are deleted.
INSERT INTO workspaces (seq, id, name, created_at) VALUES (0, '', 'deleted', 0);

-- Only the SHA-256 of a key is kept. `limits` is JSON: class to list of quotas, or null. `change` is the number of the key's last change;
-- a revoked key keeps its row, so that gateways learn of it.
CREATE TABLE api_keys (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    sha256 TEXT NOT NULL UNIQUE,
    plan TEXT NOT NULL,
    limits TEXT,
    billing_anchor BIGINT,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT,
    change BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX api_keys_of_workspace ON api_keys (workspace_seq);

-- A row for each of the last changes of keys. A gateway names the last one that it knows. `token` is random, so that a number is not
-- mistaken for that of another history, after a backup was restored.
CREATE TABLE key_changes (change INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL);
INSERT INTO key_changes (token) VALUES (lower(hex(randomblob(8))));
CREATE INDEX api_keys_by_change ON api_keys (change);
CREATE TRIGGER api_keys_inserted AFTER INSERT ON api_keys
BEGIN
    INSERT INTO key_changes (token) VALUES (lower(hex(randomblob(8))));
    UPDATE api_keys SET change = (SELECT max(change) FROM key_changes) WHERE seq = NEW.seq;
    DELETE FROM key_changes WHERE change <= (SELECT max(change) FROM key_changes) - 100000;
END;
CREATE TRIGGER api_keys_updated AFTER UPDATE OF id, sha256, plan, limits, billing_anchor, revoked_at ON api_keys
BEGIN
    INSERT INTO key_changes (token) VALUES (lower(hex(randomblob(8))));
    UPDATE api_keys SET change = (SELECT max(change) FROM key_changes) WHERE seq = NEW.seq;
    DELETE FROM key_changes WHERE change <= (SELECT max(change) FROM key_changes) - 100000;
END;
-- A row that is gone cannot be named as removed. So the changes before are forgotten, and gateways ask for all keys.
CREATE TRIGGER api_keys_deleted AFTER DELETE ON api_keys
BEGIN
    DELETE FROM key_changes;
    INSERT INTO key_changes (token) VALUES (lower(hex(randomblob(8))));
END;

-- Domains on which only one workspace may create links. A domain that was removed has none, and is still nobody else's.
CREATE TABLE domains (
    name TEXT NOT NULL PRIMARY KEY,
    workspace_seq BIGINT REFERENCES workspaces (seq),
    assigned_at BIGINT NOT NULL
) WITHOUT ROWID;

-- A link names its folder by its id. A link whose folder belongs to workspace 0 is in no folder. Names are unique in lower case.
-- Only letters of ASCII count, because SQLite folds no others.
CREATE TABLE folders (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    description TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX folders_by_name ON folders (workspace_seq, lower(name));

CREATE TABLE tags (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    name TEXT NOT NULL,
    color TEXT NOT NULL
);
CREATE UNIQUE INDEX tags_by_name ON tags (workspace_seq, lower(name));

-- `key_folded` is the key in lower case: keys that differ only in case are one short link. `details` is JSON: the
-- fields that no query looks at. `archived` is 0 or 1.
CREATE TABLE links (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    domain TEXT NOT NULL,
    "key" TEXT NOT NULL,
    key_folded TEXT NOT NULL,
    url TEXT NOT NULL,
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
CREATE INDEX links_of_folder ON links (folder_id) WHERE folder_id IS NOT NULL;

CREATE TABLE link_tags (
    link_seq BIGINT NOT NULL REFERENCES links (seq) ON DELETE CASCADE,
    tag_seq BIGINT NOT NULL REFERENCES tags (seq) ON DELETE CASCADE,
    PRIMARY KEY (link_seq, tag_seq)
) WITHOUT ROWID;
CREATE INDEX links_of_tag ON link_tags (tag_seq, link_seq);

-- Links that are deleted and whose rows are not all gone yet. They belong to workspace 0, on no domain.
CREATE TABLE deleted_links (
    link_seq BIGINT NOT NULL PRIMARY KEY REFERENCES links (seq) ON DELETE CASCADE,
    workspace_seq BIGINT NOT NULL
);
CREATE INDEX deleted_links_of_workspace ON deleted_links (workspace_seq, link_seq);

-- A click has a unique id from the moment at which it is accepted, so that recording it again changes nothing. `seq` is in the order of
-- the commits, which the cursors of webhooks follow.
-- `url` is where a click led, and its campaign parameters are those in the query of it.
CREATE TABLE clicks (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
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
    utm_source TEXT NOT NULL DEFAULT '',
    utm_medium TEXT NOT NULL DEFAULT '',
    utm_campaign TEXT NOT NULL DEFAULT '',
    utm_term TEXT NOT NULL DEFAULT '',
    utm_content TEXT NOT NULL DEFAULT '',
    ip TEXT NOT NULL
);
CREATE INDEX clicks_of_workspace ON clicks (workspace_seq, at);
CREATE INDEX clicks_of_link ON clicks (link_seq, at);
CREATE INDEX clicks_in_order ON clicks (workspace_seq, seq);

-- Kept in the transaction that records the clicks, so they always equal the sum of the rows in `clicks`.
CREATE TABLE link_totals (
    link_seq BIGINT NOT NULL PRIMARY KEY REFERENCES links (seq) ON DELETE CASCADE,
    clicks BIGINT NOT NULL,
    last_clicked BIGINT NOT NULL
) WITHOUT ROWID;

-- `bucket` is the start of the UTC hour or day, in Unix milliseconds.
CREATE TABLE clicks_hourly (
    workspace_seq BIGINT NOT NULL,
    bucket BIGINT NOT NULL,
    link_seq BIGINT NOT NULL REFERENCES links (seq) ON DELETE CASCADE,
    clicks BIGINT NOT NULL,
    PRIMARY KEY (workspace_seq, bucket, link_seq)
) WITHOUT ROWID;
CREATE INDEX clicks_hourly_of_link ON clicks_hourly (link_seq, bucket);

CREATE TABLE clicks_daily (
    workspace_seq BIGINT NOT NULL,
    bucket BIGINT NOT NULL,
    link_seq BIGINT NOT NULL REFERENCES links (seq) ON DELETE CASCADE,
    clicks BIGINT NOT NULL,
    PRIMARY KEY (workspace_seq, bucket, link_seq)
) WITHOUT ROWID;
CREATE INDEX clicks_daily_of_link ON clicks_daily (link_seq, bucket);

-- The instant, on a UTC hour, before which clicks are deleted or about to be. It never moves back. Rollups stay.
CREATE TABLE retention (kept_from BIGINT NOT NULL);
INSERT INTO retention (kept_from) VALUES (0);

-- `triggers` and `scope_ids` are JSON lists. Until `old_secret_until`, deliveries are signed with the secret from
-- before the last rotation as well. `failing_since` is the time of the first failed attempt after the last that succeeded.
-- `click_cursor` is the number of the last click of which the webhook has heard; null if it hears of none.
CREATE TABLE webhooks (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,
    old_secret_until BIGINT,
    triggers TEXT NOT NULL,
    link_scope TEXT,
    scope_ids TEXT NOT NULL,
    failing_since BIGINT,
    disabled_at BIGINT,
    click_cursor BIGINT,
    created_at BIGINT NOT NULL,
    UNIQUE (workspace_seq, url)
);
CREATE INDEX webhooks_of_clicks ON webhooks (seq, workspace_seq, click_cursor) WHERE click_cursor IS NOT NULL AND disabled_at IS NULL;

-- The ids in the scope of each webhook, which find the webhooks of a link.
CREATE TABLE webhook_scopes (
    id TEXT NOT NULL,
    webhook_seq BIGINT NOT NULL REFERENCES webhooks (seq) ON DELETE CASCADE,
    PRIMARY KEY (id, webhook_seq)
) WITHOUT ROWID;
CREATE INDEX webhook_scopes_of_webhook ON webhook_scopes (webhook_seq);

-- The outbox: the transaction that causes an event also writes it, once, with one delivery per receiver. The event of a click is written
-- when a webhook is about to receive it.
CREATE TABLE webhook_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    event TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX webhook_events_by_age ON webhook_events (created_at);
-- Events about clicks are deleted with their clicks, which may be sooner than other events.
CREATE INDEX webhook_events_of_clicks ON webhook_events (created_at) WHERE event = 'link.clicked';

-- `due_at` is null once nothing remains to be done; a worker that takes a delivery moves it ahead by its lease.
CREATE TABLE webhook_deliveries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_seq BIGINT NOT NULL REFERENCES webhook_events (seq) ON DELETE CASCADE,
    webhook_seq BIGINT NOT NULL REFERENCES webhooks (seq) ON DELETE CASCADE,
    attempts BIGINT NOT NULL,
    due_at BIGINT,
    delivered_at BIGINT
);
-- Deliveries are read webhook by webhook, so that a long or disabled queue delays no other webhook, and retries before first attempts.
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_seq, (CASE attempts WHEN 0 THEN 1 ELSE 0 END), due_at, seq)
    WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_of_event ON webhook_deliveries (event_seq, webhook_seq, seq);
CREATE INDEX webhook_deliveries_of_webhook ON webhook_deliveries (webhook_seq, seq);
CREATE TABLE webhook_attempts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    delivery_seq BIGINT NOT NULL REFERENCES webhook_deliveries (seq) ON DELETE CASCADE,
    at BIGINT NOT NULL,
    http_status BIGINT,
    error TEXT,
    response_body TEXT NOT NULL
);
CREATE INDEX webhook_attempts_of_delivery ON webhook_attempts (delivery_seq);

-- Keys of deleted links, which stay with their workspace until a time. `key_folded` is as in `links`.
CREATE TABLE kept_keys (
    domain TEXT NOT NULL,
    key_folded TEXT NOT NULL,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    until BIGINT NOT NULL,
    PRIMARY KEY (domain, key_folded)
) WITHOUT ROWID;
CREATE INDEX kept_keys_by_time ON kept_keys (until);

-- What gateways report of the use of quotas. Numbers are summed by account: a subscriber with its organisation, the first digits of the
-- key's SHA-256, a class and a plan. An empty text is none. A subscriber needs no key in this database; strangers are the empty one.
CREATE TABLE usage_accounts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    subscriber TEXT NOT NULL,
    organisation TEXT NOT NULL,
    key_prefix TEXT NOT NULL,
    class TEXT NOT NULL,
    plan TEXT NOT NULL,
    UNIQUE (subscriber, organisation, key_prefix, class, plan)
);

-- `bucket` is the start of the UTC minute or hour in which the interval of a report begins. The transaction that takes a report counts it
-- in both. Minutes are kept for a day.
CREATE TABLE usage_minutes (
    account_seq BIGINT NOT NULL REFERENCES usage_accounts (seq),
    bucket BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    units BIGINT NOT NULL,
    refused BIGINT NOT NULL,
    PRIMARY KEY (account_seq, bucket)
) WITHOUT ROWID;
CREATE INDEX usage_minutes_by_age ON usage_minutes (bucket);
CREATE INDEX usage_minutes_with_refusals ON usage_minutes (account_seq, bucket) WHERE refused > 0;
CREATE TABLE usage_hours (
    account_seq BIGINT NOT NULL REFERENCES usage_accounts (seq),
    bucket BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    units BIGINT NOT NULL,
    refused BIGINT NOT NULL,
    PRIMARY KEY (account_seq, bucket)
) WITHOUT ROWID;
CREATE INDEX usage_hours_by_time ON usage_hours (bucket);

-- The last report of each caller in each class, and its tightest quota as JSON, if it has one. `share` is what is used of it in thousandths,
-- until its window ends.
CREATE TABLE usage_callers (
    subscriber TEXT NOT NULL,
    key_prefix TEXT NOT NULL,
    class TEXT NOT NULL,
    organisation TEXT NOT NULL,
    plan TEXT NOT NULL,
    reported_at BIGINT NOT NULL,
    until BIGINT,
    share BIGINT,
    tightest TEXT,
    PRIMARY KEY (subscriber, key_prefix, class)
) WITHOUT ROWID;
CREATE INDEX usage_callers_by_share ON usage_callers (subscriber, until, share);

-- The batches of the last seven days, so that each is counted once.
CREATE TABLE usage_batches (
    source TEXT NOT NULL,
    vm TEXT NOT NULL,
    number BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (source, vm, number)
) WITHOUT ROWID;
CREATE INDEX usage_batches_by_age ON usage_batches (taken_at);

-- Shares of quotas that were reached, kept until seven days after the end of their window, so that each is told once. `details` is JSON: what
-- webhooks are told.
CREATE TABLE usage_thresholds (
    id TEXT NOT NULL PRIMARY KEY,
    subscriber TEXT NOT NULL,
    window_end BIGINT NOT NULL,
    reached_at BIGINT NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX usage_thresholds_of_subscriber ON usage_thresholds (subscriber, reached_at);
CREATE INDEX usage_thresholds_by_age ON usage_thresholds (window_end);

-- The version of this schema.
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version (version) VALUES (1);
