//! Recording of clicks: their rows, the totals and rollups, and their webhook events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustc_hash::FxHashMap;
use sqlx::{Any, Row, Transaction};
use tokio::time::Instant;

use super::click_batch::{Batch, at};
use super::click_rows::{Clicked, Counted, Rollup, add_to_rollup, add_to_totals, insert_clicks};
use super::listeners::Listeners;
use super::outbox::enqueue_to;
use super::sql::Sql;
use super::{Click, ClickBuffer, Dialect, Progress, Store, StoreError, from_json, link_size, links};
use crate::links::{Link, PublicUrl};
use crate::webhooks::{Event, LinkSnapshot, Trigger};

/// About the most bytes that one transaction writes of webhook events. Clicks with more are recorded in parts. SQLite has one
/// writer, and the writes of all workspaces wait while it is busy. PostgreSQL takes less time for few large transactions.
const fn event_bytes_per_transaction(dialect: Dialect) -> usize {
    match dialect {
        Dialect::Sqlite => 256 * 1024,
        Dialect::Postgres => 1024 * 1024,
    }
}

/// What an event takes besides the destination, in bytes: names, and what is known of the visitor.
const EVENT_BYTES: usize = 4 * 1024;
/// What a delivery counts for, in bytes: its row and its entries in three indexes take about as long to write.
const DELIVERY_BYTES: usize = 1024;

/// What the transaction that recorded a batch has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    /// Clicks on links that exist.
    pub(crate) clicks: usize,
    /// How long others could not write, where the database has one writer.
    pub(crate) took: Duration,
}

impl Store {
    /// Records clicks, with the totals, rollups and webhook events. Clicks on missing links are left out. Clicks with many events
    /// are recorded in several transactions. Returns the number of recorded clicks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails. The clicks of earlier transactions are recorded then.
    pub async fn record_clicks(&self, clicks: &[Click], public: &PublicUrl) -> Result<usize, StoreError> {
        let buffer: ClickBuffer = clicks.iter().collect();
        let (mut left, mut recorded) = (vec![buffer.batch()], 0);
        while let Some(batch) = left.pop() {
            match self.record_batch(&batch, public, None).await {
                Ok(done) => recorded += done.clicks,
                Err(refusal @ StoreError::TooManyEvents { .. }) => {
                    let (first, second) = batch.halves()?.ok_or(refusal)?;
                    left.extend([second, first]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(recorded)
    }

    /// Records a batch in one transaction. `reached` is how far the spool is recorded with it, which the transaction writes down.
    ///
    /// # Errors
    /// [`StoreError::TooManyEvents`] if it has too many for one transaction, and others if the database fails. Nothing is
    /// recorded then.
    pub(crate) async fn record_batch(
        &self,
        batch: &Batch<'_>,
        public: &PublicUrl,
        reached: Option<Progress>,
    ) -> Result<Recorded, StoreError> {
        let turn = self.turn().await;
        let mut transaction = self.begin_in(turn.as_ref()).await?;
        let began = Instant::now();
        let clicks = self.record_within(&mut transaction, batch, public).await?;
        self.commit_recorded(transaction, reached).await?;
        Ok(Recorded { clicks, took: began.elapsed() })
    }

    /// Writes down how far the spool is recorded and commits. If that was written before, the transaction is one that was
    /// committed without this process hearing of it, and is not committed again.
    pub(super) async fn commit_recorded(
        &self,
        mut transaction: Transaction<'static, Any>,
        reached: Option<Progress>,
    ) -> Result<(), StoreError> {
        if let Some(reached) = reached
            && !self.mark_recorded(&mut transaction, reached).await?
        {
            return Ok(());
        }
        Ok(transaction.commit().await?)
    }

    /// Records clicks within a transaction. Returns how many were recorded.
    pub(super) async fn record_within(
        &self,
        transaction: &mut Transaction<'static, Any>,
        batch: &Batch<'_>,
        public: &PublicUrl,
    ) -> Result<usize, StoreError> {
        let links = self.lock_clicked(transaction, batch.links()).await?;
        let mut clicks = Vec::with_capacity(batch.len());
        for click in batch.clicks() {
            if let Some(link) = links.get(*at(batch.links(), click.link)?) {
                clicks.push(Counted { click, link: *link });
            }
        }
        // First, so that the events have the totals with these clicks.
        add_to_totals(transaction, self.dialect, &clicks).await?;
        let audience = audience(transaction, self.dialect, batch, &clicks).await?;
        insert_clicks(transaction, self.dialect, batch, &clicks).await?;
        add_to_rollup(transaction, self.dialect, &clicks, Rollup::Hourly).await?;
        add_to_rollup(transaction, self.dialect, &clicks, Rollup::Daily).await?;
        announce(transaction, self.dialect, batch, &clicks, &audience, public).await?;
        Ok(clicks.len())
    }

    /// The clicked links by id, locked against deletion until the transaction ends.
    async fn lock_clicked(
        &self,
        transaction: &mut Transaction<'static, Any>,
        ids: &[&str],
    ) -> Result<FxHashMap<String, Clicked>, StoreError> {
        // One row with all links, because reading many rows takes longer than finding them.
        let mut sql = Sql::new(match self.dialect {
            Dialect::Sqlite => {
                "SELECT json_group_array(json_array(l.id, l.seq, l.workspace_seq)) FROM links l WHERE l.id IN "
            }
            Dialect::Postgres => {
                "SELECT CAST(COALESCE(json_agg(json_build_array(c.id, c.seq, c.workspace_seq)), '[]') AS TEXT)
                 FROM (SELECT l.id, l.seq, l.workspace_seq FROM links l WHERE l.id IN "
            }
        });
        sql.texts(self.dialect, ids);
        // Deleted links have no domain.
        sql.push(" AND l.domain <> ''");
        if self.dialect == Dialect::Postgres {
            sql.push(" ORDER BY l.seq FOR KEY SHARE) c");
        }
        let found: String = sql.one(&mut **transaction).await?.try_get(0)?;
        let found: Vec<(String, i64, i64)> = from_json("links", &found)?;
        Ok(found.into_iter().map(|(id, seq, workspace_seq)| (id, Clicked { seq, workspace_seq })).collect())
    }
}

/// A link and the webhooks that hear of its clicks.
struct Heard {
    link: Link,
    receivers: Vec<i64>,
}

/// The links whose clicks webhooks hear of, by workspace and number.
type Audience = BTreeMap<i64, FxHashMap<i64, Heard>>;

/// Finds the links whose clicks webhooks receive. It loads no link if the events are too large.
///
/// # Errors
/// [`StoreError::TooManyEvents`] if the events are too large for one transaction; a single click's never are.
async fn audience(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    batch: &Batch<'_>,
    clicks: &[Counted<'_>],
) -> Result<Audience, StoreError> {
    let mut links: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for Counted { link, .. } in clicks {
        links.entry(link.workspace_seq).or_default().insert(link.seq);
    }
    let (mut receivers, mut bytes, mut largest) = (BTreeMap::new(), 0, (0, 0));
    for (workspace, links) in links {
        let listeners = Listeners::find(transaction, dialect, workspace, Trigger::Clicked).await?;
        if listeners.is_empty() {
            continue;
        }
        let links: Vec<i64> = links.into_iter().collect();
        let heard = listeners.of_links(transaction, dialect, &links).await?;
        if heard.is_empty() {
            continue;
        }
        let heard_links: Vec<i64> = heard.keys().copied().collect();
        let mut of_workspace = link_size::sum(transaction, dialect, &heard_links).await?;
        for Counted { click, link } in clicks {
            if let Some(webhooks) = heard.get(&link.seq) {
                let destination = at(batch.destinations(), click.destination)?;
                of_workspace += EVENT_BYTES + destination.len() + webhooks.len() * DELIVERY_BYTES;
            }
        }
        bytes += of_workspace;
        largest = largest.max((of_workspace, workspace));
        receivers.insert(workspace, heard);
    }
    if bytes > event_bytes_per_transaction(dialect) && clicks.len() > 1 {
        let (most, workspace) = largest;
        return Err(StoreError::TooManyEvents { bytes, mostly_of: (most > bytes / 4).then_some(workspace) });
    }
    let mut audience = Audience::new();
    for (workspace, mut receivers) in receivers {
        let links = links::load_map(&mut **transaction, dialect, receivers.keys().copied()).await?;
        let heard = |(seq, link)| Some((seq, Heard { link, receivers: receivers.remove(&seq)? }));
        audience.insert(workspace, links.into_iter().filter_map(heard).collect());
    }
    Ok(audience)
}

/// Writes a `link.clicked` event for each click that a webhook receives.
async fn announce(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    batch: &Batch<'_>,
    clicks: &[Counted<'_>],
    audience: &Audience,
    public: &PublicUrl,
) -> Result<(), StoreError> {
    for (workspace, heard) in audience {
        let snapshots: FxHashMap<_, _> =
            heard.iter().map(|(seq, heard)| (*seq, (LinkSnapshot::of(&heard.link, public), heard))).collect();
        let mut events = Vec::new();
        for Counted { click, link } in clicks {
            if let Some((snapshot, heard)) = snapshots.get(&link.seq) {
                events.push((Event::of_click(&batch.click(click)?, snapshot), heard.receivers.clone()));
            }
        }
        enqueue_to(transaction, dialect, *workspace, &events).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::super::{NewLink, NewWebhook};
    use super::*;
    use crate::domain::change::Change;
    use crate::links::input::LinkInput;
    use crate::webhooks::{ScopeInput, ScopeKind};

    #[tokio::test]
    async fn no_link_is_loaded_for_events_that_are_too_large() {
        const CLICKS: usize = 100;
        let folder = TempDir::new().unwrap();
        let store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
            .await
            .unwrap();
        let (now, public) = (Timestamp::UNIX_EPOCH, PublicUrl::parse("https://s.test").unwrap());
        let workspace = store.create_workspace("test", now).await.unwrap();
        let body =
            serde_json::json!({"url": "https://example.com?utm_source=s", "title": "t", "externalId": "e"});
        let new = NewLink::of(LinkInput::create(&body, "", now).unwrap(), &public);
        let link = store.create_links(&workspace, &[new], now, None, None).await.unwrap().remove(0).unwrap();
        let webhook = NewWebhook {
            name: "rx".to_owned(),
            url: "https://rx.test/".to_owned(),
            secret: None,
            triggers: vec![Trigger::Clicked],
            scope: ScopeInput {
                kind: Change::Set(ScopeKind::Links),
                link_ids: Change::Set(vec![link.id.clone()]),
                folder_ids: Change::Keep,
            },
        };
        store.create_webhook(&workspace, &webhook, 1, now, None).await.unwrap().unwrap();
        let clicks: Vec<Click> = (0..CLICKS).map(|_| Click::new(&link.id, now)).collect();
        let buffer: ClickBuffer = clicks.iter().collect();
        let expected = link_size::bytes(&link).unwrap() + CLICKS * (EVENT_BYTES + DELIVERY_BYTES);
        // A link that cannot be read.
        let mut sql = Sql::new("UPDATE links SET details = replace(details, '{', '[')");
        sql.execute(&store.write).await.unwrap();
        match store.record_batch(&buffer.batch(), &public, None).await {
            Err(StoreError::TooManyEvents { bytes, mostly_of }) => {
                assert_eq!((bytes, mostly_of), (expected, Some(workspace.seq)));
            }
            other => panic!("{other:?}"),
        }
        sql = Sql::new("UPDATE links SET details = replace(details, '[', '{')");
        sql.execute(&store.write).await.unwrap();
        assert_eq!(store.record_clicks(&clicks, &public).await.unwrap(), CLICKS);
    }
}
