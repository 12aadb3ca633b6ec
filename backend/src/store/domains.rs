//! Domains that are assigned to one workspace. Every workspace may use the other domains.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, instant_of};

/// A domain and the workspace that it is assigned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedDomain {
    /// The domain, in lower case.
    pub name: String,
    /// The id of the workspace.
    pub workspace: String,
    /// The time of the assignment.
    pub assigned_at: Timestamp,
}

/// A domain is assigned to another workspace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the domain {name} is assigned to the workspace {workspace}; release it first")]
pub struct DomainConflict {
    name: String,
    workspace: String,
}

const DOMAINS: &str = "SELECT n.name, w.id AS workspace, n.assigned_at FROM domains n
    JOIN workspaces w ON w.seq = n.workspace_seq ";

impl Store {
    /// Assigns a domain to a workspace. Other workspaces can then no longer create links on it. Existing links stay.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails, [`DomainConflict`] if the domain is assigned to another workspace.
    pub async fn assign_domain(
        &self,
        workspace: &Workspace,
        name: &str,
        now: Timestamp,
    ) -> Result<Result<(), DomainConflict>, StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new("INSERT INTO domains (name, workspace_seq, assigned_at) VALUES ");
        sql.rows(&[()], |row, ()| {
            row.bind(name.to_owned()).bind(workspace.seq).bind(now.as_millisecond());
        });
        sql.push(" ON CONFLICT DO NOTHING");
        sql.execute(&mut *transaction).await?;
        let mut sql = Sql::new(DOMAINS);
        sql.push("WHERE n.name = ").bind(name.to_owned());
        let owner = assigned(&sql.one(&mut *transaction).await?)?.workspace;
        transaction.commit().await?;
        if owner == workspace.id {
            return Ok(Ok(()));
        }
        Ok(Err(DomainConflict { name: name.to_owned(), workspace: owner }))
    }

    /// Releases a domain, so that every workspace may use it. False if it is not assigned.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn release_domain(&self, name: &str) -> Result<bool, StoreError> {
        let mut sql = Sql::new("DELETE FROM domains WHERE name = ");
        sql.bind(name.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// All assigned domains, by name.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn assigned_domains(&self) -> Result<Vec<AssignedDomain>, StoreError> {
        let mut sql = Sql::new(DOMAINS);
        sql.push("ORDER BY n.name");
        sql.all(&self.read).await?.iter().map(assigned).collect()
    }

    /// The assigned domains among `names`, by name.
    pub(crate) async fn assigned_among(
        &self,
        names: &[&str],
    ) -> Result<HashMap<String, AssignedDomain>, StoreError> {
        let mut sql = Sql::new(DOMAINS);
        sql.push("WHERE n.name IN ").texts(self.dialect, names);
        let domains = sql.all(&self.read).await?;
        domains.iter().map(|row| assigned(row).map(|domain| (domain.name.clone(), domain))).collect()
    }
}

/// The domains among `names` that are assigned to other workspaces.
pub(super) async fn domains_of_others(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace: &Workspace,
    names: impl Iterator<Item = &str>,
) -> Result<HashSet<String>, StoreError> {
    let names: HashSet<&str> = names.collect();
    let mut sql = Sql::new("SELECT n.name FROM domains n WHERE n.workspace_seq <> ");
    sql.bind(workspace.seq).push(" AND n.name IN ").texts(dialect, &names.into_iter().collect::<Vec<_>>());
    sql.all(&mut **transaction).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

fn assigned(row: &AnyRow) -> Result<AssignedDomain, StoreError> {
    Ok(AssignedDomain {
        name: row.try_get("name")?,
        workspace: row.try_get("workspace")?,
        assigned_at: instant_of(row, "assigned_at")?,
    })
}
