//! The part of a visitor's address that is kept.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The part of a visitor's address that is stored, and sent in events and webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KeptAddress {
    /// The whole address, for new clicks only.
    Full,
    /// The network: /24 of IPv4, /48 of IPv6.
    #[default]
    Truncated,
    /// Nothing. The API returns "".
    None,
}

impl KeptAddress {
    /// The kept part of an address as text. Empty if nothing is kept.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_an_address_is_kept() {
        //  address, and its kept part
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
        }
    }
}
