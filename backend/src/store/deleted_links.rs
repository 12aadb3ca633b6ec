//! Deletion of links. No query finds a deleted link, and its rows are deleted in steps in the background.
//!
//! A deleted link belongs to workspace 0 and is on no domain. Its workspace can therefore use its key and external id again.
//! Queries on clicks leave out the links in `deleted_links`.

use jiff::Timestamp;
use sqlx::{Any, Row, Transaction};

use super::ROWS_PER_STEP;
use super::links::{LINKS, LinkSelector};
use super::old_events::first_of;
use super::outbox::enqueue;
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, kept_keys};
use crate::domain::event::{Event, Trigger};
use crate::domain::link::Link;
use crate::domain::public_url::PublicUrl;

/// What a deleted link counts for besides its rows in [`ROWS`]: its own row with its entries in indexes, and the statements for it.
const ROWS_OF_LINK: i64 = 10;

/// Appends the condition that a row `c` of clicks, or of a rollup, does not belong to a deleted link.
pub(super) fn push_not_deleted(sql: &mut Sql, workspace: &Workspace) {
    sql.push(" AND c.link_seq NOT IN (SELECT dl.link_seq FROM deleted_links dl WHERE dl.workspace_seq = ");
    sql.bind(workspace.seq).push(")");
}

/// Moves links to workspace 0 and off their domains. They must be locked.
async fn put_out_of_reach(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    links: &[i64],
    now: Timestamp,
) -> Result<(), StoreError> {
    if links.is_empty() {
        return Ok(());
    }
    kept_keys::keep_of(transaction, dialect, links, now).await?;
    let mut sql = Sql::new(
        "INSERT INTO deleted_links (link_seq, workspace_seq) SELECT l.seq, l.workspace_seq FROM links l WHERE l.seq",
    );
    sql.in_numbers(dialect, links);
    sql.execute(&mut **transaction).await?;
    let mut sql = Sql::new(
        "UPDATE links SET workspace_seq = 0, domain = '', key_folded = id, external_id = NULL WHERE seq",
    );
    sql.in_numbers(dialect, links);
    sql.execute(&mut **transaction).await?;
    Ok(())
}

impl Store {
    /// Deletes a link and notifies webhooks. The rows of its clicks are deleted in the background. None if the workspace does
    /// not have the link.
    pub(crate) async fn delete_link(
        &self,
        workspace: &Workspace,
        selector: &LinkSelector,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Option<Link>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(LINKS);
        self.push_selector(&mut sql, workspace, selector);
        let Some(link) = self.load_locked(&mut transaction, sql).await?.pop() else { return Ok(None) };
        let event = Event::of_link(Trigger::Deleted, &link, public, now);
        enqueue(&mut transaction, self.dialect, workspace.seq, &link, event).await?;
        put_out_of_reach(&mut transaction, self.dialect, &[link.seq], now).await?;
        transaction.commit().await?;
        Ok(Some(link))
    }

    /// Deletes links, without telling webhooks; the rows of their clicks are deleted in the background. Those that the workspace
    /// does not have are left out.
    pub(crate) async fn delete_links(
        &self,
        workspace: &Workspace,
        selectors: &[LinkSelector],
        now: Timestamp,
    ) -> Result<Vec<Link>, StoreError> {
        let links = self.selected_links(workspace, selectors).await?;
        let mut transaction = self.begin().await?;
        let links = self.lock_links(&mut transaction, workspace, links.iter().map(|link| &link.id)).await?;
        let seqs: Vec<i64> = links.iter().map(|link| link.seq).collect();
        put_out_of_reach(&mut transaction, self.dialect, &seqs, now).await?;
        transaction.commit().await?;
        Ok(links)
    }

    /// Deletes some rows of the oldest deleted links, and each link after its last row. False if there is no deleted link, or other
    /// processes work on them.
    pub(crate) async fn delete_rows(&self) -> Result<bool, StoreError> {
        // Usually there is none, and a reader is enough to find that out.
        if oldest_deleted().optional(&self.read).await?.is_none() {
            return Ok(false);
        }
        let mut transaction = self.begin().await?;
        let mut sql = oldest_deleted();
        sql.lock(self.dialect, " FOR UPDATE OF dl SKIP LOCKED");
        let mut links = Vec::new();
        for row in sql.all(&mut *transaction).await? {
            links.push((row.try_get("link_seq")?, row.try_get("bytes")?));
        }
        let links: Vec<i64> = first_of(links);
        let (mut left, mut emptied) = (ROWS_PER_STEP, Vec::new());
        for link in &links {
            for table in ROWS {
                if left > 0 {
                    let deleted = delete_from(table, *link, left).execute(&mut *transaction).await?;
                    left = left.saturating_sub_unsigned(deleted);
                }
            }
            if left <= 0 {
                break;
            }
            emptied.push(*link);
            left -= ROWS_OF_LINK;
        }
        if !emptied.is_empty() {
            let mut sql = Sql::new("DELETE FROM links WHERE seq");
            sql.in_numbers(self.dialect, &emptied);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(!links.is_empty())
    }
}

/// The deleted links of a step, with the sizes of their long texts.
fn oldest_deleted() -> Sql {
    let mut sql = Sql::new(
        "SELECT dl.link_seq, CAST(octet_length(l.url) + octet_length(l.details) AS BIGINT) AS bytes
         FROM deleted_links dl JOIN links l ON l.seq = dl.link_seq ORDER BY dl.link_seq LIMIT ",
    );
    sql.bind(ROWS_PER_STEP / ROWS_OF_LINK);
    sql
}

/// The tables with many rows of a link: the column that identifies these, and the one in whose order an index has them.
const ROWS: [(&str, &str, &str); 4] = [
    ("clicks", "seq", "at"),
    ("clicks_hourly", "bucket", "bucket"),
    ("clicks_daily", "bucket", "bucket"),
    ("link_tags", "tag_seq", "tag_seq"),
];

/// The statement that deletes up to `limit` rows of a link from one of [`ROWS`].
fn delete_from(
    (table, column, order): (&'static str, &'static str, &'static str),
    link: i64,
    limit: i64,
) -> Sql {
    let mut sql = Sql::new("DELETE FROM ");
    sql.push(table).push(" WHERE ").push(column).push(" IN (SELECT c.").push(column).push(" FROM ");
    sql.push(table).push(" c WHERE c.link_seq = ").bind(link).push(" ORDER BY c.").push(order);
    sql.push(" LIMIT ").bind(limit).push(")");
    if table != "clicks" {
        sql.push(" AND link_seq = ").bind(link);
    }
    sql
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::super::{LinkSelector, NewLink};
    use super::*;
    use crate::domain::click::Click;
    use crate::domain::link_input::LinkInput;
    use crate::domain::public_url::PublicUrl;
    use crate::domain::tag::Tag;

    async fn rows(store: &Store, query: &'static str) -> i64 {
        Sql::new(query).number(&store.read).await.unwrap()
    }

    #[tokio::test]
    async fn a_step_deletes_several_links() {
        let (now, public) = (Timestamp::UNIX_EPOCH, PublicUrl::parse("https://s.test").unwrap());
        //  number of links, clicks on each, length of their titles, and the number of links that each step leaves
        let table: [(usize, usize, usize, &[i64]); 5] = [
            (1, 0, 0, &[0]),
            (ROWS_PER_STEP as usize / 5, 0, 0, &[54, 8, 0]),
            // Each has two clicks, a row in each rollup and a tag.
            (40, 2, 0, &[7, 0]),
            // Some of the second one's clicks are left to the next step.
            (3, 300, 0, &[2, 0]),
            (10, 0, 32_000, &[2, 0]),
        ];
        for (links, clicks, title, expected) in table {
            let folder = TempDir::new().unwrap();
            let store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
                .await
                .unwrap();
            let workspace = store.create_workspace("test", now).await.unwrap();
            store.create_label(&workspace, Tag::named("t")).await.unwrap();
            let body = serde_json::json!({
                "url": "https://example.com", "tagNames": ["t"], "title": "t".repeat(title),
            });
            let new: Vec<_> = (0..links)
                .map(|_| NewLink::of(LinkInput::create(&body, "", now).unwrap(), &public))
                .collect();
            let made = store.create_links(&workspace, &new, now, None).await.unwrap();
            let ids: Vec<String> = made.into_iter().map(|link| link.unwrap().id).collect();
            for id in &ids {
                let clicks: Vec<Click> = (0..clicks).map(|_| Click::new(id, now)).collect();
                store.record_clicks(&clicks).await.unwrap();
            }
            let selectors: Vec<_> = ids.into_iter().map(LinkSelector::Id).collect();
            store.delete_links(&workspace, &selectors, now).await.unwrap();
            let mut left = Vec::new();
            while store.delete_rows().await.unwrap() {
                left.push(rows(&store, "SELECT COUNT(*) FROM links").await);
            }
            assert_eq!(left, expected, "{links} links with {clicks} clicks");
            for table in [
                "SELECT COUNT(*) FROM clicks",
                "SELECT COUNT(*) FROM clicks_daily",
                "SELECT COUNT(*) FROM link_tags",
            ] {
                assert_eq!(rows(&store, table).await, 0, "{table}");
            }
        }
    }

    #[tokio::test]
    async fn rows_are_deleted_in_bounded_steps_by_one_process_after_another() {
        const CLICKS: i64 = 5 * ROWS_PER_STEP / 2;
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let mut store = Store::open_or_create(&url).await.unwrap();
        let (now, public) = (Timestamp::UNIX_EPOCH, PublicUrl::parse("https://s.test").unwrap());
        let workspace = store.create_workspace("test", now).await.unwrap();
        store.create_label(&workspace, Tag::named("t")).await.unwrap();
        let body = serde_json::json!({"url": "https://example.com", "tagNames": ["t"]});
        let new = || NewLink::of(LinkInput::create(&body, "", now).unwrap(), &public);
        let made = store.create_links(&workspace, &[new(), new()], now, None).await.unwrap();
        let ids: Vec<String> = made.into_iter().map(|link| link.unwrap().id).collect();
        let clicks: Vec<Click> =
            (0..CLICKS + 3).map(|n| Click::new(&ids[usize::from(n >= CLICKS)], now)).collect();
        store.record_clicks(&clicks).await.unwrap();
        let gone = store.delete_links(&workspace, &[LinkSelector::Id(ids[0].clone())], now).await.unwrap();
        assert_eq!(gone.len(), 1);
        let mut left = CLICKS + 3;
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM clicks").await, left, "none in the request");
        let mut steps = 0;
        while store.delete_rows().await.unwrap() {
            steps += 1;
            let now_left = rows(&store, "SELECT COUNT(*) FROM clicks").await;
            assert!(left - now_left <= ROWS_PER_STEP, "{left} became {now_left}");
            left = now_left;
            store.close().await;
            store = Store::open_or_create(&url).await.unwrap();
        }
        assert_eq!((steps, left), (3, 3));
        for (table, expected) in [
            ("SELECT COUNT(*) FROM links", 1),
            ("SELECT COUNT(*) FROM link_tags", 1),
            ("SELECT COUNT(*) FROM link_totals", 1),
            ("SELECT COUNT(*) FROM clicks_hourly", 1),
            ("SELECT COUNT(*) FROM clicks_daily", 1),
            ("SELECT COUNT(*) FROM deleted_links", 0),
        ] {
            assert_eq!(rows(&store, table).await, expected, "{table}");
        }
    }
}
