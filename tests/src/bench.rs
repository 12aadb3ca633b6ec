//! What `make bench` sends, and the filter that answers it.

use serde_json::{Value, json};

use crate::policy::hash;

/// The path of each request.
pub const PATH: &str = "/links/abc";

/// The key of this number.
#[must_use]
pub fn key(number: u32) -> String {
    format!("bench-{number}")
}

/// Weir's configuration: as many keys, each a subscriber's with one quota that no run uses up.
#[must_use]
pub fn configuration(keys: u32, headers: &Value) -> Value {
    json!({
        "plans": {"free": {"standard": ["4000000000/minute"]}},
        "subscribers": (0..keys)
            .map(|number| json!({"id": key(number), "plan": "free", "keys": [hash(&key(number))]}))
            .collect::<Vec<_>>(),
        "headers": headers,
    })
}

/// Weir's headers for a plain request: three, added beside those of the upstream.
#[must_use]
pub fn three_headers() -> Value {
    json!({"ietf": false, "upstream": "absent"})
}
