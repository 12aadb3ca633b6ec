//! The scope of a request: its id, deadline, log line and metrics.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::{Instrument, Level};

use crate::domain::ids;
use crate::http::error::ApiError;
use crate::metrics::Metrics;

/// Maximum length of a client's request id, in bytes.
const MAX_REQUEST_ID: usize = 128;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Assigns each request its id and deadline, and records its log line and metrics.
#[derive(Debug)]
pub(crate) struct RequestScope {
    metrics: Metrics,
    /// Time limit of a request, from its headers to the response.
    timeout: Duration,
}

impl RequestScope {
    pub(crate) fn new(metrics: Metrics, timeout: Duration) -> Self {
        Self { metrics, timeout }
    }
}

/// Middleware that runs a routed request within the scope.
pub(crate) async fn within(State(scope): State<Arc<RequestScope>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or("unmatched", MatchedPath::as_str);
    let id = request_id(request.headers());
    scope.handle(&method, route, id, pin!(next.run(request))).await
}

impl RequestScope {
    /// Runs a handler within the scope. The request id is that of the client or gateway if it is fit for a log. The
    /// response always contains the id. The handler is pinned, because each move would copy the whole future.
    pub(crate) async fn handle(
        &self,
        method: &Method,
        route: &str,
        id: HeaderValue,
        handler: Pin<&mut impl Future<Output = Response>>,
    ) -> Response {
        let started = Instant::now();
        let span = || {
            let id = id.to_str().unwrap_or_default();
            tracing::info_span!("request", id, %method, route)
        };
        let answer = AssertUnwindSafe(handler).catch_unwind();
        let mut answer = pin!(tokio::time::timeout(self.timeout, answer));
        // Most redirects are answered without a wait and log nothing. A span would take a sixth of their time.
        let answer = match futures_util::poll!(answer.as_mut()) {
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.instrument(span()).await,
        };
        let mut response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(_panic)) => {
                span().in_scope(|| tracing::error!("a handler panicked"));
                ApiError::internal().into_response()
            }
            Err(_elapsed) => ApiError::timed_out().into_response(),
        };
        let took = started.elapsed();
        let status = response.status();
        if tracing::enabled!(Level::DEBUG) {
            let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            span().in_scope(|| tracing::debug!(status = status.as_u16(), milliseconds, "answered"));
        }
        self.metrics.request(method, route, status, took);
        response.headers_mut().insert(REQUEST_ID.clone(), id);
        response
    }
}

/// The request's own id, if it is fit for a log, or a generated one.
pub(crate) fn request_id(headers: &HeaderMap) -> HeaderValue {
    let fit = |id: &&HeaderValue| {
        let id = id.as_bytes();
        !id.is_empty() && id.len() <= MAX_REQUEST_ID && id.iter().all(u8::is_ascii_graphic)
    };
    match headers.get(&REQUEST_ID).filter(fit) {
        Some(id) => id.clone(),
        None => HeaderValue::try_from(format!("req_{}", ids::alphanumeric(20)))
            .unwrap_or_else(|_| HeaderValue::from_static("req_unknown")),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::{Router, middleware, routing};
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tempfile::NamedTempFile;
    use tower::ServiceExt;
    use tracing::Dispatch;
    use tracing::instrument::WithSubscriber;
    use tracing::subscriber::NoSubscriber;

    use super::*;

    async fn broken() -> StatusCode {
        panic!("this handler is broken")
    }

    async fn waits() -> StatusCode {
        tokio::task::yield_now().await;
        tracing::error!("this handler has waited");
        StatusCode::OK
    }

    #[tokio::test]
    async fn what_a_request_logs_has_its_id_method_and_route() {
        let scope = Arc::new(RequestScope::new(Metrics::new(), Duration::from_secs(30)));
        let router = Router::new()
            .route("/broken/{key}", routing::get(broken))
            .route("/waits/{key}", routing::get(waits))
            .layer(middleware::from_fn_with_state(scope, within));
        // With one subscriber in the process, tracing asks only the thread that logs first whether a line is of interest,
        // and the thread of another test has no subscriber.
        let _second = Dispatch::new(NoSubscriber::new());
        for (level, path, expected) in [
            (Level::INFO, "/broken/1", vec!["a handler panicked"]),
            (Level::INFO, "/waits/1", vec!["this handler has waited"]),
            (Level::DEBUG, "/broken/1", vec!["a handler panicked", "answered status=500"]),
            (Level::DEBUG, "/waits/1", vec!["this handler has waited", "answered status=200"]),
        ] {
            let log = NamedTempFile::new().unwrap();
            let subscriber = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
            let subscriber = subscriber.with_writer(Arc::new(log.reopen().unwrap())).finish();
            let request = Request::get(path).header("x-request-id", "mine").body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request);
            answer.with_subscriber(subscriber).await.unwrap();
            let log = std::fs::read_to_string(log.path()).unwrap();
            let route = path.replace('1', "{key}");
            let lines: Vec<&str> = log.lines().filter(|line| line.contains("http::scope")).collect();
            assert_eq!(lines.len(), expected.len(), "{log}");
            for (line, expected) in lines.into_iter().zip(expected) {
                let request = format!("request{{id=\"mine\" method=GET route=\"{route}\"}}");
                assert!(line.contains(&request) && line.contains(expected), "{line}");
            }
        }
    }

    #[tokio::test]
    async fn a_handler_that_panics_is_answered_500_and_counted() {
        let metrics = Metrics::new();
        let scope = RequestScope::new(metrics.clone(), Duration::from_secs(30));
        let router = Router::new()
            .route("/broken", routing::get(broken))
            .layer(middleware::from_fn_with_state(Arc::new(scope), within));
        let request = Request::get("/broken").header("x-request-id", "mine").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()["x-request-id"], "mine");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "internal_server_error");
        assert_eq!(body["error"]["message"], "An internal server error occurred.");
        let counted = r#"requests_total{method="GET",route="/broken",status="500"} 1"#;
        assert!(metrics.text().unwrap().contains(counted));
    }
}
