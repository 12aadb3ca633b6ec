//! `GET /events`: the clicks themselves, page by page. A page is read and sent in parts, so that the memory that it takes
//! does not grow with its length.

use std::collections::HashMap;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use futures_util::{StreamExt, stream};
use serde::Serialize;

use crate::analytics::Metric;
use crate::auth::{Caller, Questioner};
use crate::error::ApiError;
use crate::links::{Link, LinkBody, rfc3339};
use crate::query::Query;
use crate::selection::ClickQuery;
use crate::state::Shared;
use crate::store::{Click, ClicksAndLinks, StoreError, Workspace};

/// Events on a page unless asked otherwise.
const DEFAULT_LIMIT: i64 = 100;
/// Events on a page at most.
const MAX_LIMIT: i64 = 1_000;
/// The last page that can be asked for.
const MAX_PAGE: i64 = 1_000_000;
/// Events that are read and sent at once.
const PART: usize = 64;

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/events", routing::get(events))
}

/// What is known of a click, as events and webhooks show it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Click))]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClickBody {
    id: String,
    timestamp: String,
    url: String,
    country: String,
    city: String,
    region: String,
    continent: String,
    device: String,
    browser: String,
    os: String,
    ua: String,
    trigger: String,
    referer: String,
    referer_url: String,
    qr: bool,
    ip: String,
}

impl ClickBody {
    pub(crate) fn of(click: &Click) -> Self {
        let details = click.details.clone();
        Self {
            id: click.id.clone(),
            timestamp: rfc3339(click.at),
            url: details.url.into_owned(),
            country: details.country.into_owned(),
            city: details.city.into_owned(),
            region: details.region.into_owned(),
            continent: details.continent.into_owned(),
            device: details.device.into_owned(),
            browser: details.browser.into_owned(),
            os: details.os.into_owned(),
            ua: details.user_agent.into_owned(),
            qr: details.trigger == "qr",
            trigger: details.trigger.into_owned(),
            referer: details.referer.into_owned(),
            referer_url: details.referer_url.into_owned(),
            ip: details.ip.into_owned(),
        }
    }
}

/// An event. The fields below `link` repeat those of the click and the link, as the published clients require.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Event))]
pub(crate) struct EventBody<'a> {
    event: &'static str,
    timestamp: &'a str,
    click: &'a ClickBody,
    link: &'a LinkBody,
    click_id: &'a str,
    link_id: &'a str,
    domain: &'a str,
    key: &'a str,
    url: &'a str,
    continent: &'a str,
    country: &'a str,
    city: &'a str,
    device: &'a str,
    browser: &'a str,
    os: &'a str,
    /// 1 if the link was followed through its QR code.
    qr: u8,
    ip: &'a str,
}

impl<'a> EventBody<'a> {
    fn of(click: &'a ClickBody, link: &'a Link, link_body: &'a LinkBody) -> Self {
        Self {
            event: "click",
            timestamp: &click.timestamp,
            link: link_body,
            click_id: &click.id,
            link_id: &link.id,
            domain: &link.domain,
            key: &link.key,
            url: &click.url,
            continent: &click.continent,
            country: &click.country,
            city: &click.city,
            device: &click.device,
            browser: &click.browser,
            os: &click.os,
            qr: u8::from(click.qr),
            ip: &click.ip,
            click,
        }
    }
}

async fn events(
    State(app): State<Shared>,
    Questioner(caller): Questioner,
    query: Query,
) -> Result<Response, ApiError> {
    let admitted = app.admission.admit(&caller.workspace).await?;
    // The first part is read before the answer begins, so that a database that fails is answered 500.
    let (first, rest) = admitted.answer(async move { first_part(app, caller, &query).await }).await?;
    let rest = stream::try_unfold(rest, |events| async move {
        match events {
            Some(events) => events.part().await.map(Some),
            None => Ok(None),
        }
    });
    let parts = stream::once(async { Ok(first) }).chain(rest);
    Ok(([(CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response())
}

/// Finds the events of a page, and reads the first of them.
async fn first_part(app: Shared, caller: Caller, query: &Query) -> Result<(Bytes, Option<Events>), ApiError> {
    let metrics = [("clicks", Metric::Clicks), ("leads", Metric::Leads), ("sales", Metric::Sales)];
    let metric = query.choice("event", &metrics)?.unwrap_or(Metric::Clicks);
    let page = query.integer("page", 1..=MAX_PAGE, &format!("Max page is {MAX_PAGE}."))?.unwrap_or(1);
    let limit = query.integer("limit", 1..=MAX_LIMIT, &format!("Max pagination limit is {MAX_LIMIT}."))?;
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    query.choice("sortBy", &[("timestamp", ())])?;
    let directions = [("desc", true), ("asc", false)];
    // The published clients always send the deprecated `order=desc`, so only its other value says anything.
    let newest_first = query.choice("sortOrder", &directions)?.unwrap_or(true)
        && query.choice("order", &directions)?.unwrap_or(true);
    let click_query = ClickQuery::read(query, &app, &caller).await?;
    let seqs = match metric {
        Metric::Clicks => {
            let skip = (page - 1) * limit;
            app.store
                .page_of_clicks(&caller.workspace, &click_query.selection, newest_first, skip, limit)
                .await?
        }
        Metric::Leads | Metric::Sales => Vec::new(),
    };
    let events =
        Events { app, workspace: caller.workspace, seqs: seqs.into_iter(), is_first: true, sent: false };
    Ok(events.part().await?)
}

/// The events of a page that are still to be sent.
struct Events {
    app: Shared,
    workspace: Workspace,
    seqs: std::vec::IntoIter<i64>,
    /// Nothing was sent before.
    is_first: bool,
    /// An event was sent before.
    sent: bool,
}

impl Events {
    /// Reads the next events and writes them as a part of a JSON list. None instead of the rest after the last part.
    async fn part(mut self) -> Result<(Bytes, Option<Self>), StoreError> {
        let seqs: Vec<i64> = self.seqs.by_ref().take(PART).collect();
        let ClicksAndLinks { clicks, links } = self.app.store.clicks(&self.workspace, &seqs).await?;
        let bodies: HashMap<i64, LinkBody> =
            links.iter().map(|(seq, link)| (*seq, link.body(&self.app.public_url))).collect();
        let mut text = Vec::new();
        if self.is_first {
            text.push(b'[');
            self.is_first = false;
        }
        for (click, link) in &clicks {
            let (Some(link), Some(body)) = (links.get(link), bodies.get(link)) else { continue };
            if self.sent {
                text.push(b',');
            }
            self.sent = true;
            let click = ClickBody::of(click);
            serde_json::to_writer(&mut text, &EventBody::of(&click, link, body))
                .map_err(|error| StoreError::Corrupt { what: "event", problem: error.to_string() })?;
        }
        let is_last = self.seqs.len() == 0;
        if is_last {
            text.push(b']');
        }
        Ok((text.into(), (!is_last).then_some(self)))
    }
}
