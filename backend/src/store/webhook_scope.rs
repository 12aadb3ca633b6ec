//! The links and folders that the scope of a webhook names.

use std::collections::{HashMap, HashSet};

use indexmap::IndexSet;
use sqlx::Row;

use super::sql::Sql;
use super::webhooks::WebhookConflict;
use super::{Dialect, Store, StoreError, Workspace};
use crate::domain::scope::Scope;

/// The ids in a request that belong to links and folders of the workspace.
pub(super) struct KnownIds {
    /// The ids of links by their ids, and by `ext_` and their external ids.
    links: HashMap<String, String>,
    folders: HashMap<String, String>,
}

impl Store {
    /// Finds links and folders. A webhook may have many, so the caller reads them before its transaction.
    pub(super) async fn known_ids(
        &self,
        workspace: &Workspace,
        link_ids: &[String],
        folder_ids: &[String],
    ) -> Result<KnownIds, StoreError> {
        let found = async |ids: &[String], query: Sql| -> Result<HashMap<String, String>, StoreError> {
            if ids.is_empty() {
                return Ok(HashMap::new());
            }
            let rows = query.all(&self.read).await?;
            rows.iter().map(|row| Ok((row.try_get("named")?, row.try_get("id")?))).collect()
        };
        Ok(KnownIds {
            links: found(link_ids, links(self.dialect, workspace, link_ids)).await?,
            folders: found(folder_ids, folders(self.dialect, workspace, folder_ids)).await?,
        })
    }
}

fn folders(dialect: Dialect, workspace: &Workspace, ids: &[String]) -> Sql {
    let mut sql = Sql::new("SELECT d.id AS named, d.id FROM folders d WHERE d.workspace_seq = ");
    sql.bind(workspace.seq).push(" AND d.id").in_texts(dialect, ids);
    sql
}

/// The links with these ids, or with the external ids after `ext_`.
fn links(dialect: Dialect, workspace: &Workspace, ids: &[String]) -> Sql {
    let external: Vec<&str> = ids.iter().filter_map(|id| id.strip_prefix("ext_")).collect();
    // With OR, or without the plus sign, SQLite would read all links of the workspace.
    let mut sql = Sql::new("SELECT l.id AS named, l.id FROM links l WHERE +l.workspace_seq = ");
    sql.bind(workspace.seq).push(" AND l.id").in_texts(dialect, ids);
    sql.push(
        " UNION ALL SELECT 'ext_' || l.external_id AS named, l.id FROM links l WHERE l.workspace_seq = ",
    );
    sql.bind(workspace.seq).push(" AND l.external_id").in_texts(dialect, &external);
    sql
}

impl KnownIds {
    /// The scope with the ids of links in place of external ids, and each id once. Ids of the scope that the webhook already
    /// has may be unknown, because their links and folders may be deleted.
    pub(super) fn resolve(&self, scope: &Scope, present: &Scope) -> Result<Scope, WebhookConflict> {
        match scope {
            Scope::Workspace => Ok(Scope::Workspace),
            Scope::Links(ids) => resolved("linkIds", ids, &self.links, present.link_ids()).map(Scope::Links),
            Scope::Folders(ids) => {
                resolved("folderIds", ids, &self.folders, present.folder_ids()).map(Scope::Folders)
            }
        }
    }
}

fn resolved(
    field: &'static str,
    ids: &[String],
    known: &HashMap<String, String>,
    present: &[String],
) -> Result<Vec<String>, WebhookConflict> {
    let present: HashSet<&String> = present.iter().collect();
    let (mut resolved, mut unknown) = (IndexSet::new(), IndexSet::new());
    for id in ids {
        match known.get(id).or_else(|| present.get(id).copied()) {
            Some(id) => resolved.insert(id.clone()),
            None => unknown.insert(id.clone()),
        };
    }
    if unknown.is_empty() {
        Ok(resolved.into_iter().collect())
    } else {
        Err(WebhookConflict::Unknown { field, ids: unknown.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    #[tokio::test]
    async fn links_are_found_by_index() {
        let sample = Sample::new().await;
        let ids = ["link_1", "ext_1"].map(str::to_owned);
        let steps = links(Dialect::Sqlite, &sample.workspace, &ids).steps(&sample.store.write).await;
        for condition in ["(id=?)", "(workspace_seq=? AND external_id=?)"] {
            let is_found = |step: &String| step.starts_with("SEARCH l USING") && step.ends_with(condition);
            assert!(steps.iter().any(is_found), "{steps:?}");
        }
    }
}
