//! Why a request was decided as it was, as a line for the log. It never has the key.

use core::slice;

use serde::Serialize;

use super::counting::Charged;
use super::decision::Decided;
use super::host::{Host, LogLevel};
use super::json;
use super::known::Customer;
use super::limiter::Limiter;
use super::outcome::{Outcome, Outcomes};
use super::usage::QuotaUsage;
use crate::config::digest;
use crate::count::fingerprint::KeyDigest;
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
    outcomes: Vec<&'static str>,
    /// `forwarded`, or the reply's status and response-code details.
    decision: String,
}

#[derive(Serialize)]
struct QuotaExplanation<'a> {
    /// In units.
    #[serde(flatten)]
    usage: QuotaUsage<'a>,
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
            cost: charged.map(Charged::cost),
            counter: charged
                .map(|charged| format!("{:08x}", charged.demand.levels.own.fingerprint().get() >> 32)),
            quotas: quotas
                .map(|(quota, standing)| QuotaExplanation {
                    usage: QuotaUsage::new(quota, standing, 1),
                    exhausted: standing.exhausted,
                    mode: quota.mode,
                })
                .collect(),
            outcomes: decided.outcomes.iter().map(Outcome::name).collect(),
            decision: answer.map_or_else(
                || "forwarded".to_owned(),
                |(status, details)| format!("answered {status} {details}"),
            ),
        };
        host.log(LogLevel::Debug, format_args!("decision {}", json(&explanation)));
    }

    /// The sources that carry a key, and the key's subscriber, if it is listed.
    fn identity(&self, host: &mut impl Host, headers: HeaderPairs<'_>) -> (String, Option<String>) {
        let sources = &self.config.key_sources;
        let mut read = |sources: &[KeySource]| credential(sources, headers, |path| host.property(path));
        let carries =
            |source: &&KeySource| !matches!(read(slice::from_ref(*source)), Ok(Credential::Missing));
        let names: Vec<String> = sources.iter().filter(carries).map(named).collect();
        let subscriber = match read(sources) {
            Ok(Credential::Key(key)) => self.subscriber(host, &digest(&key)),
            _ => None,
        };
        let key = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        (key, subscriber)
    }

    /// The subscriber of a key, if it is listed.
    fn subscriber(&self, host: &mut impl Host, key: &KeyDigest) -> Option<String> {
        if let Some((known, _)) = self.config.subscribers.get(key) {
            return Some(known.subscriber.to_owned());
        }
        let row = self.directory.as_ref()?.find(host, key).ok()??;
        Customer::of(row, &self.config).map(|customer| customer.known().0.subscriber.to_owned())
    }
}

/// Whether the decision has come to the point where the key is read.
fn looked_for_a_key(decided: &Decided) -> bool {
    // The usage endpoint is exempt as well, and answers by the key.
    let is_exempt = decided.outcomes == Outcome::Exempt.into() && decided.answer.is_none();
    // An operator has no key.
    let is_of_an_operator = decided.outcomes == Outcomes::default();
    !is_exempt && !is_of_an_operator && decided.outcomes != Outcome::AmbiguousPath.into()
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
