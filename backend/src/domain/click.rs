//! A click: a visit of a short link.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ids;

/// Maximum stored length of user agents and referers, in characters.
pub(crate) const MAX_KEPT: usize = 1_024;
/// Maximum stored length of the destination of a click, in characters. A visitor can make it as long as a request, with
/// parameters that are passed on.
pub(crate) const MAX_DESTINATION: usize = 2_048;

/// A visitor without the address, in the order of the table's columns.
pub(crate) type Visitor<'a> = [&'a str; 11];

/// A click that borrows its texts, so that neither a redirect nor the click log copies them one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClickRef<'a> {
    pub(crate) id: &'a str,
    pub(crate) link_id: &'a str,
    /// In Unix milliseconds.
    pub(crate) at: i64,
    pub(crate) destination: &'a str,
    #[serde(borrow)]
    pub(crate) visitor: Visitor<'a>,
    pub(crate) ip: &'a str,
}

impl<'a> From<&'a Click> for ClickRef<'a> {
    fn from(click: &'a Click) -> Self {
        let Click { id, link_id, at, details } = click;
        let (destination, visitor, ip) = (&details.url, details.visitor(), &details.ip);
        Self { id, link_id, at: at.as_millisecond(), destination, visitor, ip }
    }
}

/// A visit of a short link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Click {
    /// A unique id, in the order of time. A click that is recorded again has the same one.
    pub id: String,
    /// The id of the link, `link_…`.
    pub link_id: String,
    /// The time, in whole milliseconds.
    pub at: Timestamp,
    /// The visitor, the referer and the destination.
    pub details: ClickDetails,
}

/// The details of a click. The default of unknown fields is `Unknown`, and `(direct)` for the referer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickDetails {
    /// The first 2,048 characters of the destination to which the visitor was redirected.
    pub url: Cow<'static, str>,
    /// `AF`, `AN`, `AS`, `EU`, `NA`, `OC` or `SA`.
    pub continent: Cow<'static, str>,
    /// ISO 3166 code.
    pub country: Cow<'static, str>,
    /// ISO 3166-2 code.
    pub region: Cow<'static, str>,
    /// Name of the city, at most 100 characters.
    pub city: Cow<'static, str>,
    /// `Desktop`, `Mobile`, `Tablet` …
    pub device: Cow<'static, str>,
    /// Name of the browser.
    pub browser: Cow<'static, str>,
    /// Name of the operating system.
    pub os: Cow<'static, str>,
    /// The first 1,024 characters of the `User-Agent` header.
    pub user_agent: Cow<'static, str>,
    /// `link` or `qr`.
    pub trigger: Cow<'static, str>,
    /// Host of the referer.
    pub referer: Cow<'static, str>,
    /// The first 1,024 characters of the URL of the referer.
    pub referer_url: Cow<'static, str>,
    /// The kept part of the visitor's address. Empty if nothing is kept or the address is unknown.
    pub ip: Cow<'static, str>,
}

impl ClickDetails {
    fn visitor(&self) -> Visitor<'_> {
        [
            &self.continent,
            &self.country,
            &self.region,
            &self.city,
            &self.device,
            &self.browser,
            &self.os,
            &self.user_agent,
            &self.trigger,
            &self.referer,
            &self.referer_url,
        ]
    }
}

impl Default for ClickDetails {
    fn default() -> Self {
        let unknown = Cow::Borrowed("Unknown");
        let direct = Cow::Borrowed("(direct)");
        Self {
            url: Cow::default(),
            continent: unknown.clone(),
            country: unknown.clone(),
            region: unknown.clone(),
            city: unknown.clone(),
            device: unknown.clone(),
            browser: unknown.clone(),
            os: unknown,
            user_agent: Cow::default(),
            trigger: Cow::Borrowed("link"),
            referer: direct.clone(),
            referer_url: direct,
            ip: Cow::default(),
        }
    }
}

impl Click {
    /// A click on `link_id` at `at` by an unknown visitor.
    #[must_use]
    pub fn new(link_id: impl Into<String>, at: Timestamp) -> Self {
        Self { id: Self::new_id(at), link_id: link_id.into(), at, details: ClickDetails::default() }
    }

    /// An id for a click at `at`.
    pub(crate) fn new_id(at: Timestamp) -> String {
        ids::sortable("", at)
    }
}

/// What is stored of a user agent.
pub(crate) fn kept_user_agent(user_agent: &str) -> &str {
    kept(user_agent, MAX_KEPT)
}

/// What is stored of the destination of a click.
pub(crate) fn kept_destination(url: &str) -> &str {
    kept(url, MAX_DESTINATION)
}

/// What is stored of the referer of a click.
pub(crate) fn kept_referer(url: &str) -> &str {
    kept(url, MAX_KEPT)
}

/// Truncates a text to its maximum stored length.
fn kept(text: &str, max: usize) -> &str {
    // Few texts are long enough that their characters must be counted.
    let end = if text.len() <= max { None } else { text.char_indices().nth(max) };
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// The outcome of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClickOutcome {
    Recorded,
    /// The visitor is a bot.
    Bot,
    /// A browser loaded the page in advance.
    Prefetch,
    /// The visitor asked not to be counted.
    Untracked,
    /// The visitor was already counted within the hour.
    Repeated,
    /// The link was deleted before the click was recorded.
    Orphaned,
    /// The database refused the click, or it could not be written to the log before the process ended.
    Lost,
    /// The click log was full.
    Dropped,
}

impl ClickOutcome {
    pub(crate) const ALL: [Self; 8] = [
        Self::Recorded,
        Self::Bot,
        Self::Prefetch,
        Self::Untracked,
        Self::Repeated,
        Self::Orphaned,
        Self::Lost,
        Self::Dropped,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Bot => "bot",
            Self::Prefetch => "prefetch",
            Self::Untracked => "untracked",
            Self::Repeated => "repeated",
            Self::Orphaned => "orphaned",
            Self::Lost => "lost",
            Self::Dropped => "dropped",
        }
    }
}
