//! Webhooks: signed events that are sent to receivers at least once.
//!
//! The transaction that causes an event also writes it ([`crate::store`]), so that a crash loses no event. Those of
//! clicks are made from the clicks in the database. [`crate::deliver`] sends them. Events may arrive more than once and in any order. Receivers detect duplicates by the event's
//! `id`, which is the same in all attempts, and restore the order by `createdAt`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::click::Click;
use crate::domain::event_body::ClickBody;
use crate::domain::ids;
use crate::domain::link::Link;
use crate::domain::link_body::LinkBody;
use crate::domain::public_url::PublicUrl;
use crate::domain::when::rfc3339;

/// The types of events. All of them concern links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// `evt_` and letters and digits. The id is the same for all receivers and attempts.
    pub(crate) id: String,
    pub(crate) trigger: Trigger,
    pub(crate) created_at: Timestamp,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Link(Box<LinkBody>),
    Click(Box<ClickData>),
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

#[derive(Debug, Serialize)]
struct ClickData {
    click: ClickBody,
    link: LinkBody,
}

impl Event {
    /// An event about a link.
    pub(crate) fn of_link(trigger: Trigger, link: &Link, public: &PublicUrl, now: Timestamp) -> Self {
        Self { id: event_id(), trigger, created_at: now, data: Data::Link(Box::new(link.body(public))) }
    }

    /// An event about a click on a link. Its id follows from that of the click, so that it is the same for all webhooks and whenever the
    /// event is made.
    pub(crate) fn of_click(click: &Click, link: LinkBody) -> Self {
        let (id, created_at) = (format!("evt_{}", click.id), click.at);
        let data = Data::Click(Box::new(ClickData { click: ClickBody(click.clone()), link }));
        Self { id, trigger: Trigger::Clicked, created_at, data }
    }

    pub(crate) fn payload(&self) -> serde_json::Result<String> {
        match &self.data {
            Data::Link(link) => self.payload_of(link),
            Data::Click(data) => self.payload_of(data),
        }
    }

    fn payload_of<T: Serialize>(&self, data: &T) -> serde_json::Result<String> {
        let (event, created_at) = (self.trigger.name(), rfc3339(self.created_at));
        serde_json::to_string(&Payload { id: &self.id, event, created_at, data })
    }
}

fn event_id() -> String {
    format!("evt_{}", ids::alphanumeric(25))
}
