//! Why a request was decided as it was, as a line for the log. It never has the key.

use core::slice;

use serde::Serialize;

use super::counting::Charged;
use super::decision::{Decided, Decision};
use super::host::{Host, LogLevel};
use super::limiter::Limiter;
use super::outcome::Outcome;
use crate::config::digest;
use crate::quota::Mode;
use crate::request::header_pairs::HeaderPairs;
use crate::request::identity::{Credential, KeySource, credential};

#[derive(Serialize)]
struct Explanation<'a> {
    /// Where the request carries a key.
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    class: &'a str,
    /// Units that the request costs, and the fingerprint of its counter, where it was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counter: Option<String>,
    quotas: Vec<QuotaExplanation<'a>>,
    outcomes: Vec<String>,
    /// `forwarded`, or the reply's status and response-code details.
    decision: String,
}

#[derive(Serialize)]
struct QuotaExplanation<'a> {
    name: &'a str,
    limit: u32,
    /// Seconds.
    window: u64,
    /// Units left in the window.
    remaining: u32,
    /// When the window ends, in UTC epoch seconds.
    reset: u64,
    /// Whether the request did not fit.
    exhausted: bool,
    mode: Mode,
}

impl Limiter {
    /// Logs at debug level why a request was decided as it was: `decision {"key":"header authorization", …}`. `headers` is the
    /// request's header map as the host serializes it.
    #[cold]
    pub fn explain(
        &self,
        host: &mut impl Host,
        headers: &[u8],
        decided: &Decided,
        answer: Option<(u16, &str)>,
    ) {
        let config = &self.config;
        let (key, subscriber) = match HeaderPairs::parse(headers).filter(|_| looked_for_a_key(decided)) {
            Some(headers) => self.identity(host, headers),
            None => ("not read".to_owned(), None),
        };
        let charged = decided.charged.as_ref();
        let quotas = charged.into_iter().flat_map(Charged::standings);
        let explanation = Explanation {
            key,
            subscriber: subscriber.as_deref(),
            plan: decided.plan.map(|plan| config.plan_name(plan)),
            class: config.class_name(decided.class),
            cost: charged.map(|charged| charged.cost),
            counter: charged.map(|charged| format!("{:08x}", charged.places.own.fingerprint().get() >> 32)),
            quotas: quotas
                .map(|(quota, standing)| {
                    let period = standing.period(quota);
                    QuotaExplanation {
                        name: &quota.name,
                        limit: quota.limit.get(),
                        window: period.end.saturating_sub(period.start),
                        remaining: standing.left(quota),
                        reset: period.end,
                        exhausted: standing.exhausted,
                        mode: quota.mode,
                    }
                })
                .collect(),
            outcomes: decided.outcomes.iter().map(|outcome| outcome.to_string()).collect(),
            decision: answer.map_or_else(
                || "forwarded".to_owned(),
                |(status, details)| format!("answered {status} {details}"),
            ),
        };
        // Serializing strings and numbers into memory cannot fail.
        let json = serde_json::to_string(&explanation).unwrap_or_default();
        host.log(LogLevel::Debug, format_args!("decision {json}"));
    }

    /// The sources that carry a key, and the key's subscriber, if it is listed.
    fn identity(&self, host: &mut impl Host, headers: HeaderPairs<'_>) -> (String, Option<String>) {
        let sources = &self.config.key_sources;
        let mut read = |sources: &[KeySource]| credential(sources, headers, |path| host.property(path));
        let carries =
            |source: &&KeySource| !matches!(read(slice::from_ref(*source)), Ok(Credential::Missing));
        let names: Vec<String> = sources.iter().filter(carries).map(named).collect();
        let subscriber = match read(sources) {
            Ok(Credential::Key(key)) => self.subscriber_of(&key),
            _ => None,
        };
        (if names.is_empty() { "none".to_owned() } else { names.join(", ") }, subscriber)
    }

    fn subscriber_of(&self, key: &[u8]) -> Option<String> {
        let (known, _) = self.config.known(self.directory.as_deref(), &digest(key))?;
        Some(known.subscriber.to_owned())
    }
}

/// Whether the decision has come to the point where the key is read.
fn looked_for_a_key(decided: &Decided) -> bool {
    let outcomes: Vec<_> = decided.outcomes.iter().collect();
    match outcomes.as_slice() {
        // The usage endpoint is exempt as well, and answers by the key.
        [Outcome::Exempt] => decided.decision != Decision::Pass,
        // An operator has no key.
        [] | [Outcome::AmbiguousPath] => false,
        _ => true,
    }
}

fn named(source: &KeySource) -> String {
    match source {
        KeySource::Header { name, .. } => format!("header {name}"),
        KeySource::Query { name } => format!("query {name}"),
        KeySource::Metadata { path } => {
            format!("metadata {}", String::from_utf8_lossy(path).replace('\0', "."))
        }
    }
}
