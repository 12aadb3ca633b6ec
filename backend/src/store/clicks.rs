//! Recording clicks: the rows, the totals and rollups that follow from them, and the webhook events they cause.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use sqlx::{Any, Row, Transaction};

use super::outbox::enqueue_to;
use super::packed::{DAY, HOUR, fold_in, start_of};
use super::sql::{Sql, runs};
use super::webhooks::listeners;
use super::{Dialect, Store, StoreError, links};
use crate::ids;
use crate::links::PublicUrl;
use crate::webhooks::{Event, Trigger};

/// Rows written by one statement at most. A click has 17 values, and SQLite takes at most 32,766 in a statement.
const ROWS_PER_STATEMENT: usize = 512;

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
    pub url: String,
    /// `AF`, `AN`, `AS`, `EU`, `NA`, `OC` or `SA`.
    pub continent: String,
    /// ISO 3166 code.
    pub country: String,
    /// ISO 3166-2 code.
    pub region: String,
    /// Name of the city.
    pub city: String,
    /// `Desktop`, `Mobile`, `Tablet` …
    pub device: String,
    /// Name of the browser.
    pub browser: String,
    /// Name of the operating system.
    pub os: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// `link` or `qr`.
    pub trigger: String,
    /// Host of the referer.
    pub referer: String,
    /// The whole referer.
    pub referer_url: String,
    /// Address of the visitor; empty where it is not known.
    pub ip: String,
}

impl Default for ClickDetails {
    fn default() -> Self {
        let unknown = || "Unknown".to_owned();
        let direct = || "(direct)".to_owned();
        Self {
            url: String::new(),
            continent: unknown(),
            country: unknown(),
            region: unknown(),
            city: unknown(),
            device: unknown(),
            browser: unknown(),
            os: unknown(),
            user_agent: String::new(),
            trigger: "link".to_owned(),
            referer: direct(),
            referer_url: direct(),
            ip: String::new(),
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

/// A link as far as clicks on it need to know it.
struct Clicked {
    seq: i64,
    workspace_seq: i64,
}

impl Store {
    /// Records clicks, with all that follows from them, in one transaction. Clicks on links that do not exist (any
    /// more) are left out. Returns how many were recorded.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails; then nothing is recorded.
    pub async fn record_clicks(&self, clicks: &[Click], public: &PublicUrl) -> Result<usize, StoreError> {
        let mut transaction = self.begin().await?;
        let links = self.lock_clicked(&mut transaction, clicks).await?;
        let clicks: Vec<(&Click, &Clicked)> =
            clicks.iter().filter_map(|click| Some((click, links.get(&click.link_id)?))).collect();
        let workspaces = clicks.iter().map(|(_, link)| link.workspace_seq).collect();
        let packed = self.lock_packed(&mut transaction, &workspaces).await?;
        for chunk in runs(&clicks, ROWS_PER_STATEMENT) {
            insert_clicks(&mut transaction, self.dialect, chunk).await?;
        }
        for (workspace, packed_until) in packed {
            let of_workspace = clicks.iter().filter(|(_, link)| link.workspace_seq == workspace);
            let late: Vec<(i64, i64)> = of_workspace
                .map(|(click, link)| (click.at.as_millisecond(), link.seq))
                .filter(|(at, _)| *at < packed_until)
                .collect();
            fold_in(&mut transaction, workspace, packed_until, &late).await?;
        }
        add_to_totals(&mut transaction, self.dialect, &clicks).await?;
        add_to_rollup(&mut transaction, self.dialect, &clicks, Rollup::Hourly).await?;
        add_to_rollup(&mut transaction, self.dialect, &clicks, Rollup::Daily).await?;
        announce(&mut transaction, &clicks, public).await?;
        transaction.commit().await?;
        Ok(clicks.len())
    }

    /// The links clicked, by id, protected from deletion until the transaction ends.
    async fn lock_clicked(
        &self,
        transaction: &mut Transaction<'static, Any>,
        clicks: &[Click],
    ) -> Result<HashMap<String, Clicked>, StoreError> {
        let ids: Vec<&str> =
            clicks.iter().map(|click| click.link_id.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
        let mut sql = Sql::new("SELECT l.id, l.seq, l.workspace_seq FROM links l WHERE l.id IN ");
        sql.texts(self.dialect, &ids).push(" ORDER BY l.seq");
        if self.dialect == Dialect::Postgres {
            sql.push(" FOR KEY SHARE");
        }
        let mut links = HashMap::with_capacity(ids.len());
        for row in sql.all(&mut **transaction).await? {
            let clicked = Clicked { seq: row.try_get("seq")?, workspace_seq: row.try_get("workspace_seq")? };
            links.insert(row.try_get("id")?, clicked);
        }
        Ok(links)
    }
}

async fn insert_clicks(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    clicks: &[(&Click, &Clicked)],
) -> Result<(), StoreError> {
    let mut sql = Sql::with_many(
        "INSERT INTO clicks (id, workspace_seq, link_seq, at, url, continent, country, region, city, device, browser,
         os, user_agent, trigger, referer, referer_url, ip) VALUES ",
        dialect,
    );
    sql.rows(clicks, |row, (click, link)| {
        let details = click.details.clone();
        row.bind(click.id.clone()).bind(link.workspace_seq).bind(link.seq).bind(click.at.as_millisecond());
        row.bind(details.url)
            .bind(details.continent)
            .bind(details.country)
            .bind(details.region)
            .bind(details.city);
        row.bind(details.device).bind(details.browser).bind(details.os).bind(details.user_agent);
        row.bind(details.trigger).bind(details.referer).bind(details.referer_url).bind(details.ip);
    });
    sql.execute(&mut **transaction).await?;
    Ok(())
}

// The rows of these statements are sorted, so that two processes that count the same links wait for each other instead
// of deadlocking.

async fn add_to_totals(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    clicks: &[(&Click, &Clicked)],
) -> Result<(), StoreError> {
    let mut totals: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (click, link) in clicks {
        let at = click.at.as_millisecond();
        let (count, last) = totals.entry(link.seq).or_insert((0, at));
        *count += 1;
        *last = (*last).max(at);
    }
    let totals: Vec<_> = totals.into_iter().collect();
    for chunk in runs(&totals, ROWS_PER_STATEMENT) {
        let mut sql =
            Sql::with_many("INSERT INTO link_totals (link_seq, clicks, last_clicked) VALUES ", dialect);
        sql.rows(chunk, |row, (link, (count, last))| {
            row.bind(*link).bind(*count).bind(*last);
        });
        sql.push(
            " ON CONFLICT (link_seq) DO UPDATE SET clicks = link_totals.clicks + excluded.clicks, last_clicked = CASE
             WHEN excluded.last_clicked > link_totals.last_clicked THEN excluded.last_clicked
             ELSE link_totals.last_clicked END",
        );
        sql.execute(&mut **transaction).await?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Rollup {
    Hourly,
    Daily,
}

async fn add_to_rollup(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    clicks: &[(&Click, &Clicked)],
    rollup: Rollup,
) -> Result<(), StoreError> {
    let (insert, add, length) = match rollup {
        Rollup::Hourly => (
            "INSERT INTO clicks_hourly (workspace_seq, bucket, link_seq, clicks) VALUES ",
            " ON CONFLICT (workspace_seq, bucket, link_seq)
             DO UPDATE SET clicks = clicks_hourly.clicks + excluded.clicks",
            HOUR,
        ),
        Rollup::Daily => (
            "INSERT INTO clicks_daily (workspace_seq, bucket, link_seq, clicks) VALUES ",
            " ON CONFLICT (workspace_seq, bucket, link_seq)
             DO UPDATE SET clicks = clicks_daily.clicks + excluded.clicks",
            DAY,
        ),
    };
    let mut counts: BTreeMap<(i64, i64, i64), i64> = BTreeMap::new();
    for (click, link) in clicks {
        let at = click.at.as_millisecond();
        *counts.entry((link.workspace_seq, start_of(at, length), link.seq)).or_default() += 1;
    }
    let counts: Vec<_> = counts.into_iter().collect();
    for chunk in runs(&counts, ROWS_PER_STATEMENT) {
        let mut sql = Sql::with_many(insert, dialect);
        sql.rows(chunk, |row, ((workspace, bucket, link), count)| {
            row.bind(*workspace).bind(*bucket).bind(*link).bind(*count);
        });
        sql.push(add);
        sql.execute(&mut **transaction).await?;
    }
    Ok(())
}

/// Writes a `link.clicked` event for each click that some webhook listens to.
async fn announce(
    transaction: &mut Transaction<'static, Any>,
    clicks: &[(&Click, &Clicked)],
    public: &PublicUrl,
) -> Result<(), StoreError> {
    let workspaces: BTreeSet<i64> = clicks.iter().map(|(_, link)| link.workspace_seq).collect();
    for workspace in workspaces {
        let webhooks = listeners(transaction, workspace, Trigger::Clicked).await?;
        if webhooks.is_empty() {
            continue;
        }
        let clicks: Vec<_> = clicks.iter().filter(|(_, link)| link.workspace_seq == workspace).collect();
        let links = links::load_map(transaction, clicks.iter().map(|(_, link)| link.seq)).await?;
        for (click, clicked) in clicks {
            let Some(link) = links.get(&clicked.seq) else { continue };
            let listening: Vec<i64> = webhooks
                .iter()
                .filter(|webhook| webhook.listens_to(link))
                .map(|webhook| webhook.seq)
                .collect();
            enqueue_to(transaction, workspace, &listening, &Event::of_click(click, link, public)).await?;
        }
    }
    Ok(())
}
