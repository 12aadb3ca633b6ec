//! Lists and counts of links.

use sqlx::Row;

use super::labels::folded;
use super::links::{LINKS, LinkRows, find};
use super::reader::Reader;
use super::sql::Sql;
use super::{Store, StoreError, Workspace};
use crate::domain::link::Link;
use crate::domain::link_search::LinkSearch;

/// A filter for links. Empty fields do not restrict it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkFilter {
    pub(crate) domain: Option<String>,
    /// The link must have at least one tag of each list.
    pub(crate) tag_ids: Vec<Vec<String>>,
    pub(crate) tag_names: Option<Vec<String>>,
    /// `Some(None)` selects links without a folder.
    pub(crate) folder_id: Option<Option<String>>,
    pub(crate) tenant_id: Option<String>,
    pub(crate) search: Option<LinkSearch>,
    pub(crate) link_ids: Option<Vec<String>>,
    pub(crate) show_archived: bool,
    /// True if the filter names a user. No link matches, because links are created by keys.
    pub(crate) has_user: bool,
    /// Links that have a tag.
    pub(crate) has_tags: bool,
}

/// The property by which links are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkGroup {
    Domain,
    FolderId,
    TagId,
    UserId,
}

/// The order of a list, which is always descending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkOrder {
    #[default]
    CreatedAt,
    Clicks,
    LastClicked,
}

impl LinkOrder {
    fn sql(self) -> &'static str {
        match self {
            Self::CreatedAt => " ORDER BY l.seq DESC",
            Self::Clicks => " ORDER BY COALESCE(t.clicks, 0) DESC, l.seq DESC",
            Self::LastClicked => " ORDER BY COALESCE(t.last_clicked, 0) DESC, l.seq DESC",
        }
    }
}

/// A page of a list.
#[derive(Clone, Debug)]
pub(crate) enum LinkPage {
    Offset {
        skip: i64,
        order: LinkOrder,
    },
    /// The links created before the link with this id.
    StartingAfter(String),
    /// The first links created after the link with this id.
    EndingBefore(String),
}

impl Store {
    /// A page of the filtered links, newest first unless the page specifies another order. None if the workspace does
    /// not have the link of the cursor.
    pub(crate) async fn list_links(
        &self,
        workspace: &Workspace,
        filter: &LinkFilter,
        page: &LinkPage,
        size: i64,
        mut reader: Reader,
    ) -> Result<Option<Vec<Link>>, StoreError> {
        let found = self.find_page(&mut reader, workspace, filter, page, size).await?;
        drop(reader);
        let Some(found) = found else { return Ok(None) };
        let mut links = found.into_many_links().await?;
        if matches!(page, LinkPage::EndingBefore(_)) {
            links.reverse();
        }
        Ok(Some(links))
    }

    async fn find_page(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        filter: &LinkFilter,
        page: &LinkPage,
        size: i64,
    ) -> Result<Option<LinkRows>, StoreError> {
        let mut sql = Sql::new(LINKS);
        match page {
            LinkPage::Offset { skip: 0, order: LinkOrder::CreatedAt } => {
                self.push_filter(&mut sql, workspace, filter);
                sql.push(LinkOrder::CreatedAt.sql()).push(" LIMIT ").bind(size);
            }
            // Only the numbers of links are sorted and skipped. A link may have 64 KiB.
            LinkPage::Offset { skip, order } => {
                let mut seqs = Sql::new("");
                self.push_seqs(&mut seqs, workspace, filter, *order);
                seqs.push(" LIMIT ").bind(size).push(" OFFSET ").bind(*skip);
                let seqs = reader.all(seqs).await?;
                let seqs = seqs.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
                sql.push("WHERE l.seq").in_numbers(&seqs).push(order.sql());
            }
            LinkPage::StartingAfter(id) | LinkPage::EndingBefore(id) => {
                let mut cursor = Sql::new("SELECT l.seq FROM links l WHERE l.workspace_seq = ");
                cursor.bind(workspace.seq).push(" AND l.id = ").bind(id.clone());
                let Some(row) = reader.optional(cursor).await? else { return Ok(None) };
                let seq: i64 = row.try_get(0)?;
                self.push_filter(&mut sql, workspace, filter);
                if matches!(page, LinkPage::StartingAfter(_)) {
                    sql.push(" AND l.seq < ").bind(seq).push(" ORDER BY l.seq DESC LIMIT ").bind(size);
                } else {
                    sql.push(" AND l.seq > ").bind(seq).push(" ORDER BY l.seq LIMIT ").bind(size);
                }
            }
        }
        Ok(Some(find(reader, sql).await?))
    }

    /// Appends a query for the numbers of all filtered links, in order.
    fn push_seqs(&self, sql: &mut Sql, workspace: &Workspace, filter: &LinkFilter, order: LinkOrder) {
        sql.push("SELECT l.seq FROM links l LEFT JOIN link_totals t ON t.link_seq = l.seq ");
        self.push_filter(sql, workspace, filter);
        sql.push(order.sql());
    }

    /// Number of filtered links.
    pub(crate) async fn count_links(
        &self,
        workspace: &Workspace,
        filter: &LinkFilter,
        mut reader: Reader,
    ) -> Result<i64, StoreError> {
        let mut sql = Sql::new("SELECT COUNT(*) FROM links l ");
        self.push_filter(&mut sql, workspace, filter);
        reader.number(sql).await
    }

    /// Number of filtered links by the values of `by`, in descending order.
    pub(crate) async fn count_links_by(
        &self,
        workspace: &Workspace,
        filter: &LinkFilter,
        by: LinkGroup,
        mut reader: Reader,
    ) -> Result<Vec<(Option<String>, i64)>, StoreError> {
        let (column, from) = match by {
            LinkGroup::Domain => ("l.domain", " AS value, COUNT(*) AS total FROM links l "),
            LinkGroup::FolderId => (
                "f.id",
                " AS value, COUNT(*) AS total FROM links l
                 LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id ",
            ),
            // Links are created by keys, so no link has a user.
            LinkGroup::UserId => ("CAST(NULL AS TEXT)", " AS value, COUNT(*) AS total FROM links l "),
            LinkGroup::TagId => (
                "g.id",
                " AS value, COUNT(*) AS total FROM links l JOIN link_tags k ON k.link_seq = l.seq
                 JOIN tags g ON g.seq = k.tag_seq AND g.workspace_seq > 0 ",
            ),
        };
        let mut sql = Sql::new("SELECT ");
        sql.push(column).push(from);
        self.push_filter(&mut sql, workspace, filter);
        sql.push(" GROUP BY ").push(column).push(" ORDER BY total DESC, value NULLS FIRST");
        reader.all(sql).await?.iter().map(|row| Ok((row.try_get("value")?, row.try_get("total")?))).collect()
    }

    /// Appends a condition that selects the filtered links.
    fn push_filter(&self, sql: &mut Sql, workspace: &Workspace, filter: &LinkFilter) {
        sql.push("WHERE l.workspace_seq = ").bind(workspace.seq);
        if !filter.show_archived {
            sql.push(" AND l.archived = 0");
        }
        if let Some(domain) = &filter.domain {
            sql.push(" AND l.domain = ").bind(domain.clone());
        }
        if let Some(tenant) = &filter.tenant_id {
            sql.push(" AND l.tenant_id = ").bind(tenant.clone());
        }
        match &filter.folder_id {
            None => {}
            Some(None) => {
                sql.push(" AND NOT EXISTS (SELECT 1 FROM folders d WHERE d.workspace_seq = l.workspace_seq");
                sql.push(" AND d.id = l.folder_id)");
            }
            Some(Some(folder)) => {
                sql.push(" AND l.folder_id = (SELECT d.id FROM folders d WHERE d.workspace_seq = ");
                sql.bind(workspace.seq).push(" AND d.id = ").bind(folder.clone()).push(")");
            }
        }
        if filter.has_user {
            sql.push(" AND FALSE");
        }
        if let Some(ids) = &filter.link_ids {
            sql.push(" AND l.seq IN (SELECT k.seq FROM links k WHERE k.id").in_texts(ids).push(")");
        }
        let tagged = " AND l.seq IN (SELECT lt.link_seq FROM link_tags lt JOIN tags g ON g.seq = lt.tag_seq WHERE g.workspace_seq = ";
        if filter.has_tags {
            // Links keep a deleted tag for a while.
            sql.push(" AND EXISTS (SELECT 1 FROM link_tags lt JOIN tags g ON g.seq = lt.tag_seq");
            sql.push(" WHERE lt.link_seq = l.seq AND g.workspace_seq > 0)");
        }
        for ids in &filter.tag_ids {
            sql.push(tagged).bind(workspace.seq);
            sql.push(" AND g.id IN ").texts(ids).push(")");
        }
        if let Some(names) = &filter.tag_names {
            sql.push(tagged).bind(workspace.seq).push(" AND ").folded("g.name");
            sql.push(" IN ").texts(&folded(names)).push(")");
        }
        if let Some(search) = &filter.search {
            sql.push(" AND ");
            sql.push("(l.url").long_contains(&search.text).push(" OR ");
            // As `PublicUrl::short_link` has it, but with readable letters.
            sql.push("(CASE l.domain WHEN ").bind(search.default_domain.clone());
            sql.push(" THEN ").bind(search.default_base.clone());
            sql.push(" ELSE ").bind(search.scheme.clone()).push(" || l.domain END || '/r/' || l.key)");
            sql.long_contains(&search.in_short_link).push(")");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;
    use crate::store::links::{LinkSelector, push_selection};

    #[tokio::test]
    async fn selected_links_are_found_without_reading_all_links_of_the_workspace() {
        let sample = Sample::new().await;
        let (id, external) = (LinkSelector::Id("1".to_owned()), LinkSelector::ExternalId("1".to_owned()));
        let filter = LinkFilter { link_ids: Some(vec!["1".to_owned()]), ..LinkFilter::default() };
        let (mut selected, mut filtered) = (Sql::new(LINKS), Sql::new(LINKS));
        push_selection(&mut selected, &sample.workspace, &[id, external]);
        sample.store.push_filter(&mut filtered, &sample.workspace, &filter);
        filtered.push(" ORDER BY l.seq DESC LIMIT 1");
        for query in [selected, filtered] {
            let steps = query.steps(&sample.store.write).await;
            let mut reads = steps.iter().filter(|step| step.contains(" l "));
            assert!(reads.clone().count() == 1 && reads.all(|read| read.ends_with(" seq=?)")), "{steps:?}");
        }
    }
}
