//! What the filter state `wasm.weir` says of a request, for access logs: `%FILTER_STATE(wasm.weir:PLAIN)%`.

use core::fmt::{self, Write as _};

use super::decision::Decided;
use super::limiter::Limiter;
use crate::config::LogFields;

/// The key of the filter state, to which hosts add `wasm.`.
pub const NAME: &[u8] = b"weir";

impl Limiter {
    /// The line for a request's access log: `outcome=limited subscriber=acme plan=free class=standard quota=standard`. A field that does not apply
    /// is absent. `None` if the configuration asks for none. `headers` is the request's header map as the host serializes it.
    #[must_use]
    pub fn log_fields(
        &self,
        decided: &Decided,
        subscriber: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        match self.config.log_fields {
            LogFields::None => return None,
            LogFields::Refused if !decided.is_refused => return None,
            LogFields::Refused | LogFields::All => {}
        }
        let mut line = "outcome=".to_owned();
        let outcomes: Vec<_> = decided.outcomes.iter().map(|outcome| outcome.to_string()).collect();
        line.push_str(&outcomes.join(","));
        let quota = decided.charged.as_ref().and_then(|charged| {
            let mut exhausted = charged.standings().filter(|(_, standing)| standing.exhausted);
            Some(exhausted.next()?.0.name.as_str())
        });
        let subscriber = decided.plan.and_then(|_| subscriber());
        let fields = [
            ("subscriber", subscriber.as_deref()),
            ("plan", decided.plan.map(|plan| self.config.plan_name(plan))),
            ("class", Some(self.config.class_name(decided.class))),
            ("quota", quota),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(line, " {name}={}", OneWord(value));
            }
        }
        Some(line)
    }
}

/// A text as one word: what would end it, or the line, is percent-encoded.
struct OneWord<'t>(&'t str);

impl fmt::Display for OneWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bytes().try_for_each(|byte| match byte {
            b'"' | b'%' | b'\\' | b'=' => write!(f, "%{byte:02X}"),
            b'!'..=b'~' => f.write_char(char::from(byte)),
            _ => write!(f, "%{byte:02X}"),
        })
    }
}
