//! The most clicked links among many clicks: equal to the clicks themselves, and how much faster than counting those.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use backend::{Analytics, Click};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor, Row};

use crate::database::{Database, on_both_databases};
use crate::service::Service;
use crate::soak::row;

/// Links that an answer names at most.
const MOST: i64 = 5_000;
/// Steps of the distribution's table.
const STEPS: f64 = 1e9;

on_both_databases! {
    top_links_equal_the_clicks_of_any_range,
}

/// How many clicks on how many links, over how many days until now.
#[derive(Clone, Copy)]
struct Load {
    links: usize,
    clicks: i64,
    days: i64,
}

/// A service whose first workspace has many clicks, their links Zipf-distributed, and a connection of our own.
struct Clicked {
    service: Service,
    database: AnyConnection,
}

impl Clicked {
    async fn new(database: Database, load: Load) -> Self {
        let is_sqlite = database.url.starts_with("sqlite:");
        let url = database.url.clone();
        // Counting millions of clicks takes longer than a request may.
        let analytics = Analytics { timeout: Duration::from_secs(600), ..Analytics::default() };
        let service = Service::with_analytics(database, analytics).await;
        let mut database = AnyConnection::connect(&url).await.unwrap();
        if is_sqlite {
            // As the service has it, so that the two compare.
            database.execute("PRAGMA cache_size = -65536; PRAGMA mmap_size = 1073741824").await.unwrap();
            database.execute("PRAGMA temp_store = FILE; PRAGMA busy_timeout = 60000").await.unwrap();
        }
        for chunk in (0..load.links).collect::<Vec<_>>().chunks(100) {
            let body = chunk.iter().map(|n| json!({"url": format!("https://example.com/{n}")})).collect();
            assert_eq!(service.post("/links/bulk", &body).await.status, StatusCode::OK);
        }
        let mut clicked = Self { service, database };
        clicked.draw_clicks(load, is_sqlite).await;
        clicked
    }

    async fn run(&mut self, statement: String) {
        self.database.execute(AssertSqlSafe(statement)).await.unwrap();
    }

    /// Makes the clicks and what the service keeps along with them, in the database, where it takes seconds.
    async fn draw_clicks(&mut self, load: Load, is_sqlite: bool) {
        let Load { links, clicks, days } = load;
        self.run("CREATE TABLE zipf (share BIGINT PRIMARY KEY, link_seq BIGINT NOT NULL)".to_owned()).await;
        let weights: Vec<f64> = (1..=links).map(|rank| (rank as f64).powf(-1.1)).collect();
        let total: f64 = weights.iter().sum();
        // A key that was drawn twice leaves a gap between the numbers.
        let seqs = self.database.fetch_all("SELECT seq FROM links ORDER BY seq").await.unwrap();
        assert_eq!(seqs.len(), links);
        let mut share = 0.0;
        let mut rows = Vec::new();
        for (index, (weight, link)) in weights.iter().zip(&seqs).enumerate() {
            share += weight / total;
            // The last one takes what rounding has left.
            let share = if index + 1 == links { STEPS } else { share * STEPS };
            rows.push(format!("({}, {})", share as i64, link.get::<i64, _>(0)));
        }
        for chunk in rows.chunks(1_000) {
            self.run(format!("INSERT INTO zipf VALUES {} ON CONFLICT DO NOTHING", chunk.join(", "))).await;
        }
        let end = self.service.now().as_millisecond();
        let span = days * 86_400_000;
        let (drawn, random) = if is_sqlite {
            (
                format!(
                    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {clicks})"
                ),
                "abs(random()) % 1000000000",
            )
        } else {
            (
                format!("WITH n AS (SELECT i FROM generate_series(1, {clicks}) AS i)"),
                "CAST(random() * 999999999 AS BIGINT)",
            )
        };
        self.run(format!(
            "{drawn}, d AS (SELECT i, {random} AS r FROM n)
             INSERT INTO clicks (id, workspace_seq, link_seq, at, url, continent, country, region, city, device,
             browser, os, user_agent, \"trigger\", referer, referer_url, ip)
             SELECT 'click' || d.i, 1, (SELECT z.link_seq FROM zipf z WHERE z.share >= d.r ORDER BY z.share LIMIT 1),
             {end} - {span} + CAST(d.i AS BIGINT) * {span} / {clicks}, 'https://example.com/', 'EU', 'DE', 'DE-BE',
             'Berlin', 'Desktop', 'Firefox', 'Linux', 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0)', 'link', '(direct)',
             '(direct)', '192.0.2.1' FROM d"
        ))
        .await;
        // In the order in which the service writes the rows, so that those of a bucket are as close together.
        for (table, length) in [("clicks_hourly", 3_600_000), ("clicks_daily", 86_400_000)] {
            self.run(format!(
                "INSERT INTO {table} SELECT 1, at - at % {length} AS bucket, link_seq, COUNT(*) FROM clicks
                 GROUP BY bucket, link_seq ORDER BY bucket, MIN(at)"
            ))
            .await;
        }
        self.run(
            "INSERT INTO link_totals SELECT link_seq, COUNT(*), MAX(at) FROM clicks GROUP BY link_seq"
                .to_owned(),
        )
        .await;
        // As after some time without many writes.
        let settle = if is_sqlite { "PRAGMA wal_checkpoint(TRUNCATE)" } else { "VACUUM ANALYZE" };
        self.run(settle.to_owned()).await;
    }

    /// Ranks the links by their clicks in `[from, to]`, from the clicks alone.
    async fn rank_clicks(&mut self, from: Timestamp, to: Timestamp) -> Vec<(String, i64)> {
        let ranked = sqlx::query(
            "SELECT l.id, r.total FROM (SELECT c.link_seq, COUNT(*) AS total FROM clicks c WHERE c.workspace_seq = 1
             AND c.link_seq NOT IN (SELECT d.link_seq FROM deleted_links d) AND c.at >= $1 AND c.at <= $2 GROUP BY c.link_seq ORDER BY total DESC, c.link_seq LIMIT $3) r
             JOIN links l ON l.seq = r.link_seq ORDER BY r.total DESC, l.seq",
        );
        let ranked = ranked.bind(from.as_millisecond()).bind(to.as_millisecond()).bind(MOST);
        let rows = ranked.fetch_all(&mut self.database).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn ask(&self, from: Timestamp, to: Timestamp) -> Value {
        self.service.get(&format!("/analytics?groupBy=top_links&start={from}&end={to}")).await.body
    }

    async fn assert_equal(&mut self, from: Timestamp, to: Timestamp, what: &str) {
        let answer = self.ask(from, to).await;
        let answer: Vec<(String, i64)> = answer
            .as_array()
            .unwrap_or_else(|| panic!("{what}: {answer}"))
            .iter()
            .map(|link| (link["id"].as_str().unwrap().to_owned(), link["clicks"].as_i64().unwrap()))
            .collect();
        let expected = self.rank_clicks(from, to).await;
        assert!(answer == expected, "{what}: {} links, and {} by the clicks", answer.len(), expected.len());
    }
}

async fn top_links_equal_the_clicks_of_any_range(database: Database) {
    let load = Load { links: 6_000, clicks: 60_000, days: 3 };
    let mut clicked = Clicked::new(database, load).await;
    let end = clicked.service.now();
    let hours = SignedDuration::from_hours;
    //  from and to, before the last click
    let ranges = [
        ("all", hours(80), hours(0)),
        ("a day", hours(24), hours(0)),
        ("some hours", hours(50), hours(3)),
        ("within an hour", hours(5), hours(5) - SignedDuration::from_mins(20)),
        ("within a minute", SignedDuration::from_millis(72_345), SignedDuration::from_millis(61_001)),
        (
            "two days and odd ends",
            SignedDuration::from_millis(190_123_456),
            SignedDuration::from_millis(7_654_321),
        ),
    ];
    let compare = async |clicked: &mut Clicked, when: &str| {
        for (what, from, to) in ranges {
            clicked.assert_equal(end - from, end - to, &format!("{what}, {when}")).await;
        }
    };
    compare(&mut clicked, "as drawn").await;

    let top = clicked.ask(end - hours(80), end).await;
    let id = |rank: usize| top[rank]["id"].as_str().unwrap().to_owned();
    let late: Vec<Click> =
        (0..400).map(|n| Click::new(id(n % 7 * 100), end - hours(i64::try_from(n % 70).unwrap()))).collect();
    let service = &clicked.service;
    service.backend.store().record_clicks(&late).await.unwrap();
    compare(&mut clicked, "after late clicks").await;

    // More than the service reads at once, most of them in one millisecond.
    let minute = end - SignedDuration::from_mins(290);
    let many: Vec<Click> = (0..24_000_usize)
        .map(|n| {
            let at = minute + SignedDuration::from_millis(i64::try_from(n.saturating_sub(12_000)).unwrap());
            Click::new(id(n % 50), at)
        })
        .collect();
    let service = &clicked.service;
    service.backend.store().record_clicks(&many).await.unwrap();
    compare(&mut clicked, "after many clicks of a minute").await;

    for rank in [0, 3, 500] {
        assert_eq!(clicked.service.delete(&format!("/links/{}", id(rank))).await.status, StatusCode::OK);
    }
    compare(&mut clicked, "after links were deleted").await;

    let new = [Click::new(id(1), clicked.service.now())];
    let service = &clicked.service;
    service.backend.store().record_clicks(&new).await.unwrap();
    let now = clicked.service.now();
    clicked.assert_equal(end - hours(24), now, "with a click of this hour").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "one of the long forms: make soak"]
async fn top_links_of_ten_million_clicks_on_sqlite() {
    compare_with_raw_clicks("SQLite", Database::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "one of the long forms: make soak"]
async fn top_links_of_ten_million_clicks_on_postgresql() {
    compare_with_raw_clicks("PostgreSQL", Database::postgres().await).await;
}

#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
async fn compare_with_raw_clicks(name: &str, database: Database) {
    const ROUNDS: usize = 7;
    let load = Load { links: 100_000, clicks: 10_000_000, days: 30 };
    let mut clicked = Clicked::new(database, load).await;
    let (now, mut judged) = (clicked.service.now(), Vec::new());
    for (what, hours) in [("24 h", 24), ("30 d", 30 * 24)] {
        let from = now - SignedDuration::from_hours(hours);
        let query = format!("/analytics?groupBy=top_links&start={from}&end={now}");
        // A filter that every click passes, and that only the clicks themselves can be asked about.
        let same_from_clicks = format!("{query}&trigger=-none");
        let (mut from_rollups, mut raw, mut ranking) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            for (query, times) in [(&query, &mut from_rollups), (&same_from_clicks, &mut raw)] {
                let start = Instant::now();
                clicked.service.bytes(query).await;
                times.push(start.elapsed());
            }
            let start = Instant::now();
            clicked.rank_clicks(from, now).await;
            ranking.push(start.elapsed());
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort();
            times[ROUNDS / 2]
        };
        let (from_rollups, raw, ranking) =
            (median(&mut from_rollups), median(&mut raw), median(&mut ranking));
        let ratio = raw.as_secs_f64() / from_rollups.as_secs_f64();
        row(
            &format!("top_links over {what}, {name}"),
            format!("{} clicks, {} links, {} days, {ROUNDS} rounds", load.clicks, load.links, load.days),
            format!(
                "{from_rollups:.1?}; from raw clicks {raw:.1?}, of which ranking {ranking:.1?}: {ratio:.1} ×"
            ),
        );
        clicked.assert_equal(from, now, what).await;
        judged.push((what, from_rollups));
    }
    assert!(judged.iter().all(|(_, took)| *took <= Duration::from_secs(1)), "{judged:.1?}");
}
