//! The filter's own answers, as they are sent.
//!
//! One body serves both conventions: the error envelope of the API (`error.code` is one of the codes that its published clients know
//! for the status) and, for a refusal by quota, the draft's problem type. It is `application/json`, which those clients require.

use core::fmt::Write as _;
use std::borrow::Cow;
use std::collections::HashSet;

use arrayvec::ArrayVec;

use super::counting::Charged;
use super::decision::{Answer, Decided};
use super::headers::Tightest;
use super::refusal::Refusal;
use crate::config::{AllowOrigin, Config};
use crate::grpc;
use crate::quota::Quota;
use crate::request::header_pairs::serialize;
use crate::request::identity::KeySource;
use crate::window::Window;

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
type Headers<'a> = ArrayVec<(&'static str, &'a [u8]), 8>;

/// A charge that a quota had no room for.
struct Limited<'c> {
    charged: &'c Charged,
    tightest: Option<Tightest<'c>>,
    /// Seconds until there is room again.
    retry_after: u64,
}

impl Reply {
    /// Writes an answer to a request. `origin`: the request's `Origin`.
    #[must_use]
    #[cold]
    pub fn new(config: &Config, decided: &Decided, answer: &Answer, origin: Option<&[u8]>) -> Self {
        let headers = headers(&config.settings.headers.allow_origin, origin);
        let refusal = match answer {
            Answer::Document { details, json } => {
                return Self::write((200, *details), decided.is_grpc, &headers, json.clone());
            }
            Answer::Refused(refusal) => refusal,
            // It waits for a ledger that nobody can call.
            Answer::Later(_) => &Refusal::NoLedger,
        };
        Self::refuse(refusal, decided.is_grpc, Some((config, decided)), headers)
    }

    /// 503: the filter has no configuration.
    #[must_use]
    #[cold]
    pub fn without_configuration(is_grpc: bool) -> Self {
        Self::refuse(&Refusal::NoConfiguration, is_grpc, None, headers(&AllowOrigin::None, None))
    }

    /// Writes a refusal, of a request that was decided by a configuration. Refusals come in floods, so the body is put together from parts: a
    /// serializer takes three times as long. No part needs escapes: names of plans, classes and quotas have none of the characters that do.
    fn refuse(
        refusal: &Refusal,
        is_grpc: bool,
        of: Option<(&Config, &Decided)>,
        of_all: Headers<'_>,
    ) -> Self {
        let (usual_status, details) = refusal.head();
        let (status, limited) = match (refusal, of) {
            (Refusal::Limited, Some((_, decided))) => {
                (usual_status, decided.charged.as_ref().map(Limited::new))
            }
            (Refusal::NotInPlan, Some((config, _))) => (config.settings.not_in_plan.status.0, None),
            _ => (usual_status, None),
        };
        let (start, link) = if is_grpc { ("", "") } else { around(status) };
        let mut body = String::with_capacity(512);
        body.push_str(start);
        let plan = of.and_then(|(config, decided)| Some(config.plan_name(decided.plan?)));
        match (refusal, of, &limited) {
            (_, Some((config, decided)), Some(limited)) => {
                limited.push_message(&mut body, config, decided.plan);
            }
            (Refusal::NotInPlan, Some((config, decided)), _) => {
                let parts = ["The ", plan.unwrap_or_default(), " plan does not include "];
                parts.into_iter().for_each(|part| body.push_str(part));
                body.push_str(config.class_name(decided.class));
                body.push_str(" requests.");
            }
            // Writing to a String cannot fail.
            _ => drop(write!(body, "{refusal}")),
        }
        body.push_str(link);
        if !is_grpc {
            limited.iter().for_each(|limited| limited.push_problem(&mut body));
            body.push('}');
        }
        let seconds = limited.as_ref().map_or(1, |limited| limited.retry_after);
        let mut digits = itoa::Buffer::new();
        let is_in_flight = limited.as_ref().is_some_and(Limited::is_in_flight);
        let retry_after = digits.format(seconds);
        let is_retried = matches!(status, 429 | 503);
        let (challenge, milliseconds, retry_info);
        let mut headers = of_all;
        if let Some(header) = refusal.header() {
            headers.push(header);
        }
        if is_retried {
            headers.push(("retry-after", retry_after.as_bytes()));
        }
        if is_grpc && is_retried {
            milliseconds = format!("{retry_after}000");
            retry_info = grpc::retry_details(grpc::of_reply(usual_status), &body, seconds);
            headers.push(("grpc-retry-pushback-ms", milliseconds.as_bytes()));
            headers.push(("grpc-status-details-bin", retry_info.as_bytes()));
        }
        if let (Refusal::UnknownKey | Refusal::MissingKey, Some((config, _))) = (refusal, of) {
            challenge = self::challenge(config);
            headers.push(("www-authenticate", challenge.as_bytes()));
        }
        let details = if is_in_flight { "weir_in_flight" } else { details };
        Self { status, ..Self::write((usual_status, details), is_grpc, &headers, body) }
    }

    fn write(
        (status, details): (u16, &'static str),
        is_grpc: bool,
        headers: &Headers<'_>,
        body: String,
    ) -> Self {
        let grpc_status = if is_grpc { grpc::of_reply(status) } else { -1 };
        Self { status, grpc_status, details, headers: serialize(headers), body }
    }
}

impl<'c> Limited<'c> {
    fn new(charged: &'c Charged) -> Self {
        let tightest = charged.tightest();
        Self { charged, tightest, retry_after: charged.retry_after(tightest) }
    }

    /// Whether it is requests in flight that are too many.
    fn is_in_flight(&self) -> bool {
        self.tightest.is_some_and(|tightest| tightest.quota.window.is_in_flight())
    }

    /// The message of a 429. `plan` is the subscriber's, `None` for a stranger.
    fn push_message(&self, body: &mut String, config: &Config, plan: Option<usize>) {
        let Self { charged, tightest, retry_after } = self;
        let plan = plan.and_then(|plan| config.catalog.plans.get(plan));
        let class = config.catalog.classes.get(charged.class).filter(|_| plan.is_some());
        // What a quota counts, unless each request costs one.
        let is_of_units = class.is_some_and(|class| class.units() > 1 || class.cost.actual.is_some());
        let rate = tightest.and_then(|tightest| tightest.quota.window.rate());
        let (limit, window) = match (rate, tightest) {
            (Some((units, _, time)), _) => (units, Cow::Borrowed(time)),
            (None, Some(Tightest { quota, .. })) => (quota.limit.get(), quota.window.name()),
            (None, None) => (0, Cow::Borrowed("")),
        };
        let is_tightest = |quota: &Quota| {
            // Billing periods are the same quota, wherever they begin.
            let is_same =
                |of: Window| of == quota.window || of.is_shared() && of.name() == quota.window.name();
            tightest.is_some_and(|of| of.quota.limit == quota.limit && is_same(of.quota.window))
        };
        let mut digits = itoa::Buffer::new();
        body.push_str("Too many requests: ");
        body.push_str(digits.format(limit));
        let is_in_flight = self.is_in_flight();
        body.push_str(match (is_of_units && !is_in_flight, limit) {
            (true, 1) => " unit",
            (true, _) => " units",
            (false, 1) => " request",
            (false, _) => " requests",
        });
        if is_in_flight {
            body.push_str(" in flight");
        } else {
            let billed = window.strip_prefix("billing_");
            body.push_str(if billed.is_some() { " per billing " } else { " per " });
            body.push_str(billed.unwrap_or(&window));
        }
        if let (Some(_), Some(Tightest { quota, .. })) = (rate, tightest) {
            body.push_str(", at most ");
            body.push_str(digits.format(quota.limit.get()));
            body.push_str(" at once,");
        }
        match plan {
            Some(_) if charged.is_refused_by_organisation() => body.push_str(" for the organisation"),
            // The subscriber has limits that are not its plan's.
            Some((_, granted))
                if !granted.get(charged.class).is_some_and(|of| of.quotas().iter().any(is_tightest)) =>
            {
                body.push_str(" for this subscriber");
            }
            Some((plan, _)) => {
                body.push_str(" on the ");
                body.push_str(plan);
                body.push_str(" plan");
            }
            None => body.push_str(" for an address without a known key"),
        }
        body.push_str("; retry in ");
        body.push_str(digits.format(*retry_after));
        body.push_str(" s.");
    }

    /// The problem type of a used-up quota, with the quotas that are.
    fn push_problem(&self, body: &mut String) {
        body.push_str(PROBLEM);
        for (place, quota) in self.charged.exhausted().enumerate() {
            body.push_str(if place == 0 { "" } else { r#"",""# });
            body.push_str(&quota.name);
        }
        body.push_str(r#""]"#);
    }
}

/// The value of `www-authenticate`: how a request may carry its key, each scheme once.
fn challenge(config: &Config) -> String {
    let mut schemes: Vec<_> = config.key_sources.iter().map(KeySource::challenge).collect();
    let mut seen = HashSet::new();
    schemes.retain(|scheme| seen.insert(scheme.clone()));
    schemes.join(", ")
}

/// What each reply has, and the headers by which a script of this origin may read it, if the configuration allows it.
fn headers<'o>(allowed: &AllowOrigin, origin: Option<&'o [u8]>) -> Headers<'o> {
    let mut headers = Headers::new();
    headers.push(("content-type", b"application/json"));
    headers.push(("cache-control", b"no-store"));
    match (allowed, origin) {
        (AllowOrigin::Any, Some(_)) => headers.push(("access-control-allow-origin", b"*")),
        (AllowOrigin::List(list), Some(origin))
            if list.0.iter().any(|listed| listed.as_bytes() == origin) =>
        {
            headers.push(("access-control-allow-origin", origin));
            headers.push(("vary", b"Origin"));
        }
        _ => {}
    }
    headers
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
        431 => around!("bad_request", "rfc6585#section-5"),
        429 => around!("rate_limit_exceeded", "rfc6585#section-4"),
        503 => around!("internal_server_error", "rfc9110#section-15.6.4"),
        500.. => around!("internal_server_error", "rfc9110#section-15.5"),
        _ => around!("bad_request", "rfc9110#section-15.5"),
    }
}

#[cfg(test)]
mod tests;
