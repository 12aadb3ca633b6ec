//! The turn of a request with a key.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::{Instant, timeout_at};

use super::caller::{Authenticated, Caller};
use super::state::Shared;
use crate::http::error::ApiError;

/// The GET requests that may take long. Each has a [`Reader`](crate::store::Reader), of which there are as many as places.
pub(crate) const QUERIES: [&str; 7] =
    ["/analytics", "/events", "/links", "/links/count", "/tags", "/folders", "/webhooks/{id}/deliveries"];

/// Middleware that runs a request when its workspace has memory for it and a place. It is refused while the database is away.
pub(crate) async fn in_turn(
    State(app): State<Shared>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let deadline = Instant::now() + app.fair.time_limit();
    let Authenticated(workspace) = request.extensions_mut().remove().ok_or_else(ApiError::internal)?;
    let seq = workspace.seq;
    let is_query = is_query(&request);
    let place = app.fair.admit(seq, &mut request, is_query).await?;
    request.extensions_mut().insert(Caller { workspace });
    let answering = async move {
        let answer = timeout_at(deadline, app.availability.while_available(next.run(request))).await;
        let answer = answer.map_err(|_elapsed| ApiError::timed_out())??;
        app.fair.count_large(seq, answer).await
    };
    place.run(answering).await
}

/// Whether a request may take long.
fn is_query(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>();
    request.method().is_safe() && route.is_some_and(|route| QUERIES.contains(&route.as_str()))
}
