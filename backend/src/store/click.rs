//! A click: a visit of a short link.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::ids;

/// A visitor without the address, in the order of the table's columns. Many clicks share it.
pub(crate) type Visitor<'a> = [&'a str; 11];

/// A visit of a short link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Click {
    /// Sixteen random letters and digits.
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

/// Borrows the fields that many clicks share, in the order of the table's columns.
macro_rules! visitor_of {
    ($details:ident, $($borrow:tt)+) => {
        [
            $($borrow)+ $details.continent,
            $($borrow)+ $details.country,
            $($borrow)+ $details.region,
            $($borrow)+ $details.city,
            $($borrow)+ $details.device,
            $($borrow)+ $details.browser,
            $($borrow)+ $details.os,
            $($borrow)+ $details.user_agent,
            $($borrow)+ $details.trigger,
            $($borrow)+ $details.referer,
            $($borrow)+ $details.referer_url,
        ]
    };
}

impl ClickDetails {
    /// The details of a click from its parts.
    pub(super) fn of(visitor: &Visitor<'_>, url: &str, ip: &str) -> Self {
        let owned = |text: &str| Cow::Owned(text.to_owned());
        let mut details = Self { url: owned(url), ip: owned(ip), ..Self::default() };
        for (field, text) in visitor_of!(details, &mut).into_iter().zip(visitor) {
            *field = owned(text);
        }
        details
    }

    pub(super) fn visitor(&self) -> Visitor<'_> {
        visitor_of!(self, &)
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
        Self { id: Self::new_id(), link_id: link_id.into(), at, details: ClickDetails::default() }
    }

    pub(crate) fn new_id() -> String {
        ids::alphanumeric(16)
    }
}
