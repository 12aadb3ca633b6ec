//! The scope of a request: its id, deadline, log line and metrics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::{ApiError, Code};
use crate::ids;
use crate::metrics::Metrics;
use crate::permits::Permit;

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
pub(crate) async fn within(
    State(scope): State<Arc<RequestScope>>,
    mut request: Request,
    next: Next,
) -> Response {
    let permit = Permit::default();
    request.extensions_mut().insert(permit.clone());
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or("unmatched", MatchedPath::as_str);
    let id = request_id(request.headers());
    let response = scope.handle(&method, route, id, next.run(request)).await;
    drop(permit);
    response
}

impl RequestScope {
    /// Runs a handler within the scope. The request id is that of the client or gateway if it is fit for a log. The
    /// response always contains the id.
    pub(crate) async fn handle(
        &self,
        method: &Method,
        route: &str,
        id: HeaderValue,
        handler: impl Future<Output = Response>,
    ) -> Response {
        let started = Instant::now();
        let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), %method, route);
        let handled = async {
            let answer = AssertUnwindSafe(handler).catch_unwind();
            let mut response = match tokio::time::timeout(self.timeout, answer).await {
                Ok(Ok(response)) => response,
                Ok(Err(_panic)) => {
                    tracing::error!("a handler panicked");
                    ApiError::internal().into_response()
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
            self.metrics.request(method, route, status, took);
            response.headers_mut().insert(REQUEST_ID.clone(), id);
            response
        };
        handled.instrument(span).await
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
    use tower::ServiceExt;

    use super::*;
    use crate::metrics::Format;

    async fn broken() -> StatusCode {
        panic!("this handler is broken")
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
        assert!(metrics.text(Format::Prometheus).unwrap().contains(counted));
    }
}
