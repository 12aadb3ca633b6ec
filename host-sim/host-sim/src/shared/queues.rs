//! Queues that the VMs of a process share: first in, first out, without a bound, as in Envoy.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, OnceLock},
};

use crate::{abi::Status, lock::lock, sink::Sink, vm_name::VmName};

/// The queues of one process.
#[derive(Debug, Default)]
pub(crate) struct SharedQueues {
    state: Mutex<State>,
    /// Told the name of a VM for which a queue has something.
    waker: OnceLock<Sink<VmName>>,
}

#[derive(Debug, Default)]
struct State {
    /// Tokens by `vm_id` and name; 0 is no token.
    tokens: BTreeMap<(String, Vec<u8>), u32>,
    queues: BTreeMap<u32, Queue>,
    /// Root contexts to tell that a queue is ready, by thread, in order, each with the queue's token.
    ready: BTreeMap<VmName, VecDeque<(Listener, u32)>>,
}

/// A root context: the thread, which of its VMs, and the context. A VM that replaces a failed one is called in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) vm: VmName,
    /// [`VmState::number`](crate::state::VmState::number).
    pub(crate) number: usize,
    pub(crate) root: u32,
}

#[derive(Debug)]
struct Queue {
    /// The context that registered last is the one that is called.
    listener: Listener,
    items: VecDeque<Vec<u8>>,
}

impl SharedQueues {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has `waker` called whenever a VM has something to be told. The first one stays.
    pub(crate) fn on_ready(&self, waker: impl Fn(VmName) + Send + Sync + 'static) {
        self.waker.get_or_init(|| Sink::new(move |vm| waker(*vm)));
    }

    /// The queue's token. The queue keeps its items. Only the context that registers now is called from then on.
    pub(crate) fn register(&self, vm_id: &str, name: &[u8], listener: Listener) -> Result<u32, Status> {
        let mut state = self.lock();
        let next = u32::try_from(state.tokens.len() + 1).map_err(|_| Status::InternalFailure)?;
        let token = *state.tokens.entry((vm_id.to_owned(), name.to_vec())).or_insert(next);
        state.queues.entry(token).or_insert_with(|| Queue { listener, items: VecDeque::new() }).listener =
            listener;
        Ok(token)
    }

    pub(crate) fn resolve(&self, vm_id: &str, name: &[u8]) -> Result<u32, Status> {
        self.lock().tokens.get(&(vm_id.to_owned(), name.to_vec())).copied().ok_or(Status::NotFound)
    }

    pub(crate) fn dequeue(&self, token: u32) -> Result<Vec<u8>, Status> {
        self.lock().queues.get_mut(&token).ok_or(Status::NotFound)?.items.pop_front().ok_or(Status::Empty)
    }

    /// Puts an item into a queue and calls its listener.
    pub(crate) fn enqueue(&self, token: u32, item: Vec<u8>) -> Result<(), Status> {
        let mut state = self.lock();
        let queue = state.queues.get_mut(&token).ok_or(Status::NotFound)?;
        queue.items.push_back(item);
        let listener = queue.listener;
        let vm = listener.vm;
        state.ready.entry(vm).or_default().push_back((listener, token));
        drop(state);
        if let Some(waker) = self.waker.get() {
            waker.tell(&vm);
        }
        Ok(())
    }

    /// What the VMs of this thread have to be told: root contexts and tokens.
    pub(crate) fn take_ready(&self, vm: VmName) -> VecDeque<(Listener, u32)> {
        self.lock().ready.remove(&vm).unwrap_or_default()
    }

    /// The VMs that have something to be told.
    pub(crate) fn awaited(&self) -> Vec<VmName> {
        self.lock().ready.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_one_by_vm_id_and_name_and_tells_the_last_who_registered() {
        let queues = SharedQueues::default();
        let [worker, main] =
            [(VmName::Worker(0), 1), (VmName::Main, 2)].map(|(vm, root)| Listener { vm, number: 0, root });
        let first = queues.register("v", b"q", worker).unwrap();
        queues.enqueue(first, b"a".to_vec()).unwrap();
        assert_eq!(queues.register("v", b"q", main), Ok(first));
        assert_ne!(queues.register("w", b"q", main), Ok(first));
        queues.enqueue(first, b"b".to_vec()).unwrap();
        assert_eq!(queues.take_ready(VmName::Worker(0)), [(worker, first)]);
        assert_eq!(queues.take_ready(VmName::Main), [(main, first)]);
        assert_eq!([queues.dequeue(first), queues.dequeue(first)], [Ok(b"a".to_vec()), Ok(b"b".to_vec())]);
        assert_eq!((queues.dequeue(first), queues.dequeue(99)), (Err(Status::Empty), Err(Status::NotFound)));
        assert_eq!(
            (queues.resolve("v", b"q"), queues.resolve("v", b"r")),
            (Ok(first), Err(Status::NotFound))
        );
    }
}
