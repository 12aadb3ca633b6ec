-- A link names its folder by its id. A link whose folder has no row here is in no folder.
CREATE TABLE folders (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (workspace_seq, id)
);
-- Earlier versions stored only the id of a folder, with its links. It becomes the folder's name.
INSERT INTO folders (workspace_seq, id, name, created_at, updated_at)
    SELECT l.workspace_seq, l.folder_id, l.folder_id, MIN(l.created_at), MIN(l.created_at) FROM links l
    WHERE l.workspace_seq > 0 AND l.folder_id <> '' GROUP BY l.workspace_seq, l.folder_id;
CREATE INDEX links_of_folder ON links (workspace_seq, folder_id) WHERE folder_id IS NOT NULL;

-- Deleted folders that links may still name.
CREATE TABLE deleted_folders (
    workspace_seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (workspace_seq, id)
) WITHOUT ROWID;

-- Names are compared in lower case. Only letters of ASCII count, because SQLite folds no others.
CREATE INDEX folders_by_name ON folders (workspace_seq, lower(name));
CREATE INDEX tags_by_name ON tags (workspace_seq, lower(name));

-- Domains on which only one workspace may create links.
CREATE TABLE domains (
    name TEXT NOT NULL PRIMARY KEY,
    workspace_seq BIGINT NOT NULL REFERENCES workspaces (seq),
    assigned_at BIGINT NOT NULL
) WITHOUT ROWID;
