//! Deletion of links. No query finds a deleted link, and its rows are deleted in steps in the background.
//!
//! A deleted link belongs to workspace 0 and is on no domain. Its workspace can therefore use its key and external id again.
//! Queries on clicks leave out the links in `deleted_links`.

use jiff::Timestamp;

use super::links::{LINKS, LinkSelector};
use super::outbox::enqueue;
use super::sql::Sql;
use super::{Store, StoreError, Transaction, Workspace, kept_keys};
use crate::domain::event::{Event, Trigger};
use crate::domain::link::Link;
use crate::domain::public_url::PublicUrl;

/// Appends the condition that a row `c` of clicks, or of a rollup, does not belong to a deleted link.
pub(super) fn push_not_deleted(sql: &mut Sql, workspace: &Workspace) {
    sql.push(" AND c.link_seq NOT IN (SELECT dl.link_seq FROM deleted_links dl WHERE dl.workspace_seq = ");
    sql.bind(workspace.seq).push(")");
}

/// Moves links to workspace 0 and off their domains. They must be locked.
async fn put_out_of_reach(
    transaction: &mut Transaction,
    links: &[i64],
    now: Timestamp,
) -> Result<(), StoreError> {
    if links.is_empty() {
        return Ok(());
    }
    kept_keys::keep_of(transaction, links, now).await?;
    let mut sql = Sql::new(
        "INSERT INTO deleted_links (link_seq, workspace_seq) SELECT l.seq, l.workspace_seq FROM links l WHERE l.seq",
    );
    sql.in_numbers(links);
    sql.execute(&mut **transaction).await?;
    let mut sql = Sql::new(
        "UPDATE links SET workspace_seq = 0, domain = '', key_folded = id, external_id = NULL WHERE seq",
    );
    sql.in_numbers(links);
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
        enqueue(&mut transaction, workspace.seq, &link, event).await?;
        put_out_of_reach(&mut transaction, &[link.seq], now).await?;
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
        let mut transaction = self.begin().await?;
        let links = self.lock_links(&mut transaction, workspace, selectors).await?;
        let seqs: Vec<i64> = links.iter().map(|link| link.seq).collect();
        put_out_of_reach(&mut transaction, &seqs, now).await?;
        transaction.commit().await?;
        Ok(links)
    }
}
