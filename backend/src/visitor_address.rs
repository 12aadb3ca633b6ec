//! How much of a visitor's address is kept.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How much of a visitor's address is stored, and sent in events and webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptAddress {
    /// All of it.
    Full,
    /// The network: /24 of IPv4, /48 of IPv6.
    #[default]
    Truncated,
    /// Nothing.
    None,
}

impl KeptAddress {
    /// What is kept of an address; empty if that is nothing.
    pub(crate) fn of(self, address: IpAddr) -> String {
        match self {
            Self::Full => address.to_string(),
            Self::Truncated => truncated(address).to_string(),
            Self::None => String::new(),
        }
    }
}

fn truncated(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 80)).into(),
    }
}

/// As [`KeptAddress::Truncated`], of an address that was kept as text. Empty if the text is not an address.
pub(crate) fn truncated_text(text: &str) -> String {
    text.parse()
        .map_or_else(|_| String::new(), |address: IpAddr| truncated(address.to_canonical()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_an_address_is_kept() {
        //  address, and what is kept of it
        let table = [
            ("192.0.2.255", "192.0.2.0"),
            ("10.0.0.0", "10.0.0.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
            ("2001:db8:1::", "2001:db8:1::"),
            ("2001:db8::1", "2001:db8::"),
            ("2001::1:0:0:1", "2001::"),
            ("::1", "::"),
        ];
        for (address, network) in table {
            let parsed: IpAddr = address.parse().unwrap();
            assert_eq!(KeptAddress::Truncated.of(parsed), network);
            assert_eq!(KeptAddress::Full.of(parsed), address);
            assert_eq!(KeptAddress::None.of(parsed), "");
            assert_eq!(truncated_text(address), network);
        }
        for (text, expected) in [("::ffff:192.0.2.7", "192.0.2.0"), ("", ""), ("unknown", "")] {
            assert_eq!(truncated_text(text), expected);
        }
    }
}
