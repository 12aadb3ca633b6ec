//! The parameters of operations.

use serde_json::{Value, json};

use crate::api::links::bulk::MAX_BULK;
use crate::api::repeat::MAX_KEY;
use crate::api::webhooks::deliveries;
use crate::api::{analytics, domains, events, folders, links, qr, selection, tags};
use crate::domain::event::Trigger;
use crate::http::fields::MAX_ITEM;
use crate::http::query::{MAX_PAGE, MAX_SEARCH, MAX_VALUES};
use crate::store::REPLAYED_AT_ONCE;

pub(super) fn in_path(name: &str, description: &str) -> Value {
    let schema = json!({"type": "string", "minLength": 1});
    json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema})
}

/// The header of a creation that a client may repeat.
pub(super) fn repeatable() -> Vec<Value> {
    let schema = json!({"type": "string", "pattern": "^[!#-~]+$", "maxLength": MAX_KEY});
    let description = "A repetition with the same key within 24 hours gets the answer of the first request.";
    vec![json!({"name": "Idempotency-Key", "in": "header", "description": description, "schema": schema})]
}

fn in_query(name: &str, schema: Value) -> Value {
    let mut parameter = json!({"name": name, "in": "query"});
    parameter["schema"] = schema;
    parameter
}

fn choice<'a>(name: &str, words: impl IntoIterator<Item = &'a str>) -> Value {
    in_query(name, json!({"type": "string", "enum": words.into_iter().collect::<Vec<_>>()}))
}

fn number(name: &str, minimum: u32, maximum: impl Into<Value>) -> Value {
    let maximum = maximum.into();
    in_query(name, json!({"type": "integer", "minimum": minimum, "maximum": maximum}))
}

fn flag(name: &str) -> Value {
    in_query(name, json!({"type": "boolean"}))
}

/// A filter. Its value must not be empty.
fn filter(name: &str) -> Value {
    in_query(name, json!({"type": "string", "minLength": 1}))
}

/// A comma-separated list of strings.
fn list(name: &str, max: usize) -> Value {
    let item = json!({"type": "string", "maxLength": MAX_ITEM});
    let schema = json!({"type": "array", "items": item, "minItems": 1, "maxItems": max});
    json!({"name": name, "in": "query", "style": "form", "explode": false, "schema": schema})
}

fn required(mut parameter: Value) -> Value {
    parameter["required"] = json!(true);
    parameter
}

pub(super) fn link_info() -> Vec<Value> {
    ["linkId", "externalId", "domain", "key"].map(filter).into()
}

pub(super) fn bulk_delete() -> Vec<Value> {
    vec![required(list("linkIds", MAX_BULK))]
}

fn link_filters() -> Vec<Value> {
    let mut parameters: Vec<Value> = ["domain", "tagId", "folderId", "tenantId", "userId"].map(filter).into();
    parameters.extend(["tagIds", "tagNames", "linkIds"].map(|name| list(name, MAX_VALUES)));
    parameters.push(search());
    parameters.extend(["showArchived", "withTags"].map(flag));
    parameters
}

fn search() -> Value {
    in_query("search", json!({"type": "string", "maxLength": MAX_SEARCH}))
}

/// The parameters of a list whose pages have at most `size` entries.
fn pages(size: i64) -> [Value; 2] {
    [number("page", 1, MAX_PAGE), number("pageSize", 1, size)]
}

/// The parameters of a list that can be searched.
fn searched_list(size: i64) -> Vec<Value> {
    [search()].into_iter().chain(pages(size)).collect()
}

pub(super) fn folder_list() -> Vec<Value> {
    searched_list(folders::PAGE_SIZE)
}

pub(super) fn tag_list() -> Vec<Value> {
    let mut parameters = searched_list(tags::PAGE_SIZE);
    parameters.push(list("ids", MAX_VALUES));
    parameters.extend([choice("sortBy", ["name", "createdAt"]), choice("sortOrder", ["asc", "desc"])]);
    parameters
}

pub(super) fn domain_list() -> Vec<Value> {
    let mut parameters = searched_list(domains::PAGE_SIZE);
    parameters.push(flag("archived"));
    parameters
}

pub(super) fn link_list() -> Vec<Value> {
    let mut parameters = link_filters();
    parameters.extend(["startingAfter", "endingBefore"].map(filter));
    parameters.push(choice("sortBy", ["createdAt", "clicks", "lastClicked", "saleAmount"]));
    parameters.extend(pages(links::PAGE_SIZE));
    parameters
}

pub(super) fn link_count() -> Vec<Value> {
    let mut parameters = link_filters();
    parameters.push(choice("groupBy", ["domain", "folderId", "tagId", "userId"]));
    parameters
}

fn click_filters() -> Vec<Value> {
    let mut parameters = vec![choice("interval", selection::interval_names())];
    parameters.extend(["start", "end", "timezone"].map(filter));
    parameters.extend(["key", "externalId", "customerId"].map(filter));
    parameters.extend(selection::filter_names().map(filter));
    parameters.push(choice("saleType", ["new", "recurring"]));
    parameters.extend(["qr", "root"].map(flag));
    parameters
}

pub(super) fn analytics() -> Vec<Value> {
    let mut parameters = vec![
        choice("groupBy", analytics::grouping_names()),
        choice("event", ["clicks", "leads", "sales", "composite"]),
    ];
    parameters.extend(click_filters());
    parameters
}

pub(super) fn event_list() -> Vec<Value> {
    let mut parameters = vec![
        choice("event", ["clicks", "leads", "sales"]),
        number("page", 1, events::MAX_PAGE),
        number("limit", 1, events::MAX_LIMIT),
        choice("sortBy", ["timestamp"]),
        choice("sortOrder", ["asc", "desc"]),
        choice("order", ["asc", "desc"]),
    ];
    parameters.extend(click_filters());
    parameters
}

pub(super) fn delivery_list() -> Vec<Value> {
    let mut parameters = vec![
        choice("status", deliveries::STATUSES.map(|(name, _)| name)),
        choice("event", Trigger::ALL.map(Trigger::name)),
    ];
    parameters.extend(["start", "end"].map(filter));
    parameters.push(list("eventIds", REPLAYED_AT_ONCE as usize));
    parameters.extend(pages(deliveries::PAGE_SIZE));
    parameters
}

pub(super) fn qr_code() -> Vec<Value> {
    let (_, min_size, max_size) = qr::SIZE;
    let url = json!({"type": "string", "minLength": 1, "maxLength": qr::MAX_TEXT});
    let color = || json!({"type": "string", "pattern": "^(#?[0-9a-fA-F]{6})?$"});
    vec![
        required(in_query("url", url)),
        choice("level", qr::level_names()),
        number("size", min_size, max_size),
        number("margin", 0, qr::MARGIN.1),
        in_query("fgColor", color()),
        in_query("bgColor", color()),
        flag("hideLogo"),
        flag("includeMargin"),
    ]
}
