//! The most clicked links.

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use sqlx::Row;

use super::analytics::{MAX_ROWS, Selection, push_source};
use super::reader::Reader;
use super::sql::Sql;
use super::{Store, StoreError, Workspace, from_json, instant_of};

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

/// The number of a link and its clicks.
pub(crate) type Count = (i64, i64);

impl Store {
    /// The most clicked links, in descending order of their clicks in the selection. Of links with equal clicks, the oldest is first.
    pub(crate) async fn top_links(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Vec<Count>, StoreError> {
        let coarsest = selection.coarsest();
        self.refuse_expired(reader, workspace, selection, coarsest).await?;
        let mut sql = Sql::new("SELECT c.link_seq, CAST(SUM(c.n) AS BIGINT) AS total");
        push_source(&mut sql, self.dialect, workspace, selection, coarsest);
        sql.push(" GROUP BY c.link_seq ORDER BY total DESC, c.link_seq LIMIT ").bind(i64::from(MAX_ROWS));
        let rows = reader.all(sql).await?;
        rows.iter().map(|row| Ok((row.try_get("link_seq")?, row.try_get("total")?))).collect()
    }

    /// The links of these counts, in their order. Deleted links are left out.
    pub(crate) async fn load_top_links(
        &self,
        reader: &mut Reader,
        counts: &[Count],
    ) -> Result<Vec<TopLink>, StoreError> {
        let mut sql = Sql::new(
            "SELECT l.seq, l.id, l.domain, l.key, l.url, f.id AS folder_id, l.details, l.created_at FROM links l
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq",
        );
        sql.in_numbers(self.dialect, &counts.iter().map(|(link, _)| *link).collect::<Vec<_>>());
        // Deleted links have no domain.
        sql.push(" AND l.domain <> ''");
        let mut links = FxHashMap::default();
        for row in reader.all(sql).await? {
            links.insert(row.try_get::<i64, _>("seq")?, row);
        }
        let found = counts.iter().filter_map(|(link, clicks)| Some((links.get(link)?, *clicks)));
        found
            .map(|(row, clicks)| {
                Ok(TopLink {
                    id: row.try_get("id")?,
                    domain: row.try_get("domain")?,
                    key: row.try_get("key")?,
                    url: row.try_get("url")?,
                    folder_id: row.try_get("folder_id")?,
                    details: from_json("link", row.try_get("details")?)?,
                    created_at: instant_of(row, "created_at")?,
                    clicks,
                })
            })
            .collect()
    }
}
