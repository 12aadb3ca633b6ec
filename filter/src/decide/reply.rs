//! The filter's own answers.
//!
//! One body serves both conventions: the error envelope of the API (`error.code` is one of the codes that its published clients know
//! for the status) and, for a refusal by quota, the draft's problem type. It is `application/json`, which those clients require.

use core::fmt;

use arrayvec::ArrayVec;
use serde::Serialize;

use crate::decide::response_headers::Report;
use crate::decide::usage::Usage;
use crate::request::header_pairs::serialize;

/// A reply that the filter sends instead of passing the request on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// gRPC status, for a gRPC request.
    pub grpc_status: u32,
    /// What an access log shows as response-code details.
    pub details: &'static str,
    /// Seconds in `Retry-After`.
    pub retry_after: Option<u64>,
    /// A header that only this reply has, its name in lower case.
    pub header: Option<(&'static str, &'static str)>,
    /// The JSON body.
    pub body: String,
    /// The plain message, the body for a gRPC request.
    pub message: String,
}

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Each request is one.
    Requests,
    /// A request may cost any number of them.
    Units,
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "request",
            Self::Units => "unit",
        })
    }
}

/// gRPC status codes, by their names in the gRPC documentation.
pub(super) mod grpc {
    pub(in crate::decide) const OK: u32 = 0;
    pub(in crate::decide) const INVALID_ARGUMENT: u32 = 3;
    pub(in crate::decide) const NOT_FOUND: u32 = 5;
    pub(in crate::decide) const PERMISSION_DENIED: u32 = 7;
    pub(in crate::decide) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(in crate::decide) const UNIMPLEMENTED: u32 = 12;
    pub(in crate::decide) const UNAVAILABLE: u32 = 14;
    pub(in crate::decide) const UNAUTHENTICATED: u32 = 16;
}

#[derive(Serialize)]
struct Body<'a> {
    error: Envelope<'a>,
    #[serde(flatten)]
    problem: Option<Problem<'a>>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    code: &'a str,
    message: &'a str,
    doc_url: &'a str,
}

/// draft-ietf-httpapi-ratelimit-headers-11, the problem type of a used-up quota.
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<&'a str>,
}

impl Reply {
    /// The reply's headers, serialized for `proxy_send_local_response`.
    #[must_use]
    pub fn headers(&self) -> Vec<u8> {
        let retry_after = self.retry_after.map(|seconds| seconds.to_string());
        let mut headers: ArrayVec<(&str, &[u8]), 4> = ArrayVec::new();
        headers.push(("content-type", b"application/json"));
        headers.push(("cache-control", b"no-store"));
        headers.extend(retry_after.as_ref().map(|seconds| ("retry-after", seconds.as_bytes())));
        headers.extend(self.header.map(|(name, value)| (name, value.as_bytes())));
        serialize(&headers)
    }

    /// 429: a quota of so many `units` is used up. `plan` is the subscriber's, `None` for a stranger.
    #[must_use]
    #[cold]
    pub fn limited(report: &Report, plan: Option<&str>, units: Units) -> Self {
        let retry_after = report.retry_after();
        let quota = report.tightest().map_or_else(String::new, |(quota, _)| {
            let plural = if quota.limit.get() == 1 { "" } else { "s" };
            format!("{} {units}{plural} per {}", quota.limit, quota.window.short_name())
        });
        let whose = match plan {
            Some(_) if report.refused_by_organisation() => "for the organisation".to_owned(),
            Some(plan) => format!("on the {plan} plan"),
            None => "for an address without a known key".to_owned(),
        };
        let message = format!("Too many requests: {quota} {whose}; retry in {retry_after} s.");
        let problem = Problem {
            kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
            title: "Request cannot be satisfied as assigned quota has been exceeded",
            status: 429,
            violated_policies: report.exhausted().map(|quota| quota.name.as_str()).collect(),
        };
        Self {
            retry_after: Some(retry_after),
            ..Self::new(429, grpc::RESOURCE_EXHAUSTED, "weir_rate_limited", message, Some(problem))
        }
    }

    /// The class is not in the plan: a retry could never succeed.
    #[must_use]
    pub fn not_in_plan(status: u16, class: &str, plan: &str) -> Self {
        let message = format!("The {plan} plan does not include {class} requests.");
        Self::new(status, grpc::PERMISSION_DENIED, "weir_not_in_plan", message, None)
    }

    /// 401: the key is unknown, and the configuration rejects those.
    #[must_use]
    pub fn unknown_key() -> Self {
        let message = "Unauthorized: Invalid API key.".to_owned();
        Self::new(401, grpc::UNAUTHENTICATED, "weir_unknown_key", message, None)
    }

    /// 401: there is no key, and the configuration rejects that.
    #[must_use]
    pub fn missing_key() -> Self {
        let message = "Missing API key.".to_owned();
        Self::new(401, grpc::UNAUTHENTICATED, "weir_missing_key", message, None)
    }

    /// 400: it is not clear whose request it is.
    #[must_use]
    pub fn ambiguous_key() -> Self {
        let message = "The request carries more than one API key; send exactly one.".to_owned();
        Self::new(400, grpc::INVALID_ARGUMENT, "weir_ambiguous_key", message, None)
    }

    /// 400: upstreams may read the path in ways that select different rules.
    #[must_use]
    pub fn ambiguous_path() -> Self {
        let message = "The path can be read in several ways; send it without dot segments, empty segments, \
                       parameters and encoded slashes."
            .to_owned();
        Self::new(400, grpc::INVALID_ARGUMENT, "weir_ambiguous_path", message, None)
    }

    /// 503: counting failed, and the configuration denies then.
    #[must_use]
    pub fn count_failed() -> Self {
        let message = "The request could not be counted against its quota; retry in 1 s.".to_owned();
        Self { retry_after: Some(1), ..Self::new(503, grpc::UNAVAILABLE, "weir_count_failed", message, None) }
    }

    /// 503: the directory has not answered yet, and the configuration lets nobody pass until then.
    #[must_use]
    pub fn not_ready() -> Self {
        let message = "The keys are not known yet; retry in 1 s.".to_owned();
        Self {
            retry_after: Some(1),
            ..Self::new(503, grpc::UNAVAILABLE, "weir_directory_not_ready", message, None)
        }
    }

    /// 200: where the caller stands.
    #[must_use]
    pub fn usage(usage: &Usage<'_>) -> Self {
        Self::answer("weir_usage", usage)
    }

    /// 200 with this document.
    pub(super) fn answer(details: &'static str, document: &impl Serialize) -> Self {
        // Serializing strings and numbers into memory cannot fail.
        let body = serde_json::to_string(document).unwrap_or_default();
        let (message, grpc_status) = (body.clone(), grpc::OK);
        Self { status: 200, grpc_status, details, retry_after: None, header: None, body, message }
    }

    /// A refusal in the API's error format.
    pub(super) fn refusal(status: u16, grpc_status: u32, details: &'static str, message: String) -> Self {
        Self::new(status, grpc_status, details, message, None)
    }

    #[cold]
    fn new(
        status: u16,
        grpc_status: u32,
        details: &'static str,
        message: String,
        problem: Option<Problem<'_>>,
    ) -> Self {
        let envelope = Envelope { code: code(status), message: &message, doc_url: doc_url(status) };
        // Serializing strings and numbers into memory cannot fail; an empty body would still carry status and headers.
        let body = serde_json::to_string(&Body { error: envelope, problem }).unwrap_or_default();
        Self { status, grpc_status, details, retry_after: None, header: None, body, message }
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
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::count::consume::Standing;
    use crate::count::fingerprint::Fingerprint;
    use crate::quota::{Mode, Quota, QuotaSet};
    use crate::request::header_pairs::HeaderPairs;
    use crate::time::Timestamp;
    use crate::window::Window;

    fn limited(plan: Option<&str>, units: Units) -> Reply {
        let quota = |limit: u32, window: Window, name: &str| Quota {
            name: name.to_owned(),
            limit: limit.try_into().unwrap(),
            window,
            mode: Mode::Enforced,
            refundable: true,
        };
        let quotas =
            vec![quota(60, Window::MINUTE, "standard-minute"), quota(2, Window::SECOND, "standard-second")];
        let at = Timestamp::from_seconds(83);
        let standings = quotas.iter().zip([true, false]);
        let standings = standings
            .map(|(quota, exhausted)| {
                let index = quota.window.at(at).index;
                Standing { used: 60, index, generation: 0, exhausted }
            })
            .collect();
        let counter = Fingerprint::OVERFLOW;
        let report = Report { quotas: Arc::new(QuotaSet::new(quotas)), standings, cost: 1, counter, at };
        Reply::limited(&report, plan, units)
    }

    #[test]
    fn a_refusal_says_which_quota_and_when_to_retry_in_both_conventions() {
        let reply = limited(Some("free"), Units::Requests);
        assert_eq!((reply.status, reply.grpc_status, reply.retry_after), (429, 8, Some(37)));
        insta::assert_snapshot!(reply.body, @r#"{"error":{"code":"rate_limit_exceeded","message":"Too many requests: 60 requests per minute on the free plan; retry in 37 s.","doc_url":"https://www.rfc-editor.org/rfc/rfc6585#section-4"},"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["standard-minute"]}"#);
        assert_eq!(
            limited(None, Units::Requests).message,
            "Too many requests: 60 requests per minute for an address without a known key; retry in 37 s."
        );
        assert_eq!(
            limited(Some("free"), Units::Units).message,
            "Too many requests: 60 units per minute on the free plan; retry in 37 s."
        );
    }

    #[test]
    fn every_reply_is_json_that_nobody_caches() {
        let replies = [
            (limited(Some("free"), Units::Requests), Some("37")),
            (Reply::not_in_plan(403, "analytics", "free"), None),
            (Reply::unknown_key(), None),
            (Reply::missing_key(), None),
            (Reply::ambiguous_key(), None),
            (Reply::ambiguous_path(), None),
            (Reply::count_failed(), Some("1")),
        ];
        for (reply, retry_after) in replies {
            let headers = reply.headers();
            let headers = HeaderPairs::parse(&headers).unwrap();
            assert_eq!(headers.get("content-type"), Some(&b"application/json"[..]), "{reply:?}");
            assert_eq!(headers.get("cache-control"), Some(&b"no-store"[..]), "{reply:?}");
            assert_eq!(headers.get("retry-after"), retry_after.map(str::as_bytes), "{reply:?}");
            let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
            assert_eq!(body["error"]["message"], reply.message);
        }
    }

    #[test]
    fn a_status_has_the_one_code_that_the_published_clients_accept() {
        let rows = [
            (Reply::not_in_plan(403, "analytics", "free"), "forbidden"),
            (Reply::not_in_plan(402, "analytics", "free"), "forbidden"),
            (Reply::not_in_plan(404, "analytics", "free"), "not_found"),
            (Reply::unknown_key(), "unauthorized"),
            (Reply::ambiguous_key(), "bad_request"),
            (Reply::ambiguous_path(), "bad_request"),
            (Reply::count_failed(), "internal_server_error"),
        ];
        for (reply, code) in rows {
            let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
            assert_eq!(body["error"]["code"], code, "{reply:?}");
            assert!(body.get("type").is_none(), "{reply:?}");
        }
    }
}
