//! Creations that a client may repeat: the header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header).
//!
//! A client that does not know whether a creation succeeded sends it again with the same key, and gets the answer of the first. A
//! creation that was refused or failed has created nothing, so its repetition is a new attempt.

use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::caller::Caller;
use super::running::Run;
use super::state::Shared;
use crate::http::error::{ApiError, Code};
use crate::http::fair::Received;
use crate::store::{KeptAnswer, Recording, Repeatable, StoreError, to_json};

/// The header with the key.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header of a response that was kept.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Maximum length of a key, in characters.
pub(crate) const MAX_KEY: usize = 255;

/// Whether the client may repeat the request. A request that is a repetition does not reach its handler.
#[derive(Debug)]
pub(crate) struct Repeat(Option<(Repeatable, Run)>);

impl Repeat {
    /// How the answer is kept, if the client may repeat the request: its status, and its body, which `write` makes.
    pub(crate) fn recording<'a, T>(
        &'a self,
        status: StatusCode,
        write: &'a (dyn Fn(&T) -> Result<Option<String>, StoreError> + Send + Sync),
    ) -> Option<Recording<'a, T>> {
        let (request, _) = self.0.as_ref()?;
        Some(Recording { request, status: status.as_u16(), write })
    }
}

impl FromRequestParts<Shared> for Repeat {
    /// The refusal, or the answer to the first request.
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Response> {
        let Some(key) = key_of(&parts.headers).map_err(IntoResponse::into_response)? else {
            return Ok(Self(None));
        };
        let caller = Caller::from_request_parts(parts, app).await.map_err(IntoResponse::into_response)?;
        let fingerprint = fingerprint(parts);
        let run = app.running.begin(caller.workspace.seq, &key);
        let run = run.ok_or_else(|| {
            ApiError::conflict("A request with this Idempotency-Key is in progress.").into_response()
        })?;
        let kept = app.store.kept_answer(&caller.workspace, &key, app.clock.now()).await;
        match kept.map_err(|error| ApiError::from(error).into_response())? {
            None => Ok(Self(Some((Repeatable { key, fingerprint }, run)))),
            Some(kept) if kept.fingerprint == fingerprint => Err(replayed(kept)),
            Some(_) => {
                let message = "This Idempotency-Key was used for another request.";
                Err(ApiError::new(Code::UnprocessableEntity, message).into_response())
            }
        }
    }
}

/// A body of an answer.
pub(crate) fn written(body: &impl Serialize) -> Result<Option<String>, StoreError> {
    to_json("answer", body).map(Some)
}

fn replayed(kept: KeptAnswer) -> Response {
    let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK);
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (REPLAYED, HeaderValue::from_static("true")),
    ];
    (status, headers, kept.body).into_response()
}

/// The key of a request: a string of RFC 9651 in quotation marks, as the draft says, or the same without them.
fn key_of(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let key = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let is_key = !key.is_empty()
        && key.len() <= MAX_KEY
        && key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    if values.next().is_some() || !is_key {
        let message =
            format!("Idempotency-Key: expected one key of 1 to {MAX_KEY} visible ASCII characters.");
        return Err(ApiError::bad_request(message));
    }
    Ok(Some(key.to_owned()))
}

/// A hash of the method, the path and the body of a request.
fn fingerprint(parts: &Parts) -> String {
    let body = parts.extensions.get::<Received>().map(|Received(body)| &body[..]).unwrap_or_default();
    let mut hash = Sha256::new();
    for part in [parts.method.as_str().as_bytes(), parts.uri.path().as_bytes(), body] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}
