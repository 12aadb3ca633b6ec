//! The connections of each address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An IPv6 client usually has a whole /64, so that this part of its address counts.
const NETWORK: u128 = !0 << 64;

/// The number of connections of each address. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Addresses {
    /// Counts a connection from an address until the result is dropped. None if the address has `most` connections.
    pub(super) fn connect(&self, address: IpAddr, most: usize) -> Option<Counted> {
        let network = match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            address @ IpAddr::V4(_) => address,
        };
        let mut counts = self.lock();
        let count = counts.entry(network).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Counted { network, addresses: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that counts.
#[derive(Debug)]
pub(super) struct Counted {
    network: IpAddr,
    addresses: Addresses,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.addresses.lock();
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_for_an_address_or_a_network_until_they_are_closed() {
        //  address, another one, and whether connections of the first count for the second
        for (first, second, expected) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::2:0:0:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let addresses = Addresses::default();
            let (first, second) = (first.parse().unwrap(), second.parse().unwrap());
            let open: Vec<_> = (0..3).map(|_| addresses.connect(first, 3)).collect();
            assert!(open.iter().all(Option::is_some));
            assert!(addresses.connect(first, 3).is_none());
            assert_eq!(addresses.connect(second, 3).is_none(), expected, "{first} {second}");
            drop(open);
            assert!(addresses.lock().is_empty());
            assert!(addresses.connect(second, 3).is_some());
        }
    }
}
