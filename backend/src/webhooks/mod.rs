//! Webhooks: signed events that are sent to receivers at least once.
//!
//! The transaction that causes an event also writes it ([`crate::store`]), so that a crash loses no event. [`delivery`]
//! sends the due events. Events may arrive more than once and in any order. Receivers detect duplicates by the event's
//! `id`, which is the same in all attempts, and restore the order by `createdAt`.

pub(crate) mod address;
pub(crate) mod delivery;
mod receiver;
pub(crate) mod routes;
mod scope;
pub mod signature;
mod slots;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event_body::ClickBody;
use crate::ids;
use crate::links::{Link, LinkBody, PublicUrl};
use crate::store::Click;
use crate::when::rfc3339;

pub(crate) use scope::{InvalidScope, Scope, ScopeInput, ScopeKind};

/// The types of events. All of them concern links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) enum Trigger {
    #[serde(rename = "link.created")]
    Created,
    #[serde(rename = "link.updated")]
    Updated,
    #[serde(rename = "link.deleted")]
    Deleted,
    #[serde(rename = "link.clicked")]
    Clicked,
}

impl Trigger {
    pub(crate) const ALL: [Self; 4] = [Self::Created, Self::Updated, Self::Deleted, Self::Clicked];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "link.created",
            Self::Updated => "link.updated",
            Self::Deleted => "link.deleted",
            Self::Clicked => "link.clicked",
        }
    }
}

/// An event for webhooks.
#[derive(Debug)]
pub(crate) struct Event {
    /// `evt_` and 25 letters and digits. The id is the same for all receivers and attempts.
    pub(crate) id: String,
    pub(crate) trigger: Trigger,
    pub(crate) created_at: Timestamp,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Link(Box<LinkBody>),
    Click { click: Box<ClickBody>, link: Arc<LinkSnapshot> },
}

/// A link as the events of several clicks show it. It is stored once, because a link may be much larger than a click.
#[derive(Debug)]
pub(crate) struct LinkSnapshot {
    /// Sixteen random letters and digits.
    pub(crate) id: String,
    pub(crate) body: LinkBody,
}

impl LinkSnapshot {
    pub(crate) fn of(link: &Link, public: &PublicUrl) -> Arc<Self> {
        Arc::new(Self { id: ids::alphanumeric(16), body: link.body(public) })
    }
}

/// The published format of a payload.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'a, T> {
    id: &'a str,
    event: &'static str,
    created_at: String,
    data: &'a T,
}

#[derive(Serialize)]
struct ClickData<'a> {
    click: &'a ClickBody,
}

/// The end of a payload after its link: of `data`, and of the whole.
const AFTER_LINK: &str = "}}";

impl Event {
    /// An event about a link.
    pub(crate) fn of_link(trigger: Trigger, link: &Link, public: &PublicUrl, now: Timestamp) -> Self {
        Self { id: event_id(), trigger, created_at: now, data: Data::Link(Box::new(link.body(public))) }
    }

    /// An event about a click on a link.
    pub(crate) fn of_click(click: &Click, link: &Arc<LinkSnapshot>) -> Self {
        let data = Data::Click { click: Box::new(ClickBody::of(click)), link: Arc::clone(link) };
        Self { id: event_id(), trigger: Trigger::Clicked, created_at: click.at, data }
    }

    /// The payload. If the event has a [`Self::snapshot`], it is only the part before the link; [`Self::payload_with`]
    /// completes it.
    pub(crate) fn payload(&self) -> serde_json::Result<String> {
        match &self.data {
            Data::Link(link) => self.payload_of(link),
            Data::Click { click, .. } => {
                let mut payload = self.payload_of(&ClickData { click })?;
                payload.truncate(payload.len() - AFTER_LINK.len());
                payload.push_str(r#","link":"#);
                Ok(payload)
            }
        }
    }

    fn payload_of<T: Serialize>(&self, data: &T) -> serde_json::Result<String> {
        let (event, created_at) = (self.trigger.name(), rfc3339(self.created_at));
        serde_json::to_string(&Payload { id: &self.id, event, created_at, data })
    }

    /// The link that is stored apart from the payload.
    pub(crate) fn snapshot(&self) -> Option<&Arc<LinkSnapshot>> {
        match &self.data {
            Data::Link(_) => None,
            Data::Click { link, .. } => Some(link),
        }
    }

    /// The whole payload, of the part before the link and the link in JSON.
    pub(crate) fn payload_with(mut before: String, link: &str) -> String {
        before.push_str(link);
        before.push_str(AFTER_LINK);
        before
    }
}

fn event_id() -> String {
    format!("evt_{}", ids::alphanumeric(25))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_payload_of_a_click_shows_the_link_of_its_snapshot() {
        let public = PublicUrl::parse("https://s.test").unwrap();
        let mut link = Link::sample("ws_1", "s.test", Timestamp::UNIX_EPOCH);
        link.details.title = Some("a }}\" title".to_owned());
        let snapshot = LinkSnapshot::of(&link, &public);
        let event = Event::of_click(&Click::new(&link.id, Timestamp::UNIX_EPOCH), &snapshot);
        let link_in_json = serde_json::to_string(&snapshot.body).unwrap();
        let payload = Event::payload_with(event.payload().unwrap(), &link_in_json);
        let payload: Value = serde_json::from_str(&payload).unwrap();
        assert_eq!(payload["id"], json!(event.id));
        assert_eq!(payload["event"], "link.clicked");
        assert_eq!(payload["createdAt"], "1970-01-01T00:00:00.000Z");
        assert_eq!(payload["data"]["click"]["url"], "");
        assert_eq!(payload["data"]["link"], serde_json::to_value(link.body(&public)).unwrap());
    }
}
