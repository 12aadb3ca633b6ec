//! Who is counted, as a number that tells nobody who it is.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use siphasher::sip::SipHasher24;
use siphasher::sip128::SipHasher13 as SipHasher13x128;

/// SHA-256 of an API key.
pub type KeyDigest = [u8; 32];

/// The bearer of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    /// A known key, by its digest.
    Key(&'a KeyDigest),
    /// A subscriber whose keys share their quotas, by its id.
    Subscriber(&'a str),
    /// An organisation whose subscribers share quotas, by its id.
    Organisation(&'a str),
    /// A stranger, by its address.
    Address(ClientAddress),
}

/// The network a stranger's request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// An IP address, IPv6 cut to its prefix.
    Ip(IpAddr),
    /// What the host reports is no IP address (a Unix socket, an internal listener): all of these are one client.
    NotIp,
}

impl ClientAddress {
    /// Reads the host's `source.address`: `192.0.2.1:80`, `[2001:db8::1]:80`, or the same without a port. IPv6 addresses are cut to
    /// `ipv6_prefix` bits (0 to 128), except those that map IPv4 ones.
    #[must_use]
    pub fn parse(source_address: &[u8], ipv6_prefix: u8) -> Self {
        let ip = core::str::from_utf8(source_address).ok().and_then(|text| {
            SocketAddr::from_str(text).map(|address| address.ip()).or_else(|_| IpAddr::from_str(text)).ok()
        });
        match ip {
            Some(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
                Some(ip) => Self::Ip(IpAddr::V4(ip)),
                None => {
                    let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix.min(128))).unwrap_or(0);
                    Self::Ip(IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask)))
                }
            },
            Some(ip) => Self::Ip(ip),
            None => Self::NotIp,
        }
    }
}

/// 16 random bytes that are the same in every VM of a process and in no other process: without them nobody can aim a key or an
/// address at somebody else's counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub [u8; 16]);

impl core::fmt::Debug for Salt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Salt(…)")
    }
}

/// Identifies a counter within its table: a salted hash of who and class. Never 0, which stands for an entry's overflow record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The record that strangers share whose entry is full.
    pub const OVERFLOW: Self = Self(0);

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fingerprint with this number.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// A keyed hash of what identifies a caller in a class. It can be kept in memory, as it cannot be computed outside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerHash {
    low: u64,
    high: u64,
}

impl CallerHash {
    /// The place of a caller in a table: half of the hash is as good as any that the table could compute.
    #[must_use]
    pub(crate) const fn spread(self) -> u64 {
        self.low
    }

    /// The hash of this caller with something more.
    #[must_use]
    pub const fn with(self, more: Self) -> Self {
        Self { low: self.low ^ more.low.rotate_left(1), high: self.high ^ more.high.rotate_left(1) }
    }
}

impl Salt {
    /// The fingerprint of the counter of `who` in `class`.
    #[must_use]
    pub fn fingerprint(&self, who: Who<'_>, class: &str) -> Fingerprint {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        match who {
            Who::Key(digest) => {
                hasher.write_u8(0);
                hasher.write(digest);
            }
            Who::Subscriber(id) => {
                hasher.write_u8(1);
                hasher.write_usize(id.len());
                hasher.write(id.as_bytes());
            }
            Who::Address(ClientAddress::Ip(IpAddr::V4(ip))) => {
                hasher.write_u8(2);
                hasher.write(&ip.octets());
            }
            Who::Address(ClientAddress::Ip(IpAddr::V6(ip))) => {
                hasher.write_u8(3);
                hasher.write(&ip.octets());
            }
            Who::Address(ClientAddress::NotIp) => hasher.write_u8(4),
            Who::Organisation(id) => {
                hasher.write_u8(5);
                hasher.write_usize(id.len());
                hasher.write(id.as_bytes());
            }
        }
        hasher.write(class.as_bytes());
        Fingerprint(hasher.finish().max(1))
    }

    /// A hash of `bytes` that identify a caller in a class, found in the place `source`. The hash never leaves
    /// the VM, so SipHash-1-3 is enough.
    #[must_use]
    pub fn caller_hash(&self, source: usize, bytes: &[u8], class: usize) -> CallerHash {
        let hash = SipHasher13x128::new_with_key(&self.0).hash(bytes);
        // The hashes of different bytes are independent, and those of equal bytes differ by place and class.
        CallerHash { low: hash.h1 ^ ((source as u64) << 32 | class as u64), high: hash.h2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_its_ipv4_address_or_its_ipv6_prefix() {
        let rows = [
            ("192.0.2.1:80", 64, "192.0.2.1"),
            ("192.0.2.1", 64, "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", 64, "192.0.2.1"),
            ("[2001:db8:1:2:3:4:5:6]:80", 64, "2001:db8:1:2::"),
            ("2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::"),
            ("[2001:db8:1:2:3:4:5:6]:80", 128, "2001:db8:1:2:3:4:5:6"),
            ("[2001:db8:1:2:3:4:5:6]:80", 0, "::"),
        ];
        for (source_address, ipv6_prefix, expected) in rows {
            assert_eq!(
                ClientAddress::parse(source_address.as_bytes(), ipv6_prefix),
                ClientAddress::Ip(expected.parse().unwrap()),
                "{source_address}/{ipv6_prefix}"
            );
        }
        for no_address in ["", "/run/envoy.sock", "example.com:80", "192.0.2.1.5:80", "[::1"] {
            assert_eq!(ClientAddress::parse(no_address.as_bytes(), 64), ClientAddress::NotIp, "{no_address}");
        }
        assert_eq!(ClientAddress::parse(b"\xff\xfe", 64), ClientAddress::NotIp);
    }

    #[test]
    fn counters_differ_by_who_class_and_salt() {
        let address = |text: &str| Who::Address(ClientAddress::parse(text.as_bytes(), 64));
        let salts = [Salt([1; 16]), Salt([2; 16])];
        let who = [
            Who::Key(&[7; 32]),
            Who::Key(&[8; 32]),
            Who::Subscriber("a"),
            Who::Subscriber("ab"),
            Who::Organisation("a"),
            Who::Organisation("ab"),
            address("192.0.2.1"),
            address("192.0.2.2"),
            address("2001:db8::"),
            address("unix"),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for salt in salts {
            for who in who {
                for class in ["standard", "bstandard"] {
                    assert!(
                        seen.insert(salt.fingerprint(who, class).get()),
                        "{who:?} {class} collides with another"
                    );
                }
            }
        }
    }
}
