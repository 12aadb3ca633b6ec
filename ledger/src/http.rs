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
use axum::{Router, routing};
use ledger_wire::{Answer, ItemError, Says, Share, Statement};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use crate::clock;
use crate::gateways::Gateways;
use crate::items::{self, Speaker};
use crate::metrics::{self, Metrics};
use crate::store::{Call, Epoch, Reply, Session, Store, What};
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
    /// The first that was seen.
    first_epoch: OnceLock<Epoch>,
}

type Shared = Arc<Ledger>;
/// A body as it was received, or why it was not.
type Body = Result<Bytes, BytesRejection>;

impl Ledger {
    pub(crate) fn new(store: Store, tokens: Tokens, metrics: Metrics) -> Self {
        Self { store, tokens, gateways: Gateways::default(), metrics, first_epoch: OnceLock::new() }
    }

    /// Watches the store and the token file until it is dropped.
    pub(crate) async fn follow(&self) {
        tokio::join!(self.store.watch(), self.tokens.follow());
    }

    /// The endpoints for gateways, and, unless they have a listener of their own, the metrics.
    pub(crate) fn router(self: Arc<Self>, with_metrics: bool) -> Router {
        let router = Router::new()
            .route("/v1/shares", routing::post(shares))
            .route("/v1/reset", routing::post(reset))
            .route("/v1/read", routing::post(read))
            .route_layer(from_fn_with_state(Arc::clone(&self), with_token))
            .layer(DefaultBodyLimit::max(MAX_BYTES));
        let router = if with_metrics { router.route("/metrics", routing::get(scrape)) } else { router };
        self.finish(router)
    }

    /// The metrics.
    pub(crate) fn metrics_router(self: Arc<Self>) -> Router {
        self.finish(Router::new().route("/metrics", routing::get(scrape)))
    }

    fn finish(self: Arc<Self>, router: Router<Shared>) -> Router {
        let not_allowed = "the method is not allowed for this endpoint";
        router
            .route("/healthz", routing::get(async || "ok\n"))
            .route("/readyz", routing::get(readyz))
            .fallback(async || refuse(StatusCode::NOT_FOUND, "not_found", "no such endpoint"))
            .method_not_allowed_fallback(async move || {
                refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", not_allowed)
            })
            .layer(from_fn_with_state(Arc::clone(&self), counted))
            .with_state(self)
    }

    fn session(&self) -> Result<Session<'_>, Refusal> {
        self.store.session().ok_or_else(away)
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

fn away() -> Refusal {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "store_away", "the store does not answer")
}

fn internal(error: impl Display) -> Refusal {
    tracing::error!(%error, "could not encode an answer");
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", "an error of the service")
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, code, message) = self;
        let body = json!({ "error": { "code": code, "message": message } }).to_string();
        let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
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

async fn readyz(State(ledger): State<Shared>) -> (StatusCode, &'static str) {
    let Some(session) = ledger.store.session() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n");
    };
    // A later epoch begins for all replicas at once, and one of them must answer.
    if ledger.first_epoch.get_or_init(|| *session.epoch()).is_settling() {
        return (StatusCode::SERVICE_UNAVAILABLE, "settling\n");
    }
    (StatusCode::OK, "ready\n")
}

async fn scrape(State(ledger): State<Shared>) -> Result<Response, Refusal> {
    let session = ledger.store.session();
    let epoch = session.as_ref().map(Session::epoch);
    let state = metrics::State {
        epoch: epoch.map(|epoch| epoch.id),
        is_settling: epoch.is_some_and(Epoch::is_settling),
        masters: session.as_ref().map_or((0, 1), Session::masters_up_and_away),
        gateways: ledger.gateways.count(epoch.map_or(0, |epoch| epoch.began), clock::now()),
    };
    let text = ledger.metrics.text(&state).map_err(internal)?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

fn parse<'a, T: Deserialize<'a>>(body: &'a Body) -> Result<T, Refusal> {
    let is_large = |error: &&BytesRejection| error.status() == StatusCode::PAYLOAD_TOO_LARGE;
    let body = body.as_ref().map_err(|error| match Some(error).filter(is_large) {
        Some(_) => too_large(),
        None => bad_request(error),
    })?;
    serde_json::from_slice(body).map_err(bad_request)
}

/// Checks each item and calls the store for those that are right.
///
/// # Errors
/// If there are too many, or if nothing of the store answers any more.
async fn call(
    session: &Session<'_>,
    items: &[&RawValue],
    now: u64,
    check: impl Fn(&RawValue) -> Result<Call, ItemError>,
) -> Result<(Vec<Result<Call, ItemError>>, Vec<Reply>), Refusal> {
    if items.len() > MAX_ITEMS {
        return Err(too_large());
    }
    let calls: Vec<_> = items.iter().map(|item| check(item)).collect();
    let replies = session.call(&calls, now).await;
    if session.masters_up_and_away().0 == 0 { Err(away()) } else { Ok((calls, replies)) }
}

fn respond(session: &Session<'_>, now: u64, items: Vec<Reply>) -> Result<Response, Refusal> {
    let response = ledger_wire::Response { epoch: session.epoch().id, now, items };
    let body = serde_json::to_vec(&response).map_err(internal)?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

async fn shares(State(ledger): State<Shared>, body: Body) -> Result<Response, Refusal> {
    let request: ledger_wire::Request<&RawValue> = parse(&body)?;
    let (gateway, now, session) = (request.gateway, clock::now(), ledger.session()?);
    let speaker = Speaker { gateway, now: request.now, gateways: ledger.gateways.hear(gateway, now) };
    let is_settling = session.epoch().is_settling();
    let asked = Instant::now();
    let check = |item: &RawValue| items::statement(item, speaker, is_settling, now);
    let (calls, replies) = call(&session, &request.items, now, check).await?;
    if calls.iter().any(Result::is_ok) {
        ledger.metrics.store.observe(asked.elapsed().as_secs_f64());
    }
    let results = calls.iter().zip(&replies).map(|(call, reply)| result(call.as_ref().ok(), reply));
    let is_clock_off = results.fold(false, |is_clock_off, result| {
        ledger.metrics.statement(result);
        is_clock_off || result == "clock"
    });
    if is_clock_off && ledger.gateways.name_clock(gateway, now) {
        let ahead = i128::from(request.now) - i128::from(now);
        tracing::warn!(%gateway, milliseconds_ahead = ahead, "a gateway names windows that are not the present ones");
    }
    respond(&session, now, replies)
}

/// What became of a statement, as metrics name it.
fn result(call: Option<&Call>, reply: &Reply) -> &'static str {
    let share = match reply {
        Reply::Answer(Answer::Share(Share { settling: true, .. })) => return "settling",
        Reply::Answer(Answer::Share(Share { share, .. })) => *share,
        Reply::Answer(Answer::Refused(error)) if error.code == "clock" => return "clock",
        Reply::Answer(Answer::Refused(error)) if error.code == "store" => return "store",
        Reply::Answer(Answer::Refused(_)) => return "invalid",
        Reply::Answer(Answer::Reset(_)) | Reply::Holders { .. } => return "reset",
    };
    match call.map(|call| &call.what) {
        Some(What::State { statement: Statement { says: Says::Ask { cost, .. }, used, .. }, .. }) => {
            if share.saturating_sub(*used) >= *cost { "granted" } else { "exhausted" }
        }
        _ => "returned",
    }
}

#[derive(Deserialize)]
struct Counters<'a> {
    #[serde(borrow)]
    counters: Vec<&'a RawValue>,
}

async fn reset(ledger: State<Shared>, body: Body) -> Result<Response, Refusal> {
    operate(&ledger, &body, items::reset).await
}

async fn read(ledger: State<Shared>, body: Body) -> Result<Response, Refusal> {
    operate(&ledger, &body, items::read).await
}

/// Answers what operators ask of counters.
async fn operate(
    ledger: &Ledger,
    body: &Body,
    check: fn(&RawValue, u64) -> Result<Call, ItemError>,
) -> Result<Response, Refusal> {
    let Counters { counters } = parse(body)?;
    let (now, session) = (clock::now(), ledger.session()?);
    let (_, replies) = call(&session, &counters, now, |counter| check(counter, now)).await?;
    respond(&session, now, replies)
}
