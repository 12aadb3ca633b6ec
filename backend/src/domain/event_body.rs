//! Events and clicks as responses and webhook payloads contain them.

use serde::Serialize;

use crate::domain::click::Click;
use crate::domain::link::Link;
use crate::domain::link_body::LinkBody;
use crate::domain::when::rfc3339;

/// A click in events and webhook payloads.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClickBody {
    id: String,
    timestamp: String,
    url: String,
    country: String,
    city: String,
    region: String,
    continent: String,
    device: String,
    browser: String,
    os: String,
    ua: String,
    trigger: String,
    referer: String,
    referer_url: String,
    qr: bool,
    ip: String,
}

impl ClickBody {
    pub(crate) fn of(click: &Click) -> Self {
        let details = click.details.clone();
        Self {
            id: click.id.clone(),
            timestamp: rfc3339(click.at),
            url: details.url.into_owned(),
            country: details.country.into_owned(),
            city: details.city.into_owned(),
            region: details.region.into_owned(),
            continent: details.continent.into_owned(),
            device: details.device.into_owned(),
            browser: details.browser.into_owned(),
            os: details.os.into_owned(),
            ua: details.user_agent.into_owned(),
            qr: details.trigger == "qr",
            trigger: details.trigger.into_owned(),
            referer: details.referer.into_owned(),
            referer_url: details.referer_url.into_owned(),
            ip: details.ip.into_owned(),
        }
    }
}

/// An event. The fields below `link` repeat fields of the click and the link, because the published clients require
/// them.
#[derive(Debug, Serialize)]
pub(crate) struct EventBody<'a> {
    event: &'static str,
    timestamp: &'a str,
    click: &'a ClickBody,
    link: &'a LinkBody,
    click_id: &'a str,
    link_id: &'a str,
    domain: &'a str,
    key: &'a str,
    url: &'a str,
    continent: &'a str,
    country: &'a str,
    city: &'a str,
    device: &'a str,
    browser: &'a str,
    os: &'a str,
    /// 1 if the visitor followed the QR code.
    qr: u8,
    ip: &'a str,
}

impl<'a> EventBody<'a> {
    pub(crate) fn of(click: &'a ClickBody, link: &'a Link, link_body: &'a LinkBody) -> Self {
        Self {
            event: "click",
            timestamp: &click.timestamp,
            link: link_body,
            click_id: &click.id,
            link_id: &link.id,
            domain: &link.domain,
            key: &link.key,
            url: &click.url,
            continent: &click.continent,
            country: &click.country,
            city: &click.city,
            device: &click.device,
            browser: &click.browser,
            os: &click.os,
            qr: u8::from(click.qr),
            ip: &click.ip,
            click,
        }
    }
}
