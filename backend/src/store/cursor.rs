//! The cursor of each webhook over the clicks of its workspace.
//!
//! A webhook has received an attempt for every click up to its cursor that it hears of. A click has an event and a delivery once that
//! attempt is about to be made. Until then, nothing is written for it, however many webhooks are behind. The cursor of a webhook without
//! `link.clicked` is null.

use jiff::Timestamp;
use sqlx::Row;

use super::click_pages::{ClicksAndLinks, load_clicks};
use super::delivery_log::record_attempt;
use super::outbox::{Leased, enqueue_to};
use super::sql::Sql;
use super::{Store, StoreError, Transaction};
use crate::domain::click::Click;
use crate::domain::delivery::Attempt;
use crate::domain::event::Event;
use crate::domain::link::Link;
use crate::domain::public_url::PublicUrl;

/// Maximum number of clicks that a step reads to find those that a webhook hears of.
const SCANNED_AT_ONCE: i64 = 1_000;

/// A webhook that hears of clicks, whose row is locked.
struct Listener {
    seq: i64,
    workspace_seq: i64,
    cursor: i64,
    scope: String,
}

impl Listener {
    /// Locks a webhook. Two processes then take its clicks one after the other. None if it was deleted or hears of no clicks.
    async fn lock(transaction: &mut Transaction, webhook: i64) -> Result<Option<Self>, StoreError> {
        let mut sql = Sql::new(
            "SELECT h.workspace_seq, h.click_cursor, h.link_scope FROM webhooks h WHERE h.workspace_seq > 0
             AND h.click_cursor IS NOT NULL AND h.seq = ",
        );
        sql.bind(webhook).lock(" FOR NO KEY UPDATE");
        let Some(row) = sql.optional(&mut **transaction).await? else { return Ok(None) };
        Ok(Some(Self {
            seq: webhook,
            workspace_seq: row.try_get("workspace_seq")?,
            cursor: row.try_get("click_cursor")?,
            scope: row.try_get("link_scope")?,
        }))
    }

    /// The numbers and the times of the next clicks of the workspace.
    async fn next(&self, transaction: &mut Transaction) -> Result<Vec<(i64, i64)>, StoreError> {
        let mut sql = Sql::new("SELECT c.seq, c.at FROM clicks c WHERE c.workspace_seq = ");
        sql.bind(self.workspace_seq).push(" AND c.seq > ").bind(self.cursor);
        sql.push(" ORDER BY c.seq LIMIT ").bind(SCANNED_AT_ONCE);
        let rows = sql.all(&mut **transaction).await?;
        rows.iter().map(|row| Ok((row.try_get("seq")?, row.try_get("at")?))).collect()
    }

    /// The numbers of the first clicks after the cursor and up to one that the webhook hears of, at most `most`. Clicks on deleted links are left out.
    async fn heard(
        &self,
        transaction: &mut Transaction,
        last: i64,
        most: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let mut sql = Sql::new(
            "SELECT c.seq FROM clicks c JOIN links l ON l.seq = c.link_seq WHERE c.workspace_seq = ",
        );
        sql.bind(self.workspace_seq).push(" AND c.seq > ").bind(self.cursor);
        sql.push(" AND c.seq <= ").bind(last).push(" AND l.domain <> ''");
        match self.scope.as_str() {
            "workspace" => {}
            "links" => {
                sql.push(
                    " AND EXISTS (SELECT 1 FROM webhook_scopes s WHERE s.id = l.id AND s.webhook_seq = ",
                );
                sql.bind(self.seq).push(")");
            }
            // A link whose folder was deleted is in no folder.
            "folders" => {
                sql.push(
                    " AND EXISTS (SELECT 1 FROM webhook_scopes s JOIN folders f ON f.id = s.id
                     WHERE s.id = l.folder_id AND f.workspace_seq = c.workspace_seq AND s.webhook_seq = ",
                );
                sql.bind(self.seq).push(")");
            }
            other => return Err(StoreError::corrupt("webhook scope", &other)),
        }
        sql.push(" ORDER BY c.seq LIMIT ").bind(i64::try_from(most).unwrap_or(i64::MAX));
        let rows = sql.all(&mut **transaction).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn move_to(&self, transaction: &mut Transaction, cursor: i64) -> Result<(), StoreError> {
        let mut sql = Sql::new("UPDATE webhooks SET click_cursor = ");
        sql.bind(cursor).push(" WHERE seq = ").bind(self.seq);
        sql.execute(&mut **transaction).await?;
        Ok(())
    }

    /// Writes the events of clicks, each with a delivery that is due at `due`, or never. Returns the numbers of the deliveries.
    async fn write(
        &self,
        transaction: &mut Transaction,
        clicks: &[i64],
        due: Option<Timestamp>,
        public: &PublicUrl,
    ) -> Result<Vec<i64>, StoreError> {
        let ClicksAndLinks { clicks, links } = load_clicks(&mut **transaction, clicks).await?;
        let clicks = clicks.iter().filter_map(|(click, link)| Some((click, links.get(link)?)));
        let event =
            |(click, link): (&Click, &Link)| (Event::of_click(click, link.body(public)), vec![self.seq]);
        let events: Vec<(Event, Vec<i64>)> = clicks.map(event).collect();
        enqueue_to(transaction, self.workspace_seq, &events, due).await
    }
}

impl Store {
    /// Writes up to `most` of the next events of clicks that a webhook hears of, with a delivery that this process has until `leased_until`.
    pub(super) async fn take_clicks(
        &self,
        transaction: &mut Transaction,
        webhook: i64,
        most: usize,
        leased_until: Timestamp,
        public: &PublicUrl,
    ) -> Result<Leased, StoreError> {
        let Some(listener) = Listener::lock(transaction, webhook).await? else {
            return Ok(Leased::default());
        };
        let next = listener.next(transaction).await?;
        let Some((last, _)) = next.last() else { return Ok(Leased::default()) };
        let mut heard = listener.heard(transaction, *last, most + 1).await?;
        let is_whole = heard.len() <= most;
        heard.truncate(most);
        let cursor = if is_whole { *last } else { heard.last().copied().unwrap_or(listener.cursor) };
        listener.move_to(transaction, cursor).await?;
        let due = Some(leased_until);
        let deliveries = listener.write(transaction, &heard, due, public).await?;
        Ok(Leased { deliveries, more: is_whole && next.len() as i64 == SCANNED_AT_ONCE })
    }

    /// Drops some of the clicks before an instant whose delivery to a webhook was never attempted. The first of them gets a failed
    /// delivery, which says how many were dropped. Returns how many, or None if there were none.
    pub(crate) async fn drop_unattempted_clicks(
        &self,
        before: Timestamp,
        reason: &str,
        public: &PublicUrl,
        now: Timestamp,
    ) -> Result<Option<usize>, StoreError> {
        let before = before.as_millisecond();
        let mut sql = Sql::new(
            "SELECT h.seq FROM webhooks h WHERE h.workspace_seq > 0 AND (SELECT c.at FROM clicks c
             WHERE c.workspace_seq = h.workspace_seq AND c.seq > h.click_cursor ORDER BY c.seq LIMIT 1) < ",
        );
        sql.bind(before).push(" ORDER BY h.seq LIMIT 1");
        let Some(row) = sql.optional(&self.read).await? else { return Ok(None) };
        let mut transaction = self.begin().await?;
        let listener = Listener::lock(&mut transaction, row.try_get(0)?).await?;
        let Some(listener) = listener else { return Ok(Some(0)) };
        let mut next = listener.next(&mut transaction).await?;
        next.truncate(next.iter().take_while(|(_, at)| *at < before).count());
        let Some((last, _)) = next.last() else { return Ok(Some(0)) };
        let heard = listener.heard(&mut transaction, *last, next.len()).await?;
        if let Some(first) = heard.first() {
            let deliveries = listener.write(&mut transaction, &[*first], None, public).await?;
            let error = format!("{reason}; {} events of clicks were dropped with this one", heard.len() - 1);
            let attempt = Attempt::failed(now, error);
            for delivery in deliveries {
                record_attempt(delivery, &attempt).execute(&mut *transaction).await?;
            }
        }
        listener.move_to(&mut transaction, *last).await?;
        transaction.commit().await?;
        Ok(Some(heard.len()))
    }
}
