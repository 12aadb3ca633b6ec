//! `GET /events`: the clicks, page by page.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};

use crate::apart;
use crate::api::analytics::Metric;
use crate::api::caller::Caller;
use crate::api::json_array::JsonArray;
use crate::api::selection::ClickQuery;
use crate::api::state::Shared;
use crate::domain::event::{ClickBody, EventBody};
use crate::domain::link_body::LinkBody;
use crate::domain::public_url::PublicUrl;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::store::{ClicksAndLinks, load_clicks};

/// Default number of events on a page.
const DEFAULT_LIMIT: i64 = 100;
/// Maximum number of events on a page.
pub(crate) const MAX_LIMIT: i64 = 1_000;
/// Maximum page number.
pub(crate) const MAX_PAGE: i64 = 1_000_000;
/// Number of clicks that are read at once. Each may have a link of the largest size.
const AT_ONCE: usize = 100;

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/events", routing::get(events))
}

async fn events(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let metrics = [("clicks", Metric::Clicks), ("leads", Metric::Leads), ("sales", Metric::Sales)];
    let metric = query.choice("event", &metrics)?.unwrap_or(Metric::Clicks);
    let page = query.integer("page", 1..=MAX_PAGE, &format!("Max page is {MAX_PAGE}."))?.unwrap_or(1);
    let limit = query.integer("limit", 1..=MAX_LIMIT, &format!("Max pagination limit is {MAX_LIMIT}."))?;
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    query.choice("sortBy", &[("timestamp", ())])?;
    let directions = [("desc", true), ("asc", false)];
    // The published clients always send the deprecated `order=desc`, so only `asc` is significant.
    let newest_first = query.choice("sortOrder", &directions)?.unwrap_or(true)
        && query.choice("order", &directions)?.unwrap_or(true);
    let mut reader = app.store.reader().await?;
    let click_query = ClickQuery::read(&query, &app, &caller, &mut reader).await?;
    let seqs = match metric {
        Metric::Clicks => {
            let (workspace, selection) = (&caller.workspace, &click_query.selection);
            let skip = (page - 1) * limit;
            app.store.page_of_clicks(&mut reader, workspace, selection, newest_first, skip, limit).await?
        }
        Metric::Leads | Metric::Sales => Vec::new(),
    };
    let mut array = JsonArray::default();
    for seqs in seqs.chunks(AT_ONCE) {
        let found = load_clicks(&mut reader, seqs).await?;
        let public = app.public_url.clone();
        array = apart::run(move || write(array, found, &public)).await?;
    }
    Ok(array.into_response())
}

fn write(
    mut array: JsonArray,
    ClicksAndLinks { clicks, links }: ClicksAndLinks,
    public: &PublicUrl,
) -> Result<JsonArray, ApiError> {
    let bodies: HashMap<i64, LinkBody> = links.iter().map(|(seq, link)| (*seq, link.body(public))).collect();
    for (click, link) in clicks {
        if let (Some(link), Some(link_body)) = (links.get(&link), bodies.get(&link)) {
            array.push(&EventBody { click: &ClickBody(click), link, link_body })?;
        }
    }
    Ok(array)
}
