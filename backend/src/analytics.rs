//! `GET /analytics`: counts of clicks, in total or in groups.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::auth::{AnalyticsCaller, Caller};
use crate::error::ApiError;
use crate::folders::Folder;
use crate::json_list::{JsonList, json_list};
use crate::json_parts::{Items, JsonParts, PART_BYTES, is_full};
use crate::links::PublicUrl;
use crate::query::Query;
use crate::selection::{ClickQuery, Interval};
use crate::state::{App, Shared};
use crate::store::{Column, Ranking, Reader, Step, TopLink};
use crate::when::rfc3339;

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/analytics", routing::get(analytics))
}

/// The value of `groupBy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupBy {
    Count,
    Timeseries,
    TopLinks,
    Columns(Group),
    /// Groups by a property that no click has.
    Nothing,
}

/// Groups by one or more columns. Each column appears in its own field of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Continents,
    Countries,
    Regions,
    Cities,
    Devices,
    Browsers,
    Os,
    Triggers,
    Referers,
    RefererUrls,
    Folders,
    Tags,
    Domains,
    Urls,
    BaseUrls,
    UtmSources,
    UtmMediums,
    UtmCampaigns,
    UtmTerms,
    UtmContents,
}

const GROUPINGS: [(&str, GroupBy); 28] = [
    ("count", GroupBy::Count),
    ("timeseries", GroupBy::Timeseries),
    ("top_links", GroupBy::TopLinks),
    ("continents", GroupBy::Columns(Group::Continents)),
    ("countries", GroupBy::Columns(Group::Countries)),
    ("regions", GroupBy::Columns(Group::Regions)),
    ("cities", GroupBy::Columns(Group::Cities)),
    ("devices", GroupBy::Columns(Group::Devices)),
    ("browsers", GroupBy::Columns(Group::Browsers)),
    ("os", GroupBy::Columns(Group::Os)),
    ("trigger", GroupBy::Columns(Group::Triggers)),
    ("triggers", GroupBy::Columns(Group::Triggers)),
    ("referers", GroupBy::Columns(Group::Referers)),
    ("referer_urls", GroupBy::Columns(Group::RefererUrls)),
    ("top_folders", GroupBy::Columns(Group::Folders)),
    ("top_link_tags", GroupBy::Columns(Group::Tags)),
    ("top_domains", GroupBy::Columns(Group::Domains)),
    ("top_urls", GroupBy::Columns(Group::Urls)),
    ("top_base_urls", GroupBy::Columns(Group::BaseUrls)),
    ("utm_sources", GroupBy::Columns(Group::UtmSources)),
    ("utm_mediums", GroupBy::Columns(Group::UtmMediums)),
    ("utm_campaigns", GroupBy::Columns(Group::UtmCampaigns)),
    ("utm_terms", GroupBy::Columns(Group::UtmTerms)),
    ("utm_contents", GroupBy::Columns(Group::UtmContents)),
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

/// The values of `groupBy`.
pub(crate) fn grouping_names() -> impl Iterator<Item = &'static str> {
    GROUPINGS.into_iter().map(|(name, _)| name)
}

async fn analytics(
    State(app): State<Shared>,
    AnalyticsCaller { caller, place }: AnalyticsCaller,
    query: Query,
) -> Result<Response, ApiError> {
    let admitted = app.admission.admit(&caller.workspace, place).await?;
    let priority = admitted.priority;
    let shared = Arc::clone(&app);
    let answer = async move {
        let mut reader = shared.store.reader(priority).await?;
        Ok((answer(&shared, &caller, &query, &mut reader).await?, caller.workspace))
    };
    match admitted.answer(answer).await? {
        (Answer::Whole(response), _) => Ok(response),
        (Answer::Parts(parts), workspace) => parts.answer(app, workspace).await,
    }
}

/// An answer, or its first part.
enum Answer {
    Whole(Response),
    Parts(JsonParts<TopLinks>),
}

async fn answer(app: &App, caller: &Caller, query: &Query, reader: &mut Reader) -> Result<Answer, ApiError> {
    let metric = query.choice("event", &METRICS)?.unwrap_or(Metric::Clicks);
    let group_by = query.choice("groupBy", &GROUPINGS)?.unwrap_or(GroupBy::Count);
    let click_query = ClickQuery::read(query, app, caller, reader).await?;
    let answer = match (group_by, metric) {
        (GroupBy::Count, Metric::Clicks) => {
            let selection = &click_query.selection;
            counted([], app.store.count_clicks(reader, &caller.workspace, selection).await?)
        }
        (GroupBy::Count, Metric::Leads | Metric::Sales) => counted([], 0),
        (GroupBy::Timeseries, metric) => timeseries(app, caller, reader, &click_query, metric).await?,
        (GroupBy::Nothing, _) | (GroupBy::TopLinks | GroupBy::Columns(_), Metric::Leads | Metric::Sales) => {
            json!([])
        }
        (GroupBy::TopLinks, Metric::Clicks) => {
            let selection = &click_query.selection;
            let ranking = app.store.top_links(reader, &caller.workspace, selection).await?;
            return Ok(Answer::Parts(JsonParts::begin(TopLinks(ranking), app, reader).await?));
        }
        (GroupBy::Columns(group), Metric::Clicks) => {
            return Ok(Answer::Whole(by_columns(app, caller, reader, &click_query, group).await?));
        }
    };
    Ok(Answer::Whole(Json(answer).into_response()))
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
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TopLinkBody<'a> {
    link: &'a str,
    id: &'a str,
    domain: &'a str,
    key: &'a str,
    short_link: String,
    url: &'a str,
    title: Option<&'a str>,
    comments: Option<&'a str>,
    folder_id: Option<&'a str>,
    partner_id: Option<&'a str>,
    created_at: String,
    clicks: i64,
    leads: i64,
    sales: i64,
    sale_amount: i64,
}

impl<'a> TopLinkBody<'a> {
    fn of(top: &'a TopLink, public: &PublicUrl) -> Self {
        Self {
            link: &top.id,
            id: &top.id,
            domain: &top.domain,
            key: &top.key,
            short_link: public.short_link(&top.domain, &top.key),
            url: &top.url,
            title: top.details.title.as_deref(),
            comments: top.details.comments.as_deref(),
            folder_id: top.folder_id.as_deref(),
            partner_id: top.details.partner_id.as_deref(),
            created_at: rfc3339(top.created_at),
            clicks: top.clicks,
            leads: 0,
            sales: 0,
            sale_amount: 0,
        }
    }
}

/// The entries of `top_links` that are not read.
struct TopLinks(Ranking);

impl Items for TopLinks {
    async fn read(&mut self, app: &App, reader: &mut Reader) -> Result<JsonList, ApiError> {
        let mut part = JsonList::default();
        let entry = |top: TopLink| {
            part.push(&TopLinkBody::of(&top, &app.public_url))?;
            Ok::<_, ApiError>(if is_full(&part) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        app.store.next_top_links(reader, &mut self.0, PART_BYTES, entry).await?;
        Ok(part)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

async fn by_columns(
    app: &App,
    caller: &Caller,
    reader: &mut Reader,
    click_query: &ClickQuery,
    group: Group,
) -> Result<Response, ApiError> {
    let columns: &'static [(&'static str, Column)] = match group {
        Group::Continents => &[("continent", Column::Continent)],
        Group::Countries => &[("country", Column::Country)],
        Group::Regions => &[("country", Column::Country), ("region", Column::Region)],
        Group::Cities => &[("country", Column::Country), ("region", Column::Region), ("city", Column::City)],
        Group::Devices => &[("device", Column::Device)],
        Group::Browsers => &[("browser", Column::Browser)],
        Group::Os => &[("os", Column::Os)],
        Group::Triggers => &[("trigger", Column::Trigger)],
        Group::Referers => &[("referer", Column::Referer)],
        Group::RefererUrls => &[("refererUrl", Column::RefererUrl)],
        Group::Folders => &[("folderId", Column::FolderId)],
        Group::Tags => &[("tagId", Column::TagId)],
        Group::Domains => &[("domain", Column::Domain)],
        Group::Urls => &[("url", Column::Url)],
        Group::BaseUrls => &[("url", Column::BaseUrl)],
        Group::UtmSources => &[("utm_source", Column::UtmSource)],
        Group::UtmMediums => &[("utm_medium", Column::UtmMedium)],
        Group::UtmCampaigns => &[("utm_campaign", Column::UtmCampaign)],
        Group::UtmTerms => &[("utm_term", Column::UtmTerm)],
        Group::UtmContents => &[("utm_content", Column::UtmContent)],
    };
    let names: Vec<Column> = columns.iter().map(|(_, column)| *column).collect();
    let groups = app.store.group_clicks(reader, &caller.workspace, &click_query.selection, &names).await?;
    let ids = || groups.iter().filter_map(|(values, _)| values.first().cloned()).collect::<Vec<_>>();
    let named: HashMap<String, Value> = match group {
        Group::Folders => {
            let folders = app.store.folders_of(reader, &caller.workspace, &ids()).await?;
            let named = |folder: Folder| (folder.id.clone(), json!({"id": folder.id, "name": folder.name}));
            folders.into_iter().map(named).collect()
        }
        Group::Tags => {
            let tags = app.store.tags_of(reader, &caller.workspace, &ids()).await?;
            tags.into_iter().map(|tag| (tag.id.clone(), json!(tag))).collect()
        }
        _ => HashMap::new(),
    };
    let entry = move |(values, clicks): (Vec<String>, i64)| {
        let mut fields: Vec<(&'static str, Value)> =
            columns.iter().zip(&values).map(|((field, _), value)| (*field, json!(value))).collect();
        match group {
            // The published shape includes the other levels of the location. `*` stands for all values.
            Group::Countries => fields.extend([("region", json!("*")), ("city", json!("*"))]),
            Group::Regions => fields.push(("city", json!("*"))),
            Group::Folders => fields.push(("folder", json!(named.get(&values[0])))),
            Group::Tags => fields.push(("tag", json!(named.get(&values[0])))),
            Group::Continents
            | Group::Cities
            | Group::Devices
            | Group::Browsers
            | Group::Os
            | Group::Triggers
            | Group::Referers
            | Group::RefererUrls
            | Group::Domains
            | Group::Urls
            | Group::BaseUrls
            | Group::UtmSources
            | Group::UtmMediums
            | Group::UtmCampaigns
            | Group::UtmTerms
            | Group::UtmContents => {}
        }
        counted(fields, clicks)
    };
    json_list(groups.into_iter().map(entry)).await
}

/// Length of one entry of a time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granularity {
    Hour,
    Day,
    Month,
}

impl Granularity {
    fn of(click_query: &ClickQuery) -> Self {
        match click_query.interval {
            Some(Interval::All | Interval::YearToDate | Interval::LastDays(365)) => Self::Month,
            Some(Interval::LastDays(_) | Interval::MonthToDate | Interval::QuarterToDate) => Self::Day,
            Some(Interval::Last(_)) | None => {
                let length = click_query.selection.end.duration_since(click_query.selection.start);
                if length <= SignedDuration::from_hours(48) {
                    Self::Hour
                } else if length <= SignedDuration::from_hours(24 * 180) {
                    Self::Day
                } else {
                    Self::Month
                }
            }
        }
    }
}

async fn timeseries(
    app: &App,
    caller: &Caller,
    reader: &mut Reader,
    click_query: &ClickQuery,
    metric: Metric,
) -> Result<Value, ApiError> {
    let starts = buckets(
        &click_query.zone,
        click_query.selection.start,
        click_query.selection.end,
        Granularity::of(click_query),
    );
    let starts = starts.ok_or_else(|| {
        let message = format!(
            "Invalid range: a time series has at most {MAX_BUCKETS} months. Choose interval=1y, or a start at most 100 years \
             before the end."
        );
        ApiError::invalid("custom", "start", &message)
    })?;
    let mut counts = vec![0_i64; starts.len()];
    if metric == Metric::Clicks {
        let step = step_of(&starts);
        for (at, clicks) in
            app.store.timeline(reader, &caller.workspace, &click_query.selection, step).await?
        {
            // The first bucket starts at or before the first counted click.
            let index = starts.partition_point(|start| start.as_millisecond() <= at).saturating_sub(1);
            if let Some(count) = counts.get_mut(index) {
                *count += clicks;
            }
        }
    }
    let entries =
        starts.iter().zip(counts).map(|(start, clicks)| counted([("start", json!(rfc3339(*start)))], clicks));
    Ok(entries.collect())
}

/// Maximum number of entries of a time series: the months of 100 years.
const MAX_BUCKETS: usize = 1_200;

/// The starts of all hours, days or months of `zone` that overlap the range. None if there are more than
/// [`MAX_BUCKETS`], or the first of them cannot be represented.
fn buckets(
    zone: &TimeZone,
    start: Timestamp,
    end: Timestamp,
    granularity: Granularity,
) -> Option<Vec<Timestamp>> {
    let first = start.to_zoned(zone.clone());
    // Hours start at full hours of this zone and are steps of absolute time, so that changes of the clock do not matter.
    let past_hour = SignedDuration::new(
        i64::from(first.minute()) * 60 + i64::from(first.second()),
        first.subsec_nanosecond(),
    );
    let date = if granularity == Granularity::Month { first.date().first_of_month() } else { first.date() };
    let bucket = |index: i64| -> Option<Timestamp> {
        let date = match granularity {
            Granularity::Hour => return start.checked_sub(past_hour).ok()?.checked_add(index.hours()).ok(),
            Granularity::Day => date.checked_add(index.days()),
            Granularity::Month => date.checked_add(index.months()),
        };
        Some(date.ok()?.to_zoned(zone.clone()).ok()?.timestamp())
    };
    let mut starts = vec![bucket(0)?];
    // A bucket that cannot be represented starts after every range.
    for bucket in (1..).map_while(bucket).take_while(|bucket| *bucket <= end) {
        if starts.len() == MAX_BUCKETS {
            return None;
        }
        starts.push(bucket);
    }
    Some(starts)
}

/// The coarsest step at which all buckets start.
fn step_of(starts: &[Timestamp]) -> Step {
    let all_on = |length: i64| starts.iter().all(|start| start.as_millisecond().rem_euclid(length) == 0);
    if all_on(86_400_000) {
        Step::Day
    } else if all_on(3_600_000) {
        Step::Hour
    } else {
        Step::QuarterHour
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(zone: &str, start: &str, end: &str, granularity: Granularity) -> Vec<String> {
        let zone = TimeZone::get(zone).unwrap();
        let starts = buckets(&zone, start.parse().unwrap(), end.parse().unwrap(), granularity).unwrap();
        starts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_day_in_hours_has_both_ends() {
        let hours = starts("UTC", "2026-01-05T10:30:00Z", "2026-01-06T10:30:00Z", Granularity::Hour);
        assert_eq!(hours.len(), 25);
        assert_eq!((hours[0].as_str(), hours[24].as_str()), ("2026-01-05T10:00:00Z", "2026-01-06T10:00:00Z"));
    }

    #[test]
    fn days_and_months_start_at_midnight_of_the_time_zone() {
        let days = starts("Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", Granularity::Day);
        assert_eq!(days, ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        let months =
            starts("Asia/Kolkata", "2026-01-31T12:00:00Z", "2026-03-01T12:00:00Z", Granularity::Month);
        assert_eq!(months, ["2025-12-31T18:30:00Z", "2026-01-31T18:30:00Z", "2026-02-28T18:30:00Z"]);
    }

    #[test]
    fn hours_follow_the_minutes_of_the_time_zone() {
        let hours = starts("Asia/Kolkata", "2026-01-05T10:10:00Z", "2026-01-05T11:40:00Z", Granularity::Hour);
        assert_eq!(hours, ["2026-01-05T09:30:00Z", "2026-01-05T10:30:00Z", "2026-01-05T11:30:00Z"]);
    }
}
