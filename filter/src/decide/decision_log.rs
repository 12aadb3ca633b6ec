//! What logs say of a decision: a line for the gateway's access log, and a line for the filter's own that says why. Neither has the key.

use core::fmt::Write as _;
use core::slice;

use serde::Serialize;

use super::counting::{Charged, Context};
use super::decision::Decided;
use super::host::{Host, LogLevel};
use super::json;
use super::limiter::{Limiter, SENT_PATH};
use super::outcome::{Outcome, Outcomes};
use super::usage::QuotaUsage;
use crate::config::{Config, LogFields};
use crate::quota::Mode;
use crate::request::header_pairs::HeaderPairs;
use crate::request::identity::{Credential, KeySource, credential};

/// The key of the filter state that has the line for access logs, `%FILTER_STATE(wasm.weir:PLAIN)%`. Hosts add `wasm.`.
pub const NAME: &[u8] = b"weir";

/// A decision by the names that its configuration has for it. A field that does not apply is absent.
#[derive(Debug, Serialize)]
pub struct DecisionLog<'d> {
    outcomes: Outcomes,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'d str>,
    class: &'d str,
}

/// Why a request was decided as it was.
#[derive(Serialize)]
struct Explanation<'d> {
    /// Where the request carries a key.
    key: String,
    #[serde(flatten)]
    decision_log: DecisionLog<'d>,
    /// Units that the request costs, and the fingerprint of its counter, where it was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counter: Option<String>,
    quotas: Vec<QuotaExplanation<'d>>,
    /// `forwarded`, or the reply's status and response-code details.
    decision: String,
}

#[derive(Serialize)]
struct QuotaExplanation<'d> {
    #[serde(flatten)]
    usage: QuotaUsage<'d>,
    /// Whether the request did not fit.
    exhausted: bool,
    mode: Mode,
}

impl<'d> DecisionLog<'d> {
    fn new(config: &'d Config, decided: &'d Decided) -> Self {
        Self {
            outcomes: decided.outcomes,
            subscriber: decided.subscriber.as_deref(),
            plan: decided.plan.map(|plan| config.plan_name(plan)),
            class: config.class_name(decided.class),
        }
    }

    /// The line for a request's access log: `outcome=limited subscriber=acme plan=free class=standard quota=standard`. `None` if the
    /// configuration asks for none.
    #[must_use]
    pub fn line(config: &Config, decided: &Decided) -> Option<String> {
        match config.settings.log_fields {
            LogFields::None => return None,
            LogFields::Refused if !decided.is_refused => return None,
            LogFields::Refused | LogFields::All => {}
        }
        let DecisionLog { outcomes, subscriber, plan, class } = DecisionLog::new(config, decided);
        let mut standings = decided.charged.iter().flat_map(Charged::standings);
        let exhausted = standings.find(|(_, standing)| standing.exhausted);
        let mut line = String::with_capacity(128);
        line.push_str("outcome=");
        for (place, outcome) in outcomes.iter().enumerate() {
            line.push_str(if place == 0 { "" } else { "," });
            line.push_str(outcome.name());
        }
        if let Some(subscriber) = subscriber {
            line.push_str(" subscriber=");
            push_word(&mut line, subscriber);
        }
        // These names are words.
        if let Some(plan) = plan {
            line.push_str(" plan=");
            line.push_str(plan);
        }
        line.push_str(" class=");
        line.push_str(class);
        if let Some((quota, _)) = exhausted {
            line.push_str(" quota=");
            line.push_str(&quota.name);
        }
        Some(line)
    }
}

impl Limiter {
    /// Logs at debug level why a request was decided as it was: `decision {"key":"header authorization", …}`. `headers` is the
    /// request's header map as the host serializes it.
    #[cold]
    pub fn explain(
        &mut self,
        host: &mut impl Host,
        headers: &[u8],
        decided: &Decided,
        answer: Option<(u16, &str)>,
    ) {
        self.context(host).explain(headers, decided, answer);
    }
}

impl<H: Host> Context<'_, H> {
    fn explain(&mut self, headers: &[u8], decided: &Decided, answer: Option<(u16, &str)>) {
        let charged = decided.charged.as_ref();
        let explanation = Explanation {
            key: self.key(headers, decided),
            decision_log: DecisionLog::new(self.config, decided),
            cost: charged.map(|charged| charged.demand.cost),
            counter: charged
                .map(|charged| format!("{:08x}", charged.demand.levels.own.fingerprint().get() >> 32)),
            quotas: charged
                .into_iter()
                .flat_map(Charged::standings)
                .map(|(quota, standing)| QuotaExplanation {
                    usage: QuotaUsage::new(quota, standing),
                    exhausted: standing.exhausted,
                    mode: quota.mode,
                })
                .collect(),
            decision: answer.map_or_else(
                || "forwarded".to_owned(),
                |(status, details)| format!("answered {status} {details}"),
            ),
        };
        self.host.log(LogLevel::Debug, format_args!("decision {}", json(&explanation)));
    }

    /// The sources that carry a key.
    fn key(&mut self, headers: &[u8], decided: &Decided) -> String {
        // The usage endpoint is exempt as well, and answers by the key. An operator, who has no key, has no outcome either.
        let is_exempt = decided.outcomes == Outcome::Exempt.into() && decided.answer.is_none();
        let is_decided_before =
            is_exempt || [Outcomes::default(), Outcome::AmbiguousPath.into()].contains(&decided.outcomes);
        let Some(headers) = HeaderPairs::parse(headers).filter(|_| !is_decided_before) else {
            return "not read".to_owned();
        };
        let (host, sources) = (&mut *self.host, &self.config.key_sources);
        let reads_query = sources.iter().any(|source| matches!(source, KeySource::Query { .. }));
        let sent = reads_query.then(|| host.property(SENT_PATH).ok().flatten()).flatten();
        let path = sent.as_deref().or_else(|| headers.get(":path"));
        let carries = |source: &&KeySource| {
            let found = credential(slice::from_ref(*source), headers, path, |path| host.property(path));
            !matches!(found, Ok(Credential::Missing))
        };
        let names: Vec<_> = sources.iter().filter(carries).map(ToString::to_string).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// Adds a text as one word: what would end it, or the line, is percent-encoded.
fn push_word(line: &mut String, text: &str) {
    let ends = |byte: u8| matches!(byte, b'"' | b'%' | b'\\' | b'=' | ..=b' ' | 0x7f..);
    if !text.bytes().any(ends) {
        line.push_str(text);
        return;
    }
    for byte in text.bytes() {
        match ends(byte) {
            // Writing to a String cannot fail.
            true => drop(write!(line, "%{byte:02X}")),
            false => line.push(char::from(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_word_whatever_it_contains() {
        let rows = [
            ("acme-1_a.b/c@d", "acme-1_a.b/c@d"),
            ("a b=c\"d\\e%f\n", "a%20b%3Dc%22d%5Ce%25f%0A"),
            ("café", "caf%C3%A9"),
            ("", ""),
        ];
        for (text, expected) in rows {
            let mut line = String::new();
            push_word(&mut line, text);
            assert_eq!(line, expected, "{text}");
        }
    }
}
