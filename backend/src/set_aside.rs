//! The JSON format of clicks that the database refused.

use serde_json::{Value, json};

use crate::event_body::ClickBody;
use crate::store::{Click, SetAside};

impl SetAside {
    /// The entry as `backend set-aside list` prints it. `clicks` is null if they cannot be read.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let clicks = self.clicks.as_ref().map(|clicks| {
            let click = |click: &Click| json!({ "linkId": click.link_id, "click": ClickBody::of(click) });
            clicks.iter().map(click).collect::<Vec<Value>>()
        });
        json!({ "id": self.id, "reason": self.reason, "clicks": clicks })
    }
}
