//! Which visits count as clicks, and where the visitor is.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName};
use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};

use crate::store::Click;
use crate::visitor_address::KeptAddress;

/// Which visits count as clicks, and which headers tell where the visitor is. By default everyone but bots counts, each
/// time, and the visitor's location is unknown.
#[derive(Clone, Debug, Default)]
pub struct ClickRules {
    /// Counts crawlers and fetchers of previews too.
    pub count_bots: bool,
    /// Counts a visitor, told by the whole address and the user agent, on one link once an hour. Each process remembers its
    /// own visitors, in memory and by a hash.
    pub once_per_hour: bool,
    /// Where the visitor is.
    pub location: LocationHeaders,
    /// How many proxies in front of the service append to `X-Forwarded-For`. The visitor's address is the entry that the
    /// first of them appended. With 0, or where there are fewer entries, it is the connection's.
    pub trusted_hops: u8,
    /// How much of the visitor's address is kept.
    pub ip: KeptAddress,
}

impl ClickRules {
    /// The visitor's address as the first of the trusted proxies saw it. Only they are trusted: entries before theirs are
    /// the client's own.
    pub(crate) fn client_address(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let fields = headers.get_all("x-forwarded-for").iter().rev();
        let mut entries = fields.flat_map(|field| field.to_str().unwrap_or_default().rsplit(','));
        entries.nth(usize::from(self.trusted_hops).checked_sub(1)?)?.trim().parse().ok()
    }
}

/// The headers in which the gateway says where the visitor is. It has to remove them from what clients send.
#[derive(Clone, Debug, Default)]
pub struct LocationHeaders {
    /// `AF`, `AN`, `AS`, `EU`, `NA`, `OC` or `SA`.
    pub continent: Option<HeaderName>,
    /// ISO 3166 code of two letters.
    pub country: Option<HeaderName>,
    /// ISO 3166-2 code, with or without the country in front.
    pub region: Option<HeaderName>,
    /// Name, percent-encoded where it is not ASCII.
    pub city: Option<HeaderName>,
}

/// Visitors remembered at most, for [`ClickRules::once_per_hour`].
const REMEMBERED_VISITORS: usize = 1_000_000;

/// When visitors were last counted.
#[derive(Debug)]
pub(crate) struct Repeats {
    counted: Cache<[u8; 32], Timestamp>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { counted: Cache::new(REMEMBERED_VISITORS) }
    }
}

impl Repeats {
    /// Whether the visitor with this address was counted on this link within the hour before; if not, it is now.
    pub(crate) fn is_repeated(&self, click: &Click, address: Option<IpAddr>) -> bool {
        let mut visitor = Sha256::new();
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        let parts: [&str; 3] = [&click.link_id, &address, &click.details.user_agent];
        for part in parts {
            visitor.update(part.len().to_le_bytes());
            visitor.update(part);
        }
        let visitor: [u8; 32] = visitor.finalize().into();
        if self
            .counted
            .get(&visitor)
            .is_some_and(|at| click.at.duration_since(at) < SignedDuration::from_hours(1))
        {
            return true;
        }
        self.counted.insert(visitor, click.at);
        false
    }
}
