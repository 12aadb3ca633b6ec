-- Links that are deleted and whose rows are not all gone yet. They belong to workspace 0, which is nobody's, on no domain.
CREATE TABLE deleted_links (
    link_seq BIGINT NOT NULL PRIMARY KEY REFERENCES links (seq) ON DELETE CASCADE,
    workspace_seq BIGINT NOT NULL
);
CREATE INDEX deleted_links_of_workspace ON deleted_links (workspace_seq, link_seq);
INSERT INTO workspaces (seq, id, name, created_at) VALUES (0, '', 'deleted', 0);
