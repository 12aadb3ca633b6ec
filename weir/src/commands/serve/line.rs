//! A decision as a line.

use std::fmt::Write as _;

use host_sim_cli::gateway::Ended;
use jiff::Timestamp;
use serde_json::Value;

use crate::decision::Decision;

/// Widths of the columns from the method on, which most values fit into. A longer one moves the rest of its line.
const WIDTHS: [usize; 7] = [6, 24, 3, 12, 10, 10, 0];

/// What stands for a value that there is not.
const NONE: &str = "-";

/// The usual outcome, which is left out.
const ALLOWED: &str = "allowed";

/// Columns: `12:00:01 GET /links 200 acme free standard 59/60`, and the outcomes if they are unusual.
pub(super) fn text(ended: &Ended, decision: &Decision) -> String {
    let status = if ended.status == 0 { NONE.to_owned() } else { ended.status.to_string() };
    let [subscriber, plan, class, quotas, outcomes] = facts(decision);
    let cells = [ended.method.clone(), path(ended).to_owned(), status, subscriber, plan, class, quotas];
    let time = time(ended).map(|time| time.strftime("%H:%M:%S").to_string());
    let mut line = time.unwrap_or_default();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        // Writing to a string cannot fail.
        let _written = write!(line, " {:<width$}", plain(cell));
    }
    for outcome in outcomes.split(',').filter(|outcome| *outcome != ALLOWED && *outcome != NONE) {
        let _written = write!(line, " {outcome}");
    }
    line
}

/// Subscriber, plan, class, what remains of each quota, and the outcomes.
pub(super) fn facts(decision: &Decision) -> [String; 5] {
    let fields = decision.fields();
    let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or(NONE).to_owned();
    let list = |name: &str| fields.get(name).and_then(Value::as_array).into_iter().flatten();
    let joined = |texts: Vec<String>| if texts.is_empty() { NONE.to_owned() } else { texts.join(",") };
    let outcomes = list("outcomes").filter_map(Value::as_str).map(str::to_owned).collect();
    let quotas = list("quotas").map(quota).collect();
    [field("subscriber"), field("plan"), field("class"), joined(quotas), joined(outcomes)]
}

/// The request beside the fields of the decision.
pub(super) fn json(ended: &Ended, decision: &Decision) -> Value {
    let mut fields = decision.fields().clone();
    let time = time(ended).map(|time| format!("{time:.3}"));
    fields.insert("time".to_owned(), time.into());
    fields.insert("method".to_owned(), ended.method.clone().into());
    fields.insert("path".to_owned(), path(ended).into());
    fields.insert("status".to_owned(), ended.status.into());
    Value::Object(fields)
}

/// The query is left out: it may have a key.
fn path(ended: &Ended) -> &str {
    ended.path.split(['?', '#']).next().unwrap_or_default()
}

fn time(ended: &Ended) -> Option<Timestamp> {
    i64::try_from(ended.started.as_millis()).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok())
}

/// What remains of a quota, and its limit.
fn quota(quota: &Value) -> String {
    let number = |name: &str| quota.get(name).map_or_else(|| NONE.to_owned(), ToString::to_string);
    format!("{}/{}", number("remaining"), number("limit"))
}

/// A text without what would be read as a column of its own, or as another line.
fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_whitespace() || c.is_control() { '_' } else { c };
    if text.is_empty() { NONE.to_owned() } else { text.chars().map(plain).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_column_of_one_line() {
        for (text, expected) in [("acme", "acme"), ("a b\n\u{1b}[31mc", "a_b__[31mc"), ("", "-")] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }
}
