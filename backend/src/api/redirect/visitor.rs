//! What the headers of a visit say about the visitor.

use std::borrow::Cow;

use axum::http::header::{REFERER, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use url::Url;

use super::rules::LocationHeaders;
use crate::domain::agent::Agent;
use crate::domain::click::{Visitor, kept_text};

/// Maximum stored length of a city's name, in characters.
const MAX_PLACE: usize = 100;
/// The continents that the published clients accept.
const CONTINENTS: [&str; 7] = ["AF", "AN", "AS", "EU", "NA", "OC", "SA"];

const UNKNOWN: Cow<'static, str> = Cow::Borrowed("Unknown");
const DIRECT: Cow<'static, str> = Cow::Borrowed("(direct)");

/// A visitor's location.
#[derive(Debug)]
pub(crate) struct Location {
    continent: Cow<'static, str>,
    pub(crate) country: Cow<'static, str>,
    region: Cow<'static, str>,
    city: Cow<'static, str>,
}

impl Location {
    /// The location in the gateway's headers.
    pub(crate) fn of(headers: &HeaderMap, names: &LocationHeaders) -> Self {
        let value = |name: &Option<HeaderName>| {
            let text = headers.get(name.as_ref()?)?.to_str().ok()?;
            let text = percent_decode_str(text.trim()).decode_utf8().ok()?;
            (!text.is_empty() && !text.contains('\0'))
                .then(|| text.chars().take(MAX_PLACE).collect::<String>())
        };
        let is_code = |code: &String| code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_alphabetic());
        let mut location = Self { continent: UNKNOWN, country: UNKNOWN, region: UNKNOWN, city: UNKNOWN };
        if let Some(country) = value(&names.country).filter(is_code) {
            location.country = country.to_uppercase().into();
        }
        if let Some(region) = value(&names.region) {
            let prefix = format!("{}-", location.country);
            let region = region.to_uppercase();
            let region = if region.starts_with(&prefix) { region } else { format!("{prefix}{region}") };
            location.region = region.into();
        }
        if let Some(city) = value(&names.city) {
            location.city = city.into();
        }
        if let Some(continent) = value(&names.continent).map(|code| code.to_uppercase())
            && CONTINENTS.contains(&continent.as_str())
        {
            location.continent = continent.into();
        }
        location
    }
}

/// The page that a visitor came from.
#[derive(Debug)]
pub(crate) struct Referer {
    host: Cow<'static, str>,
    url: Cow<'static, str>,
}

impl Referer {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let url = headers.get(REFERER).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let url = url.and_then(|text| Url::parse(&text).ok());
        match url.as_ref().and_then(|url| Some((url, url.host_str()?))) {
            Some((url, host)) => {
                // Only hosts of web addresses are in lower case already.
                let host = host.to_ascii_lowercase().trim_start_matches("www.").to_owned().into();
                Self { host, url: kept_text(url.as_str()).to_owned().into() }
            }
            None => Self { host: DIRECT, url: DIRECT },
        }
    }
}

/// What is stored of a visitor.
pub(crate) fn stored<'a>(
    location: &'a Location,
    agent: &'a Agent,
    user_agent: &'a str,
    trigger: &'a str,
    referer: &'a Referer,
) -> Visitor<'a> {
    let Location { continent, country, region, city } = location;
    let Agent { device, browser, os, .. } = agent;
    [continent, country, region, city, device, browser, os, user_agent, trigger, &referer.host, &referer.url]
}

/// The user agent, with a mark in place of what is not UTF-8. A bot that sends such bytes is still a bot.
pub(crate) fn user_agent(headers: &HeaderMap) -> Cow<'_, str> {
    String::from_utf8_lossy(headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default())
}
