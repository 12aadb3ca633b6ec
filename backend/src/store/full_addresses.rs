//! Truncation of visitors' addresses from earlier versions, which stored whole addresses. It runs when the database is opened,
//! in steps of bounded size. A process that was killed repeats at most one step.

use serde_json::Value;
use sqlx::Row;

use super::click_batch::{Batch, Entry};
use super::sql::Sql;
use super::{Store, StoreError, from_json, to_json};
use crate::visitor_address::truncated_text;

/// The tables with addresses.
#[derive(Clone, Copy, Debug)]
enum Source {
    Clicks,
    /// The payloads of click events.
    WebhookEvents,
}

impl Source {
    const ALL: [Self; 2] = [Self::Clicks, Self::WebhookEvents];

    fn name(self) -> &'static str {
        match self {
            Self::Clicks => "clicks",
            Self::WebhookEvents => "webhook_events",
        }
    }

    /// Maximum number of rows that one transaction reads. Payloads may be long.
    fn rows_per_step(self) -> usize {
        match self {
            Self::Clicks => 5_000,
            Self::WebhookEvents => 200,
        }
    }

    /// The start of the query for rows, up to the condition on their numbers.
    fn select(self) -> &'static str {
        match self {
            Self::Clicks => "SELECT t.seq, t.ip FROM clicks t WHERE",
            Self::WebhookEvents => {
                "SELECT t.seq, t.payload FROM webhook_events t WHERE t.event = 'link.clicked' AND"
            }
        }
    }

    /// The start of the statement that updates rows, and its condition.
    fn update(self) -> (&'static str, &'static str) {
        match self {
            Self::Clicks => {
                ("UPDATE clicks SET ip = value->>1 FROM ", " WHERE clicks.seq = CAST(value->>0 AS BIGINT)")
            }
            Self::WebhookEvents => (
                "UPDATE webhook_events SET payload = value->>1 FROM ",
                " WHERE webhook_events.seq = CAST(value->>0 AS BIGINT)",
            ),
        }
    }

    /// The text of a row, with the address truncated.
    fn truncated(self, text: &str) -> Result<String, StoreError> {
        match self {
            Self::Clicks => Ok(truncated_text(text)),
            Self::WebhookEvents => {
                let mut payload: Value = from_json("webhook event", text)?;
                if let Some(Value::String(address)) = payload.pointer_mut("/data/click/ip") {
                    *address = truncated_text(address);
                }
                to_json("webhook event", &payload)
            }
        }
    }
}

impl Store {
    /// Truncates all addresses from earlier versions. Continues where an earlier process stopped.
    pub(super) async fn truncate_addresses(&self) -> Result<(), StoreError> {
        for source in Source::ALL {
            let mut sql = Sql::new("SELECT COUNT(*) FROM full_addresses WHERE source = ");
            sql.bind(source.name().to_owned());
            if sql.number(&self.read).await? == 0 {
                continue;
            }
            tracing::info!(of = source.name(), "truncating visitors' addresses from earlier versions");
            while self.truncate_some_addresses(source).await? {}
            tracing::info!(of = source.name(), "truncated the addresses");
        }
        Ok(())
    }

    /// Truncates some addresses in one transaction. False if there are no more.
    async fn truncate_some_addresses(&self, source: Source) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new("SELECT f.next_seq, f.last_seq FROM full_addresses f WHERE f.source = ");
        sql.bind(source.name().to_owned()).lock(self.dialect, " FOR UPDATE");
        let Some(left) = sql.optional(&mut *transaction).await? else { return Ok(false) };
        let (next, last): (i64, i64) = (left.try_get(0)?, left.try_get(1)?);
        let mut sql = Sql::new(source.select());
        sql.push(" t.seq >= ").bind(next).push(" AND t.seq <= ").bind(last);
        sql.push(" ORDER BY t.seq LIMIT ").bind(i64::try_from(source.rows_per_step()).unwrap_or(i64::MAX));
        let rows = sql.all(&mut *transaction).await?;
        let mut changed: Vec<(i64, String)> = Vec::new();
        let mut next = next;
        for row in &rows {
            let (seq, text): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            let truncated = source.truncated(&text)?;
            if truncated != text {
                changed.push((seq, truncated));
            }
            next = seq + 1;
        }
        let (update, condition) = source.update();
        let mut sql = Sql::new(update);
        sql.each(self.dialect, to_json("addresses", &changed)?).push(condition);
        sql.execute(&mut *transaction).await?;
        let is_last = rows.len() < source.rows_per_step();
        let mut sql = if is_last {
            Sql::new("DELETE FROM full_addresses")
        } else {
            let mut sql = Sql::new("UPDATE full_addresses SET next_seq = ");
            sql.bind(next);
            sql
        };
        sql.push(" WHERE source = ").bind(source.name().to_owned());
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(!is_last)
    }
}

/// An encoded batch of clicks, with the addresses truncated.
pub(super) fn truncate_batch(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    let batch = Batch::decode(bytes)?;
    let addresses: Vec<String> = batch.clicks.iter().map(|click| truncated_text(click.ip)).collect();
    let clicks = batch.clicks.iter().zip(&addresses).map(|(click, ip)| Entry { ip, ..*click }).collect();
    let Batch { links, destinations, visitors, .. } = &batch;
    let truncated = Batch {
        links: links.clone(),
        destinations: destinations.clone(),
        visitors: visitors.clone(),
        clicks,
    };
    truncated.encode()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::super::{Click, ClickBuffer};
    use super::*;

    #[tokio::test]
    async fn truncation_continues_where_a_process_has_stopped() {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let store = Store::open(&url).await.unwrap();
        let fill = "INSERT INTO workspaces (seq, id, name, created_at) VALUES (1, 'w', 'w', 0);
            INSERT INTO links (id, workspace_seq, domain, key, sort_key, url, archived, details, created_at, updated_at)
            VALUES ('link_1', 1, 's.test', 'k', 'k', 'https://example.com', 0, '{}', 0, 0);
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12001)
            INSERT INTO clicks (id, workspace_seq, link_seq, at, url, continent, country, region, city, device, browser, os,
            user_agent, trigger, referer, referer_url, ip)
            SELECT i, 1, 1, i, '', '', '', '', '', '', '', '', '', '', '', '', '192.0.2.7' FROM n;
            INSERT INTO full_addresses (source, next_seq, last_seq) VALUES ('clicks', 1, 12000)";
        sqlx::raw_sql(fill).execute(&store.write).await.unwrap();
        let truncated = async |store: &Store| {
            let count = Sql::new("SELECT COUNT(*) FROM clicks WHERE ip = '192.0.2.0'");
            count.number(&store.read).await.unwrap()
        };
        assert!(store.truncate_some_addresses(Source::Clicks).await.unwrap());
        assert_eq!(truncated(&store).await, 5_000);
        store.close().await;
        let store = Store::open(&url).await.unwrap();
        assert_eq!(truncated(&store).await, 12_000, "all except the one that came later");
        assert!(!store.truncate_some_addresses(Source::Clicks).await.unwrap());
    }

    #[test]
    fn truncation_changes_only_the_addresses_of_a_batch() {
        let clicks: Vec<Click> = (0..5)
            .map(|n| {
                let mut click = Click::new(format!("link_{}", n % 2), Timestamp::UNIX_EPOCH);
                click.details.browser = format!("browser {n}").into();
                click.details.ip = ["192.0.2.7", "", "2001:db8:1:2::3", "::1", "x"][n].into();
                click
            })
            .collect();
        let truncated =
            truncate_batch(&clicks.iter().collect::<ClickBuffer>().batch().encode().unwrap()).unwrap();
        let truncated = Batch::decode(&truncated).unwrap();
        let unpacked: Vec<Click> =
            truncated.clicks().iter().map(|entry| truncated.click(entry).unwrap()).collect();
        let mut expected = clicks;
        for (click, ip) in expected.iter_mut().zip(["192.0.2.0", "", "2001:db8:1::", "::", ""]) {
            click.details.ip = ip.into();
        }
        assert_eq!(unpacked, expected);
        assert!(truncate_batch(b"nonsense").is_err());
    }
}
