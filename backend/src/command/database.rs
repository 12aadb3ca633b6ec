//! The database of a command.

use std::path::Path;

use backend::{Store, Workspace};

use super::arguments::Database;
use super::error::CliError;

pub(crate) async fn migrate(database: &Database) -> Result<(), CliError> {
    let store = Store::open_or_create(&database.url).await.map_err(CliError::Open)?;
    store.close().await;
    Ok(())
}

pub(crate) async fn backup(database: &Database, file: &Path) -> Result<(), CliError> {
    let store = open(database).await?;
    let copied = store.back_up(file).await;
    store.close().await;
    Ok(copied?)
}

pub(crate) async fn open(database: &Database) -> Result<Store, CliError> {
    Store::open(&database.url).await.map_err(CliError::Open)
}

pub(crate) async fn known_workspace(store: &Store, id: String) -> Result<Workspace, CliError> {
    store.workspace(&id).await?.ok_or(CliError::UnknownWorkspace(id))
}
