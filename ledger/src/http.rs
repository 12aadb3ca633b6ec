//! The endpoints.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use ledger_wire::{Answer, ItemError, Says, Share};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::clock;
use crate::gateways::Gateways;
use crate::items::{self, Speaker};
use crate::metrics::{self, Metrics};
use crate::store::{Epoch, Order, Session, Store};
use crate::tokens::Tokens;

/// Most items of a request.
const MAX_ITEMS: usize = 1_000;
/// Largest body of a request, in bytes.
const MAX_BYTES: usize = 256 * 1024;

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

impl Ledger {
    pub(crate) fn new(store: Store, tokens: Tokens) -> Self {
        let (gateways, metrics) = (Gateways::default(), Metrics::new());
        Self { store, tokens, gateways, metrics, first_epoch: OnceLock::new() }
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
            .route_layer(from_fn_with_state(Arc::clone(&self), with_token));
        let router = if with_metrics { router.route("/metrics", routing::get(scrape)) } else { router };
        self.finish(router)
    }

    /// The metrics.
    pub(crate) fn metrics_router(self: Arc<Self>) -> Router {
        self.finish(Router::new().route("/metrics", routing::get(scrape)))
    }

    fn finish(self: Arc<Self>, router: Router<Shared>) -> Router {
        router
            .route("/healthz", routing::get(async || "ok\n"))
            .route("/readyz", routing::get(readyz))
            .fallback(async || Refusal::NotFound)
            .method_not_allowed_fallback(async || Refusal::MethodNotAllowed)
            .layer(from_fn_with_state(Arc::clone(&self), counted))
            .with_state(self)
    }

    fn session(&self) -> Result<Session<'_>, Refusal> {
        self.store.session().ok_or(Refusal::Away)
    }
}

/// Why a request is refused as a whole.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the body is not what this endpoint takes: {0}")]
    BadRequest(String),
    #[error("the bearer token is missing or wrong")]
    Unauthorized,
    #[error("no such endpoint")]
    NotFound,
    #[error("the method is not allowed for this endpoint")]
    MethodNotAllowed,
    #[error("the body has more than {MAX_BYTES} bytes or {MAX_ITEMS} items")]
    TooLarge,
    #[error("the store does not answer")]
    Away,
    #[error("an error of the service")]
    Internal,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, code) = match self {
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::Away => (StatusCode::SERVICE_UNAVAILABLE, "store_away"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let body = json!({ "error": { "code": code, "message": self.to_string() } }).to_string();
        let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
        let mut insert =
            |name: HeaderName, value| response.headers_mut().insert(name, HeaderValue::from_static(value));
        match self {
            Self::Unauthorized => insert(WWW_AUTHENTICATE, "Bearer"),
            Self::Away => insert(RETRY_AFTER, "1"),
            _ => None,
        };
        response
    }
}

async fn counted(State(ledger): State<Shared>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    ledger.metrics.request(response.status().as_u16());
    response
}

async fn with_token(State(ledger): State<Shared>, request: Request, next: Next) -> Result<Response, Refusal> {
    let authorization = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    if ledger.tokens.accept(authorization) { Ok(next.run(request).await) } else { Err(Refusal::Unauthorized) }
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
    let text = ledger.metrics.text(&state).map_err(|error| {
        tracing::error!(%error, "could not encode the metrics");
        Refusal::Internal
    })?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// The whole body, if it is not too large.
async fn receive(body: Body) -> Result<Vec<u8>, Refusal> {
    match Limited::new(body, MAX_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::TooLarge),
        Err(error) => Err(Refusal::BadRequest(error.to_string())),
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::BadRequest(error.to_string()))
}

/// Checks each item.
fn check<T>(
    items: &[&RawValue],
    check: impl Fn(&RawValue) -> Result<T, ItemError>,
) -> Result<Vec<Result<T, ItemError>>, Refusal> {
    if items.len() > MAX_ITEMS {
        return Err(Refusal::TooLarge);
    }
    Ok(items.iter().map(|item| check(item)).collect())
}

/// The answers to the items that were checked, and the errors of the others, in their order.
///
/// # Errors
/// If nothing of the store answers any more.
fn merge<T, A>(
    session: &Session<'_>,
    checked: &[Result<T, ItemError>],
    answers: Vec<Result<A, ItemError>>,
) -> Result<Vec<Result<A, ItemError>>, Refusal> {
    if answers.iter().any(Result::is_err) && session.masters_up_and_away().0 == 0 {
        return Err(Refusal::Away);
    }
    let mut answers = answers.into_iter();
    let merged = checked.iter().map(|checked| match checked {
        Ok(_) => answers.next().unwrap_or_else(|| Err(items::store_error("it has no answer"))),
        Err(error) => Err(error.clone()),
    });
    Ok(merged.collect())
}

fn respond<T: Serialize>(session: &Session<'_>, now: u64, items: Vec<T>) -> Result<Response, Refusal> {
    let body = serde_json::to_vec(&ledger_wire::Response { epoch: session.epoch().id, now, items });
    let body = body.map_err(|error| {
        tracing::error!(%error, "could not encode an answer");
        Refusal::Internal
    })?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

async fn shares(State(ledger): State<Shared>, body: Body) -> Result<Response, Refusal> {
    let body = receive(body).await?;
    let request: ledger_wire::Request<&RawValue> = parse(&body)?;
    let (gateway, now, session) = (request.gateway, clock::now(), ledger.session()?);
    let speaker = Speaker { gateway, now: request.now, gateways: ledger.gateways.hear(gateway, now) };
    let checked =
        check(&request.items, |item| items::order(item, speaker, session.epoch().is_settling(), now))?;
    let orders: Vec<&Order> = checked.iter().flatten().collect();
    let asked = tokio::time::Instant::now();
    let stated = session.state(&orders, now).await;
    if !orders.is_empty() {
        ledger.metrics.store.observe(asked.elapsed().as_secs_f64());
    }
    let answers = merge(&session, &checked, stated)?;
    let mut is_clock_off = false;
    let answers = checked.iter().zip(answers).map(|(order, answer)| {
        let answer = answer.unwrap_or_else(Answer::Refused);
        let result = result(order.as_ref().ok(), &answer);
        is_clock_off |= result == "clock";
        ledger.metrics.statement(result);
        answer
    });
    let answers = answers.collect();
    if is_clock_off && ledger.gateways.name_clock(gateway, now) {
        let ahead = i128::from(request.now) - i128::from(now);
        tracing::warn!(%gateway, milliseconds_ahead = ahead, "a gateway names windows that are not the present ones");
    }
    respond(&session, now, answers)
}

/// What became of a statement, as metrics name it.
fn result(order: Option<&Order>, answer: &Answer) -> &'static str {
    let share = match answer {
        Answer::Reset(_) => return "reset",
        Answer::Refused(error) if error.code == "clock" => return "clock",
        Answer::Refused(error) if error.code == "store" => return "store",
        Answer::Refused(_) => return "invalid",
        Answer::Share(Share { settling: true, .. }) => return "settling",
        Answer::Share(Share { share, .. }) => *share,
    };
    match order.map(|order| (order.statement.says, order.statement.used)) {
        Some((Says::Ask { cost, .. }, used)) if share.saturating_sub(used) >= cost => "granted",
        Some((Says::Ask { .. }, _)) => "exhausted",
        Some((Says::Return { .. }, _)) | None => "returned",
    }
}

#[derive(Debug, Deserialize)]
struct Counters<'a> {
    #[serde(borrow)]
    counters: Vec<&'a RawValue>,
}

/// The answer to one counter of a reset or a read.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum CounterAnswer<T> {
    Answer(T),
    Error { error: ItemError },
}

impl<T> From<Result<T, ItemError>> for CounterAnswer<T> {
    fn from(answer: Result<T, ItemError>) -> Self {
        answer.map_or_else(|error| Self::Error { error }, Self::Answer)
    }
}

async fn reset(State(ledger): State<Shared>, body: Body) -> Result<Response, Refusal> {
    let body = receive(body).await?;
    let Counters { counters } = parse(&body)?;
    let (now, session) = (clock::now(), ledger.session()?);
    let checked = check(&counters, |counter| items::reset(counter, now))?;
    let resets: Vec<_> = checked.iter().flatten().collect();
    let answers = merge(&session, &checked, session.reset(&resets, now).await)?;
    respond(&session, now, answers.into_iter().map(CounterAnswer::from).collect())
}

async fn read(State(ledger): State<Shared>, body: Body) -> Result<Response, Refusal> {
    let body = receive(body).await?;
    let Counters { counters } = parse(&body)?;
    let (now, session) = (clock::now(), ledger.session()?);
    let checked = check(&counters, items::read)?;
    let names: Vec<_> = checked.iter().flatten().map(String::as_str).collect();
    let answers = merge(&session, &checked, session.read(&names, now).await)?;
    respond(&session, now, answers.into_iter().map(CounterAnswer::from).collect())
}
