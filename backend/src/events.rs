//! `GET /events`: the clicks themselves, page by page.

use axum::extract::State;
use axum::{Json, Router, routing};
use serde::Serialize;

use crate::analytics::Metric;
use crate::app::{App, Shared};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::links::{LinkBody, PublicUrl, rfc3339};
use crate::query::Query;
use crate::selection::Asked;
use crate::store::{Click, ClickEvent};

/// Events on a page unless asked otherwise.
const DEFAULT_LIMIT: i64 = 100;
/// Events on a page at most.
const MAX_LIMIT: i64 = 1_000;
/// The last page that can be asked for.
const MAX_PAGE: i64 = 1_000_000;

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
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Event))]
pub(crate) struct EventBody {
    event: &'static str,
    timestamp: String,
    click: ClickBody,
    link: LinkBody,
    click_id: String,
    link_id: String,
    domain: String,
    key: String,
    url: String,
    continent: String,
    country: String,
    city: String,
    device: String,
    browser: String,
    os: String,
    /// 1 if the link was followed through its QR code.
    qr: u8,
    ip: String,
}

impl EventBody {
    fn of(event: &ClickEvent, public: &PublicUrl) -> Self {
        let click = ClickBody::of(&event.click);
        Self {
            event: "click",
            timestamp: click.timestamp.clone(),
            link: event.link.body(public),
            click_id: click.id.clone(),
            link_id: event.link.id.clone(),
            domain: event.link.domain.clone(),
            key: event.link.key.clone(),
            url: click.url.clone(),
            continent: click.continent.clone(),
            country: click.country.clone(),
            city: click.city.clone(),
            device: click.device.clone(),
            browser: click.browser.clone(),
            os: click.os.clone(),
            qr: u8::from(click.qr),
            ip: click.ip.clone(),
            click,
        }
    }
}

async fn events(
    State(app): State<Shared>,
    caller: Caller,
    query: Query,
) -> Result<Json<Vec<EventBody>>, ApiError> {
    let admitted = app.admission.admit(&caller.workspace).await?;
    admitted.answer(async move { page(&app, &caller, &query).await }).await
}

async fn page(app: &App, caller: &Caller, query: &Query) -> Result<Json<Vec<EventBody>>, ApiError> {
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
    let asked = Asked::read(query, app, caller).await?;
    let clicks = match metric {
        Metric::Clicks => {
            let skip = (page - 1) * limit;
            app.store.list_clicks(&caller.workspace, &asked.selection, newest_first, skip, limit).await?
        }
        Metric::Leads | Metric::Sales => Vec::new(),
    };
    Ok(Json(clicks.iter().map(|event| EventBody::of(event, &app.public_url)).collect()))
}
