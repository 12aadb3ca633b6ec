//! The most clicked links.
//!
//! A query with no filter except the range reads packed clicks: sums for whole days and hours, minutes for the ends of
//! the range, and single clicks only after the packed part.

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use sqlx::Row;

use super::analytics::{MAX_ROWS, Selection, push_source};
use super::packed::{DAY, HOUR, MINUTE, Minute, Sums, start_of, unpack};
use super::reader::Reader;
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, from_json, instant};

/// A link in the result, with the fields that the response needs.
#[derive(Clone, Debug)]
pub(crate) struct TopLink {
    pub(crate) id: String,
    pub(crate) domain: String,
    pub(crate) key: String,
    pub(crate) url: String,
    pub(crate) folder_id: Option<String>,
    pub(crate) details: TopLinkDetails,
    pub(crate) created_at: Timestamp,
    /// Number of clicks in the selection.
    pub(crate) clicks: i64,
}

/// The details of a link that the response contains.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TopLinkDetails {
    pub(crate) title: Option<String>,
    pub(crate) comments: Option<String>,
    pub(crate) partner_id: Option<String>,
}

/// A row of [`load`].
type Loaded = (i64, String, String, String, String, Option<String>, TopLinkDetails, i64);

impl Store {
    /// The most clicked links with their clicks in the selection, in descending order. Of links with equal clicks, the
    /// oldest is first.
    pub(crate) async fn top_links(
        &self,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Vec<TopLink>, StoreError> {
        let mut reader = self.reader_for(workspace, selection, selection.coarsest()).await?;
        let ranked = if selection.conditions.is_empty() {
            rank(count_packed(&mut reader, workspace.seq, selection.range()).await?)
        } else {
            self.rank_by_query(&mut reader, workspace, selection).await?
        };
        let mut top: Vec<TopLink> = Vec::new();
        let most = usize::from(MAX_ROWS);
        for chunk in ranked.chunks(most) {
            // Deleted links are not loaded, and the next links take their ranks.
            let mut links = load(&mut reader, self.dialect, chunk).await?;
            let loaded = chunk
                .iter()
                .filter_map(|(link, clicks)| Some(TopLink { clicks: *clicks, ..links.remove(link)? }));
            top.extend(loaded.take(most - top.len()));
            if top.len() == most {
                break;
            }
        }
        Ok(top)
    }

    async fn rank_by_query(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        let mut sql = Sql::new("SELECT c.link_seq, CAST(SUM(c.n) AS BIGINT) AS total");
        push_source(&mut sql, self.dialect, workspace, selection, selection.coarsest());
        sql.push(" GROUP BY c.link_seq ORDER BY total DESC, c.link_seq LIMIT ").bind(i64::from(MAX_ROWS));
        let rows = reader.all(sql).await?;
        rows.iter().map(|row| Ok((row.try_get("link_seq")?, row.try_get("total")?))).collect()
    }
}

/// Links by clicks in descending order. Of links with equal clicks, the oldest is first.
fn rank(counts: FxHashMap<i64, i64>) -> Vec<(i64, i64)> {
    let mut ranked: Vec<(i64, i64)> = counts.into_iter().collect();
    ranked.sort_unstable_by_key(|(link, clicks)| (-clicks, *link));
    ranked
}

/// Number of clicks of each link in `[from, to)`, including deleted links.
async fn count_packed(
    reader: &mut Reader,
    workspace: i64,
    (from, to): (i64, i64),
) -> Result<FxHashMap<i64, i64>, StoreError> {
    let mut counts = FxHashMap::default();
    let mut sql = Sql::new("SELECT p.packed_until FROM packed_workspaces p WHERE p.workspace_seq = ");
    sql.bind(workspace);
    let packed_until = reader.optional(sql).await?.map_or(Ok(0), |row| row.try_get(0))?;
    for (length, from, to) in stretches(from, to.min(packed_until), DAY) {
        if length == MINUTE {
            let mut sql =
                Sql::new("SELECT p.bucket, p.clicks FROM packed_minutes p WHERE p.workspace_seq = ");
            sql.bind(workspace).push(" AND p.bucket >= ").bind(start_of(from, MINUTE));
            sql.push(" AND p.bucket < ").bind(to);
            for row in reader.all(sql).await? {
                let minute: i64 = row.try_get(0)?;
                for (offset, link) in unpack::<Minute>(&row.try_get::<Vec<u8>, _>(1)?)? {
                    if (from..to).contains(&(minute + i64::from(offset))) {
                        *counts.entry(link.cast_signed()).or_default() += 1;
                    }
                }
            }
        } else {
            let mut sql = Sql::new("SELECT p.sums FROM packed_sums p WHERE p.workspace_seq = ");
            sql.bind(workspace).push(" AND p.length = ").bind(length);
            sql.push(" AND p.bucket >= ").bind(from).push(" AND p.bucket < ").bind(to);
            for row in reader.all(sql).await? {
                for (link, clicks) in unpack::<Sums>(&row.try_get::<Vec<u8>, _>(0)?)? {
                    *counts.entry(link.cast_signed()).or_default() += clicks.cast_signed();
                }
            }
        }
    }
    let mut sql = Sql::new("SELECT c.link_seq, COUNT(*) FROM clicks c WHERE c.workspace_seq = ");
    sql.bind(workspace).push(" AND c.at >= ").bind(from.max(packed_until));
    sql.push(" AND c.at < ").bind(to).push(" GROUP BY c.link_seq");
    for row in reader.all(sql).await? {
        *counts.entry(row.try_get(0)?).or_default() += row.try_get::<i64, _>(1)?;
    }
    Ok(counts)
}

/// Splits `[from, to)` into ranges of packed days, hours and minutes. Each entry is the length of the period and the
/// range.
fn stretches(from: i64, to: i64, length: i64) -> Vec<(i64, i64, i64)> {
    if from >= to {
        return Vec::new();
    }
    let finer = match length {
        DAY => HOUR,
        HOUR => MINUTE,
        _ => return vec![(MINUTE, from, to)],
    };
    let first = start_of(from + length - 1, length);
    let last = start_of(to, length);
    if first >= last {
        return stretches(from, to, finer);
    }
    let mut parts = stretches(from, first, finer);
    parts.push((length, first, last));
    parts.extend(stretches(last, to, finer));
    parts
}

/// The links with these numbers, by number, without their clicks.
async fn load(
    reader: &mut Reader,
    dialect: Dialect,
    ranked: &[(i64, i64)],
) -> Result<FxHashMap<i64, TopLink>, StoreError> {
    // One row with all links, because reading thousands of rows takes longer than finding them.
    let mut sql = Sql::new(match dialect {
        Dialect::Sqlite => {
            "SELECT json_group_array(json_array(l.seq, l.id, l.domain, l.key, l.url, f.id, json(l.details),
             l.created_at)) FROM links l
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq IN "
        }
        Dialect::Postgres => {
            "SELECT CAST(COALESCE(json_agg(json_build_array(l.seq, l.id, l.domain, l.key, l.url, f.id,
             CAST(l.details AS JSON), l.created_at)), '[]') AS TEXT) FROM links l
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq IN "
        }
    });
    sql.numbers(dialect, &ranked.iter().map(|(link, _)| *link).collect::<Vec<_>>());
    // Deleted links have no domain.
    sql.push(" AND l.domain <> ''");
    let loaded: String = reader.one(sql).await?.try_get(0)?;
    let loaded: Vec<Loaded> = from_json("links", &loaded)?;
    let mut links = FxHashMap::default();
    for (seq, id, domain, key, url, folder_id, details, created_at) in loaded {
        let created_at = instant(created_at)?;
        links.insert(seq, TopLink { id, domain, key, url, folder_id, details, created_at, clicks: 0 });
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_covered_once_by_the_longest_pieces() {
        assert_eq!(stretches(0, 0, DAY), []);
        assert_eq!(stretches(5, 9, DAY), [(MINUTE, 5, 9)]);
        assert_eq!(stretches(0, HOUR, DAY), [(HOUR, 0, HOUR)]);
        assert_eq!(
            stretches(DAY - HOUR - 1, 2 * DAY + HOUR + 1, DAY),
            [
                (MINUTE, DAY - HOUR - 1, DAY - HOUR),
                (HOUR, DAY - HOUR, DAY),
                (DAY, DAY, 2 * DAY),
                (HOUR, 2 * DAY, 2 * DAY + HOUR),
                (MINUTE, 2 * DAY + HOUR, 2 * DAY + HOUR + 1),
            ]
        );
    }

    #[test]
    fn most_clicks_come_first_and_of_equals_the_oldest() {
        let counts = [(7, 1), (3, 5), (2, 1), (9, 5)].into_iter().collect();
        assert_eq!(rank(counts), [(3, 5), (9, 5), (2, 1), (7, 1)]);
    }
}
