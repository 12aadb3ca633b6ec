//! A decision as the filter logs it: `decision {"key": "header authorization", …}`.

use std::fmt;

use serde_json::{Map, Value};

/// What stands before the object.
const MARKER: &str = "decision {";

/// The fields in the order in which the filter comes to them; others follow.
const ORDER: [&str; 9] =
    ["key", "subscriber", "plan", "class", "cost", "counter", "quotas", "outcomes", "decision"];

/// A decision.
#[derive(Debug)]
pub(crate) struct Decision(Map<String, Value>);

impl Decision {
    /// The decision in a line of the log.
    pub(crate) fn read(message: &str) -> Option<Self> {
        let (_, object) = message.split_once(MARKER)?;
        serde_json::from_str(&format!("{{{object}")).ok().map(Self)
    }

    /// Its fields, as the filter logs them.
    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = ORDER.iter().filter_map(|name| self.0.get_key_value(*name));
        let others = self.0.iter().filter(|(name, _)| !ORDER.contains(&name.as_str()));
        let lines = known.chain(others).flat_map(|(name, value)| {
            let values = match value {
                Value::Array(values) if values.is_empty() => vec!["none".to_owned()],
                Value::Array(values) if values.iter().all(Value::is_object) => {
                    values.iter().map(|value| shown(name, value)).collect()
                }
                value => vec![shown(name, value)],
            };
            values.into_iter().map(move |value| format!("{name:<14}{value}"))
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// A value of a field, for people.
fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(|value| shown(name, value)).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            // The name comes first, and the rest by the alphabet.
            let title = fields.get("name").map(|title| shown("name", title));
            let rest = fields.iter().filter(|(name, _)| *name != "name");
            let rest = rest.map(|(name, value)| format!("{name} {}", shown(name, value)));
            title.into_iter().chain(rest).collect::<Vec<_>>().join(", ")
        }
        // Seconds since 1970.
        Value::Number(seconds) if name == "reset" => {
            let time = seconds.as_i64().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
            time.map_or_else(|| seconds.to_string(), |time| format!("{seconds} ({time})"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_printed_in_the_order_of_the_way_through_the_filter() {
        let line = r#"decision {"decision":"forwarded","quotas":[{"limit":2,"name":"a","reset":1767225660},{"name":"b"}],
            "zone":[1,"x"],"key":"header authorization","outcomes":[],"nested":{"b":true}}"#;
        let expected = "key           header authorization
quotas        a, limit 2, reset 1767225660 (2026-01-01T00:01:00Z)
quotas        b
outcomes      none
decision      forwarded
nested        b true
zone          1, x";
        assert_eq!(Decision::read(line).unwrap().to_string(), expected);
        for other in ["limited: plan free", "decision {", "decision [1]", ""] {
            assert!(Decision::read(other).is_none(), "{other}");
        }
    }
}
