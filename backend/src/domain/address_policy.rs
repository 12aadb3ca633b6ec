//! The policy for addresses of webhooks.
//!
//! Every API key can set a receiver. Deliveries must therefore not reach addresses that are reachable only from this
//! machine or its network. Names are checked after resolution, and the connection uses the checked address, so that DNS
//! rebinding has no effect.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

/// The networks of global unicast addresses. No other IPv6 network is assigned to hosts of the public Internet (RFC 4291,
/// section 2.4).
const GLOBAL_UNICAST: [&str; 2] = ["0.0.0.0/0", "2000::/3"];
/// The parts of [`GLOBAL_UNICAST`] that are not reachable by everybody: those of IANA's special-purpose registries (RFC 6890 and
/// its updates), multicast, and IPv6 addresses that embed an IPv4 address. IPv4-mapped addresses are converted to IPv4
/// before the check.
const SPECIAL: [&str; 19] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
];

/// The policy for addresses of deliveries.
#[derive(Clone, Debug)]
pub struct AddressPolicy {
    allowed: Vec<IpNet>,
    refused: Vec<IpNet>,
    /// Names of this machine are allowed too.
    local_names: bool,
}

#[expect(clippy::expect_used, reason = "the lists are constants, and a test parses them")]
fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|net| net.parse().expect("a network")).collect()
}

impl AddressPolicy {
    /// Permits public addresses only: global unicast without the special ranges.
    #[must_use]
    pub fn public_only() -> Self {
        Self { allowed: networks(&GLOBAL_UNICAST), refused: networks(&SPECIAL), local_names: false }
    }

    /// Permits all addresses, for tests and closed networks.
    #[must_use]
    pub fn any() -> Self {
        Self { allowed: networks(&["0.0.0.0/0", "::/0"]), refused: Vec::new(), local_names: true }
    }

    /// Permits no address. Deliveries are stored and fail without name resolution. For tests with made-up receivers.
    #[must_use]
    pub fn none() -> Self {
        Self { allowed: Vec::new(), refused: Vec::new(), local_names: false }
    }

    pub(crate) fn allows_none(&self) -> bool {
        self.allowed.is_empty()
    }

    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        // `::ffff:127.0.0.1` is 127.0.0.1.
        let address = address.to_canonical();
        let is_in = |networks: &[IpNet]| networks.iter().any(|net| net.contains(&address));
        is_in(&self.allowed) && !is_in(&self.refused)
    }

    /// Whether a URL may be a receiver, without name resolution. [`crate::deliver`] checks the resolved addresses of each
    /// connection.
    pub(crate) fn allows_url(&self, url: &Url) -> bool {
        match url.host() {
            Some(Host::Ipv4(address)) => self.allows(address.into()),
            Some(Host::Ipv6(address)) => self.allows(Ipv6Addr::into(address)),
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                self.local_names || !(name == "localhost" || name.ends_with(".localhost"))
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_allowed() {
        let policy = AddressPolicy::public_only();
        let table = [
            ("https://example.com/hook", true),
            ("https://8.8.8.8/", true),
            ("https://[2606:4700::1111]/", true),
            ("http://localhost/", false),
            ("http://localhost./", false),
            ("http://a.localhost/", false),
            ("http://127.0.0.1:3000/", false),
            ("http://127.1/", false),
            ("http://2130706433/", false),
            ("http://0x7f.0.0.1/", false),
            ("http://0.0.0.0/", false),
            ("http://10.1.2.3/", false),
            ("http://172.16.0.1/", false),
            ("http://172.32.0.1/", true),
            ("http://192.168.1.1/", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("http://100.64.0.1/", false),
            ("http://224.0.0.1/", false),
            ("http://255.255.255.255/", false),
            ("http://[::1]/", false),
            ("http://[::]/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://[::127.0.0.1]/", false),
            ("http://[64:ff9b::7f00:1]/", false),
            ("http://[2002:7f00:1::]/", false),
            ("http://[fe80::1]/", false),
            ("http://[fd00::1]/", false),
            ("http://[ff02::1]/", false),
            ("http://[fec0::1]/", false),
            ("http://[::ffff:0:7f00:1]/", false),
            ("http://[100::1]/", false),
            ("http://[5f00::1]/", false),
            ("http://[4000::1]/", false),
            ("http://[2001::1]/", false),
            ("http://[2001:db8::1]/", false),
            ("http://[3fff::1]/", false),
            ("http://[2a00:1450::1]/", true),
        ];
        for (url, allowed) in table {
            assert_eq!(policy.allows_url(&Url::parse(url).unwrap()), allowed, "{url}");
            assert!(AddressPolicy::any().allows_url(&Url::parse(url).unwrap()), "{url}");
        }
    }
}
