//! The selection of clicks: the range and filters that `/analytics` and `/events` share.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use crate::api::caller::Caller;
use crate::api::links::selectors;
use crate::api::state::App;
use crate::domain::click::{MAX_DESTINATION, MAX_KEPT};
use crate::domain::when::{self, Edge};
use crate::http::error::ApiError;
use crate::http::issue::Issue;
use crate::http::query::{MAX_VALUES, Query};
use crate::store::{Column, Condition, Reader, Selection};

/// A value of `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    Last(SignedDuration),
    LastDays(i64),
    MonthToDate,
    QuarterToDate,
    YearToDate,
    All,
}

const DAY: SignedDuration = SignedDuration::from_hours(24);

pub(crate) const INTERVALS: [(&str, Interval); 9] = [
    ("24h", Interval::Last(DAY)),
    ("7d", Interval::LastDays(7)),
    ("30d", Interval::LastDays(30)),
    ("90d", Interval::LastDays(90)),
    ("1y", Interval::LastDays(365)),
    ("mtd", Interval::MonthToDate),
    ("qtd", Interval::QuarterToDate),
    ("ytd", Interval::YearToDate),
    ("all", Interval::All),
];

/// The form of the values of a filter.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// An id.
    Id,
    /// A text that may have white space at its ends.
    Text,
    /// A name that is compared in lower case.
    Lower,
    /// A host, which is stored without `www.`.
    Host,
    /// A code, which is stored in upper case.
    Code,
    /// A URL of at most this number of characters.
    Url(usize),
}

/// The filters on clicks, their columns and the form of their values.
const FILTERS: [(&str, Column, Form); 27] = [
    ("domain", Column::DOMAIN, Form::Lower),
    ("linkId", Column::LINK_ID, Form::Id),
    ("tenantId", Column::TENANT_ID, Form::Text),
    ("folderId", Column::FOLDER_ID, Form::Text),
    ("tagId", Column::TAG_ID, Form::Id),
    ("tagIds", Column::TAG_ID, Form::Id),
    ("country", Column::COUNTRY, Form::Code),
    ("city", Column::CITY, Form::Text),
    ("region", Column::REGION, Form::Code),
    ("continent", Column::CONTINENT, Form::Code),
    ("device", Column::DEVICE, Form::Lower),
    ("browser", Column::BROWSER, Form::Lower),
    ("os", Column::OS, Form::Lower),
    ("trigger", Column::TRIGGER, Form::Lower),
    ("referer", Column::REFERER, Form::Host),
    ("refererUrl", Column::REFERER_URL, Form::Url(MAX_KEPT)),
    ("url", Column::URL, Form::Url(MAX_DESTINATION)),
    ("utm_source", Column::UTM_SOURCE, Form::Text),
    ("utm_medium", Column::UTM_MEDIUM, Form::Text),
    ("utm_campaign", Column::UTM_CAMPAIGN, Form::Text),
    ("utm_term", Column::UTM_TERM, Form::Text),
    ("utm_content", Column::UTM_CONTENT, Form::Text),
    ("partnerId", Column::PARTNER_ID, Form::Text),
    ("programId", Column::PROGRAM_ID, Form::Text),
    ("groupId", Column::ABSENT, Form::Id),
    ("partnerTagId", Column::ABSENT, Form::Id),
    ("eventName", Column::ABSENT, Form::Id),
];

/// The range and filters of a request, and its time zone.
#[derive(Clone, Debug)]
pub(crate) struct ClickQuery {
    pub(crate) selection: Selection,
    pub(crate) zone: TimeZone,
    /// The interval of the range. None if the request has a `start`.
    pub(crate) interval: Option<Interval>,
}

impl ClickQuery {
    /// Parses the range and filters of a request.
    pub(crate) async fn read(
        query: &Query,
        app: &App,
        caller: &Caller,
        reader: &mut Reader,
    ) -> Result<Self, ApiError> {
        let now = app.clock.now();
        let zone = match query.filter("timezone")? {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name)
                .map_err(|_| ApiError::invalid("custom", "timezone", "Invalid IANA time zone"))?,
        };
        let interval = query.choice("interval", &INTERVALS)?;
        let (start, end) = range(query, now, &zone, interval)?;
        let kept_from = app.retention.kept_from(now);
        let start = match start {
            Some(start) => start,
            None => {
                let (first, made) = (
                    app.store.first_click(reader, &caller.workspace, kept_from).await?,
                    caller.workspace.created_at,
                );
                first.map_or(made, |first| first.min(made))
            }
        };
        let conditions = conditions(query, app, caller).await?;
        let interval = interval.filter(|_| query.text("start").is_none());
        Ok(Self { selection: Selection { start, end, conditions, kept_from }, zone, interval })
    }
}

/// The start and the end of a request's range. `start` and `end` take precedence over `interval`. `end` without `start` is the end of the
/// interval. `None` as the start means all.
pub(crate) fn range(
    query: &Query,
    now: Timestamp,
    zone: &TimeZone,
    interval: Option<Interval>,
) -> Result<(Option<Timestamp>, Timestamp), ApiError> {
    let instant = |name: &str, edge| match query.filter(name)? {
        None => Ok(None),
        Some(text) => when::parse(text, now, zone, edge)
            .map(Some)
            .map_err(|error| ApiError::invalid("custom", name, &error.to_string())),
    };
    let end = instant("end", Edge::End)?;
    let start = match (instant("start", Edge::Start)?, interval.unwrap_or(Interval::Last(DAY))) {
        (Some(start), _) => start,
        (None, Interval::All) => return Ok((None, end.unwrap_or(now))),
        (None, interval) => start_of(interval, end.unwrap_or(now), zone).ok_or_else(|| {
            ApiError::invalid("custom", "end", "Invalid date: the interval before it starts too early")
        })?,
    };
    let end = end.unwrap_or(now);
    if start > end {
        return Err(ApiError::invalid("custom", "start", "Invalid range: start is after end"));
    }
    Ok((Some(start), end))
}

/// The start of an interval that ends at `end`. None if it cannot be represented.
fn start_of(interval: Interval, end: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let last = end.to_zoned(zone.clone());
    let first = match interval {
        Interval::Last(duration) => return end.checked_sub(duration).ok(),
        // Whole days, of which the last contains `end`.
        Interval::LastDays(days) => last.date().checked_sub((days - 1).days()).ok()?,
        Interval::MonthToDate => last.date().first_of_month(),
        Interval::QuarterToDate => {
            let months_in = (last.month() - 1) % 3;
            last.date().first_of_month().checked_sub(i64::from(months_in).months()).ok()?
        }
        Interval::YearToDate => last.date().first_of_year(),
        Interval::All => return Some(Timestamp::UNIX_EPOCH),
    };
    Some(first.to_zoned(zone.clone()).ok()?.timestamp())
}

async fn conditions(query: &Query, app: &App, caller: &Caller) -> Result<Vec<Condition>, ApiError> {
    let mut conditions = Vec::new();
    for (name, column, form) in FILTERS {
        if let Some((values, negated)) = filter_values(query, name, form)? {
            let values = values.into_iter().map(|value| spelled(form, value)).collect();
            conditions.push(Condition { column, values, negated });
        }
    }
    conditions.extend(conditions_on_absent_data(query)?);
    if let Some(qr) = query.boolean("qr")? {
        let trigger = vec!["qr".to_owned()];
        conditions.push(Condition { column: Column::TRIGGER, values: trigger, negated: !qr });
    }
    // These parameters name one link. It must exist.
    let by_key = match (query.filter("domain")?, query.filter("key")?) {
        (Some(domain), Some(key)) => Some(selectors::key(domain, key)),
        (None, Some(_)) => {
            return Err(ApiError::bad_request("The key parameter needs the domain parameter."));
        }
        (_, None) => None,
    };
    let by_external_id = query.filter("externalId")?.map(selectors::external_id).transpose()?;
    for selector in [by_key, by_external_id].into_iter().flatten() {
        let link = app.store.link(&caller.workspace, &selector).await?;
        let link = link.ok_or_else(selectors::not_found)?;
        conditions.push(Condition { column: Column::LINK_ID, values: vec![link.id], negated: false });
    }
    Ok(conditions)
}

/// The conditions of filters on data that does not exist here. No click has a customer or a sale, and no link is the
/// root of its domain.
fn conditions_on_absent_data(query: &Query) -> Result<Vec<Condition>, ApiError> {
    if query.filter("query")?.is_some() {
        let message = "Metadata filters apply to leads and sales, which are not recorded.";
        return Err(ApiError::invalid("custom", "query", message));
    }
    let is_empty = [
        query.filter("customerId")?.is_some(),
        query.choice("saleType", &[("new", ()), ("recurring", ())])?.is_some(),
        query.boolean("root")? == Some(true),
    ];
    let none = || Condition { column: Column::ABSENT, values: Vec::new(), negated: false };
    Ok(is_empty.into_iter().filter(|is_empty| *is_empty).map(|_| none()).collect())
}

/// `a,b` selects either value; `-a,b` excludes both.
fn filter_values(query: &Query, name: &str, form: Form) -> Result<Option<(Vec<String>, bool)>, ApiError> {
    let values = match form {
        Form::Url(max) => query.addresses(name, max)?,
        Form::Text => query.texts(name, MAX_VALUES)?,
        Form::Id | Form::Lower | Form::Host | Form::Code => query.list(name, MAX_VALUES)?,
    };
    let Some(mut values) = values else { return Ok(None) };
    let negated = values.first().is_some_and(|first| first.starts_with('-'));
    if negated && let Some(first) = values.first_mut() {
        first.remove(0);
    }
    values.retain(|value| !value.is_empty());
    if values.is_empty() {
        return Err(Issue::empty_list().at(name));
    }
    Ok(Some((values, negated)))
}

/// The stored spelling of a value that requests may spell differently.
fn spelled(form: Form, value: String) -> String {
    match form {
        Form::Id | Form::Text | Form::Url(_) => value,
        Form::Lower => value.to_lowercase(),
        Form::Host => value.to_lowercase().trim_start_matches("www.").to_owned(),
        Form::Code => {
            let value = value.to_uppercase();
            match value.strip_prefix("UNKNOWN") {
                // A region may be known without its country: `Unknown-CA`.
                Some(rest) if rest.is_empty() || rest.starts_with('-') => format!("Unknown{rest}"),
                Some(_) | None => value,
            }
        }
    }
}
