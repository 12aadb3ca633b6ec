//! Domains that are assigned to a workspace. Only this workspace may create links on them.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::sql::{Sql, values};
use super::{Store, StoreError, Transaction, Workspace, instant_of};
use crate::domain::conflict::Conflict;

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

const DOMAINS: &str = "SELECT n.name, w.id AS workspace, n.assigned_at FROM domains n
    JOIN workspaces w ON w.seq = n.workspace_seq ";

impl Store {
    /// Assigns a domain to a workspace, which alone can then create links on it.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails, or the domain or a link on it belongs to another workspace.
    pub async fn assign_domain(
        &self,
        workspace: &Workspace,
        name: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new("INSERT INTO domains (name, workspace_seq, assigned_at) VALUES ");
        values!(sql, name.to_owned(), workspace.seq, now.as_millisecond()).push(
            " ON CONFLICT (name) DO UPDATE SET workspace_seq = excluded.workspace_seq, assigned_at = excluded.assigned_at
             WHERE domains.workspace_seq IS NULL",
        );
        sql.execute(&mut *transaction).await?;
        let mut sql = Sql::new(DOMAINS);
        sql.push("WHERE n.name = ").bind(name.to_owned());
        let owner = assigned(&sql.one(&mut *transaction).await?)?.workspace;
        if owner != workspace.id {
            return Err(Conflict::Assigned(name.to_owned(), owner).into());
        }
        // Visitors of the domain would follow these links.
        let mut sql = Sql::new(
            "SELECT w.id FROM links l JOIN workspaces w ON w.seq = l.workspace_seq WHERE l.domain = ",
        );
        sql.bind(name.to_owned()).push(" AND l.workspace_seq <> ").bind(workspace.seq).push(" LIMIT 1");
        if let Some(row) = sql.optional(&mut *transaction).await? {
            return Err(Conflict::HasLinks(name.to_owned(), row.try_get(0)?).into());
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Removes a domain from its workspace. Links on it stay, but are not followed. False if the domain is not assigned.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn remove_domain(&self, name: &str) -> Result<bool, StoreError> {
        let mut sql =
            Sql::new("UPDATE domains SET workspace_seq = NULL WHERE workspace_seq IS NOT NULL AND name = ");
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

    /// All domains that are or were assigned, and whether they are.
    pub(crate) async fn known_domains(&self) -> Result<HashMap<String, bool>, StoreError> {
        let sql = Sql::new("SELECT n.name, n.workspace_seq FROM domains n");
        let rows = sql.all(&self.read).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<Option<i64>, _>(1)?.is_some()))).collect()
    }

    /// The owner of a domain, if it is assigned.
    pub(crate) async fn assigned_domain(&self, name: &str) -> Result<Option<AssignedDomain>, StoreError> {
        let mut sql = Sql::new(DOMAINS);
        sql.push("WHERE n.name = ").bind(name.to_owned());
        sql.optional(&self.read).await?.as_ref().map(assigned).transpose()
    }

    /// The domains of a workspace, by name.
    pub(crate) async fn domains_of(&self, workspace: &Workspace) -> Result<Vec<AssignedDomain>, StoreError> {
        let mut sql = Sql::new(DOMAINS);
        sql.push("WHERE n.workspace_seq = ").bind(workspace.seq).push(" ORDER BY n.name");
        sql.all(&self.read).await?.iter().map(assigned).collect()
    }
}

/// The workspaces that domains are assigned to.
pub(super) struct Owners(HashMap<String, i64>);

impl Owners {
    /// The owners of the domains among `names` that are assigned.
    pub(super) async fn of(
        transaction: &mut Transaction,
        names: impl Iterator<Item = &str>,
    ) -> Result<Self, StoreError> {
        let names: HashSet<&str> = names.collect();
        let mut sql = Sql::new(
            "SELECT n.name, n.workspace_seq FROM domains n WHERE n.workspace_seq IS NOT NULL AND n.name IN ",
        );
        sql.texts(&names.into_iter().collect::<Vec<_>>());
        let owners = sql.all(&mut **transaction).await?;
        let owners = owners.iter().map(|row| Ok::<_, StoreError>((row.try_get(0)?, row.try_get(1)?)));
        Ok(Self(owners.collect::<Result<_, _>>()?))
    }

    /// Whether a workspace may create links on a domain: its own, or the default domain if that is nobody's.
    pub(super) fn permit(&self, workspace: &Workspace, domain: &str, is_default: bool) -> bool {
        self.0.get(domain).map_or(is_default, |owner| *owner == workspace.seq)
    }
}

fn assigned(row: &AnyRow) -> Result<AssignedDomain, StoreError> {
    Ok(AssignedDomain {
        name: row.try_get("name")?,
        workspace: row.try_get("workspace")?,
        assigned_at: instant_of(row, "assigned_at")?,
    })
}
