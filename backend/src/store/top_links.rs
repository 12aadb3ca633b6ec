//! The most clicked links.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use sqlx::Row;

use super::analytics::{MAX_ROWS, Selection, push_source};
use super::link_counts::Count;
use super::link_size::MAX_LINK_BYTES;
use super::reader::Reader;
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, from_json, instant};
use crate::apart;

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

/// Maximum number of links that are loaded at once.
const LOADED: usize = 1_000;

/// Maximum size of the links that the thread of the request reads from the text of the database, in bytes. A part has less, unless
/// its links are much larger than those before.
const LARGE: usize = 2 * 1024 * 1024;

/// About the size of an entry beside the columns of its link, in bytes.
const ENTRY_BYTES: usize = 300;

/// A row of [`load`].
type LinkRow = (i64, String, String, String, String, Option<String>, TopLinkDetails, i64);

/// The most clicked links that are not read yet, in the order of their ranks.
#[derive(Debug)]
pub(crate) struct Ranking {
    ranked: VecDeque<Count>,
    /// About the size of the last entries, in bytes.
    entry_bytes: usize,
}

/// Links in the order of their ranks, and a JSON list with the [`LinkRow`] of each that is not deleted, in any order.
#[derive(Default)]
struct Loaded {
    ranked: Vec<Count>,
    rows: String,
}

impl Ranking {
    /// Whether all links are read.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranked.is_empty()
    }

    /// Takes the next links, whose entries have about this size.
    fn take(&mut self, bytes: usize) -> Vec<Count> {
        if bytes == 0 {
            return Vec::new();
        }
        let number = (bytes / self.entry_bytes).clamp(1, LOADED);
        self.ranked.drain(..number.min(self.ranked.len())).collect()
    }

    fn put_back(&mut self, links: &[Count]) {
        for link in links.iter().rev() {
            self.ranked.push_front(*link);
        }
    }
}

impl Store {
    /// The most clicked links, in descending order of their clicks in the selection. Of links with equal clicks, the oldest is first.
    pub(crate) async fn top_links(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Ranking, StoreError> {
        let counts = if selection.conditions.is_empty() {
            self.count_by_link(reader, workspace, selection).await?
        } else {
            self.refuse_expired(reader, workspace, selection, selection.coarsest()).await?;
            self.count_by_query(reader, workspace, selection).await?
        };
        let ranked = self.best(reader, workspace, counts).await?.into();
        Ok(Ranking { ranked, entry_bytes: MAX_LINK_BYTES })
    }

    /// Reads the next links of a ranking, whose entries have about this size. Calls `entry` for each, until it breaks.
    pub(crate) async fn next_top_links<E: From<StoreError>>(
        &self,
        reader: &mut Reader,
        ranking: &mut Ranking,
        bytes: usize,
        mut entry: impl FnMut(TopLink) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let (mut before, mut loaded_bytes) = (Loaded::default(), 0);
        loop {
            let next = ranking.take(bytes.saturating_sub(loaded_bytes));
            // Links become entries while the next ones are read.
            let entries = before.entries(&mut entry);
            let (loaded, entries) = tokio::join!(load(reader, self.dialect, next), entries);
            let loaded = loaded?;
            if let ControlFlow::Break(rest) = entries? {
                ranking.put_back(&loaded.ranked);
                ranking.put_back(&before.ranked[rest..]);
                return Ok(());
            }
            if loaded.ranked.is_empty() {
                return Ok(());
            }
            let entry_bytes = loaded.rows.len() / loaded.ranked.len() + ENTRY_BYTES;
            loaded_bytes += entry_bytes * loaded.ranked.len();
            ranking.entry_bytes = entry_bytes;
            before = loaded;
        }
    }

    /// The best of all counts, at most [`MAX_ROWS`], in the order of their ranks. If there are more, the next links take the ranks of
    /// deleted ones.
    async fn best(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        mut counts: Vec<Count>,
    ) -> Result<Vec<Count>, StoreError> {
        let most = usize::from(MAX_ROWS);
        let mut any = Sql::new("SELECT 1 FROM deleted_links d WHERE d.workspace_seq = ");
        any.bind(workspace.seq).push(" LIMIT 1");
        if counts.len() <= most || reader.optional(any).await?.is_none() {
            rank(&mut counts, most);
            counts.truncate(most);
            return Ok(counts);
        }
        let (mut best, mut rest) = (Vec::with_capacity(most), counts.as_mut_slice());
        while best.len() < most && !rest.is_empty() {
            let (ranked, others) = rank(rest, most - best.len());
            let mut sql = Sql::new("SELECT d.link_seq FROM deleted_links d WHERE d.workspace_seq = ");
            sql.bind(workspace.seq).push(" AND d.link_seq");
            sql.in_numbers(self.dialect, &ranked.iter().map(|(link, _)| *link).collect::<Vec<_>>());
            let deleted = reader.all(sql).await?;
            let deleted = deleted.iter().map(|row| row.try_get(0)).collect::<Result<FxHashSet<i64>, _>>()?;
            best.extend(ranked.iter().filter(|(link, _)| !deleted.contains(link)));
            rest = others;
        }
        Ok(best)
    }

    async fn count_by_query(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Vec<Count>, StoreError> {
        let mut sql = Sql::new("SELECT c.link_seq, CAST(SUM(c.n) AS BIGINT) AS total");
        push_source(&mut sql, self.dialect, workspace, selection, selection.coarsest());
        sql.push(" GROUP BY c.link_seq ORDER BY total DESC, c.link_seq LIMIT ").bind(i64::from(MAX_ROWS));
        let rows = reader.all(sql).await?;
        rows.iter().map(|row| Ok((row.try_get("link_seq")?, row.try_get("total")?))).collect()
    }
}

/// The `most` links with the most clicks, in descending order, and the others. Of links with equal clicks, the oldest is first.
fn rank(counts: &mut [Count], most: usize) -> (&[Count], &mut [Count]) {
    let by_clicks = |(link, clicks): &Count| (-clicks, *link);
    if most < counts.len() {
        counts.select_nth_unstable_by_key(most, by_clicks);
    }
    let (top, others) = counts.split_at_mut(most.min(counts.len()));
    top.sort_unstable_by_key(by_clicks);
    (top, others)
}

/// Loads links that are not deleted.
async fn load(reader: &mut Reader, dialect: Dialect, ranked: Vec<Count>) -> Result<Loaded, StoreError> {
    if ranked.is_empty() {
        return Ok(Loaded::default());
    }
    // One row with all links, because reading many rows takes longer than finding them.
    let mut sql = Sql::new(match dialect {
        Dialect::Sqlite => {
            "SELECT json_group_array(json_array(l.seq, l.id, l.domain, l.key, l.url, f.id, json(l.details),
             l.created_at)) FROM links l
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq"
        }
        Dialect::Postgres => {
            "SELECT CAST(json_agg(json_build_array(l.seq, l.id, l.domain, l.key, l.url, f.id,
             CAST(l.details AS JSON), l.created_at)) AS TEXT) FROM links l
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq"
        }
    });
    sql.in_numbers(dialect, &ranked.iter().map(|(link, _)| *link).collect::<Vec<_>>());
    // Deleted links have no domain.
    sql.push(" AND l.domain <> ''");
    // PostgreSQL's list of nothing is NULL.
    let rows: Option<String> = reader.one(sql).await?.try_get(0)?;
    Ok(Loaded { ranked, rows: rows.unwrap_or_else(|| "[]".to_owned()) })
}

impl Loaded {
    /// Calls `entry` for each link until it breaks. The rest then begins at the index in the result.
    async fn entries<E: From<StoreError>>(
        &mut self,
        mut entry: impl FnMut(TopLink) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<usize>, E> {
        if self.ranked.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let rows = std::mem::take(&mut self.rows);
        let is_large = rows.len() > LARGE;
        let parse = move || from_json::<Vec<LinkRow>>("links", &rows);
        let rows = if is_large { apart::run(parse).await? } else { parse()? };
        let mut links: FxHashMap<i64, LinkRow> = rows.into_iter().map(|row| (row.0, row)).collect();
        for (index, (link, clicks)) in self.ranked.iter().enumerate() {
            if let Some((_, id, domain, key, url, folder_id, details, created_at)) = links.remove(link) {
                let created_at = instant(created_at)?;
                let top = TopLink { id, domain, key, url, folder_id, details, created_at, clicks: *clicks };
                if entry(top)?.is_break() {
                    return Ok(ControlFlow::Break(index + 1));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_clicks_come_first_and_of_equals_the_oldest() {
        let mut counts = [(7, 1), (3, 5), (2, 1), (9, 5)];
        let (top, others) = rank(&mut counts, 3);
        assert_eq!((top, &*others), ([(3, 5), (9, 5), (2, 1)].as_slice(), [(7, 1)].as_slice()));
        assert_eq!(rank(others, 3).0, [(7, 1)]);
    }
}
