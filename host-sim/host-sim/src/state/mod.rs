//! What a VM holds outside its guest's memory: contexts, and what a host call needs at hand.

pub(crate) mod allowance;
pub(crate) mod callouts;
pub(crate) mod root;
pub(crate) mod stream;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use envoy_config::Plugin;
use wasmtime::{Memory, StoreLimits, StoreLimitsBuilder, TypedFunc};

use crate::{
    abi::LogLevel,
    shared::{Shared, data::Namespace, metrics::MetricIds, turns::Turns},
    state::{callouts::Callouts, root::RootContext, stream::StreamContext},
    trace::recorder::Recorder,
    vm_name::VmName,
    wire::{frame::Direction, local_reply::LocalReply},
};

/// Which host calls a guest may make now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restriction {
    /// All.
    None,
    /// It is initialising: it may log and call WASI.
    Initializing,
    /// It is allocating memory for the host: it may log and read a clock.
    Allocating,
}

/// The data of a VM's store.
pub(crate) struct VmState {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: VmName,
    /// The VM's number on its worker.
    pub(crate) generation: u64,
    /// One for all VMs that filters share, on every worker and in the place of failed ones.
    pub(crate) number: usize,
    /// The plugin that the VM was made for: its `vm_id`, VM configuration and environment.
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) memory: Option<Memory>,
    /// It is shared because it is kept while the state is changed, and a [`TypedFunc`] is dear to clone.
    pub(crate) allocator: Option<Arc<TypedFunc<u32, u32>>>,
    pub(crate) limits: StoreLimits,
    pub(crate) restriction: Restriction,
    pub(crate) contexts: BTreeMap<u32, Context>,
    pub(crate) next_context: u32,
    /// The context whose callback runs; 0 is the VM itself.
    pub(crate) current: u32,
    /// The context that the guest chose in its place; 0 when it chose none.
    pub(crate) effective: u32,
    /// The guest sent a local response: whatever the callback answers, its stream stops.
    pub(crate) stop_iteration: bool,
    /// What the guest asked for and runs when its callback has returned.
    pub(crate) deferred: VecDeque<Deferred>,
    pub(crate) metric_ids: MetricIds,
    pub(crate) callouts: Callouts,
    pub(crate) rng: Randomness,
    pub(crate) turns: Option<Turns>,
    pub(crate) host_calls: u64,
    /// The guest has set a timer since the driver last looked.
    pub(crate) timers_changed: bool,
    /// How deep in actions of guest calls the VM is; 0 outside of them.
    pub(crate) depth: u32,
    /// How often the guest was called.
    pub(crate) calls: u64,
    /// Takes down what the guest and the host say to each other.
    pub(crate) trace: Option<Box<Recorder>>,
    /// What the guest has said of a panic in the callback that runs.
    pub(crate) panic: Option<String>,
}

/// A context of the guest.
#[derive(Debug)]
pub(crate) enum Context {
    Root(Box<RootContext>),
    Stream(Box<StreamContext>),
}

/// What languages begin the last words of a program with.
const PANICS: [&str; 2] = ["panicked at ", "panic: "];

impl VmState {
    /// What a VM holds before its module starts.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        plugin: &Arc<Plugin>,
        name: VmName,
        generation: u64,
        number: usize,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            name,
            generation,
            number,
            plugin: Arc::clone(plugin),
            namespace: shared.shared_data.namespace(&plugin.vm_id),
            memory: None,
            allocator: None,
            limits: StoreLimitsBuilder::new().memory_size(shared.memory_limit).build(),
            restriction: Restriction::Initializing,
            contexts: BTreeMap::new(),
            next_context: 0,
            current: 0,
            effective: 0,
            stop_iteration: false,
            deferred: VecDeque::new(),
            metric_ids: MetricIds::new(shared.metrics.clone()),
            callouts: Callouts::default(),
            rng: Randomness::new(shared.seed, name, generation),
            turns: None,
            host_calls: 0,
            timers_changed: false,
            depth: 0,
            calls: 0,
            trace: shared.trace.is_some().then(|| Box::new(Recorder::new())),
            panic: None,
        }
    }

    /// Writes a line of the guest's to the log, and keeps what it says of a panic.
    pub(crate) fn write_log(&mut self, level: LogLevel, message: &[u8]) {
        self.shared.logs.write(level, self.name, message);
        if level >= LogLevel::Error {
            let text = String::from_utf8_lossy(message);
            if PANICS.iter().any(|word| text.contains(word)) {
                self.panic = Some(text.trim_end().replace('\n', " "));
            }
        }
    }

    /// The context that host calls are about.
    pub(crate) fn context_id(&self) -> u32 {
        if self.effective != 0 && self.contexts.contains_key(&self.effective) {
            self.effective
        } else {
            self.current
        }
    }

    pub(crate) fn stream(&mut self, id: u32) -> Option<&mut StreamContext> {
        match self.contexts.get_mut(&id) {
            Some(Context::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    /// The stream that host calls are about, if they are about one.
    pub(crate) fn current_stream(&mut self) -> Option<&mut StreamContext> {
        self.stream(self.context_id())
    }

    pub(crate) fn root(&mut self, id: u32) -> Option<&mut RootContext> {
        match self.contexts.get_mut(&id) {
            Some(Context::Root(root)) => Some(root),
            _ => None,
        }
    }

    /// The root of the context that host calls are about.
    pub(crate) fn root_id(&self) -> u32 {
        self.root_of(self.context_id())
    }

    /// The root of a context: its own for a root.
    pub(crate) fn root_of(&self, context: u32) -> u32 {
        match self.contexts.get(&context) {
            Some(Context::Stream(stream)) => stream.root,
            _ => context,
        }
    }

    pub(crate) fn current_root(&mut self) -> Option<&mut RootContext> {
        self.root(self.root_id())
    }

    pub(crate) fn allocate_context_id(&mut self) -> u32 {
        loop {
            self.next_context = self.next_context.wrapping_add(1);
            if self.next_context != 0 && !self.contexts.contains_key(&self.next_context) {
                return self.next_context;
            }
        }
    }

    /// Whether it has no context left, and nothing that the guest asked for is to be done.
    pub(crate) fn is_drained(&self) -> bool {
        self.contexts.is_empty() && self.callouts.grpc_orders.is_empty()
    }

    /// Whether a stream is still in progress.
    pub(crate) fn has_streams(&self) -> bool {
        self.contexts.values().any(|context| matches!(context, Context::Stream(_)))
    }
}

/// What waits for the running callback to return.
#[derive(Debug)]
pub(crate) enum Deferred {
    LocalReply { stream: u32, reply: LocalReply },
    Continue { stream: u32, direction: Direction },
    Reset { stream: u32 },
    DeleteRoot { root: u32 },
    CloseGrpc { root: u32, token: u32, why: &'static str },
}

/// Where a VM's `random_get` takes its bytes from.
#[derive(Debug)]
pub(crate) enum Randomness {
    Seeded(fastrand::Rng),
    System,
}

impl Randomness {
    /// VMs of one seed draw different bytes, the same in every run.
    pub(crate) fn new(seed: Option<u64>, vm: VmName, generation: u64) -> Self {
        let Some(seed) = seed else { return Self::System };
        let offset = match vm {
            VmName::Base => 0,
            VmName::Canary => 1,
            VmName::Main => 2,
            VmName::Worker(index) => u64::try_from(index).unwrap_or(u64::MAX - 3) + 3,
        };
        let offset = offset.wrapping_add(generation << 32);
        Self::Seeded(fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(offset)))
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), getrandom::Error> {
        match self {
            Self::Seeded(rng) => rng.fill(bytes),
            Self::System => getrandom::fill(bytes)?,
        }
        Ok(())
    }
}
