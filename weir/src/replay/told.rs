//! What the filter says of a request to the access log: `outcome=limited subscriber=acme plan=free class=standard quota=standard`.

use std::fmt;

use percent_encoding::percent_decode_str;

/// The filter state `wasm.weir`, read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The outcomes, with commas between them.
    pub outcome: String,
    /// The subscriber.
    pub subscriber: Option<String>,
    /// The plan.
    pub plan: Option<String>,
    /// The class.
    pub class: Option<String>,
    /// The quota that had no room.
    pub quota: Option<String>,
}

/// Outcomes of requests that were refused, or would have been.
const REFUSED: [&str; 3] = ["limited", "shadow_limited", "not_in_plan"];

impl Told {
    /// Reads the line.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut told = Self::default();
        for word in line.split(' ') {
            let (name, value) = word.split_once('=')?;
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            match name {
                "outcome" => told.outcome = value,
                "subscriber" => told.subscriber = Some(value),
                "plan" => told.plan = Some(value),
                "class" => told.class = Some(value),
                "quota" => told.quota = Some(value),
                _ => {}
            }
        }
        Some(told).filter(|told| !told.outcome.is_empty())
    }

    /// Whether an outcome is among its own.
    pub(super) fn is(&self, outcome: &str) -> bool {
        self.outcome.split(',').any(|own| own == outcome)
    }

    /// Whether the request was refused, or would have been.
    pub(super) fn is_refused(&self) -> bool {
        REFUSED.iter().any(|outcome| self.is(outcome))
    }
}

/// `limited, subscriber acme, plan free, class standard, quota standard`
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.outcome)?;
        let parts = [
            ("subscriber", &self.subscriber),
            ("plan", &self.plan),
            ("class", &self.class),
            ("quota", &self.quota),
        ];
        parts
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)))
            .try_for_each(|(name, value)| write!(f, ", {name} {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_read_as_the_filter_writes_it() {
        let told =
            Told::read("outcome=limited,missing_key subscriber=ac%20me%3D class=standard later=1").unwrap();
        assert_eq!(told.to_string(), "limited,missing_key, subscriber ac me=, class standard");
        assert!(told.is_refused() && told.is("missing_key") && !told.is("missing"));
        for other in ["", "x", "class=a"] {
            assert_eq!(Told::read(other), None, "{other}");
        }
    }
}
