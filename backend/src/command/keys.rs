//! The commands `backend keys` and `backend seed`.

use backend::keys::{Subscriber, check_plan, parse_limits, read_limits};
use backend::{Clock, Terms};
use serde_json::json;

use super::arguments::{CreateKey, Database};
use super::database::{known_workspace, open};
use super::error::{CliError, say};

pub(crate) async fn create(options: CreateKey) -> Result<(), CliError> {
    let limits = match options.limits_file {
        Some(path) => {
            let unreadable =
                |source| CliError::NamedFile { option: "--limits-file", path: path.clone(), source };
            let json = std::fs::read(&path).map_err(unreadable)?;
            Some(read_limits(&json).map_err(|problem| CliError::LimitsFile { path, problem })?)
        }
        None => options.limits,
    };
    check_plan(&options.plan, &options.plans, limits.as_ref())?;
    let terms = Terms { plan: options.plan, limits, billing_anchor: options.billing_anchor };
    let store = open(&options.database).await?;
    let now = Clock::system().now();
    let workspace = match options.workspace {
        Some(id) => known_workspace(&store, id).await?,
        None => store.create_workspace(&terms.plan, now).await?,
    };
    let (id, key) = store.create_key(&workspace, &terms, now).await?;
    let plan = &terms.plan;
    if options.json {
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
