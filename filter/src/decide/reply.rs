//! The filter's own answers, as they are sent.
//!
//! One body serves both conventions: the error envelope of the API (`error.code` is one of the codes that its published clients know
//! for the status) and, for a refusal by quota, the draft's problem type. It is `application/json`, which those clients require.

use core::fmt::Write as _;

use arrayvec::ArrayVec;
use serde::Serialize;

use super::counting::Charged;
use super::decision::{Answer, Decided};
use super::refusal::{Head, Refusal};
use crate::config::{AllowOrigin, Config};
use crate::grpc;
use crate::request::header_pairs::serialize;

/// A reply, for `proxy_send_local_response`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// gRPC status; −1 unless the request is gRPC.
    pub grpc_status: i32,
    /// What an access log shows as response-code details.
    pub details: &'static str,
    /// The headers, serialized.
    pub headers: Vec<u8>,
    /// The body: JSON, or the plain message for a gRPC request.
    pub body: String,
}

impl Answer {
    /// A document that a caller or an operator asked for.
    pub(super) fn document(details: &'static str, document: &impl Serialize) -> Self {
        // Serializing strings and numbers into memory cannot fail.
        Self::Document { details, json: serde_json::to_string(document).unwrap_or_default() }
    }
}

impl Reply {
    /// Writes an answer to a request. `origin`: the request's `Origin`.
    #[must_use]
    #[cold]
    pub fn new(config: &Config, decided: &Decided, answer: &Answer, origin: Option<&[u8]>) -> Self {
        let origin = config.settings.headers.allow_origin.answer(origin);
        match answer {
            Answer::Document { details, json } => {
                let head = Head::new(200, grpc::OK, details);
                Self::write(&head, origin, decided.is_grpc.then_some(json), || json.clone())
            }
            Answer::Refused(refusal) => {
                let retry_after = decided.charged.as_ref().map_or(1, Charged::retry_after);
                let head = refusal.head(config.settings.not_in_plan.status.0, retry_after);
                let message = refusal.message(config, decided);
                let problem = (*refusal == Refusal::Limited).then_some(()).and(decided.charged.as_ref());
                let body = || body(&head, &message, problem);
                Self::write(&head, origin, decided.is_grpc.then_some(&message), body)
            }
        }
    }

    /// 503: the filter has no configuration.
    #[must_use]
    #[cold]
    pub fn without_configuration(is_grpc: bool) -> Self {
        let head = Head::new(503, grpc::UNAVAILABLE, "weir_no_configuration").retry_after(1);
        let message = "The gateway's quota filter has no configuration.".to_owned();
        Self::write(&head, None, is_grpc.then_some(&message), || body(&head, &message, None))
    }

    fn write(
        head: &Head,
        origin: Option<(&[u8], bool)>,
        grpc_message: Option<&String>,
        body: impl FnOnce() -> String,
    ) -> Self {
        let retry_after = head.retry_after.map(|seconds| seconds.to_string());
        let mut headers: ArrayVec<(&str, &[u8]), 7> = ArrayVec::new();
        headers.push(("content-type", b"application/json"));
        headers.push(("cache-control", b"no-store"));
        headers.extend(retry_after.as_ref().map(|seconds| ("retry-after", seconds.as_bytes())));
        headers.extend(head.header.map(|(name, value)| (name, value.as_bytes())));
        if let Some((origin, varies)) = origin {
            headers.push(("access-control-allow-origin", origin));
            headers.extend(varies.then_some(("vary", &b"Origin"[..])));
        }
        let grpc_status = grpc_message.and_then(|_| i32::try_from(head.grpc_status).ok());
        Self {
            status: head.status,
            grpc_status: grpc_status.unwrap_or(-1),
            details: head.details,
            headers: serialize(&headers),
            body: grpc_message.cloned().unwrap_or_else(body),
        }
    }
}

impl AllowOrigin {
    /// The value of `Access-Control-Allow-Origin` for a request of this origin, and whether it depends on the origin.
    fn answer<'o>(&self, origin: Option<&'o [u8]>) -> Option<(&'o [u8], bool)> {
        let origin = origin?;
        match self {
            Self::None => None,
            Self::Any => Some((b"*", false)),
            Self::List(origins) => {
                let is_listed = origins.0.iter().any(|listed| listed.as_bytes() == origin);
                is_listed.then_some((origin, true))
            }
        }
    }
}

impl Refusal {
    fn message(&self, config: &Config, decided: &Decided) -> String {
        let plan = decided.plan.map(|plan| config.plan_name(plan));
        match self {
            Self::Limited => {
                decided.charged.as_ref().map_or_else(String::new, |charged| limited(config, charged, plan))
            }
            Self::NotInPlan => {
                let class = config.class_name(decided.class);
                format!("The {} plan does not include {class} requests.", plan.unwrap_or_default())
            }
            Self::UnknownKey => "Unauthorized: Invalid API key.".to_owned(),
            Self::MissingKey => "Missing API key.".to_owned(),
            Self::AmbiguousKey => "The request carries more than one API key; send exactly one.".to_owned(),
            Self::AmbiguousPath => {
                "The path can be read in several ways; send it without dot segments, empty \
                                    segments, parameters and encoded slashes."
                    .to_owned()
            }
            Self::NotReady => "The keys are not known yet; retry in 1 s.".to_owned(),
            Self::CountFailed => {
                "The request could not be counted against its quota; retry in 1 s.".to_owned()
            }
            Self::Operator(refusal) => refusal.to_string(),
        }
    }
}

/// The message of a 429. `plan` is the subscriber's, `None` for a stranger.
fn limited(config: &Config, charged: &Charged, plan: Option<&str>) -> String {
    let class = config.catalog.classes.get(charged.class).filter(|_| plan.is_some());
    // What a quota counts, unless each request costs one.
    let is_of_units = class.is_some_and(|class| class.units() > 1 || class.cost.actual.is_some());
    let mut message = String::with_capacity(128);
    message.push_str("Too many requests: ");
    if let Some((quota, _)) = charged.tightest() {
        message.push_str(itoa::Buffer::new().format(quota.limit.get()));
        message.push_str(if is_of_units { " unit" } else { " request" });
        message.push_str(if quota.limit.get() == 1 { " per " } else { "s per " });
        // Writing to a String cannot fail.
        let _ = write!(message, "{}", quota.window.short_name());
    }
    match plan {
        Some(_) if charged.is_refused_by_organisation() => message.push_str(" for the organisation"),
        Some(plan) => {
            for part in [" on the ", plan, " plan"] {
                message.push_str(part);
            }
        }
        None => message.push_str(" for an address without a known key"),
    }
    for part in ["; retry in ", itoa::Buffer::new().format(charged.retry_after()), " s."] {
        message.push_str(part);
    }
    message
}

/// The body of a refusal, as JSON. Refusals come in floods, so it is written from prepared parts; what they leave open is known to need no
/// escapes, except the message.
fn body(head: &Head, message: &str, limited: Option<&Charged>) -> String {
    let mut json = String::with_capacity(512);
    for part in [r#"{"error":{"code":""#, code(head.status), r#"","message":"#] {
        json.push_str(part);
    }
    push_string(&mut json, message);
    for part in [r#","doc_url":""#, doc_url(head.status), r#""}"#] {
        json.push_str(part);
    }
    // draft-ietf-httpapi-ratelimit-headers-11, the problem type of a used-up quota.
    if let Some(charged) = limited {
        json.push_str(concat!(
            r#","type":"https://iana.org/assignments/http-problem-types#quota-exceeded""#,
            r#","title":"Request cannot be satisfied as assigned quota has been exceeded""#,
            r#","status":429,"violated-policies":["#
        ));
        for (place, quota) in charged.exhausted().enumerate() {
            for part in [if place == 0 { "\"" } else { ",\"" }, &quota.name, "\""] {
                json.push_str(part);
            }
        }
        json.push(']');
    }
    json.push('}');
    json
}

/// Adds a text as a JSON string.
fn push_string(json: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        for part in ["\"", text, "\""] {
            json.push_str(part);
        }
    } else {
        // Serializing a string into memory cannot fail.
        json.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

/// The one code that the published clients accept for a status.
fn code(status: u16) -> &'static str {
    match status {
        401 => "unauthorized",
        402 | 403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        410 => "invite_expired",
        422 => "unprocessable_entity",
        429 => "rate_limit_exceeded",
        500.. => "internal_server_error",
        _ => "bad_request",
    }
}

/// Where the status is defined.
fn doc_url(status: u16) -> &'static str {
    match status {
        429 => "https://www.rfc-editor.org/rfc/rfc6585#section-4",
        401 => "https://www.rfc-editor.org/rfc/rfc9110#section-15.5.2",
        403 => "https://www.rfc-editor.org/rfc/rfc9110#section-15.5.4",
        503 => "https://www.rfc-editor.org/rfc/rfc9110#section-15.6.4",
        _ => "https://www.rfc-editor.org/rfc/rfc9110#section-15.5",
    }
}

#[cfg(test)]
mod tests;
