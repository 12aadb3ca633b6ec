//! The cursor of each webhook over the clicks of its workspace.
//!
//! A webhook has received an attempt for every click up to its cursor that it hears of. A click has an event and a delivery once that
//! attempt is about to be made. Until then, nothing is written for it, however many webhooks are behind. The cursor of a webhook without
//! `link.clicked` is null.

use jiff::Timestamp;
use sqlx::Row;

use super::attempts::record_attempt;
use super::click_pages::{CLICKS, click};
use super::outbox::{Due, enqueue_to};
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Transaction, links};
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

/// The first attempts that a webhook is to make next.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The numbers of the deliveries.
    pub(super) deliveries: Vec<i64>,
    /// There may be more clicks that were not read.
    pub(super) more: bool,
}

impl Listener {
    /// Locks a webhook. Two processes then take its clicks one after the other. None if it was deleted or hears of no clicks.
    async fn lock(
        transaction: &mut Transaction,
        dialect: Dialect,
        webhook: i64,
    ) -> Result<Option<Self>, StoreError> {
        let mut sql = Sql::new(
            "SELECT h.workspace_seq, h.click_cursor, h.link_scope FROM webhooks h WHERE h.workspace_seq > 0
             AND h.click_cursor IS NOT NULL AND h.seq = ",
        );
        sql.bind(webhook).lock(dialect, " FOR NO KEY UPDATE");
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
        sql.bind(self.workspace_seq)
            .push(" AND c.seq > ")
            .bind(self.cursor)
            .push(" AND c.seq <= ")
            .bind(last);
        sql.push(" AND l.domain <> ''");
        match self.scope.as_str() {
            "workspace" => {}
            "links" => {
                sql.push(
                    " AND EXISTS (SELECT 1 FROM webhook_scopes s WHERE s.id = l.id AND s.webhook_seq = ",
                )
                .bind(self.seq)
                .push(")");
            }
            // A link whose folder was deleted is in no folder.
            "folders" => {
                sql.push(
                    " AND EXISTS (SELECT 1 FROM webhook_scopes s JOIN folders f ON f.id = s.id
                     WHERE s.id = l.folder_id AND f.workspace_seq = c.workspace_seq AND s.webhook_seq = ",
                )
                .bind(self.seq)
                .push(")");
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
        dialect: Dialect,
        clicks: &[i64],
        due: Due,
        public: &PublicUrl,
    ) -> Result<Vec<i64>, StoreError> {
        let loaded = load(transaction, dialect, clicks).await?;
        let events: Vec<(Event, Vec<i64>)> = loaded
            .iter()
            .map(|(click, link)| (Event::of_click(click, link.body(public)), vec![self.seq]))
            .collect();
        enqueue_to(transaction, dialect, self.workspace_seq, &events, due).await
    }
}

/// Clicks and their links.
async fn load(
    transaction: &mut Transaction,
    dialect: Dialect,
    seqs: &[i64],
) -> Result<Vec<(Click, Link)>, StoreError> {
    let mut sql = Sql::new(CLICKS);
    sql.push(" WHERE c.seq").in_numbers(dialect, seqs).push(" ORDER BY c.seq");
    let rows = sql.all(&mut **transaction).await?;
    let of_links = rows.iter().map(|row| row.try_get("link_seq")).collect::<Result<Vec<i64>, _>>()?;
    let links = links::load_map(&mut **transaction, dialect, of_links.iter().copied()).await?;
    let mut loaded = Vec::with_capacity(rows.len());
    for (row, link) in rows.iter().zip(of_links).filter_map(|(row, link)| Some((row, links.get(&link)?))) {
        loaded.push((click(row, link)?, link.clone()));
    }
    Ok(loaded)
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
    ) -> Result<Taken, StoreError> {
        let Some(listener) = Listener::lock(transaction, self.dialect, webhook).await? else {
            return Ok(Taken::default());
        };
        let next = listener.next(transaction).await?;
        let Some((last, _)) = next.last() else { return Ok(Taken::default()) };
        let mut heard = listener.heard(transaction, *last, most + 1).await?;
        let is_whole = heard.len() <= most;
        heard.truncate(most);
        let cursor = if is_whole { *last } else { heard.last().copied().unwrap_or(listener.cursor) };
        listener.move_to(transaction, cursor).await?;
        let due = Due::At(leased_until);
        let deliveries = listener.write(transaction, self.dialect, &heard, due, public).await?;
        Ok(Taken { deliveries, more: is_whole && next.len() as i64 == SCANNED_AT_ONCE })
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
        let listener = Listener::lock(&mut transaction, self.dialect, row.try_get(0)?).await?;
        let Some(listener) = listener else { return Ok(Some(0)) };
        let mut next = listener.next(&mut transaction).await?;
        next.truncate(next.iter().take_while(|(_, at)| *at < before).count());
        let Some((last, _)) = next.last() else { return Ok(Some(0)) };
        let heard = listener.heard(&mut transaction, *last, next.len()).await?;
        if let Some(first) = heard.first() {
            let deliveries =
                listener.write(&mut transaction, self.dialect, &[*first], Due::Never, public).await?;
            let error = format!("{reason}; {} events of clicks were dropped with this one", heard.len() - 1);
            let attempt =
                Attempt { at: now, http_status: None, error: Some(error), response_body: String::new() };
            for delivery in deliveries {
                record_attempt(delivery, &attempt).execute(&mut *transaction).await?;
            }
        }
        listener.move_to(&mut transaction, *last).await?;
        transaction.commit().await?;
        Ok(Some(heard.len()))
    }
}
