//! The most clicked links.

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::analytics::{MAX_ROWS, Selection, push_source};
use super::reader::Reader;
use super::rollups::{Piece, Table, pieces};
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
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Vec<TopLink>, StoreError> {
        self.refuse_expired(reader, workspace, selection, selection.coarsest()).await?;
        let ranked = if selection.conditions.is_empty() {
            rank(self.count_by_link(reader, workspace, selection.range()).await?)
        } else {
            self.rank_by_query(reader, workspace, selection).await?
        };
        let mut top: Vec<TopLink> = Vec::new();
        let most = usize::from(MAX_ROWS);
        for chunk in ranked.chunks(most) {
            // Deleted links are not loaded, and the next links take their ranks.
            let mut links = load(reader, self.dialect, chunk).await?;
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

    /// Number of clicks of each link in `[from, to)`, including deleted links.
    async fn count_by_link(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        (from, to): (i64, i64),
    ) -> Result<FxHashMap<i64, i64>, StoreError> {
        let mut counts = FxHashMap::default();
        for piece in pieces(from, to, Table::Daily) {
            match piece.table {
                Table::Clicks => {
                    let mut sql = Sql::new("SELECT 0");
                    sql.push(self.sums());
                    sql.push("(SELECT l.link_seq, COUNT(*) AS clicks FROM clicks l WHERE l.workspace_seq = ");
                    sql.bind(workspace.seq).push(" AND l.at >= ").bind(piece.from);
                    sql.push(" AND l.at < ").bind(piece.to).push(" GROUP BY l.link_seq) c");
                    add(&reader.one(sql).await?, &mut counts)?;
                }
                Table::Hourly | Table::Daily => {
                    let mut next = piece.from;
                    while let Some(row) =
                        self.first_bucket(reader, workspace, Piece { from: next, ..piece }).await?
                    {
                        add(&row, &mut counts)?;
                        next = row.try_get::<i64, _>(0)? + 1;
                    }
                }
            }
        }
        Ok(counts)
    }

    /// The first bucket of a rollup in the range of `piece`: its start, and the lists of [`Self::sums`].
    async fn first_bucket(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        piece: Piece,
    ) -> Result<Option<AnyRow>, StoreError> {
        // One bucket at a time, so that no more is in memory than the links of a day.
        let mut sql = Sql::new("SELECT c.bucket");
        sql.push(self.sums());
        sql.push(if piece.table == Table::Daily { "clicks_daily" } else { "clicks_hourly" });
        sql.push(" c WHERE c.workspace_seq = ").bind(workspace.seq);
        sql.push(" AND c.bucket >= ").bind(piece.from).push(" AND c.bucket < ").bind(piece.to);
        sql.push(" GROUP BY c.bucket ORDER BY c.bucket LIMIT 1");
        reader.optional(sql).await
    }

    /// Selects three lists in one row: the links with one click, the others, and the clicks of those. Reading many rows would take
    /// longer than finding them. Most links have one click in an hour, and writing numbers is most of the work.
    fn sums(&self) -> &'static str {
        match self.dialect {
            Dialect::Sqlite => {
                ", group_concat(c.link_seq) FILTER (WHERE c.clicks = 1),
                 group_concat(c.link_seq) FILTER (WHERE c.clicks <> 1),
                 group_concat(c.clicks) FILTER (WHERE c.clicks <> 1) FROM "
            }
            Dialect::Postgres => {
                ", string_agg(CAST(c.link_seq AS TEXT), ',') FILTER (WHERE c.clicks = 1),
                 string_agg(CAST(c.link_seq AS TEXT), ',') FILTER (WHERE c.clicks <> 1),
                 string_agg(CAST(c.clicks AS TEXT), ',') FILTER (WHERE c.clicks <> 1) FROM "
            }
        }
    }
}

/// Adds the lists of [`Store::sums`] to the clicks of each link. An empty list is NULL.
fn add(row: &AnyRow, counts: &mut FxHashMap<i64, i64>) -> Result<(), StoreError> {
    let list = |column: usize| -> Result<Vec<i64>, StoreError> {
        numbers(row.try_get::<Option<&str>, _>(column)?.unwrap_or_default())
    };
    for link in list(1)? {
        *counts.entry(link).or_default() += 1;
    }
    for (link, clicks) in list(2)?.into_iter().zip(list(3)?) {
        *counts.entry(link).or_default() += clicks;
    }
    Ok(())
}

/// The numbers of a list such as `7,12`. There are hundreds of thousands, and `str::split` and `str::parse` take several times as long.
fn numbers(list: &str) -> Result<Vec<i64>, StoreError> {
    let mut numbers = Vec::new();
    if list.is_empty() {
        return Ok(numbers);
    }
    let mut number = 0_i64;
    for byte in list.bytes() {
        match byte {
            b'0'..=b'9' => number = number.wrapping_mul(10).wrapping_add((byte - b'0').into()),
            b',' => numbers.push(std::mem::take(&mut number)),
            _ => return Err(StoreError::corrupt("list of numbers", &format!("byte {byte}"))),
        }
    }
    numbers.push(number);
    Ok(numbers)
}

/// Links by clicks in descending order. Of links with equal clicks, the oldest is first.
fn rank(counts: FxHashMap<i64, i64>) -> Vec<(i64, i64)> {
    let mut ranked: Vec<(i64, i64)> = counts.into_iter().collect();
    ranked.sort_unstable_by_key(|(link, clicks)| (-clicks, *link));
    ranked
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
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq"
        }
        Dialect::Postgres => {
            "SELECT CAST(COALESCE(json_agg(json_build_array(l.seq, l.id, l.domain, l.key, l.url, f.id,
             CAST(l.details AS JSON), l.created_at)), '[]') AS TEXT) FROM links l
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq"
        }
    });
    sql.in_numbers(dialect, &ranked.iter().map(|(link, _)| *link).collect::<Vec<_>>());
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
    fn most_clicks_come_first_and_of_equals_the_oldest() {
        let counts = [(7, 1), (3, 5), (2, 1), (9, 5)].into_iter().collect();
        assert_eq!(rank(counts), [(3, 5), (9, 5), (2, 1), (7, 1)]);
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        for list in [vec![], vec![0], vec![7, 12], vec![i64::MAX, 1, 1_000_000]] {
            let written: Vec<String> = list.iter().map(i64::to_string).collect();
            assert_eq!(numbers(&written.join(",")).unwrap(), list);
        }
        assert!(numbers("7,-1").is_err() && numbers("7, 1").is_err());
    }
}
