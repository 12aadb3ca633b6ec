//! Statements as gateways send them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::process::Process;

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "windows are those of the ledger's clock")]
pub(crate) fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// The name of the counter or gateway with a number.
pub(crate) fn hex(number: u32) -> String {
    format!("{number:032x}")
}

/// A window that has lasted for an hour and lasts for another.
pub(crate) const WINDOW: u32 = 7;

/// An ask of a count with generation 1 and reset number 0.
pub(crate) fn ask(number: u32, seq: u32, used: u32, need: u32, hold: u32, limit: u32) -> Value {
    let now = now() / 1_000;
    json!({
        "counter": hex(number), "window": WINDOW, "begins": now - 3_600, "ends": now + 3_600, "limit": limit,
        "generation": 1, "seq": seq, "used": used, "reset": 0, "need": need, "cost": need.min(1), "hold": hold
    })
}

/// A return.
pub(crate) fn give_back(number: u32, seq: u32, used: u32, keep: u32) -> Value {
    let mut item = ask(number, seq, used, 0, 0, 600);
    let fields = item.as_object_mut().unwrap();
    fields.retain(|name, _| !["need", "cost", "hold"].contains(&name.as_str()));
    fields.insert("keep".to_owned(), keep.into());
    item
}

/// An item with other fields.
pub(crate) fn with(mut item: Value, fields: &Value) -> Value {
    item.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    item
}

/// An item without a field.
pub(crate) fn without(mut item: Value, field: &str) -> Value {
    item.as_object_mut().unwrap().remove(field).unwrap();
    item
}

/// A request of a gateway.
pub(crate) fn shares(gateway: u32, items: &[Value]) -> Value {
    json!({ "gateway": hex(gateway), "now": now(), "items": items })
}

impl Process {
    /// The items of the answer to a gateway's statements.
    pub(crate) async fn state(&self, gateway: u32, items: &[Value]) -> Vec<Value> {
        let answer = self.post("/v1/shares", &shares(gateway, items)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["items"].as_array().unwrap().clone()
    }

    /// The epoch, or nothing if the ledger refuses to say.
    pub(crate) async fn epoch(&self) -> Option<String> {
        let answer = self.post("/v1/shares", &shares(99, &[])).await;
        (answer.status == 200).then(|| answer.json()["epoch"].as_str().unwrap().to_owned())
    }
}
