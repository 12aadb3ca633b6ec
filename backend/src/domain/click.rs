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

/// Declares the fields of a visitor, and their defaults.
macro_rules! details {
    ($($(#[$doc:meta])* $field:ident: $default:literal,)*) => {
        /// The details of a click. The default of unknown fields is `Unknown`, and `(direct)` for the referer.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct ClickDetails {
            /// The first 2,048 characters of the destination to which the visitor was redirected.
            pub url: Cow<'static, str>,
            $($(#[$doc])* pub $field: Cow<'static, str>,)*
            /// The kept part of the visitor's address. Empty if nothing is kept or the address is unknown.
            pub ip: Cow<'static, str>,
        }

        impl ClickDetails {
            fn visitor(&self) -> Visitor<'_> {
                [$(&self.$field,)*]
            }

            /// The details, each of which `read` finds by its name.
            pub(crate) fn read<E>(read: impl Fn(&str) -> Result<String, E>) -> Result<Self, E> {
                let url = read("url")?.into();
                Ok(Self { url, $($field: read(stringify!($field))?.into(),)* ip: read("ip")?.into() })
            }
        }

        impl Default for ClickDetails {
            fn default() -> Self {
                Self { url: Cow::default(), $($field: Cow::Borrowed($default),)* ip: Cow::default() }
            }
        }
    };
}

details! {
    /// `AF`, `AN`, `AS`, `EU`, `NA`, `OC` or `SA`.
    continent: "Unknown",
    /// ISO 3166 code.
    country: "Unknown",
    /// ISO 3166-2 code.
    region: "Unknown",
    /// Name of the city, at most 100 characters.
    city: "Unknown",
    /// `Desktop`, `Mobile`, `Tablet` …
    device: "Unknown",
    /// Name of the browser.
    browser: "Unknown",
    /// Name of the operating system.
    os: "Unknown",
    /// The first 1,024 characters of the `User-Agent` header.
    user_agent: "",
    /// `link` or `qr`.
    trigger: "link",
    /// Host of the referer.
    referer: "(direct)",
    /// The first 1,024 characters of the URL of the referer.
    referer_url: "(direct)",
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

/// What is stored of a user agent or a referer.
pub(crate) fn kept_text(text: &str) -> &str {
    kept(text, MAX_KEPT)
}

/// What is stored of the destination of a click.
pub(crate) fn kept_destination(url: &str) -> &str {
    kept(url, MAX_DESTINATION)
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
    /// The labels of all outcomes, in their order.
    pub(crate) const LABELS: [&str; 8] =
        ["recorded", "bot", "prefetch", "untracked", "repeated", "orphaned", "lost", "dropped"];

    pub(crate) fn label(self) -> &'static str {
        Self::LABELS[self as usize]
    }
}
