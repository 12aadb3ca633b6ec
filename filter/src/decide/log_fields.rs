//! What the filter state `wasm.weir` says of a request, for access logs: `%FILTER_STATE(wasm.weir:PLAIN)%`.

use core::fmt::Write as _;

use super::counting::Charged;
use super::decision::Decided;
use crate::config::{Config, LogFields};

/// The key of the filter state, to which hosts add `wasm.`.
pub const NAME: &[u8] = b"weir";

/// The line for a request's access log: `outcome=limited subscriber=acme plan=free class=standard quota=standard`. A field that does not apply is
/// absent. `None` if the configuration asks for none.
#[must_use]
pub fn line(config: &Config, decided: &Decided) -> Option<String> {
    match config.settings.log_fields {
        LogFields::None => return None,
        LogFields::Refused if !decided.is_refused => return None,
        LogFields::Refused | LogFields::All => {}
    }
    let mut line = String::with_capacity(128);
    line.push_str("outcome=");
    for (place, outcome) in decided.outcomes.iter().enumerate() {
        line.push_str(if place == 0 { "" } else { "," });
        line.push_str(outcome.name());
    }
    let mut standings = decided.charged.iter().flat_map(Charged::standings);
    let exhausted = standings.find(|(_, standing)| standing.exhausted);
    if let Some(subscriber) = &decided.subscriber {
        line.push_str(" subscriber=");
        push_word(&mut line, subscriber);
    }
    // These names are words.
    let fields = [
        (" plan=", decided.plan.map(|plan| config.plan_name(plan))),
        (" class=", Some(config.class_name(decided.class))),
        (" quota=", exhausted.map(|(quota, _)| quota.name.as_str())),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            line.push_str(name);
            line.push_str(value);
        }
    }
    Some(line)
}

/// Adds a text as one word: what would end it, or the line, is percent-encoded.
fn push_word(line: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' | b'\\' | b'=' | ..=b' ' | 0x7f.. => {
                // Writing to a String cannot fail.
                let _ = write!(line, "%{byte:02X}");
            }
            byte => line.push(char::from(byte)),
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
