//! The filter's own answers, as they are sent.
//!
//! One body serves both conventions: the error envelope of the API (`error.code` is one of the codes that its published clients know
//! for the status) and, for a refusal by quota, the draft's problem type. It is `application/json`, which those clients require.

use std::borrow::Cow;

use arrayvec::ArrayVec;

use super::counting::Charged;
use super::decision::{Answer, Decided};
use super::refusal::Refusal;
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

/// Headers: their names in lower case, and their values.
type Headers<'a> = ArrayVec<(&'static str, &'a [u8]), 6>;

impl Reply {
    /// Writes an answer to a request. `origin`: the request's `Origin`.
    #[must_use]
    #[cold]
    pub fn new(config: &Config, decided: &Decided, answer: &Answer, origin: Option<&[u8]>) -> Self {
        let headers = allow_origin(&config.settings.headers.allow_origin, origin);
        let refusal = match answer {
            Answer::Document { details, json } => {
                return Self::write((200, *details), decided.is_grpc, headers, json.clone());
            }
            Answer::Refused(refusal) => refusal,
            // It waits for a ledger that nobody can call.
            Answer::Later(_) => &Refusal::NoLedger,
        };
        let plan = decided.plan.map(|plan| config.plan_name(plan));
        let limited = decided.charged.as_ref().filter(|_| *refusal == Refusal::Limited);
        let limited = limited.map(|charged| (charged, charged.retry_after()));
        let message = match (refusal, limited) {
            (Refusal::Limited, Some(limited)) => message(config, limited, plan),
            (Refusal::NotInPlan, _) => {
                let class = config.class_name(decided.class);
                format!("The {} plan does not include {class} requests.", plan.unwrap_or_default())
            }
            _ => refusal.to_string(),
        };
        let not_in_plan = (*refusal == Refusal::NotInPlan).then_some(config.settings.not_in_plan.status.0);
        Self::refuse((refusal, not_in_plan), decided.is_grpc, headers, message, limited)
    }

    /// 503: the filter has no configuration.
    #[must_use]
    #[cold]
    pub fn without_configuration(is_grpc: bool) -> Self {
        let refusal = Refusal::NoConfiguration;
        Self::refuse((&refusal, None), is_grpc, Headers::new(), refusal.to_string(), None)
    }

    /// Writes a refusal, which may have another status than usual. `limited` is the charge that a quota had no room for, and when
    /// there is room again, in seconds.
    fn refuse(
        (refusal, other_status): (&Refusal, Option<u16>),
        is_grpc: bool,
        more: Headers<'_>,
        message: String,
        limited: Option<(&Charged, u64)>,
    ) -> Self {
        let (usual_status, details) = refusal.head();
        let status = other_status.unwrap_or(usual_status);
        let mut digits = itoa::Buffer::new();
        let retry_after = digits.format(limited.map_or(1, |(_, seconds)| seconds));
        let mut headers = Headers::from_iter(refusal.header());
        headers.extend(matches!(status, 429 | 503).then_some(("retry-after", retry_after.as_bytes())));
        headers.extend(more);
        let body =
            if is_grpc { message } else { body(status, &message, limited.map(|(charged, _)| charged)) };
        let mut reply = Self::write((usual_status, details), is_grpc, headers, body);
        reply.status = status;
        reply
    }

    fn write((status, details): (u16, &'static str), is_grpc: bool, more: Headers<'_>, body: String) -> Self {
        let mut headers =
            Headers::from_iter([("content-type", &b"application/json"[..]), ("cache-control", b"no-store")]);
        headers.extend(more);
        let grpc_status = if is_grpc { grpc::of_reply(status) } else { -1 };
        Self { status, grpc_status, details, headers: serialize(&headers), body }
    }
}

/// The headers by which a script of this origin may read the reply, if the configuration allows it.
fn allow_origin<'o>(allowed: &AllowOrigin, origin: Option<&'o [u8]>) -> Headers<'o> {
    match (allowed, origin) {
        (AllowOrigin::Any, Some(_)) => Headers::from_iter([("access-control-allow-origin", &b"*"[..])]),
        (AllowOrigin::List(list), Some(origin))
            if list.0.iter().any(|listed| listed.as_bytes() == origin) =>
        {
            Headers::from_iter([("access-control-allow-origin", origin), ("vary", b"Origin")])
        }
        _ => Headers::new(),
    }
}

/// The message of a 429. `plan` is the subscriber's, `None` for a stranger.
fn message(config: &Config, (charged, retry_after): (&Charged, u64), plan: Option<&str>) -> String {
    let class = config.catalog.classes.get(charged.class).filter(|_| plan.is_some());
    // What a quota counts, unless each request costs one.
    let is_of_units = class.is_some_and(|class| class.units() > 1 || class.cost.actual.is_some());
    let (limit, window) = match charged.tightest() {
        Some((quota, _)) => (quota.limit.get(), quota.window.name()),
        None => (0, Cow::Borrowed("")),
    };
    let unit = if is_of_units { " unit" } else { " request" };
    let whose = match plan {
        Some(_) if charged.is_refused_by_organisation() => [" for the organisation", "", "; retry in "],
        Some(plan) => [" on the ", plan, " plan; retry in "],
        None => [" for an address without a known key", "", "; retry in "],
    };
    let (mut digits, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (number, seconds) = (digits.format(limit), seconds.format(retry_after));
    let per = if limit == 1 { " per " } else { "s per " };
    let [whose, plan, end] = whose;
    joined(&["Too many requests: ", number, unit, per, &window, whose, plan, end, seconds, " s."])
}

/// The body of a refusal. Refusals come in floods, so it is put together from parts: a serializer takes three times as long. No part needs
/// escapes: names of plans, classes and quotas have none of the characters that do.
fn body(status: u16, message: &str, limited: Option<&Charged>) -> String {
    let (start, link) = around(status);
    let mut policies = String::with_capacity(64);
    for quota in limited.iter().flat_map(|charged| charged.exhausted()) {
        policies.push_str(if policies.is_empty() { "" } else { r#"",""# });
        policies.push_str(&quota.name);
    }
    let [problem, policies, end] = if limited.is_some() { [PROBLEM, &policies, r#""]"#] } else { [""; 3] };
    joined(&[start, message, link, problem, policies, end, "}"])
}

/// The parts in a row: what `concat` does, which takes three times the instructions.
fn joined(parts: &[&str]) -> String {
    let mut all = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        all.push_str(part);
    }
    all
}

/// The problem type of a used-up quota, of draft-ietf-httpapi-ratelimit-headers-11, up to the names of the quotas.
const PROBLEM: &str = concat!(
    r#","type":"https://iana.org/assignments/http-problem-types#quota-exceeded""#,
    r#","title":"Request cannot be satisfied as assigned quota has been exceeded""#,
    r#","status":429,"violated-policies":[""#
);

/// What stands before and after the message: the one code that the published clients accept for a status, and where the status is defined.
fn around(status: u16) -> (&'static str, &'static str) {
    macro_rules! around {
        ($code:literal, $rfc_section:literal) => {
            (
                concat!(r#"{"error":{"code":""#, $code, r#"","message":""#),
                concat!(r#"","doc_url":"https://www.rfc-editor.org/rfc/"#, $rfc_section, r#""}"#),
            )
        };
    }
    match status {
        401 => around!("unauthorized", "rfc9110#section-15.5.2"),
        402 => around!("forbidden", "rfc9110#section-15.5"),
        403 => around!("forbidden", "rfc9110#section-15.5.4"),
        404 => around!("not_found", "rfc9110#section-15.5"),
        409 => around!("conflict", "rfc9110#section-15.5"),
        410 => around!("invite_expired", "rfc9110#section-15.5"),
        422 => around!("unprocessable_entity", "rfc9110#section-15.5"),
        429 => around!("rate_limit_exceeded", "rfc6585#section-4"),
        503 => around!("internal_server_error", "rfc9110#section-15.6.4"),
        500.. => around!("internal_server_error", "rfc9110#section-15.5"),
        _ => around!("bad_request", "rfc9110#section-15.5"),
    }
}

#[cfg(test)]
mod tests;
