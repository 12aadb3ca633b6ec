//! What a host is made of.

use std::{sync::Arc, time::Duration};

use crate::{
    abi::LogLevel,
    clock::Clock,
    clusters::Clusters,
    host::Host,
    lock::lock,
    rules::Flavour,
    shared::{Shared, data::SharedData, logs::LogLine, logs::Logs, record::Record},
    sink::Sink,
    trace::record::TracedCallback,
    wire::{
        framing::Framing,
        message::{Request, Response},
        property::{self, Value},
    },
};

/// What a host is made of. Made by [`Host::builder`].
#[derive(Debug)]
pub struct Builder {
    workers: usize,
    clusters: Clusters,
    log_level: LogLevel,
    log_capacity: usize,
    log_sink: Option<Sink<LogLine>>,
    shared: Shared,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            workers: 1,
            clusters: Clusters::default(),
            log_level: LogLevel::Trace,
            log_capacity: 10_000,
            log_sink: None,
            shared: Shared::default(),
        }
    }
}

impl Host {
    /// A host to be made.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// How many workers serve requests; 1 unless set, and at least 1. Each has a VM of its own.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Gives a property a value for every request (see [`Request::property`]), and for root contexts where its path
    /// begins with `xds`, `node`.
    #[must_use]
    pub fn property<P: AsRef<[u8]>>(
        mut self,
        path: impl IntoIterator<Item = P>,
        value: impl Into<Value>,
    ) -> Self {
        self.shared.properties.insert(property::joined(path), value.into());
        self
    }

    /// A property `xds.<name>` that a gateway would know and this host cannot: unless it is given, it is not found, and the
    /// log warns of it.
    #[must_use]
    pub fn undecided(mut self, name: &str) -> Self {
        self.shared.undecided.insert(property::joined(["xds", name]));
        self
    }

    /// The gateway to behave like; the newest Envoy unless set. Modules that it does not take
    /// ([`Module::taken_by`](crate::Module::taken_by)) are refused.
    #[must_use]
    pub fn flavour(mut self, flavour: Flavour) -> Self {
        self.shared.flavour = flavour;
        self
    }

    /// Streams end without `proxy_on_log`, as streams of Envoy may end over HTTP/3.
    #[must_use]
    pub fn without_stream_logs(mut self) -> Self {
        self.shared.logs_streams = false;
        self
    }

    /// The clock; one that stands at 2026-01-01T00:00:00Z unless set.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.shared.clock = clock;
        self
    }

    /// A cluster that the filter can call, and what answers there.
    #[must_use]
    pub fn cluster(
        mut self,
        name: impl Into<String>,
        handler: impl FnMut(&Request) -> Response + Send + 'static,
    ) -> Self {
        self.clusters.insert(name.into(), Box::new(handler));
        self
    }

    /// Lets filters call clusters of any name. Calls to one that the builder does not have break off.
    #[must_use]
    pub fn any_cluster(mut self) -> Self {
        self.shared.any_cluster = true;
        self
    }

    /// The least serious level that is kept, and that `proxy_get_log_level` tells; trace unless set.
    #[must_use]
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = level;
        self
    }

    /// How many log lines are kept, the newest; 10,000 unless set.
    #[must_use]
    pub fn log_capacity(mut self, lines: usize) -> Self {
        self.log_capacity = lines;
        self
    }

    /// Called with every log line as it is written.
    #[must_use]
    pub fn on_log(mut self, sink: impl Fn(&LogLine) + Send + Sync + 'static) -> Self {
        self.log_sink = Some(Sink::new(sink));
        self
    }

    /// Has each [`Outcome`](crate::Outcome::trace) tell the callbacks and host calls of its request, and what was wrong with those that
    /// were. Tracing makes guests slower.
    #[must_use]
    pub fn trace(mut self) -> Self {
        self.shared.trace.get_or_insert_with(|| Sink::new(|_| {}));
        self
    }

    /// As [`trace`](Self::trace), and `sink` is called with every callback when it has ended.
    #[must_use]
    pub fn on_trace(mut self, sink: impl Fn(&TracedCallback) + Send + Sync + 'static) -> Self {
        self.shared.trace = Some(Sink::new(sink));
        self
    }

    /// Keeps nothing of what happens in requests: their [`Outcome`](crate::Outcome)s have no log, calls and trace. For measurements,
    /// which would be of the records that all workers share.
    #[must_use]
    pub fn without_records(mut self) -> Self {
        self.shared.record = Arc::new(Record::off());
        self
    }

    /// The longest that one callback may run, in real time; beyond it the guest traps. 10 s unless set.
    #[must_use]
    pub fn callback_limit(mut self, limit: Duration) -> Self {
        self.shared.callback_limit = limit;
        self
    }

    /// The most bytes a VM's memory may have; 1 GiB, as in Envoy, unless set.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.shared.memory_limit = bytes;
        self
    }

    /// In which pieces bodies come to the filters; as in Envoy unless set.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.shared.framing = framing;
        self
    }

    /// The most bytes of a body that the gateway holds for a filter (`per_connection_buffer_limit_bytes`): beyond it, a
    /// request whose body a filter wants whole is answered 413 and a response 500, and of any other no more is read until
    /// the filter lets go. 1 MiB, as in Envoy, unless set; 0 is no limit.
    #[must_use]
    pub fn buffer_limit(mut self, bytes: usize) -> Self {
        self.shared.buffer_limit = bytes;
        self
    }

    /// The seed of the guests' random bytes; 0 unless set. The same seed gives the same bytes.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.shared.seed = Some(seed);
        self
    }

    /// Guests' random bytes are the system's, as in a gateway that serves.
    #[must_use]
    pub fn system_randomness(mut self) -> Self {
        self.shared.seed = None;
        self
    }

    /// The host, without a filter.
    pub fn build(self) -> Host {
        let mut shared = self.shared;
        shared.logs = Logs::new(self.log_level, self.log_capacity, self.log_sink, Arc::clone(&shared.record));
        shared.shared_data = SharedData::new(shared.flavour);
        lock(&shared.clusters).extend(self.clusters.names());
        Host::new(Arc::new(shared), self.workers, self.clusters)
    }
}
