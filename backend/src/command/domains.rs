//! The commands `backend domains`.

use backend::{AssignedDomain, Clock};
use serde_json::json;

use super::arguments::Database;
use super::database::{known_workspace, open};
use super::error::{CliError, say};

pub(crate) async fn assign(database: &Database, workspace: String, domain: &str) -> Result<(), CliError> {
    let store = open(database).await?;
    let workspace = known_workspace(&store, workspace).await?;
    store.assign_domain(&workspace, domain, Clock::system().now()).await?;
    store.close().await;
    Ok(())
}

pub(crate) async fn remove(database: &Database, domain: String) -> Result<(), CliError> {
    let store = open(database).await?;
    let removed = store.remove_domain(&domain).await?;
    store.close().await;
    if removed { Ok(()) } else { Err(CliError::UnassignedDomain(domain)) }
}

pub(crate) async fn list(database: &Database, as_json: bool) -> Result<(), CliError> {
    let store = open(database).await?;
    let domains = store.assigned_domains().await?;
    if as_json {
        let domain =
            |domain: &AssignedDomain| json!({ "domain": domain.name, "workspace": domain.workspace });
        say!("{}", json!(domains.iter().map(domain).collect::<Vec<_>>()))?;
    } else {
        for domain in domains {
            say!("{}  {}", domain.workspace, domain.name)?;
        }
    }
    store.close().await;
    Ok(())
}
