//! Recording of clicks: their rows, the totals, rollups and packed clicks, and their webhook events.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
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
use super::{ClickBuffer, Dialect, Progress, Store, StoreError, from_json, link_size, links};
use crate::ids;
use crate::links::PublicUrl;
use crate::webhooks::{Event, Trigger};

/// Maximum number of click events in one statement.
const EVENTS_AT_ONCE: usize = 512;
/// About the most bytes that these events take: a link and a destination may be long.
const EVENT_BYTES_AT_ONCE: usize = 16 * 1024 * 1024;
/// About the most bytes that one transaction writes of webhook events. Clicks with more are recorded in parts.
const EVENT_BYTES_PER_TRANSACTION: usize = 64 * 1024 * 1024;
/// What an event takes besides its link's fields and the destination, in bytes: names, and what is known of the visitor.
const EVENT_BYTES: usize = 4 * 1024;
/// What a delivery takes, in bytes. It refers to its event.
const DELIVERY_BYTES: usize = 128;

/// A visit of a short link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Click {
    /// Sixteen random letters and digits.
    pub id: String,
    /// The id of the link, `link_…`.
    pub link_id: String,
    /// The time, in whole milliseconds.
    pub at: Timestamp,
    /// The visitor, the referer and the destination.
    pub details: ClickDetails,
}

/// The details of a click. The default of unknown fields is `Unknown`, and `(direct)` for the referer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickDetails {
    /// The destination to which the visitor was redirected.
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
    /// What is kept of the visitor's address; empty where that is nothing, or the address is not known.
    pub ip: Cow<'static, str>,
}

/// Borrows the fields that many clicks share, in the order of the table's columns.
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
    /// The details of a click from its parts.
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
    /// A click on `link_id` at `at` by an unknown visitor.
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

/// The numbers of a clicked link and its workspace.
#[derive(Clone, Copy)]
pub(super) struct Clicked {
    pub(super) seq: i64,
    pub(super) workspace_seq: i64,
}

/// A click of a batch, and its link.
pub(super) struct Counted<'a> {
    pub(super) click: &'a Entry<'a>,
    pub(super) link: Clicked,
}

impl Store {
    /// Records clicks in one transaction, with the totals, rollups and webhook events. Clicks on missing links are left
    /// out. Returns the number of recorded clicks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails. Nothing is recorded then.
    pub async fn record_clicks(&self, clicks: &[Click], public: &PublicUrl) -> Result<usize, StoreError> {
        Ok(self.record_batch(&clicks.iter().collect::<ClickBuffer>().batch(), public, None).await?.clicks)
    }

    /// Like [`Self::record_clicks`]. `spooled` is the number of the last spooled batch that `batch` contains. The
    /// transaction marks all batches up to it as recorded.
    pub(crate) async fn record_batch(
        &self,
        batch: &Batch<'_>,
        public: &PublicUrl,
        reached: Option<Progress>,
    ) -> Result<Recorded, StoreError> {
        let mut transaction = self.begin().await?;
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
        let audience = audience(transaction, batch, &clicks).await?;
        let workspaces = clicks.iter().map(|counted| counted.link.workspace_seq).collect();
        let packed = self.lock_packed(transaction, &workspaces).await?;
        insert_clicks(transaction, self.dialect, batch, &clicks).await?;
        for (workspace, packed_until) in packed {
            let of_workspace = clicks.iter().filter(|counted| counted.link.workspace_seq == workspace);
            let late: Vec<(i64, i64)> = of_workspace
                .map(|counted| (counted.click.at, counted.link.seq))
                .filter(|(at, _)| *at < packed_until)
                .collect();
            fold_in(transaction, workspace, packed_until, &late).await?;
        }
        add_to_totals(transaction, self.dialect, &clicks).await?;
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

/// The webhooks that hear of clicks on a link, by workspace and link. Links that no webhook hears of are left out.
type Audience = BTreeMap<i64, FxHashMap<i64, Vec<i64>>>;

/// Finds out who hears of clicks.
///
/// # Errors
/// [`StoreError::TooManyEvents`] if the events are too large for one transaction; a single click's never are.
async fn audience(
    transaction: &mut Transaction<'static, Any>,
    batch: &Batch<'_>,
    clicks: &[Counted<'_>],
) -> Result<Audience, StoreError> {
    let workspaces: BTreeSet<i64> = clicks.iter().map(|counted| counted.link.workspace_seq).collect();
    let (mut audience, mut bytes) = (Audience::new(), 0);
    for workspace in workspaces {
        let webhooks = listeners(transaction, workspace, Trigger::Clicked).await?;
        if webhooks.is_empty() {
            continue;
        }
        let clicks = || clicks.iter().filter(|counted| counted.link.workspace_seq == workspace);
        let links = links::load_map(transaction, clicks().map(|counted| counted.link.seq)).await?;
        // Computed per link instead of per click, because a scope may contain a thousand links.
        let mut receivers = FxHashMap::default();
        let mut sizes = FxHashMap::default();
        for (seq, link) in &links {
            let listening = listening(&webhooks, link);
            if !listening.is_empty() {
                let deliveries = listening.len() * DELIVERY_BYTES;
                sizes.insert(*seq, link_size::bytes(link)? + EVENT_BYTES + deliveries);
                receivers.insert(*seq, listening);
            }
        }
        for Counted { click, link } in clicks() {
            if let Some(size) = sizes.get(&link.seq) {
                bytes += size + at(batch.destinations(), click.destination)?.len();
            }
        }
        audience.insert(workspace, receivers);
    }
    if bytes > EVENT_BYTES_PER_TRANSACTION && clicks.len() > 1 {
        return Err(StoreError::TooManyEvents { bytes });
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
    for (workspace, receivers) in audience {
        let heard = || clicks.iter().filter(|counted| receivers.contains_key(&counted.link.seq));
        // As they are with these clicks.
        let links = links::load_map(transaction, heard().map(|counted| counted.link.seq)).await?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        for Counted { click, link } in heard() {
            let (Some(link), Some(receivers)) = (links.get(&link.seq), receivers.get(&link.seq)) else {
                continue;
            };
            bytes += link_size::bytes(link)? + at(batch.destinations(), click.destination)?.len();
            events.push((Event::of_click(&batch.click(click)?, link, public), receivers.clone()));
            if events.len() == EVENTS_AT_ONCE || bytes >= EVENT_BYTES_AT_ONCE {
                enqueue_to(transaction, dialect, *workspace, &events).await?;
                events.clear();
                bytes = 0;
            }
        }
        enqueue_to(transaction, dialect, *workspace, &events).await?;
    }
    Ok(())
}
