//! Deletion of what workspace 0 has: deleted tags, folders and webhooks, in steps in the background.

use sqlx::Row;

use super::sql::Sql;
use super::{ROWS_PER_STEP, Store, StoreError};

/// Maximum number of deliveries that one transaction deletes. Each has up to ten attempts.
pub(super) const DELIVERIES_PER_STEP: i64 = ROWS_PER_STEP / 10;

/// A kind of deleted rows, and the rows that refer to them.
struct Deleted {
    table: &'static str,
    /// The statement that removes rows which refer to one, up to a condition on the column with its number or id, and after it. The rows are
    /// in the order in which requests lock links, so that the two never deadlock.
    rows: (&'static str, &'static str),
    /// The column of the table to which the rows refer.
    by_id: bool,
    most: i64,
    lock: &'static str,
}

const DELETED: [Deleted; 3] = [
    Deleted {
        table: "tags",
        rows: (
            "DELETE FROM link_tags WHERE (tag_seq, link_seq) IN (SELECT lt.tag_seq, lt.link_seq FROM link_tags lt WHERE lt.tag_seq = ",
            " ORDER BY lt.link_seq LIMIT ",
        ),
        by_id: false,
        most: ROWS_PER_STEP,
        lock: " FOR UPDATE",
    },
    Deleted {
        table: "folders",
        rows: (
            "UPDATE links SET folder_id = NULL WHERE seq IN (SELECT l.seq FROM links l WHERE l.folder_id = ",
            " ORDER BY l.seq LIMIT ",
        ),
        by_id: true,
        most: ROWS_PER_STEP,
        lock: " FOR UPDATE",
    },
    Deleted {
        table: "webhooks",
        rows: (
            "DELETE FROM webhook_deliveries WHERE seq IN (SELECT d.seq FROM webhook_deliveries d WHERE d.webhook_seq = ",
            " ORDER BY d.seq LIMIT ",
        ),
        by_id: false,
        most: DELIVERIES_PER_STEP,
        lock: "",
    },
];

impl Store {
    /// Removes some rows that refer to a deleted tag, folder or webhook, one of each, and deletes it after the last of them. False if there is
    /// none, or other processes work on them.
    pub(crate) async fn sweep(&self) -> Result<bool, StoreError> {
        let mut swept = false;
        for deleted in &DELETED {
            swept |= self.sweep_one(deleted).await?;
        }
        Ok(swept)
    }

    async fn sweep_one(&self, deleted: &Deleted) -> Result<bool, StoreError> {
        let one = || {
            let mut sql = Sql::new("SELECT x.seq, x.id FROM ");
            sql.push(deleted.table).push(" x WHERE x.workspace_seq = 0 LIMIT 1");
            sql
        };
        // Usually there is none, and a reader is enough to find that out.
        if one().optional(&self.read).await?.is_none() {
            return Ok(false);
        }
        let mut transaction = self.begin().await?;
        let mut sql = one();
        sql.lock(self.dialect, " FOR UPDATE SKIP LOCKED");
        let Some(row) = sql.optional(&mut *transaction).await? else { return Ok(false) };
        let (seq, id): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        let mut sql = Sql::new(deleted.rows.0);
        if deleted.by_id {
            sql.bind(id)
        } else {
            sql.bind(seq)
        };
        sql.push(deleted.rows.1).bind(deleted.most).lock(self.dialect, deleted.lock).push(")");
        if sql.execute(&mut *transaction).await? < deleted.most.unsigned_abs() {
            let mut sql = Sql::new("DELETE FROM ");
            sql.push(deleted.table).push(" WHERE seq = ").bind(seq);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use tempfile::TempDir;

    use super::super::NewLink;
    use super::*;
    use crate::domain::folder::Folder;
    use crate::domain::link_input::LinkInput;
    use crate::domain::public_url::PublicUrl;
    use crate::domain::tag::Tag;

    async fn rows(store: &Store, query: &'static str) -> i64 {
        Sql::new(query).number(&store.read).await.unwrap()
    }

    #[tokio::test]
    async fn links_lose_a_deleted_tag_or_folder_in_bounded_steps() {
        const LINKS: i64 = 5 * ROWS_PER_STEP / 2;
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open_or_create(&url).await.unwrap();
        let (now, public) = (Timestamp::UNIX_EPOCH, PublicUrl::parse("https://s.test").unwrap());
        let workspace = store.create_workspace("test", now).await.unwrap();
        let tag = store.create_label(&workspace, Tag::named("t")).await.unwrap();
        let folder = Folder {
            id: "fold_1".to_owned(),
            name: "f".to_owned(),
            description: None,
            created_at: now,
            updated_at: now,
        };
        let folder = store.create_label(&workspace, folder).await.unwrap();
        let body = json!({"url": "https://example.com", "tagIds": [tag.id], "folderId": folder.id});
        let new = NewLink::of(LinkInput::create(&body, "", now).unwrap(), &public);
        let made = store.create_links(&workspace, &vec![new; LINKS as usize], now, None).await.unwrap();
        assert!(made.iter().all(Result::is_ok));
        assert!(!store.sweep().await.unwrap());
        assert!(store.delete_label::<Tag>(&workspace, &tag.id).await.unwrap());
        assert!(store.delete_label::<Folder>(&workspace, &folder.id).await.unwrap());

        let tagged = "SELECT COUNT(*) FROM link_tags";
        let filed = "SELECT COUNT(*) FROM links WHERE folder_id IS NOT NULL";
        assert_eq!((rows(&store, tagged).await, rows(&store, filed).await), (LINKS, LINKS), "later");
        for left in [LINKS - ROWS_PER_STEP, LINKS - 2 * ROWS_PER_STEP, 0] {
            assert!(store.sweep().await.unwrap());
            assert_eq!((rows(&store, tagged).await, rows(&store, filed).await), (left, left));
        }
        assert!(!store.sweep().await.unwrap());
        for table in ["SELECT COUNT(*) FROM tags", "SELECT COUNT(*) FROM folders"] {
            assert_eq!(rows(&store, table).await, 0, "{table}");
        }
    }
}
