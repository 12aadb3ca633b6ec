//! Authentication by API key, and what a request waits for after it.
//!
//! The routes of the API are within [`authenticated`], and those with a [`Caller`] also within [`permitted`]. A handler cannot
//! have a workspace in another way, so that none runs before its request has waited.

use std::future::ready;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;

use crate::admission::{self, Place};
use crate::error::{ApiError, Code, Exhausted};
use crate::gate::Work;
use crate::held::hold;
use crate::permits::BULK_PATH;
use crate::state::Shared;
use crate::store::Workspace;

/// The workspace of the request's API key (`Authorization: Bearer <key>`). A request accesses only the data of this workspace. It
/// has a permit of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) workspace: Workspace,
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, ApiError> {
        parts.extensions.get().cloned().ok_or_else(ApiError::internal)
    }
}

/// The caller of an analytics query, which needs a permit of [`crate::admission`] instead.
#[derive(Debug)]
pub(crate) struct AnalyticsCaller {
    pub(crate) caller: Caller,
    /// Its place among the queries of the workspace that run or wait.
    pub(crate) place: Place,
}

impl FromRequestParts<Shared> for AnalyticsCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Authenticated(workspace) = parts.extensions.get().cloned().ok_or_else(ApiError::internal)?;
        let place = app.admission.place(&workspace)?;
        let passing = app.gate.pass(workspace.seq, Work::Query, ready(()));
        let (passed, ()) = admission::within_max_wait(passing).await?;
        hold(passed);
        Ok(Self { caller: Caller { workspace }, place })
    }
}

/// A request that waits longer for the workspace of its key makes the database suspected.
const PATIENCE: Duration = Duration::from_secs(1);

/// The workspace of a request that has waited for nothing yet.
#[derive(Clone, Debug)]
struct Authenticated(Workspace);

/// Middleware that finds the workspace of the request's key, and refuses requests while the database is away. The response has room.
pub(crate) async fn authenticated(
    State(app): State<Shared>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let key = bearer_key(request.headers())?.to_vec();
    let respond = async {
        let workspace = app.availability.observe(PATIENCE, app.store.workspace_of_key(&key)).await?;
        let workspace =
            workspace.ok_or_else(|| ApiError::new(Code::Unauthorized, "Unauthorized: Invalid API key."))?;
        let seq = workspace.seq;
        request.extensions_mut().insert(Authenticated(workspace));
        Ok::<_, ApiError>((seq, next.run(request).await))
    };
    let (workspace, response) = app.availability.while_available(respond).await??;
    if response.extensions().get::<Exhausted>().is_some() {
        app.availability.note_exhaustion();
    }
    app.answers.keep_whole(workspace, response).await
}

/// Middleware that reads the body of a request, and then waits for a permit of its workspace. A slow sender thereby holds no permit. A
/// bulk call that writes has room for its answer before it does, because it could not be repeated without the answer.
pub(crate) async fn permitted(
    State(app): State<Shared>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let workspace = request.extensions().get().cloned();
    let Authenticated(workspace) = workspace.ok_or_else(ApiError::internal)?;
    let has_body = !request.method().is_safe() && request.method() != Method::DELETE;
    if has_body {
        refuse_encoded(request.headers())?;
        let body = std::mem::take(request.body_mut());
        let (received, room) = app.bodies.receive(workspace.seq, body).await?;
        hold(room);
        request.extensions_mut().insert(received);
    }
    let path = request.uri().path();
    let room = async {
        if has_body && path == BULK_PATH { app.answers.reserve(workspace.seq).await } else { Ok(()) }
    };
    let (permit, passed, room) = app.permits.acquire(&workspace, request.method(), path, room).await;
    hold(permit);
    hold(passed);
    room?;
    request.extensions_mut().insert(Caller { workspace });
    Ok(next.run(request).await)
}

/// Refuses a body with a content coding, such as gzip. It would not be read as JSON.
fn refuse_encoded(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let message = "Content-Encoding is not supported: send the body as plain JSON.";
    Err(ApiError::new(Code::UnsupportedMediaType, message))
}

/// The key of the request. A key that is not UTF-8 is an unknown key.
fn bearer_key(headers: &HeaderMap) -> Result<&[u8], ApiError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Err(ApiError::new(Code::Unauthorized, "Missing Authorization header."));
    };
    // A gateway that counts requests could otherwise read a different key from the one that the service reads.
    if values.next().is_some() {
        return Err(ApiError::bad_request("More than one Authorization header."));
    }
    match value.as_bytes().split_at_checked("Bearer ".len()) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"Bearer ") => Ok(key.trim_ascii()),
        _ => Err(ApiError::bad_request(
            "Misconfigured authorization header. Did you forget to add 'Bearer '? Expected: Authorization: Bearer <key>",
        )),
    }
}
