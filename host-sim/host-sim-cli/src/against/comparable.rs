//! Which steps a real gateway cannot take.

use std::time::Duration;

use serde_json::Value;

use super::CONFIGURED;
use crate::scenario::{Call, Step};

/// The longest step of the clock that is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Why Envoy cannot take a step; `None` if it can.
pub(super) fn obstacle(step: &Step) -> Option<String> {
    let why = match step {
        Step { interleave: Some(_), .. } => "interleave: the order of Envoy's workers cannot be chosen",
        Step { wall: Some(_), .. } => "wall: Envoy's clock cannot be set",
        Step { fault: Some(_), .. } => "fault: Envoy's host calls cannot be made to fail",
        Step { clear_faults: Some(_), .. } => "clear_faults: Envoy's host calls cannot be made to fail",
        Step { advance: Some(by), .. } if by.is_negative() || by.unsigned_abs() > LONGEST_WAIT => {
            return Some(format!(
                "advance: Envoy's clock cannot be stepped, and only times up to {} s are waited for",
                LONGEST_WAIT.as_secs()
            ));
        }
        Step { request: Some(Call { worker: 1.., .. }), .. } => {
            "request.worker: Envoy deals out connections to its workers itself"
        }
        Step { request: Some(Call { source: Some(_), .. }), .. } => {
            "request.source: Envoy sees the address of the real client"
        }
        Step { request: Some(Call { properties, .. }), .. } if !properties.iter().all(is_configured) => {
            "request.properties: Envoy has the properties of the real request"
        }
        _ => return None,
    };
    Some(why.to_owned())
}

/// Whether both gateways have this property anyway.
fn is_configured((path, value): (&String, &Value)) -> bool {
    CONFIGURED.iter().any(|(name, configured)| path.strip_prefix("xds.") == Some(name) && value == configured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_envoy_cannot_take_say_why() {
        let rows = [
            ("request: {path: /}", None),
            ("request: {path: /, properties: {xds.cluster_name: upstream}}", None),
            ("advance: 10s", None),
            ("update: {a: b}", None),
            ("advance: 11s", Some("advance: ")),
            ("wall: 2026-01-01T00:00:00Z", Some("wall: ")),
            ("fault: {call: proxy_log, status: Ok}", Some("fault: ")),
            ("clear_faults: true", Some("clear_faults: ")),
            ("interleave: {requests: []}", Some("interleave: ")),
            ("request: {path: /, worker: 1}", Some("request.worker: ")),
            ("request: {path: /, source: '192.0.2.1:1'}", Some("request.source: ")),
            ("request: {path: /, properties: {xds.cluster_name: other}}", Some("request.properties: ")),
        ];
        for (step, expected) in rows {
            let found = obstacle(&serde_saphyr::from_str(&format!("{{{step}}}")).unwrap());
            let begins = expected
                .is_none_or(|expected| found.as_ref().is_some_and(|found| found.starts_with(expected)));
            assert_eq!((found.is_some(), begins), (expected.is_some(), true), "{step}: {found:?}");
        }
    }
}
