//! The endpoints.

use std::fmt::Display;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use ledger_wire::{Answer, ItemError, Says, Share, Statement};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use crate::clock;
use crate::gateways::Gateways;
use crate::items;
use crate::lines::Lines;
use crate::metrics::Metrics;
use crate::share::Terms;
use crate::store::{Call, Epoch, Store, Unusable, View};
use crate::tokens::Tokens;

/// Most items of a request.
const MAX_ITEMS: usize = 1_000;
/// Largest body of a request, in bytes.
const MAX_BYTES: usize = 256 * 1024;
/// Time limit of a request, from its head to its answer. The store takes less than a second of it; the rest is for a slow body.
const REQUEST: Duration = Duration::from_secs(5);

/// The service.
#[derive(Debug)]
pub(crate) struct Ledger {
    store: Store,
    tokens: Tokens,
    gateways: Gateways,
    metrics: Metrics,
    /// Of statements that were refused.
    lines: Lines,
    /// The first that was seen.
    first_epoch: OnceLock<Epoch>,
}

type Shared = Arc<Ledger>;
/// A body as it was received, or why it was not.
type Body = Result<Bytes, BytesRejection>;
type Answered = Result<Json<ledger_wire::Response>, Refusal>;

impl Ledger {
    pub(crate) fn new(store: Store, tokens: Tokens, metrics: Metrics) -> Self {
        let (gateways, lines) = (Gateways::default(), Lines::default());
        Self { store, tokens, gateways, metrics, lines, first_epoch: OnceLock::new() }
    }

    /// Watches the store and the token file until it is dropped.
    pub(crate) async fn follow(&self) {
        tokio::join!(self.store.watch(), self.tokens.follow());
    }

    /// The endpoints for gateways, the metrics, or both.
    pub(crate) fn router(self: &Arc<Self>, for_gateways: bool, with_metrics: bool) -> Router {
        let mut router = Router::new();
        if for_gateways {
            router = router
                .route("/v1/shares", routing::post(shares))
                .route_layer(from_fn_with_state(Arc::clone(self), with_token))
                .layer(DefaultBodyLimit::max(MAX_BYTES));
        }
        if with_metrics {
            router = router.route("/metrics", routing::get(scrape));
        }
        router
            .route("/healthz", routing::get(async || "ok\n"))
            .route("/readyz", routing::get(readyz))
            .fallback(async || refuse(StatusCode::NOT_FOUND, "not_found", "no such endpoint"))
            .method_not_allowed_fallback(async || {
                let message = "the method is not allowed for this endpoint";
                refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
            })
            .layer(from_fn_with_state(Arc::clone(self), counted))
            .with_state(Arc::clone(self))
    }

    fn view(&self) -> Result<Arc<View>, Refusal> {
        self.store.view().map_err(|unusable| without_store(&unusable))
    }
}

/// Why a request is refused as a whole: for clients a status and a code, for people a message.
#[derive(Debug)]
struct Refusal(StatusCode, &'static str, String);

fn refuse(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal(status, code, message.into())
}

fn bad_request(error: impl Display) -> Refusal {
    let message = format!("the body is not what this endpoint takes: {error}");
    refuse(StatusCode::BAD_REQUEST, "bad_request", message)
}

fn too_large() -> Refusal {
    let message = format!("the body has more than {MAX_BYTES} bytes or {MAX_ITEMS} items");
    refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

/// Nothing of the store can be used.
fn without_store(unusable: &Unusable) -> Refusal {
    let code = if unusable.is_away() { "store_away" } else { "store_refuses" };
    refuse(StatusCode::SERVICE_UNAVAILABLE, code, unusable.to_string())
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, code, message) = self;
        let mut response =
            (status, Json(json!({ "error": { "code": code, "message": message } }))).into_response();
        if let Some((name, value)) = match status {
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "1")),
            _ => None,
        } {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Counts a request, which ends in time.
async fn counted(State(ledger): State<Shared>, request: Request, next: Next) -> Response {
    let response = timeout(REQUEST, next.run(request)).await.unwrap_or_else(|_| {
        refuse(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body took too long").into_response()
    });
    ledger.metrics.request(response.status().as_str());
    response
}

async fn with_token(State(ledger): State<Shared>, request: Request, next: Next) -> Result<Response, Refusal> {
    let authorization = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    if ledger.tokens.accept(authorization) {
        return Ok(next.run(request).await);
    }
    Err(refuse(StatusCode::UNAUTHORIZED, "unauthorized", "the bearer token is missing or wrong"))
}

async fn readyz(State(ledger): State<Shared>) -> (StatusCode, String) {
    // A later epoch begins for all replicas at once, and one of them must answer.
    match ledger.store.view().map(|view| ledger.first_epoch.get_or_init(|| view.epoch).is_settling()) {
        Err(unusable) => (StatusCode::SERVICE_UNAVAILABLE, format!("{unusable}\n")),
        Ok(true) => (StatusCode::SERVICE_UNAVAILABLE, "settling\n".to_owned()),
        Ok(false) => (StatusCode::OK, "ready\n".to_owned()),
    }
}

async fn scrape(State(ledger): State<Shared>) -> Result<Response, Refusal> {
    let view = ledger.store.view();
    let began = view.as_ref().ok().map(|view| view.epoch.began);
    let gateways = ledger.gateways.count(began, Instant::now());
    let text = ledger.metrics.text(view.as_deref().map_err(Arc::as_ref), gateways);
    let text =
        text.map_err(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

fn parse(body: &Body) -> Result<ledger_wire::Request<&RawValue>, Refusal> {
    let body = body.as_ref().map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => bad_request(error),
    })?;
    let request: ledger_wire::Request<&RawValue> = serde_json::from_slice(body).map_err(bad_request)?;
    if request.items.len() > MAX_ITEMS { Err(too_large()) } else { Ok(request) }
}

async fn shares(State(ledger): State<Shared>, body: Body) -> Answered {
    let request = parse(&body)?;
    let (gateway, began, now, view) = (request.gateway, Instant::now(), clock::now(), ledger.view()?);
    let gateways = ledger.gateways.hear(gateway, began);
    let terms = Terms { settling: view.epoch.is_settling(), gateways };
    let calls: Vec<_> =
        request.items.iter().map(|item| items::statement(item, &request, terms, now)).collect();
    let answers = view.call(&calls, now).await.map_err(|unusable| without_store(&unusable))?;
    if calls.iter().any(Result::is_ok) {
        ledger.metrics.store.observe(began.elapsed().as_secs_f64());
    }
    for (call, answer) in calls.iter().zip(&answers) {
        ledger.metrics.statement(result(call.as_ref().ok(), answer));
        let Err(ItemError { code, field, message }) = call else { continue };
        let field = field.as_deref().unwrap_or_default();
        if ledger.lines.is_due(format!("{gateway} {code} {field}"), began) {
            let ahead = i128::from(request.now) - i128::from(now);
            tracing::warn!(%gateway, %code, field, message, milliseconds_ahead = ahead, "a statement is refused");
        }
    }
    Ok(Json(ledger_wire::Response { epoch: view.epoch.id, now, items: answers }))
}

/// What became of a statement, as metrics name it.
fn result(call: Option<&Call>, answer: &Answer) -> &'static str {
    let share = match answer {
        Answer::Share(Share { settling: true, .. }) => return "settling",
        Answer::Share(Share { share, .. }) => *share,
        Answer::Refused(error) if error.code == ItemError::CLOCK => return ItemError::CLOCK,
        Answer::Refused(error) if error.code == "store" => return "store",
        Answer::Refused(_) => return "invalid",
        Answer::Reset(_) => return "reset",
    };
    match call.map(|call| call.statement) {
        Some(Statement { says: Says::Ask { cost, .. }, used, .. }) if share.saturating_sub(used) >= cost => {
            "granted"
        }
        Some(Statement { says: Says::Ask { .. }, .. }) => "exhausted",
        _ => "returned",
    }
}
