//! Pages of clicks.

use std::borrow::Cow;
use std::collections::HashMap;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::analytics::push_conditions;
use super::reader::Reader;
use super::rollups::Table;
use super::sql::Sql;
use super::{Selection, Store, StoreError, Workspace, instant_of, links};
use crate::domain::click::{Click, ClickDetails};
use crate::domain::link::Link;

/// Selects clicks.
pub(super) const CLICKS: &str =
    "SELECT c.seq, c.id, c.link_seq, c.at, c.url, c.continent, c.country, c.region, c.city, c.device,
    c.browser, c.os, c.user_agent, c.trigger, c.referer, c.referer_url, c.ip FROM clicks c";

/// Clicks in order, each with its number and that of its link, and the current state of these links.
#[derive(Debug)]
pub(crate) struct ClicksAndLinks {
    pub(crate) clicks: Vec<(i64, Click, i64)>,
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
        push_conditions(&mut sql, self.dialect, workspace, selection);
        sql.push(if newest_first { " ORDER BY c.at DESC, c.seq DESC" } else { " ORDER BY c.at, c.seq" });
        sql.push(" LIMIT ").bind(size).push(" OFFSET ").bind(skip);
        let rows = reader.all(sql).await?;
        rows.iter().map(|row| Ok(row.try_get("seq")?)).collect()
    }

    /// The clicks of a workspace with these numbers, in the given order. Clicks of deleted links are left out.
    pub(crate) async fn clicks(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        seqs: &[i64],
    ) -> Result<ClicksAndLinks, StoreError> {
        let mut sql = Sql::new(CLICKS);
        sql.push(" WHERE c.workspace_seq = ");
        sql.bind(workspace.seq).push(" AND c.seq").in_numbers(self.dialect, seqs);
        let rows = reader.all(sql).await?;
        let mut by_seq = HashMap::with_capacity(rows.len());
        for row in &rows {
            by_seq.insert(row.try_get::<i64, _>("seq")?, row);
        }
        let of_links = rows.iter().map(|row| row.try_get("link_seq")).collect::<Result<Vec<i64>, _>>()?;
        let links = links::load_map(reader, self.dialect, of_links.into_iter()).await?;
        let mut clicks = Vec::with_capacity(rows.len());
        for (seq, row) in seqs.iter().filter_map(|seq| Some((*seq, by_seq.get(seq)?))) {
            let link_seq = row.try_get("link_seq")?;
            if let Some(link) = links.get(&link_seq) {
                clicks.push((seq, click(row, link)?, link_seq));
            }
        }
        Ok(ClicksAndLinks { clicks, links })
    }
}

pub(super) fn click(row: &AnyRow, link: &Link) -> Result<Click, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column);
    let detail = |column: &str| text(column).map(Cow::Owned);
    Ok(Click {
        id: text("id")?,
        link_id: link.id.clone(),
        at: instant_of(row, "at")?,
        details: ClickDetails {
            url: detail("url")?,
            continent: detail("continent")?,
            country: detail("country")?,
            region: detail("region")?,
            city: detail("city")?,
            device: detail("device")?,
            browser: detail("browser")?,
            os: detail("os")?,
            user_agent: detail("user_agent")?,
            trigger: detail("trigger")?,
            referer: detail("referer")?,
            referer_url: detail("referer_url")?,
            ip: detail("ip")?,
        },
    })
}
