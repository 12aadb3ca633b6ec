//! Host calls that fail on demand.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::{abi::Status, lock::lock, vm_name::VmName};

/// A host call that is made to answer a status instead of doing its work.
///
/// ```
/// use host_sim::{Fault, Status};
///
/// let third = Fault::new("proxy_get_shared_data", Status::InternalFailure).nth(3);
/// let always_on_worker_1 = Fault::new("proxy_get_property", Status::NotFound).every().on_worker(1);
/// # let _ = (third, always_on_worker_1);
/// ```
#[derive(Debug, Clone)]
pub struct Fault {
    pub(crate) call: String,
    status: Status,
    skip: u64,
    remaining: Option<u64>,
    worker: Option<usize>,
}

/// A fault names a host call that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no host call is named {name:?}: expected one of the ABI's, such as \"proxy_set_shared_data\"")]
pub struct UnknownHostCall {
    /// The name as given.
    pub name: String,
}

impl Fault {
    /// The next call of this name answers `status`.
    pub fn new(call: impl Into<String>, status: Status) -> Self {
        Self { call: call.into(), status, skip: 0, remaining: Some(1), worker: None }
    }

    /// Every call does, until the faults are cleared.
    #[must_use]
    pub fn every(mut self) -> Self {
        self.remaining = None;
        self
    }

    /// The next `count` calls do.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.remaining = Some(count);
        self
    }

    /// The `n`th call from now does, counting from 1.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// Only calls of this worker's VM count.
    #[must_use]
    pub fn on_worker(mut self, worker: usize) -> Self {
        self.worker = Some(worker);
        self
    }
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Whether there is any, so that a host without faults pays one load per call.
    any: AtomicBool,
    planned: Mutex<Vec<Fault>>,
}

impl Faults {
    pub(crate) fn plan(&self, fault: Fault) {
        lock(&self.planned).push(fault);
        self.any.store(true, Ordering::SeqCst);
    }

    pub(crate) fn clear(&self) {
        lock(&self.planned).clear();
        self.any.store(false, Ordering::SeqCst);
    }

    /// The status that this call is made to answer, if any.
    pub(crate) fn strike(&self, call: &str, vm: VmName) -> Option<Status> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut planned = lock(&self.planned);
        let mut struck = None;
        planned.retain_mut(|fault| {
            let meant = fault.call == call && fault.worker.is_none_or(|worker| vm == VmName::Worker(worker));
            if !meant || struck.is_some() {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            struck = Some(fault.status);
            match &mut fault.remaining {
                Some(remaining) => {
                    *remaining = remaining.saturating_sub(1);
                    *remaining > 0
                }
                None => true,
            }
        });
        self.any.store(!planned.is_empty(), Ordering::SeqCst);
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_when_and_where_it_was_planned() {
        const CALL: &str = "proxy_get_shared_data";
        const HIT: Option<Status> = Some(Status::Empty);
        let once = Fault::new(CALL, Status::Empty);
        let rows = [
            ("next", once.clone(), [HIT, None, None, None]),
            ("twice", once.clone().times(2), [HIT, HIT, None, None]),
            ("third", once.clone().nth(3), [None, None, HIT, None]),
            ("every", once.clone().every(), [HIT, HIT, HIT, HIT]),
            ("elsewhere", once.on_worker(7), [None, None, None, None]),
        ];
        for (what, fault, expected) in rows {
            let faults = Faults::default();
            faults.plan(fault);
            assert_eq!(faults.strike("proxy_log", VmName::Worker(0)), None, "{what}");
            let struck = [(); 4].map(|()| faults.strike(CALL, VmName::Worker(0)));
            assert_eq!(struck, expected, "{what}");
        }
    }
}
