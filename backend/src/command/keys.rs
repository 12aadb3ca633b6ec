//! The commands `backend keys` and `backend seed`.

use std::path::PathBuf;

use backend::keys::{Subscriber, check_plan, parse_limits, read_limits};
use backend::{Clock, Limits, Terms};
use jiff::Timestamp;
use serde_json::json;

use super::arguments::Database;
use super::database::{known_workspace, open};
use super::error::{CliError, say};

/// The terms of a key, which the gateway knows.
pub(crate) fn terms(
    (plan, plans): (String, Vec<String>),
    (limits, file): (Option<Limits>, Option<PathBuf>),
    billing_anchor: Option<Timestamp>,
) -> Result<Terms, CliError> {
    let limits = match file {
        Some(file) => {
            let json = std::fs::read(&file).map_err(|source| CliError::NamedFile {
                option: "--limits-file",
                path: file.clone(),
                source,
            })?;
            Some(read_limits(&json).map_err(|problem| CliError::LimitsFile { path: file, problem })?)
        }
        None => limits,
    };
    check_plan(&plan, &plans, limits.as_ref())?;
    Ok(Terms { plan, limits, billing_anchor })
}

pub(crate) async fn create(
    database: &Database,
    terms: &Terms,
    workspace: Option<&str>,
    as_json: bool,
) -> Result<(), CliError> {
    let store = open(database).await?;
    let now = Clock::system().now();
    let workspace = match workspace {
        Some(id) => known_workspace(&store, id.to_owned()).await?,
        None => store.create_workspace(&terms.plan, now).await?,
    };
    let (id, key) = store.create_key(&workspace, terms, now).await?;
    let plan = &terms.plan;
    if as_json {
        say!("{}", json!({ "id": id, "workspace": workspace.id, "plan": plan, "key": key }))?;
    } else {
        say!("id         {id}\nworkspace  {}\nplan       {plan}\nkey        {key}", workspace.id)?;
    }
    store.close().await;
    Ok(())
}

pub(crate) async fn list(database: &Database, as_json: bool) -> Result<(), CliError> {
    let store = open(database).await?;
    let keys = store.keys().await?;
    if as_json {
        let subscribers: Vec<Subscriber> = keys.into_iter().map(Subscriber::from).collect();
        say!("{}", json!(subscribers))?;
    } else {
        for key in keys {
            say!("{}  {}  {:<12}  sha256:{}", key.id, key.workspace, key.terms.plan, key.sha256)?;
        }
    }
    store.close().await;
    Ok(())
}

pub(crate) async fn revoke(database: &Database, id: String) -> Result<(), CliError> {
    let store = open(database).await?;
    let revoked = store.revoke_key(&id, Clock::system().now()).await?;
    store.close().await;
    if revoked { Ok(()) } else { Err(CliError::UnknownKey(id)) }
}

/// The plans of the API. `enterprise` has no default quotas, so its key gets some.
const SEEDED: [(&str, Option<&str>); 5] = [
    ("free", None),
    ("pro", None),
    ("business", None),
    ("advanced", None),
    ("enterprise", Some("standard=5000/minute,analytics=20/second")),
];

pub(crate) async fn seed(database: &Database, name: &str, as_json: bool) -> Result<(), CliError> {
    let store = open(database).await?;
    let now = Clock::system().now();
    let workspace = store.create_workspace(name, now).await?;
    let mut keys = Vec::new();
    for (plan, limits) in SEEDED {
        let limits = limits.map(parse_limits).transpose()?;
        let terms = Terms { limits, ..Terms::of_plan(plan) };
        let (id, key) = store.create_key(&workspace, &terms, now).await?;
        keys.push(json!({ "id": id, "plan": plan, "key": key }));
        if !as_json {
            say!("{plan:<10}  {key}")?;
        }
    }
    if as_json {
        say!("{}", json!({ "workspace": workspace.id, "keys": keys }))?;
    }
    store.close().await;
    Ok(())
}
