//! A host call that has answered, with what it was asked.

use crate::{
    abi::{Status, slice},
    state::VmState,
    trace::arguments::Raw,
};

/// A host call that has answered.
pub(super) struct Asked<'a> {
    pub(super) call: &'static str,
    pub(super) raw: &'a [Raw],
    pub(super) memory: &'a [u8],
    pub(super) state: &'a mut VmState,
    /// The callback that runs.
    pub(super) callback: &'static str,
    pub(super) status: Status,
}

impl Asked<'_> {
    pub(super) fn number(&self, name: &str) -> u32 {
        self.raw.iter().find(|raw| raw.name == name).map_or(0, |raw| raw.number())
    }

    /// The bytes of an argument; none where it lies outside the guest's memory.
    pub(super) fn bytes(&self, name: &str) -> &[u8] {
        let mut rest = self.raw.iter().skip_while(|raw| raw.name != name);
        match (rest.next(), rest.next()) {
            (Some(at), Some(length)) => slice(self.memory, at.number(), length.number()).unwrap_or_default(),
            _ => &[],
        }
    }

    pub(super) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(self.bytes(name)).into_owned()
    }

    /// Which pointer leads outside the guest's memory.
    pub(super) fn bad_pointer(&self) -> String {
        let outside = |at: u32, length: u32| slice(self.memory, at, length).is_err();
        let size = self.memory.len();
        let mut rest = self.raw.iter().peekable();
        while let Some(raw) = rest.next() {
            let length = rest.next_if(|next| next.name.strip_suffix("_size") == Some(raw.name));
            let at = raw.number();
            match length {
                Some(length) if raw.name.ends_with("_out") => {
                    if let Some(bad) = [raw, length].into_iter().find(|raw| outside(raw.number(), 4)) {
                        return format!(
                            "{} is {:#x}, outside the memory of {size} bytes",
                            bad.name,
                            bad.number()
                        );
                    }
                }
                Some(length) if outside(at, length.number()) => {
                    let length = length.number();
                    return format!(
                        "{} is {length} bytes at {at:#x}, outside the memory of {size} bytes",
                        raw.name
                    );
                }
                None if raw.name.ends_with("_out") && outside(at, 4) => {
                    return format!("{} is {at:#x}, outside the memory of {size} bytes", raw.name);
                }
                _ => {}
            }
        }
        "the guest's allocator gave no memory, or an address outside it".to_owned()
    }
}
