//! The endpoints of links.

use axum::extract::State;
use axum::{Json, Router, routing};
use serde::Serialize;
use serde_json::Value;

use super::input::LinkInput;
use super::{LinkBody, PublicUrl};
use crate::app::Shared;
use crate::auth::Caller;
use crate::body::{JsonBody, wrong_type};
use crate::error::{ApiError, Code};
use crate::path::Name;
use crate::query::Query;
use crate::store::{LinkConflict, LinkFilter, LinkOrder, LinkSelector, NewLink, Page};

/// Most links that one call makes, changes or deletes.
const MAX_BULK: usize = 100;
/// Links on a page, unless asked for fewer; also the most.
const PAGE_SIZE: i64 = 100;
/// The last page that an offset reaches; beyond it, cursors.
const MAX_PAGE: i64 = 1_000;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/links", routing::get(list).post(create))
        .route("/links/bulk", routing::post(create_bulk))
        .route("/links/count", routing::get(count))
        .route("/links/{id}", routing::get(one).delete(delete))
}

async fn create(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody(body): JsonBody,
) -> Result<Json<LinkBody>, ApiError> {
    let now = app.clock.now();
    let new = new_link(LinkInput::create(&body, "", now)?, &app.public_url)?;
    let made = app.store.create_links(&caller.workspace, &[new], now, Some(&app.public_url)).await?;
    app.announced.notify_one();
    match made.into_iter().next() {
        Some(Ok(link)) => Ok(Json(link.body(&app.public_url))),
        Some(Err(conflict)) => Err(refusal(&conflict)),
        None => Err(ApiError::new(Code::InternalServerError, "An internal server error occurred.")),
    }
}

/// One answer of a bulk call, in the place of its request.
#[derive(Debug, Serialize, utoipa::ToSchema)]
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

async fn create_bulk(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody(body): JsonBody,
) -> Result<Json<Vec<BulkResult>>, ApiError> {
    let Value::Array(items) = body else { return Err(wrong_type("", "array", &body)) };
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
    let now = app.clock.now();
    let mut links = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let input = LinkInput::create(item, &format!("[{index}]"), now)?;
        links.push(new_link(input, &app.public_url)?);
    }
    refuse_duplicates(&links)?;
    let made = app.store.create_links(&caller.workspace, &links, now, None).await?;
    let results = made.into_iter().zip(items).map(|(result, item)| match result {
        Ok(link) => BulkResult::Made(Box::new(link.body(&app.public_url))),
        Err(conflict) => {
            let refusal = refusal(&conflict);
            BulkResult::Refused { link: item, error: refusal.message, code: refusal.code }
        }
    });
    Ok(Json(results.collect()))
}

/// A call that names the same short link twice contradicts itself.
fn refuse_duplicates(links: &[NewLink]) -> Result<(), ApiError> {
    let mut seen = std::collections::HashSet::new();
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

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    query: Query,
) -> Result<Json<Vec<LinkBody>>, ApiError> {
    let size = query.integer("pageSize", 1..=PAGE_SIZE, &format!("Max page size is {PAGE_SIZE}."))?;
    let size = size.unwrap_or(PAGE_SIZE);
    let page = page(&query, size)?;
    let links = app.store.list_links(&caller.workspace, &filter(&query)?, &page, size).await?;
    let links = links.ok_or_else(|| {
        ApiError::new(Code::UnprocessableEntity, "Invalid cursor: the provided ID does not exist.")
    })?;
    Ok(Json(links.iter().map(|link| link.body(&app.public_url)).collect()))
}

async fn count(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Json<i64>, ApiError> {
    Ok(Json(app.store.count_links(&caller.workspace, &filter(&query)?).await?))
}

async fn one(State(app): State<Shared>, caller: Caller, Name(id): Name) -> Result<Json<LinkBody>, ApiError> {
    let link = app.store.link(&caller.workspace, &selector(&id)).await?.ok_or_else(not_found)?;
    Ok(Json(link.body(&app.public_url)))
}

async fn delete(State(app): State<Shared>, caller: Caller, Name(id): Name) -> Result<Json<Value>, ApiError> {
    let now = app.clock.now();
    let deleted = app.store.delete_link(&caller.workspace, &selector(&id), now, &app.public_url).await?;
    let link = deleted.ok_or_else(not_found)?;
    app.targets.forget(&link.domain, &link.key);
    app.announced.notify_one();
    Ok(Json(serde_json::json!({ "id": link.id })))
}

fn not_found() -> ApiError {
    ApiError::not_found("Link not found.")
}

fn refusal(conflict: &LinkConflict) -> ApiError {
    let code = match conflict {
        LinkConflict::Key | LinkConflict::ExternalId => Code::Conflict,
        LinkConflict::UnknownTags(_) => Code::UnprocessableEntity,
    };
    ApiError::new(code, conflict.to_string())
}

/// A link's name in a path: its id, or `ext_` and its external id.
fn selector(id: &str) -> LinkSelector {
    match id.strip_prefix("ext_") {
        Some(external) => LinkSelector::ExternalId(external.to_owned()),
        None => LinkSelector::Id(id.to_owned()),
    }
}

/// Puts a new link on its domain.
fn new_link(input: LinkInput, public: &PublicUrl) -> Result<NewLink, ApiError> {
    let domain = input.domain.clone().unwrap_or_else(|| public.default_domain().to_owned());
    if domain != public.default_domain() {
        return Err(ApiError::new(Code::Forbidden, "Domain does not belong to workspace."));
    }
    Ok(NewLink { input, domain })
}

fn filter(query: &Query) -> Result<LinkFilter, ApiError> {
    let mut tag_ids = query.list("tagIds");
    tag_ids.extend(query.list("tagId"));
    Ok(LinkFilter {
        domain: query.text("domain").map(str::to_lowercase),
        tag_ids,
        tag_names: query.list("tagNames"),
        folder_id: query.text("folderId").map(|id| (id != "unsorted").then(|| id.to_owned())),
        tenant_id: query.text("tenantId").map(str::to_owned),
        search: query.text("search").map(str::to_owned),
        link_ids: query.list("linkIds"),
        show_archived: query.boolean("showArchived")?.unwrap_or(false),
    })
}

fn page(query: &Query, size: i64) -> Result<Page, ApiError> {
    let orders = [
        ("createdAt", LinkOrder::CreatedAt),
        ("clicks", LinkOrder::Clicks),
        ("lastClicked", LinkOrder::LastClicked),
        // Nothing is sold through links, so all amounts are equal.
        ("saleAmount", LinkOrder::CreatedAt),
    ];
    let order = query.choice("sortBy", &orders)?.unwrap_or_default();
    let number =
        query.integer("page", 1..=MAX_PAGE, &format!("Max page is {MAX_PAGE}; use startingAfter."))?;
    // A client that follows pages by cursor may send `page` as well; the cursor says more.
    match (query.text("startingAfter"), query.text("endingBefore")) {
        (Some(_), Some(_)) => Err(ApiError::new(
            Code::UnprocessableEntity,
            "You cannot use both startingAfter and endingBefore at the same time.",
        )),
        (None, None) => Ok(Page::Offset { skip: (number.unwrap_or(1) - 1) * size, order }),
        _ if order != LinkOrder::CreatedAt => {
            Err(ApiError::new(Code::UnprocessableEntity, "Cursors only work with sortBy=createdAt."))
        }
        (Some(id), None) => Ok(Page::StartingAfter(id.to_owned())),
        (None, Some(id)) => Ok(Page::EndingBefore(id.to_owned())),
    }
}
