-- Clicks packed so that many are read at once. `packed_until` is the instant, on a minute, before which all clicks of a
-- workspace are packed.
CREATE TABLE packed_workspaces (
    workspace_seq BIGINT NOT NULL PRIMARY KEY REFERENCES workspaces (seq),
    packed_until BIGINT NOT NULL
);
INSERT INTO packed_workspaces (workspace_seq, packed_until) SELECT seq, 0 FROM workspaces;

-- The clicks of the UTC minute that starts at `bucket`: each with its offset in milliseconds and its link.
CREATE TABLE packed_minutes (
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    bucket BIGINT NOT NULL,
    clicks BLOB NOT NULL,
    PRIMARY KEY (workspace_seq, bucket)
);

-- The links clicked in the UTC hour or day, as long as `length` says in milliseconds, that starts at `bucket`, each with
-- its clicks. Only whole ones are here. Links deleted since may be among them.
CREATE TABLE packed_sums (
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    length BIGINT NOT NULL,
    bucket BIGINT NOT NULL,
    sums BLOB NOT NULL,
    PRIMARY KEY (workspace_seq, length, bucket)
);
