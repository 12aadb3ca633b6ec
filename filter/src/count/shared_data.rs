//! Shared data as the hosts offer it, and how to write to it without losing a race on any of them.
//!
//! A value has a compare-and-swap number (`cas`). Hosts agree on how an existing value is replaced: only if the number passed is
//! the one last read. They disagree on how an absent one is created:
//!
//! | host | absent, cas ≠ 0 | absent, cas = 0 | present, cas = 0 |
//! |---|---|---|---|
//! | Envoy and its kin | created | created | **overwritten** |
//! | MOSN | created | created | mismatch |
//! | ngx_wasm_module | **mismatch** | created | mismatch |
//!
//! So a creation passes a number that no value ever has, which creates exactly once on Envoy and MOSN; only where the value is
//! then still absent is 0 tried, which creates exactly once on the strict host.

use std::collections::HashMap;

/// What a host call that did not succeed answered: the ABI's `proxy_status_t`, kept raw because hosts answer values that the
/// SDK's enumeration lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} answered status {status}")]
pub struct HostError {
    /// The host call, by its ABI name.
    pub call: &'static str,
    /// Its status.
    pub status: u32,
}

impl HostError {
    /// Whether the host lacks what the call names: `proxy_status_t` not found.
    #[must_use]
    pub const fn is_not_found(self) -> bool {
        self.status == 1
    }

    /// Whether the host has no such call: `proxy_status_t` unimplemented.
    #[must_use]
    pub const fn is_unimplemented(self) -> bool {
        self.status == 12
    }

    /// Whether the host does not know what the call names: `proxy_status_t` bad argument.
    #[must_use]
    pub const fn is_bad_argument(self) -> bool {
        self.status == 2
    }
}

/// The number of a stored value, as `proxy_get_shared_data` reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cas(pub u32);

impl Cas {
    /// A number that no stored value has: hosts count up from 1 and would have to write 2³² times to get there.
    const NEVER: Self = Self(u32::MAX);
    /// "Absent" to the strict host.
    const ABSENT: Self = Self(0);
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It is stored.
    Stored,
    /// Somebody else wrote first; nothing is stored.
    Conflict,
}

/// The host's two calls.
pub trait SharedData {
    /// A value that was read. Not all hosts hand over a `Vec`, and making one would cost each request an allocation.
    type Value: AsRef<[u8]>;

    /// `proxy_get_shared_data`: the value and its number, `None` if there is none.
    ///
    /// # Errors
    /// Any status but Ok and NotFound.
    fn get(&mut self, name: &[u8]) -> Result<Option<(Self::Value, Cas)>, HostError>;

    /// `proxy_set_shared_data`.
    ///
    /// # Errors
    /// Any status but Ok and CasMismatch.
    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError>;

    /// Whether the host has no shared data, as far as is known, so that these are the VM's own values.
    fn is_of_vm(&self) -> bool {
        false
    }
}

/// Stores `value` under `name` if nobody wrote since `read` was read there; `None` means it was absent.
///
/// # Errors
/// What the host answered, if it was no plain yes or no.
pub fn compare_and_swap(
    data: &mut impl SharedData,
    name: &[u8],
    read: Option<Cas>,
    value: &[u8],
) -> Result<Swap, HostError> {
    match read {
        // A present value without a number would be overwritten by Envoy whoever wrote meanwhile. No known host has one.
        Some(Cas::ABSENT) => Err(HostError { call: "proxy_get_shared_data (cas 0)", status: 0 }),
        Some(cas) => data.set(name, value, cas),
        None => match data.set(name, value, Cas::NEVER)? {
            Swap::Stored => Ok(Swap::Stored),
            Swap::Conflict if data.get(name)?.is_some() => Ok(Swap::Conflict),
            Swap::Conflict => data.set(name, value, Cas::ABSENT),
        },
    }
}

/// Whether the host is the strict one of the table above, which is ngx_wasm_module. `name` is written, unless it is.
///
/// # Errors
/// What the host answered, if it was no plain yes or no.
pub fn is_strict(data: &mut impl SharedData, name: &[u8]) -> Result<bool, HostError> {
    Ok(data.set(name, &[1], Cas::NEVER)? == Swap::Conflict && data.get(name)?.is_none())
}

/// Shared data of one VM alone, for hosts that have none: each VM then counts by itself.
#[derive(Debug, Default)]
pub struct VmLocalData {
    values: HashMap<Vec<u8>, (Vec<u8>, u32)>,
}

impl SharedData for VmLocalData {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        Ok(self.values.get(name).map(|(value, cas)| (value.clone(), Cas(*cas))))
    }

    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        match self.values.get_mut(name) {
            Some((stored, current)) if *current == cas.0 => {
                stored.clear();
                stored.extend_from_slice(value);
                *current = (*current % (u32::MAX - 1)) + 1;
                Ok(Swap::Stored)
            }
            Some(_) => Ok(Swap::Conflict),
            None => {
                self.values.insert(name.to_vec(), (value.to_vec(), 1));
                Ok(Swap::Stored)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host by its rules: (absent, cas ≠ 0), (absent, cas = 0), (present, cas = 0).
    struct Host {
        creates_with_cas: bool,
        overwrites_with_zero: bool,
        stored: Option<(Vec<u8>, u32)>,
        /// Written by "another worker" just before our next set.
        rival: Option<Vec<u8>>,
    }

    impl SharedData for Host {
        type Value = Vec<u8>;

        fn get(&mut self, _: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
            Ok(self.stored.clone().map(|(value, cas)| (value, Cas(cas))))
        }
        fn set(&mut self, _: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
            if let Some(rival) = self.rival.take() {
                self.stored = Some((rival, 7));
            }
            let (accepted, next) = match &self.stored {
                Some((_, current)) => {
                    (cas.0 == *current || (cas.0 == 0 && self.overwrites_with_zero), current + 1)
                }
                None => (cas.0 == 0 || self.creates_with_cas, 1),
            };
            if accepted {
                self.stored = Some((value.to_vec(), next));
            }
            Ok(if accepted { Swap::Stored } else { Swap::Conflict })
        }
    }

    const HOSTS: [(&str, bool, bool); 3] =
        [("envoy", true, true), ("mosn", true, false), ("ngx_wasm_module", false, false)];

    #[test]
    fn a_value_is_created_exactly_once_on_every_host() {
        for (name, creates_with_cas, overwrites_with_zero) in HOSTS {
            let mut host = Host { creates_with_cas, overwrites_with_zero, stored: None, rival: None };
            assert_eq!(compare_and_swap(&mut host, b"n", None, b"first"), Ok(Swap::Stored), "{name}");
            assert_eq!(compare_and_swap(&mut host, b"n", None, b"second"), Ok(Swap::Conflict), "{name}");
            assert_eq!(host.stored.unwrap().0, b"first", "{name}");
        }
    }

    #[test]
    fn the_strict_host_is_told_apart_however_often_it_is_asked() {
        for (name, creates_with_cas, overwrites_with_zero) in HOSTS {
            let mut host = Host { creates_with_cas, overwrites_with_zero, stored: None, rival: None };
            for _ in 0..2 {
                assert_eq!(is_strict(&mut host, b"n"), Ok(name == "ngx_wasm_module"), "{name}");
            }
        }
    }

    #[test]
    fn a_rival_that_creates_first_is_never_overwritten() {
        for (name, creates_with_cas, overwrites_with_zero) in HOSTS {
            let mut host =
                Host { creates_with_cas, overwrites_with_zero, stored: None, rival: Some(b"rival".to_vec()) };
            assert_eq!(compare_and_swap(&mut host, b"n", None, b"ours"), Ok(Swap::Conflict), "{name}");
            assert_eq!(host.stored.unwrap().0, b"rival", "{name}");
        }
    }

    #[test]
    fn a_rival_that_updates_first_is_never_overwritten() {
        for (name, creates_with_cas, overwrites_with_zero) in HOSTS {
            let stored = Some((b"old".to_vec(), 5));
            let mut host =
                Host { creates_with_cas, overwrites_with_zero, stored, rival: Some(b"rival".to_vec()) };
            assert_eq!(
                compare_and_swap(&mut host, b"n", Some(Cas(5)), b"ours"),
                Ok(Swap::Conflict),
                "{name}"
            );
            assert_eq!(host.stored.unwrap().0, b"rival", "{name}");
        }
    }

    #[test]
    fn a_vm_without_shared_data_counts_by_the_same_rules() {
        let mut data = VmLocalData::default();
        assert_eq!(compare_and_swap(&mut data, b"n", None, b"first"), Ok(Swap::Stored));
        assert_eq!(compare_and_swap(&mut data, b"n", None, b"again"), Ok(Swap::Conflict));
        let (value, cas) = data.get(b"n").unwrap().unwrap();
        assert_eq!(value, b"first");
        assert_eq!(compare_and_swap(&mut data, b"n", Some(cas), b"second"), Ok(Swap::Stored));
        assert_eq!(compare_and_swap(&mut data, b"n", Some(cas), b"third"), Ok(Swap::Conflict));
    }
}
