//! The endpoints for operators and the gateway. Clients cannot reach their listener.

use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use serde::Serialize;

use crate::error::{ApiError, Code};
use crate::ids;
use crate::metrics::Format;
use crate::state::Shared;
use crate::store::Limits;

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/readyz", routing::get(readyz))
        .route("/metrics", routing::get(metrics))
        .route("/internal/keys", routing::get(keys))
}

async fn readyz(State(app): State<Shared>) -> Response {
    if app.availability.is_exhausted() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the database has no space left\n").into_response();
    }
    match app.availability.while_available(app.store.ping()).await {
        Ok(Ok(())) => "ready\n".into_response(),
        failed => {
            tracing::warn!(?failed, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response()
        }
    }
}

async fn metrics(State(app): State<Shared>, headers: HeaderMap) -> Result<Response, ApiError> {
    let format = Format::accepted_by(&headers);
    let now = app.clock.now();
    let backlogs = app.backlogs.result(&app.store, now).await;
    app.metrics.outbox(backlogs.as_ref().map(|backlogs| &backlogs.outbox), now);
    app.metrics.set_aside(backlogs.map(|backlogs| backlogs.set_aside));
    app.metrics.connections(&app.store.pools());
    let text = app.metrics.text(format).map_err(|error| {
        tracing::error!(%error, "could not encode metrics");
        ApiError::internal()
    })?;
    Ok(([(CONTENT_TYPE, format.content_type())], text).into_response())
}

/// The active keys and their plans, which the gateway's directory polls.
#[derive(Debug, Serialize)]
struct Directory {
    keys: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    sha256: String,
    subscriber: String,
    plan: String,
    limits: Limits,
}

async fn keys(State(app): State<Shared>, headers: HeaderMap) -> Result<Response, ApiError> {
    let Some(token) = &app.internal_token else {
        return Err(ApiError::new(Code::Forbidden, "No token is configured for this endpoint."));
    };
    let given = headers.get(AUTHORIZATION).map(|value| ids::sha256(value.as_bytes()));
    // Comparing hashes avoids a timing side channel on the token.
    if given != Some(ids::sha256(format!("Bearer {token}").as_bytes())) {
        return Err(ApiError::new(Code::Unauthorized, "The token is missing or wrong."));
    }
    let version = app.availability.while_available(app.store.keys_version()).await??;
    let etag = format!("\"{version}\"");
    let known = headers.get(IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == etag.as_bytes());
    let about = [(ETAG, etag), (CACHE_CONTROL, "no-cache".to_owned())];
    if known {
        return Ok((StatusCode::NOT_MODIFIED, about).into_response());
    }
    let entry = |key: crate::store::KeyRecord| Entry {
        sha256: key.sha256,
        subscriber: key.id,
        plan: key.plan,
        limits: key.limits.unwrap_or_default(),
    };
    let directory = Directory { keys: app.store.keys().await?.into_iter().map(entry).collect() };
    let body = serde_json::to_vec(&directory).map_err(|error| {
        tracing::error!(%error, "could not encode the key directory");
        ApiError::internal()
    })?;
    Ok((about, [(CONTENT_TYPE, "application/json")], body).into_response())
}
