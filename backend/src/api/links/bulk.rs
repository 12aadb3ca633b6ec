//! Many links in one call, which is one transaction.

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::selectors::selector;
use crate::apart;
use crate::api::caller::Caller;
use crate::api::json_array::json_array;
use crate::api::state::Shared;
use crate::domain::change::Change;
use crate::domain::conflict::Conflict;
use crate::domain::link::Link;
use crate::domain::link::LinkInput;
use crate::domain::link_body::LinkBody;
use crate::domain::public_url::PublicUrl;
use crate::http::error::{ApiError, Code};
use crate::http::fields::{self, Items, join, kind};
use crate::http::issue::Issue;
use crate::http::json_body::JsonBody;
use crate::http::query::Query;
use crate::store::{LinkSelector, NewLink};

/// Maximum number of links that one call creates, updates or deletes.
pub(crate) const MAX_BULK: usize = 100;

/// The result for one item of a bulk call, in the order of the items.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum BulkResult {
    Made(Box<LinkBody>),
    Refused {
        /// The item as it was sent.
        link: Value,
        error: String,
        code: Code,
    },
}

pub(super) async fn create(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody { value: body, bytes }: JsonBody,
) -> Result<Response, ApiError> {
    let now = app.clock.now();
    let public = app.public_url.clone();
    let check = move || {
        let Value::Array(items) = body else { return Err(Issue::wrong_type("array", kind(&body)).at("")) };
        if items.is_empty() {
            return Err(ApiError::invalid(
                "too_small",
                "",
                "No links created – you must provide at least one link.",
            ));
        }
        if items.len() > MAX_BULK {
            let message = format!("You can only create up to {MAX_BULK} links at a time.");
            return Err(ApiError::invalid("too_big", "", &message));
        }
        let links: Vec<NewLink> = items
            .iter()
            .enumerate()
            .map(|(index, item)| {
                Ok(NewLink::of(LinkInput::create(item, &format!("[{index}]"), now)?, &public))
            })
            .collect::<Result<_, ApiError>>()?;
        refuse_duplicates(&links)?;
        Ok((items, links))
    };
    let (items, links) = apart::run_on(bytes, check).await?;
    let created = app.store.create_links(&caller.workspace, &links, now, None).await?;
    for link in created.iter().flatten() {
        app.targets.forget(&link.domain, &link.key);
    }
    let results = created.into_iter().zip(items);
    json_array(results.map(move |(made, item)| BulkResult::of(made, item, &app.public_url))).await
}

impl BulkResult {
    fn of(made: Result<Link, Conflict>, item: Value, public: &PublicUrl) -> Self {
        match made {
            Ok(link) => Self::Made(Box::new(link.body(public))),
            Err(conflict) => {
                let refusal = ApiError::from(conflict);
                Self::Refused { link: item, error: refusal.message, code: refusal.code }
            }
        }
    }
}

/// Refuses a call that creates the same short link twice.
fn refuse_duplicates(links: &[NewLink]) -> Result<(), ApiError> {
    let mut seen = HashSet::new();
    let mut duplicates = Vec::new();
    for link in links {
        let Some(key) = &link.input.key else { continue };
        if !seen.insert((&link.domain, key.to_lowercase())) {
            duplicates.push(format!("{}/{key}", link.domain));
        }
    }
    if duplicates.is_empty() {
        return Ok(());
    }
    Err(ApiError::bad_request(format!("Duplicate links found: {}", duplicates.join(", "))))
}

/// The body that updates links.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BulkUpdate {
    link_ids: Change<Items<MAX_BULK>>,
    external_ids: Change<Items<MAX_BULK>>,
    data: Value,
}

pub(super) async fn update(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody { value: body, .. }: JsonBody,
) -> Result<Response, ApiError> {
    let BulkUpdate { link_ids, external_ids: external, data } = fields::read(&body, "")?;
    let selectors = match (link_ids, external) {
        // An empty list does not hide the other one.
        (Change::Set(Items(ids)), Change::Set(Items(external))) if ids.is_empty() => external_ids(external),
        (Change::Set(Items(ids)), _) => ids.iter().map(|id| selector(id)).collect(),
        (Change::Keep | Change::Clear, Change::Set(Items(ids))) => external_ids(ids),
        (Change::Keep | Change::Clear, Change::Keep | Change::Clear) => {
            return Err(Issue::custom("You must provide linkIds or externalIds").at("linkIds"));
        }
    };
    let now = app.clock.now();
    let input = LinkInput::update(&data, "data", now)?;
    // These fields are unique to a link.
    let unique = [
        ("domain", input.domain.is_some()),
        ("key", input.key.is_some()),
        ("externalId", matches!(input.external_id, Change::Set(_))),
    ];
    if let Some((name, _)) = unique.into_iter().find(|(_, is_set)| *is_set) {
        return Err(Issue::custom("Cannot be changed for many links at once").at(&join("data", name)));
    }
    let changed = app.store.update_links(&caller.workspace, &selectors, input, now).await?;
    for changed in &changed {
        app.link_changed(changed);
    }
    json_array(changed.into_iter().map(move |changed| changed.after.body(&app.public_url))).await
}

pub(super) async fn delete(
    State(app): State<Shared>,
    caller: Caller,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let ids = query.texts("linkIds", MAX_BULK)?;
    let ids = ids.ok_or_else(|| ApiError::bad_request("Please provide linkIds to delete."))?;
    let selectors: Vec<LinkSelector> = ids.iter().map(|id| selector(id)).collect();
    let deleted = app.store.delete_links(&caller.workspace, &selectors, app.clock.now()).await?;
    for link in &deleted {
        app.targets.forget(&link.domain, &link.key);
    }
    app.deleted.notify_one();
    Ok(Json(json!({ "deletedCount": deleted.len() })))
}

/// External ids in a body, with or without the prefix that paths need.
fn external_ids(ids: Vec<String>) -> Vec<LinkSelector> {
    let plain = |id: String| id.strip_prefix("ext_").map(str::to_owned).unwrap_or(id);
    ids.into_iter().map(|id| LinkSelector::ExternalId(plain(id))).collect()
}
