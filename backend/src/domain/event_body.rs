//! Events and clicks as responses and webhook payloads contain them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::domain::click::Click;
use crate::domain::link::Link;
use crate::domain::link_body::{LinkBody, entries};
use crate::domain::when::rfc3339;

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
