//! What the filter says of a request to the access log: `outcome=limited subscriber=acme plan=free class=standard quota=standard`.

use std::fmt;

use percent_encoding::percent_decode_str;

/// The filter state `wasm.weir`, read: its names and values, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told(Vec<(String, String)>);

/// Outcomes of requests that were answered by the filter.
const ANSWERED: [&str; 2] = ["limited", "not_in_plan"];

/// The outcome of a request that would have been.
pub(super) const SHADOW: &str = "shadow_limited";

impl Told {
    /// Reads the line.
    pub(super) fn read(line: &str) -> Option<Self> {
        let field = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), percent_decode_str(value).decode_utf8_lossy().into_owned()))
        };
        let told = Self(line.split(' ').map(field).collect::<Option<_>>()?);
        told.get("outcome").is_some().then_some(told)
    }

    /// The subscriber, the plan, the class, or the quota that had no room.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone())
    }

    /// Whether an outcome is among its own.
    pub(super) fn is(&self, outcome: &str) -> bool {
        self.get("outcome").is_some_and(|own| own.split(',').any(|own| own == outcome))
    }

    /// Whether the filter answered, in the upstream's place.
    pub(super) fn is_answered(&self) -> bool {
        ANSWERED.iter().any(|outcome| self.is(outcome))
    }
}

/// `outcome limited, subscriber acme, plan free, class standard, quota standard`
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<_> = self.0.iter().map(|(name, value)| format!("{name} {value}")).collect();
        f.write_str(&fields.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_read_as_the_filter_writes_it() {
        let told =
            Told::read("outcome=limited,missing_key subscriber=ac%20me%3D class=standard later=1").unwrap();
        assert_eq!(
            told.to_string(),
            "outcome limited,missing_key, subscriber ac me=, class standard, later 1"
        );
        assert!(told.is_answered() && told.is("missing_key") && !told.is("missing"));
        for other in ["", "x", "class=a"] {
            assert_eq!(Told::read(other), None, "{other}");
        }
    }
}
