//! Webhooks: signed events that are sent to receivers at least once.
//!
//! The transaction that causes an event also writes it ([`crate::store`]), so that a crash loses no event. [`delivery`]
//! sends the due events. Events may arrive more than once and in any order. Receivers detect duplicates by the event's
//! `id`, which is the same in all attempts, and restore the order by `createdAt`.

pub(crate) mod address;
pub(crate) mod delivery;
mod receiver;
pub(crate) mod routes;
pub mod signature;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::events::ClickBody;
use crate::ids;
use crate::links::{Link, LinkBody, PublicUrl, rfc3339};
use crate::store::Click;

/// The types of events. All of them concern links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Data {
    Link(Box<LinkBody>),
    Click { click: Box<ClickBody>, link: Box<LinkBody> },
}

/// The published format of a payload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Payload<'a> {
    id: &'a str,
    event: &'static str,
    created_at: String,
    data: &'a Data,
}

impl Event {
    /// An event about a link.
    pub(crate) fn of_link(trigger: Trigger, link: &Link, public: &PublicUrl, now: Timestamp) -> Self {
        Self { id: event_id(), trigger, created_at: now, data: Data::Link(Box::new(link.body(public))) }
    }

    /// An event about a click on a link.
    pub(crate) fn of_click(click: &Click, link: &Link, public: &PublicUrl) -> Self {
        let data = Data::Click { click: Box::new(ClickBody::of(click)), link: Box::new(link.body(public)) };
        Self { id: event_id(), trigger: Trigger::Clicked, created_at: click.at, data }
    }

    pub(crate) fn payload(&self) -> Payload<'_> {
        let created_at = rfc3339(self.created_at);
        Payload { id: &self.id, event: self.trigger.name(), created_at, data: &self.data }
    }
}

fn event_id() -> String {
    format!("evt_{}", ids::alphanumeric(25))
}

/// Parses the triggers in `value`, without duplicates.
pub(crate) fn parse_trigger(value: &Value) -> Option<Trigger> {
    Trigger::ALL.into_iter().find(|trigger| value == trigger.name())
}
