//! Webhooks: signed events that are sent to receivers at least once.
//!
//! The transaction that causes an event also writes it ([`crate::store`]), so that a crash loses no event. Those of
//! clicks are made from the clicks in the database. [`crate::deliver`] sends them. Events may arrive more than once and in any order. Receivers detect duplicates by the event's
//! `id`, which is the same in all attempts, and restore the order by `createdAt`.

use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::domain::click::Click;
use crate::domain::ids;
use crate::domain::link::Link;
use crate::domain::link_body::{LinkBody, entries};
use crate::domain::public_url::PublicUrl;
use crate::domain::usage::Threshold;
use crate::domain::when::{as_rfc3339, rfc3339};

/// The types of events. All but the last concern links.
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
    #[serde(rename = "usage.threshold_reached")]
    UsageThreshold,
}

impl Trigger {
    pub(crate) const ALL: [Self; 5] =
        [Self::Created, Self::Updated, Self::Deleted, Self::Clicked, Self::UsageThreshold];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "link.created",
            Self::Updated => "link.updated",
            Self::Deleted => "link.deleted",
            Self::Clicked => "link.clicked",
            Self::UsageThreshold => "usage.threshold_reached",
        }
    }
}

/// An event for webhooks, in the published format of a payload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// `evt_` and letters and digits. The id is the same for all receivers and attempts.
    pub(crate) id: String,
    #[serde(rename = "event")]
    pub(crate) trigger: Trigger,
    #[serde(serialize_with = "as_rfc3339")]
    pub(crate) created_at: Timestamp,
    data: Data,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Data {
    Link(Box<LinkBody>),
    Click(Box<ClickData>),
    Threshold(Box<Threshold>),
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

    /// An event about a share of a quota that was reached.
    pub(crate) fn of_threshold(threshold: Threshold) -> Self {
        let (id, created_at) = (format!("evt_{}", threshold.id), threshold.at);
        Self { id, trigger: Trigger::UsageThreshold, created_at, data: Data::Threshold(Box::new(threshold)) }
    }
}

fn event_id() -> String {
    format!("evt_{}", ids::alphanumeric(25))
}

/// A click in events and webhook payloads.
#[derive(Clone, Debug)]
pub(crate) struct ClickBody(pub(crate) Click);

impl Serialize for ClickBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Click { id, at, details, .. } = &self.0;
        let mut body = serializer.serialize_map(None)?;
        entries!(body, {
            "id": id,
            "timestamp": rfc3339(*at),
            "url": details.url,
            "country": details.country,
            "city": details.city,
            "region": details.region,
            "continent": details.continent,
            "device": details.device,
            "browser": details.browser,
            "os": details.os,
            "ua": details.user_agent,
            "trigger": details.trigger,
            "referer": details.referer,
            "refererUrl": details.referer_url,
            "qr": details.trigger == "qr",
            "ip": details.ip,
        });
        body.end()
    }
}

/// An event.
#[derive(Debug)]
pub(crate) struct EventBody<'a> {
    pub(crate) click: &'a ClickBody,
    pub(crate) link: &'a Link,
    pub(crate) link_body: &'a LinkBody,
}

impl Serialize for EventBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { click, link, link_body } = self;
        let Click { id, at, details, .. } = &click.0;
        let mut body = serializer.serialize_map(None)?;
        entries!(body, {
            "event": "click",
            "timestamp": rfc3339(*at),
            "click": click,
            "link": link_body,
            // These repeat fields of the click and the link, because the published clients require them.
            "click_id": id,
            "link_id": link.id,
            "domain": link.domain,
            "key": link.key,
            "url": details.url,
            "continent": details.continent,
            "country": details.country,
            "city": details.city,
            "device": details.device,
            "browser": details.browser,
            "os": details.os,
            "qr": u8::from(details.trigger == "qr"),
            "ip": details.ip,
        });
        body.end()
    }
}
