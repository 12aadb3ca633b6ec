//! Recording clicks: the rows, the totals and rollups that follow from them, and the webhook events they cause.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use sqlx::{Any, Row, Transaction};
use tokio::time::Instant;

use super::click_batch::{Batch, Entry, Visitor, at};
use super::click_rows::{Rollup, add_to_rollup, add_to_totals, insert_clicks};
use super::outbox::{enqueue_to, listening};
use super::packed::fold_in;
use super::sql::Sql;
use super::webhooks::listeners;
use super::{Dialect, Store, StoreError, from_json, link_size, links};
use crate::ids;
use crate::links::PublicUrl;
use crate::webhooks::{Event, Trigger};

/// Events of clicks that are put together before they are written.
const EVENTS_AT_ONCE: usize = 512;
/// About the most bytes that these events take: a link and a destination may be long.
const EVENT_BYTES_AT_ONCE: usize = 16 * 1024 * 1024;

/// One visit of a short link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Click {
    /// Sixteen random letters and digits.
    pub id: String,
    /// The id of the link, `link_…`.
    pub link_id: String,
    /// When it happened, in whole milliseconds.
    pub at: Timestamp,
    /// Who clicked, and how.
    pub details: ClickDetails,
}

/// What is known of a visitor. `Unknown` where nothing is, `(direct)` where there is no referer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickDetails {
    /// The destination that the visitor was sent to.
    pub url: Cow<'static, str>,
    /// `AF`, `AN`, `AS`, `EU`, `NA`, `OC` or `SA`.
    pub continent: Cow<'static, str>,
    /// ISO 3166 code.
    pub country: Cow<'static, str>,
    /// ISO 3166-2 code.
    pub region: Cow<'static, str>,
    /// Name of the city.
    pub city: Cow<'static, str>,
    /// `Desktop`, `Mobile`, `Tablet` …
    pub device: Cow<'static, str>,
    /// Name of the browser.
    pub browser: Cow<'static, str>,
    /// Name of the operating system.
    pub os: Cow<'static, str>,
    /// The `User-Agent` header.
    pub user_agent: Cow<'static, str>,
    /// `link` or `qr`.
    pub trigger: Cow<'static, str>,
    /// Host of the referer.
    pub referer: Cow<'static, str>,
    /// The whole referer.
    pub referer_url: Cow<'static, str>,
    /// Address of the visitor; empty where it is not known.
    pub ip: Cow<'static, str>,
}

/// The fields that many clicks have in common, each borrowed, in the order of the table's columns.
macro_rules! visitor_of {
    ($details:ident, $($borrow:tt)+) => {
        [
            $($borrow)+ $details.continent,
            $($borrow)+ $details.country,
            $($borrow)+ $details.region,
            $($borrow)+ $details.city,
            $($borrow)+ $details.device,
            $($borrow)+ $details.browser,
            $($borrow)+ $details.os,
            $($borrow)+ $details.user_agent,
            $($borrow)+ $details.trigger,
            $($borrow)+ $details.referer,
            $($borrow)+ $details.referer_url,
        ]
    };
}

impl ClickDetails {
    /// Those of a visitor on the way to a destination.
    pub(super) fn of(visitor: &Visitor<'_>, url: &str, ip: &str) -> Self {
        let owned = |text: &str| Cow::Owned(text.to_owned());
        let mut details = Self { url: owned(url), ip: owned(ip), ..Self::default() };
        for (field, text) in visitor_of!(details, &mut).into_iter().zip(visitor) {
            *field = owned(text);
        }
        details
    }

    pub(super) fn visitor(&self) -> Visitor<'_> {
        visitor_of!(self, &)
    }
}

impl Default for ClickDetails {
    fn default() -> Self {
        let unknown = Cow::Borrowed("Unknown");
        let direct = Cow::Borrowed("(direct)");
        Self {
            url: Cow::default(),
            continent: unknown.clone(),
            country: unknown.clone(),
            region: unknown.clone(),
            city: unknown.clone(),
            device: unknown.clone(),
            browser: unknown.clone(),
            os: unknown,
            user_agent: Cow::default(),
            trigger: Cow::Borrowed("link"),
            referer: direct.clone(),
            referer_url: direct,
            ip: Cow::default(),
        }
    }
}

impl Click {
    /// A click on `link_id` at `at` by a visitor of whom nothing is known.
    #[must_use]
    pub fn new(link_id: impl Into<String>, at: Timestamp) -> Self {
        Self { id: ids::alphanumeric(16), link_id: link_id.into(), at, details: ClickDetails::default() }
    }
}

/// What the transaction that recorded a batch has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    /// Clicks on links that exist.
    pub(crate) clicks: usize,
    /// How long others could not write, where the database has one writer.
    pub(crate) took: Duration,
}

/// A link as far as clicks on it need to know it.
#[derive(Clone, Copy)]
pub(super) struct Clicked {
    pub(super) seq: i64,
    pub(super) workspace_seq: i64,
}

/// A click of a batch whose link exists.
pub(super) struct Counted<'a> {
    pub(super) click: &'a Entry<'a>,
    pub(super) link: Clicked,
}

impl Store {
    /// Records clicks, with all that follows from them, in one transaction. Clicks on links that do not exist (any
    /// more) are left out. Returns how many were recorded.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails; then nothing is recorded.
    pub async fn record_clicks(&self, clicks: &[Click], public: &PublicUrl) -> Result<usize, StoreError> {
        Ok(self.record_batch(&Batch::of(clicks), public, None).await?.clicks)
    }

    /// As [`Self::record_clicks`]. If the clicks were spooled, `spooled` is the number of the last batch of theirs, and
    /// all up to that one are done with.
    pub(crate) async fn record_batch(
        &self,
        batch: &Batch<'_>,
        public: &PublicUrl,
        spooled: Option<i64>,
    ) -> Result<Recorded, StoreError> {
        let mut transaction = self.begin().await?;
        let began = Instant::now();
        let links = self.lock_clicked(&mut transaction, batch.links()).await?;
        let mut clicks = Vec::with_capacity(batch.len());
        for click in batch.clicks() {
            if let Some(link) = links.get(*at(batch.links(), click.link)?) {
                clicks.push(Counted { click, link: *link });
            }
        }
        let workspaces = clicks.iter().map(|counted| counted.link.workspace_seq).collect();
        let packed = self.lock_packed(&mut transaction, &workspaces).await?;
        insert_clicks(&mut transaction, self.dialect, batch, &clicks).await?;
        for (workspace, packed_until) in packed {
            let of_workspace = clicks.iter().filter(|counted| counted.link.workspace_seq == workspace);
            let late: Vec<(i64, i64)> = of_workspace
                .map(|counted| (counted.click.at, counted.link.seq))
                .filter(|(at, _)| *at < packed_until)
                .collect();
            fold_in(&mut transaction, workspace, packed_until, &late).await?;
        }
        add_to_totals(&mut transaction, self.dialect, &clicks).await?;
        add_to_rollup(&mut transaction, self.dialect, &clicks, Rollup::Hourly).await?;
        add_to_rollup(&mut transaction, self.dialect, &clicks, Rollup::Daily).await?;
        announce(&mut transaction, self.dialect, batch, &clicks, public).await?;
        if let Some(number) = spooled
            && !self.mark_recorded(&mut transaction, number).await?
        {
            return Ok(Recorded { clicks: clicks.len(), took: began.elapsed() });
        }
        transaction.commit().await?;
        Ok(Recorded { clicks: clicks.len(), took: began.elapsed() })
    }

    /// The links clicked, by id, protected from deletion until the transaction ends.
    async fn lock_clicked(
        &self,
        transaction: &mut Transaction<'static, Any>,
        ids: &[&str],
    ) -> Result<FxHashMap<String, Clicked>, StoreError> {
        // All in one row: many rows take longer to hand over than to find.
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
        // Deleted ones are on no domain.
        sql.push(" AND l.domain <> ''");
        if self.dialect == Dialect::Postgres {
            sql.push(" ORDER BY l.seq FOR KEY SHARE) c");
        }
        let found: String = sql.one(&mut **transaction).await?.try_get(0)?;
        let found: Vec<(String, i64, i64)> = from_json("links", &found)?;
        Ok(found.into_iter().map(|(id, seq, workspace_seq)| (id, Clicked { seq, workspace_seq })).collect())
    }
}

/// Writes a `link.clicked` event for each click that some webhook listens to.
async fn announce(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    batch: &Batch<'_>,
    clicks: &[Counted<'_>],
    public: &PublicUrl,
) -> Result<(), StoreError> {
    let workspaces: BTreeSet<i64> = clicks.iter().map(|counted| counted.link.workspace_seq).collect();
    for workspace in workspaces {
        let webhooks = listeners(transaction, workspace, Trigger::Clicked).await?;
        if webhooks.is_empty() {
            continue;
        }
        let clicks: Vec<_> =
            clicks.iter().filter(|counted| counted.link.workspace_seq == workspace).collect();
        let links = links::load_map(transaction, clicks.iter().map(|counted| counted.link.seq)).await?;
        // By link and not by click: a webhook may name a thousand links.
        let receivers: FxHashMap<i64, Vec<i64>> =
            links.iter().map(|(seq, link)| (*seq, listening(&webhooks, link))).collect();
        let (mut events, mut bytes) = (Vec::new(), 0);
        for Counted { click, link } in clicks {
            let (Some(link), Some(receivers)) = (links.get(&link.seq), receivers.get(&link.seq)) else {
                continue;
            };
            if receivers.is_empty() {
                continue;
            }
            bytes += link_size::bytes(link)? + at(batch.destinations(), click.destination)?.len();
            events.push((Event::of_click(&batch.click(click)?, link, public), receivers.clone()));
            if events.len() == EVENTS_AT_ONCE || bytes >= EVENT_BYTES_AT_ONCE {
                enqueue_to(transaction, dialect, workspace, &events).await?;
                events.clear();
                bytes = 0;
            }
        }
        enqueue_to(transaction, dialect, workspace, &events).await?;
    }
    Ok(())
}
