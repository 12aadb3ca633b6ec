//! Settings that decide which visits count as clicks, and where the visitor's location comes from.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName};
use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};

use crate::store::ClickRef;
use crate::visitor_address::KeptAddress;

/// Settings of click counting. By default, every visit except those of bots counts, and the visitor's location is
/// unknown.
#[derive(Clone, Debug, Default)]
pub struct ClickRules {
    /// Also counts crawlers and link preview fetchers.
    pub count_bots: bool,
    /// Counts each visitor, identified by address and user agent, at most once per hour and link. Each process has its
    /// own memory of visitors.
    pub once_per_hour: bool,
    /// The headers with the visitor's location.
    pub location: LocationHeaders,
    /// Number of trusted proxies that append to `X-Forwarded-For`. The visitor's address is the entry that the first of
    /// these proxies appended. It is the peer address of the connection if the number is 0 or the header has fewer
    /// entries.
    pub trusted_hops: u8,
    /// The part of the visitor's address that is kept.
    pub ip: KeptAddress,
}

impl ClickRules {
    /// The visitor's address as seen by the first trusted proxy. Clients can forge the entries before it.
    pub(crate) fn client_address(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let fields = headers.get_all("x-forwarded-for").iter().rev();
        // A client can write any bytes. They must not hide the entries of the proxies.
        let mut entries = fields.flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b','));
        let entry = entries.nth(usize::from(self.trusted_hops).checked_sub(1)?)?;
        address_in(std::str::from_utf8(entry).ok()?.trim())
    }
}

/// The address in an entry of `X-Forwarded-For`. Some proxies add the port of the client.
fn address_in(entry: &str) -> Option<IpAddr> {
    let in_brackets = || entry.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || entry.parse().ok().map(|address: SocketAddr| address.ip());
    entry.parse().ok().or_else(with_port).or_else(in_brackets)
}

/// The headers with which the gateway states the visitor's location. The gateway must remove these headers from client
/// requests.
#[derive(Clone, Debug, Default)]
pub struct LocationHeaders {
    /// `AF`, `AN`, `AS`, `EU`, `NA`, `OC` or `SA`.
    pub continent: Option<HeaderName>,
    /// Two-letter ISO 3166 code.
    pub country: Option<HeaderName>,
    /// ISO 3166-2 code, with or without the country.
    pub region: Option<HeaderName>,
    /// Name of the city. Non-ASCII characters are percent-encoded.
    pub city: Option<HeaderName>,
}

/// Maximum number of remembered visitors for [`ClickRules::once_per_hour`].
const REMEMBERED_VISITORS: usize = 1_000_000;

/// The time at which each visitor was last counted.
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
    /// Whether the visitor with this address was counted on this link within the last hour. If not, counts the visitor now.
    pub(crate) fn is_repeated(
        &self,
        click: &ClickRef<'_>,
        user_agent: &str,
        address: Option<IpAddr>,
    ) -> bool {
        let mut visitor = Sha256::new();
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        let parts: [&str; 3] = [click.link_id, &address, user_agent];
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
