//! The endpoints for operators and the gateway. Clients cannot reach their listener.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::timeout;

use crate::api::state::{App, Shared};
use crate::domain::ids;
use crate::domain::load::OutboxBacklog;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::metrics;
use crate::store::{KeyChange, KeyRecord, Limits, ListedKey, StoreError, Terms};

/// Maximum wait of a check of readiness for the database.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/readyz", routing::get(readyz))
        .route("/metrics", routing::get(metrics))
        .route("/internal/keys", routing::get(keys))
}

async fn readyz(State(app): State<Shared>) -> Response {
    match timeout(PATIENCE, app.store.ping()).await {
        Ok(Ok(())) => "ready\n".into_response(),
        failed => {
            tracing::warn!(?failed, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response()
        }
    }
}

async fn metrics(State(app): State<Shared>) -> Result<Response, ApiError> {
    let now = app.clock.now();
    let backlog = timeout(COUNT_PATIENCE, backlog(&app, now)).await.unwrap_or_else(|_elapsed| {
        tracing::warn!("counting the outbox took too long");
        None
    });
    app.metrics.outbox(backlog.as_ref(), now);
    app.metrics.connections(&app.store.pools());
    let text = app.metrics.text().map_err(|error| {
        tracing::error!(%error, "could not encode metrics");
        ApiError::internal()
    })?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// Maximum wait of a request for metrics for the count of the webhook events that wait. Of a large outbox, that takes seconds.
const COUNT_PATIENCE: Duration = Duration::from_secs(1);

/// Counts the webhook events that wait, one count at a time. It goes on if its request does not wait for it, because the database still works
/// on it. None if it fails.
async fn backlog(app: &Shared, now: Timestamp) -> Option<OutboxBacklog> {
    let (store, permit) = (app.store.clone(), Arc::clone(&app.counting).acquire_owned().await.ok()?);
    let count = async move {
        let _permit = permit;
        store.outbox_backlog(&mut store.reader_for_metrics().await?, now).await
    };
    let counted = tokio::spawn(count).await.ok()?;
    counted.map_err(|error: StoreError| tracing::warn!(%error, "could not count the outbox")).ok()
}

/// Rows of a page, unless fewer are asked for.
const PAGE_ROWS: u32 = 20_000;
/// Most bytes of a page's rows. The gateway refuses a page of more than 4 MiB, which also has a version and a cursor.
const PAGE_BYTES: usize = (4 << 20) - 4096;

/// Where a page begins: after a position in the list of active keys, or after the change of a number.
#[derive(Clone, Copy, Debug)]
struct Cursor(&'static str, i64);

/// The two kinds of cursors.
const LIST: &str = "list";
const CHANGES: &str = "changes";

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

impl FromStr for Cursor {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<Self, ApiError> {
        let parse = |(kind, after): (&str, &str)| {
            let kind = [LIST, CHANGES].into_iter().find(|known| *known == kind)?;
            Some(Self(kind, after.parse().ok()?))
        };
        let cursor = text.split_once('-').and_then(parse);
        cursor.ok_or_else(|| ApiError::new(Code::BadRequest, "cursor: expected the field `next` of a page"))
    }
}

/// A page of the keys and their plans, which the gateway's directory polls.
#[derive(Debug, Serialize)]
struct KeyPage {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    keys: Vec<Entry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Entry {
    sha256: String,
    subscriber: String,
    plan: String,
    limits: Limits,
    #[serde(skip_serializing_if = "Option::is_none")]
    billing_anchor: Option<Timestamp>,
}

impl Entry {
    /// About how many bytes the row takes.
    fn bytes(&self) -> usize {
        let limits = self.limits.iter().map(|(class, quotas)| class.len() + quotas.to_string().len() + 6);
        self.sha256.len() + self.subscriber.len() + self.plan.len() + limits.sum::<usize>() + 128
    }
}

/// Refuses a request without the operator's token.
pub(super) fn authorised(app: &App, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(token) = &app.internal_token else {
        return Err(ApiError::new(Code::Forbidden, "No token is configured for this endpoint."));
    };
    let given = headers.get(AUTHORIZATION).map(|value| ids::sha256(value.as_bytes()));
    // Comparing hashes avoids a timing side channel on the token.
    if given != Some(ids::sha256(format!("Bearer {token}").as_bytes())) {
        return Err(ApiError::new(Code::Unauthorized, "The token is missing or wrong."));
    }
    Ok(())
}

async fn keys(State(app): State<Shared>, query: Query, headers: HeaderMap) -> Result<Response, ApiError> {
    authorised(&app, &headers)?;
    let limit = query.text("limit").map_or(Ok(PAGE_ROWS), str::parse);
    let limit = limit.map_err(|_| ApiError::new(Code::BadRequest, "limit: expected a whole number"))?;
    let limit = limit.clamp(1, PAGE_ROWS);
    let cursor = query.text("cursor").map(str::parse::<Cursor>).transpose()?;
    let last = app.store.last_key_change().await?;
    let etag = format!("\"{last}\"");
    let known = headers.get(IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == etag.as_bytes());
    let about = [(ETAG, etag), (CACHE_CONTROL, "no-cache".to_owned())];
    if known && cursor.is_none() {
        return Ok((StatusCode::NOT_MODIFIED, about).into_response());
    }
    let (from, since) = match (cursor, query.text("since")) {
        (Some(cursor), _) => (cursor, None),
        (None, Some(since)) => match KeyChange::parse(since) {
            Some(change) if app.store.knows_key_change(&change).await? => {
                (Cursor(CHANGES, change.number), Some(since.to_owned()))
            }
            // Too old, or of another history: the first page of the list.
            _ => (Cursor(LIST, 0), None),
        },
        (None, None) => (Cursor(LIST, 0), None),
    };
    // One more, to see whether a page follows.
    let most = i64::from(limit) + 1;
    let rows = match from {
        Cursor(LIST, position) => app.store.keys_after(position, most).await?,
        Cursor(_, number) => app.store.keys_changed_after(number, most).await?,
    };
    let page = page(rows, from, limit, (last.to_string(), since));
    let body = serde_json::to_vec(&page).map_err(|error| {
        tracing::error!(%error, "could not encode the key directory");
        ApiError::internal()
    })?;
    Ok((about, [(CONTENT_TYPE, "application/json")], body).into_response())
}

/// The page of these rows, as far as they have room on it.
fn page(
    rows: Vec<ListedKey>,
    from: Cursor,
    limit: u32,
    (version, since): (String, Option<String>),
) -> KeyPage {
    let mut page = KeyPage { version, since, keys: Vec::new(), removed: Vec::new(), next: None };
    let (mut on_page, mut bytes, mut last) = (0, 0, None);
    for ListedKey { position, is_revoked, key } in rows {
        let KeyRecord { id, sha256, terms: Terms { plan, limits, billing_anchor }, .. } = key;
        let entry =
            Entry { sha256, subscriber: id, plan, limits: limits.unwrap_or_default(), billing_anchor };
        bytes += entry.bytes();
        if on_page == limit || (bytes > PAGE_BYTES && on_page > 0) {
            page.next = last.map(|position| Cursor(from.0, position).to_string());
            break;
        }
        on_page += 1;
        last = Some(position);
        match is_revoked {
            true => page.removed.push(entry.sha256),
            false => page.keys.push(entry),
        }
    }
    page
}
