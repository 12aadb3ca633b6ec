//! Pages of clicks.

use std::collections::HashMap;

use sqlx::Row;

use super::analytics::push_conditions;
use super::reader::{Queries, Reader};
use super::rollups::Table;
use super::sql::Sql;
use super::{Selection, Store, StoreError, Workspace, instant_of, links_of};
use crate::domain::click::{Click, ClickDetails};
use crate::domain::link::Link;

/// Clicks in order, each with the number of its link, and the current state of these links.
#[derive(Debug)]
pub(crate) struct ClicksAndLinks {
    pub(crate) clicks: Vec<(Click, i64)>,
    pub(crate) links: HashMap<i64, Link>,
}

impl Store {
    /// The numbers of the clicks on a page, in order of time. Clicks of the same millisecond are in order of recording.
    pub(crate) async fn page_of_clicks(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
        newest_first: bool,
        skip: i64,
        size: i64,
    ) -> Result<Vec<i64>, StoreError> {
        self.refuse_expired(reader, workspace, selection, Table::Clicks).await?;
        let (from, to) = selection.range();
        let mut sql = Sql::new("SELECT c.seq FROM clicks c WHERE c.workspace_seq = ");
        sql.bind(workspace.seq).push(" AND c.at >= ").bind(from).push(" AND c.at < ").bind(to);
        push_conditions(&mut sql, workspace, selection);
        sql.push(if newest_first { " ORDER BY c.at DESC, c.seq DESC" } else { " ORDER BY c.at, c.seq" });
        sql.push(" LIMIT ").bind(size).push(" OFFSET ").bind(skip);
        let rows = reader.all(sql).await?;
        rows.iter().map(|row| Ok(row.try_get("seq")?)).collect()
    }
}

/// The clicks with these numbers, in the given order. Clicks of deleted links are left out.
pub(crate) async fn load_clicks(
    connection: &mut impl Queries,
    seqs: &[i64],
) -> Result<ClicksAndLinks, StoreError> {
    let mut sql = Sql::new(
        "SELECT c.seq, c.id, c.link_seq, c.at, c.url, c.continent, c.country, c.region, c.city, c.device, c.browser,
         c.os, c.user_agent, c.trigger, c.referer, c.referer_url, c.ip FROM clicks c WHERE c.seq",
    );
    sql.in_numbers(seqs);
    let (mut by_seq, mut of_links) = (HashMap::new(), Vec::new());
    for row in connection.all(sql).await? {
        of_links.push(row.try_get("link_seq")?);
        by_seq.insert(row.try_get::<i64, _>("seq")?, row);
    }
    let links = links_of(connection, of_links.into_iter()).await?;
    let mut clicks = Vec::with_capacity(by_seq.len());
    for row in seqs.iter().filter_map(|seq| by_seq.get(seq)) {
        let link_seq = row.try_get("link_seq")?;
        if let Some(link) = links.get(&link_seq) {
            let details = ClickDetails::read(|column| row.try_get(column))?;
            let (id, at) = (row.try_get("id")?, instant_of(row, "at")?);
            clicks.push((Click { id, link_id: link.id.clone(), at, details }, link_seq));
        }
    }
    Ok(ClicksAndLinks { clicks, links })
}
