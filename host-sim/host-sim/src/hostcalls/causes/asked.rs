//! A host call that has answered, with what it was asked.

use crate::{
    abi::{Status, slice},
    parameter::{Given, Out32, Out64, Raw},
    state::VmState,
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
    fn given(&self, name: &str) -> Option<Given> {
        self.raw.iter().find(|raw| raw.name == name).map(|raw| raw.given)
    }

    /// The number that was passed, or 0 if there is no such parameter.
    pub(super) fn number(&self, name: &str) -> i128 {
        if let Some(Given::Number(number)) = self.given(name) { number } else { 0 }
    }

    /// The same of a number that has no sign.
    pub(super) fn code(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).unwrap_or(u32::MAX)
    }

    /// The bytes of an argument; none where it lies outside the guest's memory.
    pub(super) fn bytes(&self, name: &str) -> &[u8] {
        match self.given(name) {
            Some(Given::Slice(slice)) => slice.of(self.memory).unwrap_or_default(),
            _ => &[],
        }
    }

    pub(super) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(self.bytes(name)).into_owned()
    }

    /// Whether the guest was given no bytes where it asked for some.
    pub(super) fn gave_nothing(&self, name: &str) -> bool {
        matches!(self.given(name), Some(Given::SliceOut(out)) if slice(self.memory, out.length, 4) == Ok(&[0; 4]))
    }

    /// Which pointer leads outside the guest's memory.
    pub(super) fn bad_pointer(&self) -> String {
        let outside = format!("outside the memory of {} bytes", self.memory.len());
        for Raw { name, given } in self.raw {
            let out = match given {
                Given::Slice(given) if given.of(self.memory).is_err() => {
                    return format!("{name} is {} bytes at {:#x}, {outside}", given.length, given.at);
                }
                Given::Slice(_) | Given::Number(_) => continue,
                Given::SliceOut(out) => [("_out", out.at), ("_out_size", out.length)],
                Given::Out32(Out32(at)) | Given::Out64(Out64(at)) => [("_out", *at); 2],
            };
            if let Some((end, at)) = out.into_iter().find(|(_, at)| slice(self.memory, *at, 4).is_err()) {
                return format!("{name}{end} is {at:#x}, {outside}");
            }
        }
        "the guest's allocator gave no memory, or an address outside it".to_owned()
    }
}
