//! What `envoy/chart` renders with the examples, as Helm has written it to `tests/data/chart`.

use anyhow::Context as _;
use serde_json::Value;

use crate::policy;

/// The only document of a kind in a rendering.
///
/// # Errors
/// When there is none.
pub fn rendered(rendering: &str, kind: &str) -> anyhow::Result<Value> {
    let documents = policy::documents(&format!("tests/data/chart/{rendering}.yaml"))?;
    let found = documents.into_iter().find(|document| document["kind"] == kind);
    found.with_context(|| format!("{rendering} has no {kind}"))
}
