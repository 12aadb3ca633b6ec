//! `GET /analytics`: counts of clicks, in total or in groups.

mod time_series;

use std::collections::HashMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use serde_json::{Map, Value, json};

use self::time_series::time_series;
use crate::api::caller::Caller;
use crate::api::json_array::{JsonArray, json_array};
use crate::api::selection::ClickQuery;
use crate::api::state::{App, Shared};
use crate::domain::folder::Folder;
use crate::domain::link::Link;
use crate::domain::public_url::PublicUrl;
use crate::domain::tag::Tag;
use crate::domain::when::rfc3339;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::store::{Column, Reader, links_of};

/// Size of an answer with `top_links` from which on no more links are added, in bytes. It has room for 5,000 usual ones.
const TOP_LINKS_BYTES: usize = 8 * 1024 * 1024;
/// Number of links that are read at once. Each may have the largest size.
const LINKS_AT_ONCE: usize = 250;

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/analytics", routing::get(analytics))
}

/// The value of `groupBy`.
#[derive(Clone, Copy, Debug)]
enum GroupBy {
    Count,
    Timeseries,
    TopLinks,
    /// Groups by one or more columns, each of which has a field of the response.
    Columns(Columns),
    /// Groups by a property that no click has.
    Nothing,
}

/// The fields of a response, and their columns.
type Columns = &'static [(&'static str, Column)];

const GROUPINGS: [(&str, GroupBy); 28] = [
    ("count", GroupBy::Count),
    ("timeseries", GroupBy::Timeseries),
    ("top_links", GroupBy::TopLinks),
    ("continents", GroupBy::Columns(&[("continent", Column::CONTINENT)])),
    ("countries", GroupBy::Columns(&[("country", Column::COUNTRY)])),
    ("regions", GroupBy::Columns(&[("country", Column::COUNTRY), ("region", Column::REGION)])),
    (
        "cities",
        GroupBy::Columns(&[("country", Column::COUNTRY), ("region", Column::REGION), ("city", Column::CITY)]),
    ),
    ("devices", GroupBy::Columns(&[("device", Column::DEVICE)])),
    ("browsers", GroupBy::Columns(&[("browser", Column::BROWSER)])),
    ("os", GroupBy::Columns(&[("os", Column::OS)])),
    ("trigger", GroupBy::Columns(&[("trigger", Column::TRIGGER)])),
    ("triggers", GroupBy::Columns(&[("trigger", Column::TRIGGER)])),
    ("referers", GroupBy::Columns(&[("referer", Column::REFERER)])),
    ("referer_urls", GroupBy::Columns(&[("refererUrl", Column::BASE_REFERER_URL)])),
    ("top_folders", GroupBy::Columns(&[("folderId", Column::FOLDER_ID)])),
    ("top_link_tags", GroupBy::Columns(&[("tagId", Column::TAG_ID)])),
    ("top_domains", GroupBy::Columns(&[("domain", Column::DOMAIN)])),
    ("top_urls", GroupBy::Columns(&[("url", Column::URL)])),
    ("top_base_urls", GroupBy::Columns(&[("url", Column::BASE_URL)])),
    ("utm_sources", GroupBy::Columns(&[("utm_source", Column::UTM_SOURCE)])),
    ("utm_mediums", GroupBy::Columns(&[("utm_medium", Column::UTM_MEDIUM)])),
    ("utm_campaigns", GroupBy::Columns(&[("utm_campaign", Column::UTM_CAMPAIGN)])),
    ("utm_terms", GroupBy::Columns(&[("utm_term", Column::UTM_TERM)])),
    ("utm_contents", GroupBy::Columns(&[("utm_content", Column::UTM_CONTENT)])),
    ("event_names", GroupBy::Nothing),
    ("top_partners", GroupBy::Nothing),
    ("top_groups", GroupBy::Nothing),
    ("top_partner_tags", GroupBy::Nothing),
];

/// The counted event. Only clicks are recorded; leads and sales are always zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Clicks,
    Leads,
    Sales,
}

const METRICS: [(&str, Metric); 4] = [
    ("clicks", Metric::Clicks),
    ("leads", Metric::Leads),
    ("sales", Metric::Sales),
    ("composite", Metric::Clicks),
];

async fn analytics(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let metric = query.choice("event", &METRICS)?.unwrap_or(Metric::Clicks);
    let group_by = query.choice("groupBy", &GROUPINGS)?.unwrap_or(GroupBy::Count);
    let reader = &mut app.store.reader().await?;
    let click_query = ClickQuery::read(&query, &app, &caller, reader).await?;
    let selection = &click_query.selection;
    let answer = match (group_by, metric) {
        (GroupBy::Count, Metric::Clicks) => {
            counted([], app.store.count_clicks(reader, &caller.workspace, selection).await?)
        }
        (GroupBy::Count, Metric::Leads | Metric::Sales) => counted([], 0),
        (GroupBy::Timeseries, metric) => {
            let series = time_series(&app, &caller, reader, &click_query, metric == Metric::Clicks).await?;
            let entry = |(start, clicks)| counted([("start", json!(rfc3339(start)))], clicks);
            series.into_iter().map(entry).collect()
        }
        (GroupBy::Nothing, _) | (GroupBy::TopLinks | GroupBy::Columns(_), Metric::Leads | Metric::Sales) => {
            json!([])
        }
        (GroupBy::TopLinks, Metric::Clicks) => {
            let counts = app.store.top_links(reader, &caller.workspace, selection).await?;
            let mut array = JsonArray::default();
            for counts in counts.chunks(LINKS_AT_ONCE) {
                if array.len() >= TOP_LINKS_BYTES {
                    break;
                }
                let mut links = links_of(reader, counts.iter().map(|(link, _)| *link)).await?;
                for (link, clicks) in counts.iter().filter_map(|(link, n)| Some((links.remove(link)?, *n))) {
                    array.push(&top_link(&link, clicks, &app.public_url))?;
                }
            }
            return Ok(array.into_response());
        }
        (GroupBy::Columns(columns), Metric::Clicks) => {
            return by_columns(&app, &caller, reader, &click_query, columns).await;
        }
    };
    Ok(Json(answer).into_response())
}

/// An entry of the response: the given fields and all four metrics.
fn counted(fields: impl IntoIterator<Item = (&'static str, Value)>, clicks: i64) -> Value {
    let mut entry: Map<String, Value> =
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, number) in [("clicks", clicks), ("leads", 0), ("sales", 0), ("saleAmount", 0)] {
        entry.insert(name.to_owned(), number.into());
    }
    Value::Object(entry)
}

/// An entry of `top_links`.
fn top_link(link: &Link, clicks: i64, public: &PublicUrl) -> Value {
    let fields = [
        ("link", json!(link.id)),
        ("id", json!(link.id)),
        ("domain", json!(link.domain)),
        ("key", json!(link.key)),
        ("shortLink", json!(public.short_link(&link.domain, &link.key))),
        ("url", json!(link.url)),
        ("title", json!(link.details.title)),
        ("comments", json!(link.details.comments)),
        ("folderId", json!(link.folder_id)),
        ("partnerId", json!(link.details.partner_id)),
        ("createdAt", json!(rfc3339(link.created_at))),
    ];
    counted(fields, clicks)
}

async fn by_columns(
    app: &App,
    caller: &Caller,
    reader: &mut Reader,
    click_query: &ClickQuery,
    columns: Columns,
) -> Result<Response, ApiError> {
    let names: Vec<Column> = columns.iter().map(|(_, column)| *column).collect();
    let groups = app.store.group_clicks(reader, &caller.workspace, &click_query.selection, &names).await?;
    let grouped = columns.last().map(|(_, column)| *column);
    let ids = || groups.iter().filter_map(|(values, _)| values.first().cloned()).collect::<Vec<_>>();
    let named: HashMap<String, Value> = match grouped {
        Some(Column::FOLDER_ID) => {
            let folders = app.store.labels_of(reader, &caller.workspace, &ids()).await?;
            let named = |folder: Folder| (folder.id.clone(), json!({"id": folder.id, "name": folder.name}));
            folders.into_iter().map(named).collect()
        }
        Some(Column::TAG_ID) => {
            let tags = app.store.labels_of(reader, &caller.workspace, &ids()).await?;
            tags.into_iter().map(|tag: Tag| (tag.id.clone(), json!(tag))).collect()
        }
        _ => HashMap::new(),
    };
    let entry = move |(values, clicks): (Vec<String>, i64)| {
        let mut fields: Vec<(&'static str, Value)> =
            columns.iter().zip(&values).map(|((field, _), value)| (*field, json!(value))).collect();
        match grouped {
            // The published shape includes the other levels of the location. `*` stands for all values.
            Some(Column::COUNTRY) => fields.extend([("region", json!("*")), ("city", json!("*"))]),
            Some(Column::REGION) => fields.push(("city", json!("*"))),
            Some(Column::FOLDER_ID) => fields.push(("folder", json!(named.get(&values[0])))),
            Some(Column::TAG_ID) => fields.push(("tag", json!(named.get(&values[0])))),
            _ => {}
        }
        counted(fields, clicks)
    };
    json_array(groups.into_iter().map(entry)).await
}
