//! The endpoints of links.

pub(crate) mod bulk;
pub(crate) mod fields;
pub(crate) mod selectors;
pub(crate) mod tag_fields;

use axum::extract::State;
use axum::response::Response;
use axum::{Json, Router, routing};
use serde_json::{Value, json};

use self::selectors::{external_id, not_found, selector};
use crate::api::caller::Caller;
use crate::api::json_array::json_array;
use crate::api::state::Shared;
use crate::domain::link::Link;
use crate::domain::link::LinkInput;
use crate::domain::link_body::LinkBody;
use crate::domain::link_search::LinkSearch;
use crate::domain::public_url::PublicUrl;
use crate::http::error::{ApiError, Code};
use crate::http::json_body::JsonBody;
use crate::http::path::Name;
use crate::http::query::{MAX_PAGE, MAX_VALUES, Query};
use crate::store::{LinkFilter, LinkGroup, LinkOrder, LinkPage, NewLink};

/// Default and maximum number of links on a page.
pub(crate) const PAGE_SIZE: i64 = 100;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/links", routing::get(list).post(create))
        .route("/links/bulk", routing::post(bulk::create).patch(bulk::update).delete(bulk::delete))
        .route("/links/count", routing::get(count))
        .route("/links/info", routing::get(info))
        .route("/links/upsert", routing::put(upsert))
        // A wildcard, because the published Python client does not escape slashes in external ids.
        .route("/links/{*id}", routing::get(one).patch(update).put(update).delete(delete))
}

async fn create(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody { value: body, .. }: JsonBody,
) -> Result<Json<LinkBody>, ApiError> {
    let now = app.clock.now();
    let new = NewLink::of(LinkInput::create(&body, "", now)?, &app.public_url);
    let made = app.store.create_links(&caller.workspace, &[new], now, Some(&app.public_url)).await?;
    app.announced.notify_one();
    match made.into_iter().next() {
        Some(Ok(link)) => {
            app.targets.forget(&link.domain, &link.key);
            Ok(Json(link.body(&app.public_url)))
        }
        Some(Err(conflict)) => Err(conflict.into()),
        None => Err(ApiError::internal()),
    }
}

async fn list(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let size = query.page_size(PAGE_SIZE)?;
    let page = page(&query, size)?;
    let filter = filter(&query, &app.public_url)?;
    let reader = app.store.reader().await?;
    let links = app.store.list_links(&caller.workspace, &filter, &page, size, reader).await?;
    let links = links.ok_or_else(|| {
        ApiError::new(Code::UnprocessableEntity, "Invalid cursor: the provided ID does not exist.")
    })?;
    json_array(links.into_iter().map(move |link| link.body(&app.public_url))).await
}

async fn count(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Json<Value>, ApiError> {
    let groups = [
        ("domain", LinkGroup::Domain),
        ("folderId", LinkGroup::FolderId),
        ("tagId", LinkGroup::TagId),
        ("userId", LinkGroup::UserId),
    ];
    let filter = filter(&query, &app.public_url)?;
    let by = query.choice("groupBy", &groups)?;
    let reader = app.store.reader().await?;
    let Some(by) = by else {
        return Ok(Json(app.store.count_links(&caller.workspace, &filter, reader).await?.into()));
    };
    let name = query.text("groupBy").unwrap_or_default();
    let counts = app.store.count_links_by(&caller.workspace, &filter, by, reader).await?;
    Ok(Json(counts.into_iter().map(|(value, count)| json!({ name: value, "_count": count })).collect()))
}

async fn info(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Json<LinkBody>, ApiError> {
    let names = [query.filter("linkId")?, query.filter("externalId")?];
    let by_id = names[0].map(selector);
    let by_external_id = names[1].map(external_id).transpose()?;
    let by_key = match (query.filter("domain")?, query.filter("key")?) {
        (Some(domain), Some(key)) => Some(selectors::key(domain, key)),
        (None, None) if names.iter().any(Option::is_some) => None,
        (None | Some(_), None) | (None, Some(_)) => {
            return Err(ApiError::bad_request(
                "You must provide a linkId, an externalId, or a domain and a key to retrieve a link.",
            ));
        }
    };
    let mut found: Option<Link> = None;
    for selector in [by_id, by_external_id, by_key].into_iter().flatten() {
        let link = app.store.link(&caller.workspace, &selector).await?.ok_or_else(not_found)?;
        // No link has all of the names.
        if found.is_some_and(|found| found.id != link.id) {
            return Err(not_found());
        }
        found = Some(link);
    }
    Ok(Json(found.ok_or_else(not_found)?.body(&app.public_url)))
}

async fn update(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody { value: body, .. }: JsonBody,
) -> Result<Json<LinkBody>, ApiError> {
    let now = app.clock.now();
    let input = LinkInput::update(&body, "", now)?;
    let changed =
        app.store.update_link(&caller.workspace, &selector(&id), input, now, &app.public_url).await?;
    let changed = changed.ok_or_else(not_found)?;
    app.link_changed(&changed);
    Ok(Json(changed.after.body(&app.public_url)))
}

async fn upsert(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody { value: body, .. }: JsonBody,
) -> Result<Json<LinkBody>, ApiError> {
    let now = app.clock.now();
    let new = NewLink::of(LinkInput::create(&body, "", now)?, &app.public_url);
    let changed = app.store.upsert_link(&caller.workspace, new, now, &app.public_url).await?;
    app.link_changed(&changed);
    Ok(Json(changed.after.body(&app.public_url)))
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
    app.deleted.notify_one();
    Ok(Json(json!({ "id": link.id })))
}

fn filter(query: &Query, public: &PublicUrl) -> Result<LinkFilter, ApiError> {
    let tag_ids = [query.list("tagIds", MAX_VALUES)?, query.list("tagId", MAX_VALUES)?];
    Ok(LinkFilter {
        domain: query.filter("domain")?.map(str::to_lowercase),
        tag_ids: tag_ids.into_iter().flatten().collect(),
        tag_names: query.list("tagNames", MAX_VALUES)?,
        folder_id: query.filter("folderId")?.map(|id| (id != "unsorted").then(|| id.to_owned())),
        tenant_id: query.filter("tenantId")?.map(str::to_owned),
        has_user: query.filter("userId")?.is_some(),
        has_tags: query.boolean("withTags")?.unwrap_or(false),
        search: query.search()?.map(|text| LinkSearch::new(text, public)),
        link_ids: query.list("linkIds", MAX_VALUES)?,
        show_archived: query.boolean("showArchived")?.unwrap_or(false),
    })
}

fn page(query: &Query, size: i64) -> Result<LinkPage, ApiError> {
    let orders = [
        ("createdAt", LinkOrder::CreatedAt),
        ("clicks", LinkOrder::Clicks),
        ("lastClicked", LinkOrder::LastClicked),
        // There are no sales, so all amounts are equal.
        ("saleAmount", LinkOrder::CreatedAt),
    ];
    let order = query.choice("sortBy", &orders)?.unwrap_or_default();
    let number =
        query.integer("page", 1..=MAX_PAGE, &format!("Max page is {MAX_PAGE}; use startingAfter."))?;
    // Clients may send `page` together with a cursor. The cursor takes precedence.
    match (query.filter("startingAfter")?, query.filter("endingBefore")?) {
        (Some(_), Some(_)) => Err(ApiError::new(
            Code::UnprocessableEntity,
            "You cannot use both startingAfter and endingBefore at the same time.",
        )),
        (None, None) => Ok(LinkPage::Offset { skip: (number.unwrap_or(1) - 1) * size, order }),
        _ if order != LinkOrder::CreatedAt => {
            Err(ApiError::new(Code::UnprocessableEntity, "Cursors only work with sortBy=createdAt."))
        }
        (Some(id), None) => Ok(LinkPage::StartingAfter(id.to_owned())),
        (None, Some(id)) => Ok(LinkPage::EndingBefore(id.to_owned())),
    }
}
