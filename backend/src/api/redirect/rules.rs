//! Settings that decide which visits count as clicks, and where the visitor's location comes from.

use std::net::{IpAddr, SocketAddr};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::{Cache, EntryAction, EntryResult};
use sha2::{Digest, Sha256};

use crate::domain::agent::Agent;
use crate::domain::click::{ClickOutcome, ClickRef};
use crate::domain::parameters;
use crate::domain::visitor_address::KeptAddress;

/// Settings of click counting. By default, every visit counts except those of bots, pages that browsers load in advance, and
/// visitors who ask not to be counted. The visitor's location is unknown.
#[derive(Clone, Debug, Default, Args)]
pub struct ClickRules {
    /// Also counts crawlers and link preview fetchers.
    #[arg(long, env = "WEIR_COUNT_BOTS")]
    pub count_bots: bool,
    /// Counts each visitor (address and user agent) at most once per hour and link.
    #[arg(long, env = "WEIR_ONCE_PER_HOUR")]
    pub once_per_hour: bool,
    /// Number of proxies in front of the service that append to X-Forwarded-For. With 0, the visitor's address is the
    /// peer address of the connection.
    #[arg(long, env = "WEIR_TRUSTED_HOPS", default_value = "0")]
    pub trusted_hops: u8,
    /// Part of the visitor's address that is stored, and sent in events and webhooks. --once-per-hour always compares whole
    /// addresses.
    #[arg(long, env = "WEIR_IP", default_value = "truncated")]
    pub ip: KeptAddress,
    /// The headers with the visitor's location.
    #[command(flatten)]
    pub location: LocationHeaders,
}

/// The published header and query parameter with which a visitor asks not to be counted.
pub(crate) const NO_TRACK: &str = "dub-no-track";

/// The headers with which browsers say that they load a page in advance, and their values. The first is the standard's; the
/// others are those of earlier browsers.
const PREFETCH: [(&str, &[&str]); 4] = [
    ("sec-purpose", &["prefetch"]),
    ("purpose", &["prefetch", "preview"]),
    ("x-purpose", &["preview"]),
    ("x-moz", &["prefetch"]),
];

/// Whether a browser loads the page in advance. Its user may never see it.
fn is_prefetch(headers: &HeaderMap) -> bool {
    PREFETCH.iter().any(|(name, purposes)| {
        let value = headers.get(*name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // `prefetch;prerender` and `prefetch;anonymous-client-ip` have parameters.
        let purpose = value.split(';').next().unwrap_or_default().trim();
        purposes.iter().any(|expected| purpose.eq_ignore_ascii_case(expected))
    })
}

impl ClickRules {
    /// Why a visit does not count as a click. None if it may count.
    pub(crate) fn uncounted(&self, request: &Parts, agent: &Agent) -> Option<ClickOutcome> {
        let mut pairs = parameters::pairs(request.uri.query().unwrap_or_default());
        if request.headers.contains_key(NO_TRACK)
            || pairs.any(|pair| *parameters::name_of(pair) == *NO_TRACK.as_bytes())
        {
            return Some(ClickOutcome::Untracked);
        }
        if is_prefetch(&request.headers) {
            return Some(ClickOutcome::Prefetch);
        }
        (agent.is_bot && !self.count_bots).then_some(ClickOutcome::Bot)
    }

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
#[derive(Clone, Debug, Default, Args)]
pub struct LocationHeaders {
    /// Header in which the gateway sends the visitor's continent (AF, AN, AS, EU, NA, OC or SA).
    #[arg(long = "continent-header", env = "WEIR_CONTINENT_HEADER", value_name = "CONTINENT_HEADER")]
    pub continent: Option<HeaderName>,
    /// Header in which the gateway sends the visitor's country (ISO 3166, two letters).
    #[arg(long = "country-header", env = "WEIR_COUNTRY_HEADER", value_name = "COUNTRY_HEADER")]
    pub country: Option<HeaderName>,
    /// Header in which the gateway sends the visitor's region (ISO 3166-2).
    #[arg(long = "region-header", env = "WEIR_REGION_HEADER", value_name = "REGION_HEADER")]
    pub region: Option<HeaderName>,
    /// Header in which the gateway sends the visitor's city.
    #[arg(long = "city-header", env = "WEIR_CITY_HEADER", value_name = "CITY_HEADER")]
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
        now: Timestamp,
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
        // One step, so that only one of two visits at once finds that the visitor was not counted.
        let entry = self.counted.entry(&visitor, None, |_, at| {
            let is_recent = now.duration_since(*at) < SignedDuration::from_hours(1);
            if !is_recent {
                *at = now;
            }
            EntryAction::Retain(is_recent)
        });
        match entry {
            EntryResult::Retained(is_recent) => is_recent,
            EntryResult::Vacant(place) => {
                // It is refused only if the cache was emptied meanwhile.
                let _refused = place.insert(now);
                false
            }
            EntryResult::Removed(..) | EntryResult::Replaced(..) | EntryResult::Timeout => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::domain::click::Click;

    #[test]
    fn a_visitor_counts_once_an_hour_also_in_visits_at_once() {
        const AT_ONCE: usize = 4;
        const VISITORS: usize = 5_000;
        let (repeats, start) = (Repeats::default(), Barrier::new(AT_ONCE));
        let click = Click::new("link_1", Timestamp::UNIX_EPOCH);
        for (hours, expected) in [(0, VISITORS), (0, 0), (1, VISITORS)] {
            let (counted, now) =
                (AtomicUsize::new(0), Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours));
            std::thread::scope(|threads| {
                for _ in 0..AT_ONCE {
                    threads.spawn(|| {
                        start.wait();
                        for visitor in 0..VISITORS {
                            if !repeats.is_repeated(&(&click).into(), now, &visitor.to_string(), None) {
                                counted.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            assert_eq!(counted.into_inner(), expected, "after {hours} h");
        }
    }
}
