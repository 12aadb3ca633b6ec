//! Which master of a cluster has which keys.

use redis::{ConnectionAddr, Value};

use super::settings::Settings;

/// Number of parts into which a cluster divides its keys.
const SLOTS: u16 = 16_384;

/// The masters of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Topology {
    pub(super) masters: Vec<ConnectionAddr>,
    /// For each slot the index of its master.
    slots: Vec<Option<usize>>,
}

impl Topology {
    /// A single server has all keys.
    pub(super) fn single(address: ConnectionAddr) -> Self {
        Self { masters: vec![address], slots: vec![Some(0); SLOTS.into()] }
    }

    /// The topology as the node at `asked` answers `CLUSTER SLOTS`, or `None` if the answer is none.
    pub(super) fn parse(ranges: &Value, asked: &ConnectionAddr, settings: &Settings) -> Option<Self> {
        let Value::Array(ranges) = ranges else { return None };
        let mut topology = Self { masters: Vec::new(), slots: vec![None; SLOTS.into()] };
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
                return None;
            };
            let [host, Value::Int(port), ..] = master.as_slice() else { return None };
            let host = match (host, asked) {
                (Value::BulkString(host), _) if !host.is_empty() && host != b"?" => {
                    str::from_utf8(host).ok()?
                }
                // A node that does not know its own name means the one by which it was reached.
                (_, ConnectionAddr::Tcp(asked, _) | ConnectionAddr::TcpTls { host: asked, .. }) => asked,
                _ => return None,
            };
            let address = settings.address(host, u16::try_from(*port).ok()?);
            let known = topology.masters.iter().position(|known| *known == address);
            let index = known.unwrap_or(topology.masters.len());
            if known.is_none() {
                topology.masters.push(address);
            }
            let range = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
            topology.slots.get_mut(range)?.fill(Some(index));
        }
        Some(topology)
    }

    /// The index of the master that has `key`. In a cluster, a key may have none.
    pub(super) fn master_of(&self, key: &str) -> Option<usize> {
        let slot = crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % SLOTS;
        self.slots.get(usize::from(slot)).copied().flatten()
    }

    /// The smallest number whose digits, as the tag of a key, lead to the master at this address. A master has none if it has no slot.
    pub(super) fn tag_of(&self, address: &ConnectionAddr) -> Option<u32> {
        let index = self.masters.iter().position(|master| master == address)?;
        (0..10 * u32::from(SLOTS)).find(|tag| self.master_of(&tag.to_string()) == Some(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    fn settings() -> Settings {
        Settings::new(&Options::of(&["--store", "redis://seed:7000", "--cluster"])).unwrap()
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        let replica = node(Value::BulkString(b"replica".to_vec()), 1);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), replica])
    }

    #[test]
    fn a_key_is_at_the_master_of_its_slot() {
        let name = |name: &str| Value::BulkString(name.as_bytes().to_vec());
        let slots = Value::Array(vec![
            range(12_000, 16_383, name("b"), 7002),
            range(0, 5_000, name("a"), 7001),
            range(5_001, 9_000, Value::Nil, 7003),
            range(10_000, 11_999, name("a"), 7001),
        ]);
        let settings = settings();
        let seed = settings.seeds[0].clone();
        let topology = Topology::parse(&slots, &seed, &settings).unwrap();
        let masters: Vec<String> = topology.masters.iter().map(ToString::to_string).collect();
        assert_eq!(masters, ["b:7002", "a:7001", "seed:7003"]);
        //  a key, its slot as `CLUSTER KEYSLOT` answers, and its master
        for (key, slot, master) in [
            ("foo", 12_182, Some("b:7002")),
            ("bar", 5_061, Some("seed:7003")),
            ("hello", 866, Some("a:7001")),
            ("123456789", 12_739, Some("b:7002")),
            ("baz", 4_813, Some("a:7001")),
        ] {
            let found = topology.master_of(key).map(|index| masters[index].as_str());
            assert_eq!(found, master, "{key} in {slot}");
        }
        for master in &topology.masters {
            let tag = topology.tag_of(master).unwrap().to_string();
            assert_eq!(topology.master_of(&tag).map(|index| &topology.masters[index]), Some(master), "{tag}");
        }
        assert_eq!(topology.tag_of(&settings.address("elsewhere", 1)), None);
        assert!(Topology::parse(&Value::Nil, &seed, &settings).is_none());
        let beyond = Value::Array(vec![range(0, 16_384, name("a"), 7001)]);
        assert!(Topology::parse(&beyond, &seed, &settings).is_none());
        let empty = Topology::parse(&Value::Array(Vec::new()), &seed, &settings).unwrap();
        assert_eq!((empty.masters.len(), empty.master_of("foo")), (0, None));
        assert_eq!(Topology::default().master_of("foo"), None);
        assert_eq!(Topology::single(seed).master_of("foo"), Some(0));
    }

    #[test]
    fn a_key_in_a_slot_that_nobody_has_has_no_master() {
        let slots = Value::Array(vec![range(0, 4_999, Value::BulkString(b"a".to_vec()), 7001)]);
        let settings = settings();
        let topology = Topology::parse(&slots, &settings.seeds[0], &settings).unwrap();
        assert_eq!((topology.master_of("hello"), topology.master_of("bar")), (Some(0), None));
    }
}
