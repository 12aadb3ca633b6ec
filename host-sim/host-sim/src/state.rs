//! What a VM holds outside its guest's memory: contexts, and what a host call needs at hand.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use envoy_config::Plugin;
use wasmtime::{Memory, StoreLimits, TypedFunc};

#[cfg(feature = "expressions")]
use crate::hostcalls::expressions::Expressions;
use crate::{
    clock::Clock,
    faults::Faults,
    filter_state::{Declared, FilterState},
    flavour::StreamEnd,
    headers::Headers,
    logs::Logs,
    message::{Peer, Request, Response},
    metrics::{MetricIds, Metrics},
    random::Randomness,
    schedule::Turns,
    shared_data::{Namespace, SharedData},
    shared_queue::SharedQueues,
    vm::VmName,
    worker::{ReloadStats, ReloadTotals},
};

/// What the VMs of one host share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) logs: Logs,
    pub(crate) metrics: Metrics,
    pub(crate) shared_data: SharedData,
    pub(crate) shared_queues: SharedQueues,
    pub(crate) faults: Faults,
    /// Names of the clusters that callouts may name.
    pub(crate) clusters: RwLock<BTreeSet<String>>,
    pub(crate) callback_limit: Duration,
    pub(crate) memory_limit: usize,
    pub(crate) reloads: ReloadTotals,
    pub(crate) stream_end: StreamEnd,
    /// Of the guests' random bytes; `None` takes the system's.
    pub(crate) seed: Option<u64>,
}

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
    /// The plugin that the VM was made for: its `vm_id`, VM configuration and environment.
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) memory: Option<Memory>,
    pub(crate) allocator: Option<TypedFunc<u32, u32>>,
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
    /// Streams that have something for their worker, in the order in which they got it.
    pub(crate) ready: VecDeque<u32>,
    /// How deep in actions of guest calls the VM is; 0 outside of them.
    pub(crate) depth: u32,
    /// How often the guest was called.
    pub(crate) calls: u64,
}

/// A context of the guest.
#[derive(Debug)]
pub(crate) enum Context {
    Root(Box<RootContext>),
    Stream(Box<StreamContext>),
}

#[derive(Debug)]
pub(crate) struct RootContext {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) timer: Option<Timer>,
    /// What `proxy_get_status` answers.
    pub(crate) status: (u32, Bytes),
    /// The response of the callout whose callback runs.
    pub(crate) callout_response: Option<Response>,
    /// What the gRPC callback that runs is about.
    pub(crate) grpc_initial_metadata: Option<Headers>,
    pub(crate) grpc_message: Option<Bytes>,
    pub(crate) grpc_trailing_metadata: Option<Headers>,
    pub(crate) declared_properties: BTreeMap<Vec<u8>, Declared>,
    #[cfg(feature = "expressions")]
    pub(crate) expressions: Expressions,
    /// `proxy_on_configure` runs: the configuration can be read.
    pub(crate) configuring: bool,
    pub(crate) life: RootLife,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootLife {
    Running,
    /// Replaced by a new configuration; ends when its last stream does.
    Retiring,
    /// `proxy_on_done` answered false: ends when the guest calls `proxy_done`.
    PendingDone,
}

/// A root context's timer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    pub(crate) period: Duration,
    /// On the monotonic clock.
    pub(crate) due: Duration,
}

/// What waits for the running callback to return.
#[derive(Debug)]
pub(crate) enum Deferred {
    LocalReply { stream: u32, reply: LocalReply },
    Continue { stream: u32, direction: Direction },
    Reset { stream: u32 },
    DeleteRoot { root: u32 },
}

/// A response that the filter, or the host, makes up.
#[derive(Debug)]
pub(crate) struct LocalReply {
    pub(crate) status: u32,
    pub(crate) headers: Vec<(Bytes, Bytes)>,
    pub(crate) body: Bytes,
    pub(crate) grpc_status: Option<u32>,
    pub(crate) details: String,
}

/// Which way something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the upstream.
    Request,
    /// From the upstream to the client.
    Response,
}

/// Whether the filter lets a direction of a stream go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Iteration {
    #[default]
    Running,
    /// What came waits; callbacks for what follows still run.
    Stopped,
    /// What came waits, and no callback runs until the filter continues.
    StoppedAll,
}

/// One direction of a stream: what the filter holds of it and what it has let go.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(crate) struct Half {
    pub(crate) headers: Option<Headers>,
    /// Whether the guest may reach the headers.
    pub(crate) headers_open: bool,
    pub(crate) trailers: Option<Headers>,
    pub(crate) trailers_open: bool,
    /// The data whose callback runs.
    pub(crate) chunk: Option<BytesMut>,
    /// Data that waits for the filter.
    pub(crate) held: BytesMut,
    /// The filter asked to see all that is held, not just what is new.
    pub(crate) sees_held: bool,
    pub(crate) iteration: Iteration,
    /// All of it has come.
    pub(crate) ended: bool,
    pub(crate) headers_released: bool,
    pub(crate) end_released: bool,
    /// Bytes of body that came.
    pub(crate) received: u64,
}

/// A stream of the filter.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(crate) struct StreamContext {
    pub(crate) root: u32,
    /// The stream's number on its worker, one for the contexts of all filters.
    pub(crate) chain: u64,
    /// `proxy_on_context_create` was called.
    pub(crate) created: bool,
    pub(crate) request: Half,
    pub(crate) response: Half,
    /// The last headers or body callback was the last of its direction.
    pub(crate) end_of_stream: bool,
    /// `proxy_on_log` runs.
    pub(crate) logging: bool,
    pub(crate) peer: Arc<Peer>,
    /// Nanoseconds since 1970.
    pub(crate) started: u64,
    /// On the monotonic clock, in nanoseconds.
    pub(crate) started_monotonic: u64,
    pub(crate) filter_state: FilterState,
    pub(crate) details: Option<String>,
    /// The status of a reply that took the response's place.
    pub(crate) code: Option<u16>,
    /// The filter has sent a reply; it does not send another.
    pub(crate) replied: bool,
    /// A reply has been made in the upstream's place, by whomever: the request's rest is dropped.
    pub(crate) request_over: bool,
    pub(crate) failure_reply: bool,
    pub(crate) reset: bool,
    pub(crate) outputs: VecDeque<FilterOutput>,
}

/// What a filter lets go on or asks for.
#[derive(Debug)]
pub(crate) enum FilterOutput {
    Pass(Output),
    /// A response in the upstream's place, on its way to all filters, which begins as deep as the action that made it.
    Reply {
        reply: LocalReply,
        depth: u32,
    },
}

/// What a stream gives to its driver: what all filters have let go on. The request's parts go to the upstream and the
/// response's to the client, each in its order.
#[derive(Debug)]
pub enum Output {
    /// The request begins.
    RequestHeaders {
        /// Its headers, pseudo-headers among them.
        headers: Headers,
        /// Whether it ends with them.
        end: bool,
    },
    /// A piece of the request's body.
    RequestBody {
        /// The piece, which may be empty at the end.
        data: Bytes,
        /// Whether the request ends with it.
        end: bool,
    },
    /// The request ends with trailers.
    RequestTrailers(Headers),
    /// The response begins: the upstream's, or one in its place (see
    /// [`is_local_reply`](crate::driver::WorkerGuard::is_local_reply)).
    ResponseHeaders {
        /// Its headers, `:status` among them.
        headers: Headers,
        /// Whether it ends with them.
        end: bool,
    },
    /// A piece of the response's body.
    ResponseBody {
        /// The piece, which may be empty at the end.
        data: Bytes,
        /// Whether the response ends with it.
        end: bool,
    },
    /// The response ends with trailers.
    ResponseTrailers(Headers),
    /// The stream is cut: neither side hears any more of it.
    Reset,
}

impl Output {
    pub(crate) fn headers(direction: Direction, headers: Headers, end: bool) -> Self {
        match direction {
            Direction::Request => Self::RequestHeaders { headers, end },
            Direction::Response => Self::ResponseHeaders { headers, end },
        }
    }

    pub(crate) fn body(direction: Direction, data: Bytes, end: bool) -> Self {
        match direction {
            Direction::Request => Self::RequestBody { data, end },
            Direction::Response => Self::ResponseBody { data, end },
        }
    }

    pub(crate) fn trailers(direction: Direction, trailers: Headers) -> Self {
        match direction {
            Direction::Request => Self::RequestTrailers(trailers),
            Direction::Response => Self::ResponseTrailers(trailers),
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        match self {
            Self::RequestHeaders { .. } | Self::RequestBody { .. } | Self::RequestTrailers(_) => {
                Direction::Request
            }
            Self::ResponseHeaders { .. }
            | Self::ResponseBody { .. }
            | Self::ResponseTrailers(_)
            | Self::Reset => Direction::Response,
        }
    }
}

impl Half {
    /// A reply took its place: nothing more of it goes on. A filter that still holds its headers goes on seeing them, any
    /// other sees the reply's.
    pub(crate) fn abandon(&mut self, reply: &Headers) {
        let own = self.headers.take().filter(|_| self.headers_open);
        *self = Self {
            headers_open: own.is_some(),
            headers: own.or_else(|| Some(reply.clone())),
            ended: true,
            headers_released: true,
            end_released: true,
            ..Self::default()
        };
    }
}

/// Calls of the guest to clusters.
#[derive(Debug, Default)]
pub(crate) struct Callouts {
    /// The last token of each kind.
    pub(crate) last_token: [u32; 3],
    /// Called, and not yet taken by the driver.
    pub(crate) started: VecDeque<Callout>,
    /// Calls without an answer, by token.
    pub(crate) open: BTreeMap<u32, OpenCall>,
    /// Streams of gRPC, by token.
    pub(crate) streams: BTreeMap<u32, OpenStream>,
    /// What the guest did with its streams, and the driver has not taken yet.
    pub(crate) grpc_orders: VecDeque<GrpcOrder>,
}

/// What a call speaks. The low two bits of its token tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Http,
    Grpc,
    GrpcStream,
}

impl CallKind {
    pub(crate) fn of(token: u32) -> Option<Self> {
        match token & 3 {
            0 => Some(Self::Http),
            1 => Some(Self::Grpc),
            2 => Some(Self::GrpcStream),
            _ => None,
        }
    }
}

/// A call without an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenCall {
    pub(crate) root: u32,
    pub(crate) kind: CallKind,
}

/// A stream of gRPC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenStream {
    pub(crate) root: u32,
    /// The guest sends no more.
    pub(crate) local_closed: bool,
    /// The cluster sends no more.
    pub(crate) remote_closed: bool,
}

/// A call of a guest to a cluster, on its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The VM's number on its worker.
    pub(crate) generation: u64,
    /// The guest's name of the call.
    pub(crate) token: u32,
}

/// A call of a guest to a cluster, with one answer.
#[derive(Debug, Clone)]
pub struct Callout {
    /// What its answer is given to.
    pub call: CallId,
    /// Whether it is a unary call of gRPC, which needs HTTP/2; the request has its message in a frame.
    pub is_grpc: bool,
    /// The cluster's name.
    pub cluster: String,
    /// The request, whole.
    pub request: Request,
    /// How long the guest waits; it has no limit when there is none.
    pub timeout: Option<Duration>,
}

impl Callout {
    /// What the guest sees when the time is up: a response of the gateway's.
    pub fn timed_out() -> Response {
        const BODY: &str = "upstream request timeout";
        Response::new(504)
            .header("content-length", BODY.len().to_string())
            .header("content-type", "text/plain")
            .body(BODY)
    }
}

/// A step of a guest on a stream of gRPC.
#[derive(Debug)]
pub struct GrpcOrder {
    /// The stream.
    pub call: CallId,
    /// What the guest does.
    pub step: GrpcStep,
}

/// What a guest does with a stream of gRPC.
#[derive(Debug)]
pub enum GrpcStep {
    /// Opens it; every other step comes later.
    Open {
        /// The cluster's name.
        cluster: String,
        /// The request's headers.
        request: Request,
    },
    /// Sends a message.
    Send {
        /// The message in its frame.
        message: Bytes,
        /// Whether it is the guest's last.
        end: bool,
    },
    /// Sends no more.
    Close,
    /// Gives the stream up, and hears no more of it.
    Reset,
}

impl Shared {
    /// Counts what becomes of a plugin's failed VM.
    pub(crate) fn count_reload(&self, plugin: &str, count: impl FnOnce(&mut ReloadStats)) {
        let mut totals = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        count(totals.entry(plugin.to_owned()).or_default());
    }

    /// The counts of a plugin's failed VMs.
    pub(crate) fn reloads_of(&self, plugin: &str) -> ReloadStats {
        let totals = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        totals.get(plugin).copied().unwrap_or_default()
    }
}

impl VmState {
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
}

impl StreamContext {
    pub(crate) fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        }
    }

    /// The request's headers, where the guest may see them.
    pub(crate) fn visible_request_headers(&self) -> Option<&Headers> {
        self.request.headers.as_ref().filter(|_| self.request.headers_open || self.logging)
    }

    /// The response's headers, where the guest may see them.
    pub(crate) fn visible_response_headers(&self) -> Option<&Headers> {
        self.response.headers.as_ref().filter(|_| self.response.headers_open || self.logging)
    }

    /// The response's trailers, where the guest may see them.
    pub(crate) fn visible_response_trailers(&self) -> Option<&Headers> {
        self.response.trailers.as_ref().filter(|_| self.response.trailers_open || self.logging)
    }
}
