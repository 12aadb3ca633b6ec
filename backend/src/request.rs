//! What surrounds every request: its id, its deadline, its line in the log and its place in the metrics.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::{ApiError, Code};
use crate::ids;
use crate::metrics::Metrics;

/// How long a request may take, from its headers to the answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// The longest id that a client may give its request, in bytes.
const MAX_REQUEST_ID: usize = 128;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Handles one request with all that surrounds it. The id is the client's, or the gateway's, if it sent one that is fit
/// for a log; the answer always names it.
pub(crate) async fn surround(State(metrics): State<Metrics>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let id = request_id(&request);
    request.headers_mut().insert(REQUEST_ID.clone(), id.clone());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), %method, route);
    let handled = async {
        let answer = AssertUnwindSafe(next.run(request)).catch_unwind();
        let mut response = match tokio::time::timeout(DEADLINE, answer).await {
            Ok(Ok(response)) => response,
            Ok(Err(_panic)) => {
                tracing::error!("a handler panicked");
                ApiError::new(Code::InternalServerError, "An internal server error occurred.").into_response()
            }
            Err(_elapsed) => {
                ApiError::new(Code::RequestTimeout, "The request took too long.").into_response()
            }
        };
        let took = started.elapsed();
        let status = response.status().as_u16();
        tracing::debug!(
            status,
            milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "answered"
        );
        metrics.request(method.as_str(), &route, status, took);
        response.headers_mut().insert(REQUEST_ID.clone(), id);
        response
    };
    handled.instrument(span.clone()).await
}

fn request_id(request: &Request) -> HeaderValue {
    let fit = |id: &&HeaderValue| {
        let id = id.as_bytes();
        !id.is_empty() && id.len() <= MAX_REQUEST_ID && id.iter().all(u8::is_ascii_graphic)
    };
    match request.headers().get(&REQUEST_ID).filter(fit) {
        Some(id) => id.clone(),
        None => HeaderValue::try_from(format!("req_{}", ids::alphanumeric(20)))
            .unwrap_or_else(|_| HeaderValue::from_static("req_unknown")),
    }
}
