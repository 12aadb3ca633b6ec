//! A gRPC server at a settable distance, whose answers a test can spoil, refuse or stop.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tests::clock;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::{Code, Request, Response, Status};

use crate::wire::{RateLimitRequest, RateLimitResponse, RateLimitService, RateLimitServiceServer};

/// Requests kept for [`Server::requests`].
const KEPT: usize = 10_000;

/// What happens to answers. The service counts every call; only the answer is spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Each is this status, with an empty body.
    Refuse(Code),
    /// Each is this instead.
    Garbage(Garbage),
}

/// An answer that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// A good frame, holding bytes that are no protobuf.
    NotProtobuf,
    /// A frame that says it is longer than what follows.
    BrokenFrame,
    /// Status OK, and no message.
    NoMessage,
    /// A message whose `overall_code` no version of the protocol has.
    UnknownCode,
}

impl Garbage {
    /// All of them, for tables.
    pub const ALL: [Self; 4] = [Self::NotProtobuf, Self::BrokenFrame, Self::NoMessage, Self::UnknownCode];

    /// What goes over the wire: a byte for compression, four for the length, the message.
    const fn bytes(self) -> &'static [u8] {
        match self {
            // A field of length 127 with one byte in it.
            Self::NotProtobuf => &[0, 0, 0, 0, 3, 0x12, 0x7f, 0xff],
            Self::BrokenFrame => &[0, 0, 0, 1, 0, 0x08, 0x01],
            Self::NoMessage => &[],
            // overall_code: 99
            Self::UnknownCode => &[0, 0, 0, 0, 2, 0x08, 99],
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    calls: AtomicU64,
    round_trip: Mutex<Duration>,
    slowest: Mutex<Duration>,
    fault: Mutex<Option<Fault>>,
    requests: Mutex<VecDeque<RateLimitRequest>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A service that remembers what it was asked.
struct Recorded<S> {
    service: S,
    shared: Arc<Shared>,
}

#[tonic::async_trait]
impl<S: RateLimitService> RateLimitService for Recorded<S> {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        {
            let mut requests = lock(&self.shared.requests);
            if requests.len() == KEPT {
                requests.pop_front();
            }
            requests.push_back(request.get_ref().clone());
        }
        self.service.should_rate_limit(request).await
    }
}

/// A service, listening on loopback until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    service: Starter,
    serving: Option<JoinHandle<()>>,
    runtime: Runtime,
}

/// Serves connections of a listener; kept, so that a stopped server can come back with the same service.
struct Starter(Box<dyn Fn(TcpListener) -> JoinHandle<()> + Send + Sync>);

impl std::fmt::Debug for Starter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Starter")
    }
}

impl Server {
    /// Serves there; port 0 is a free one. `service` is called in the server's runtime, for services that connect to a store.
    ///
    /// # Errors
    /// When it cannot listen, or `service` cannot be made.
    pub fn listen<S: RateLimitService>(
        address: SocketAddr,
        service: impl AsyncFnOnce() -> anyhow::Result<S>,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shared = Arc::new(Shared::default());
        let service = Recorded { service: runtime.block_on(service())?, shared: Arc::clone(&shared) };
        let service = RateLimitServiceServer::new(service);
        let (handle, of_calls) = (runtime.handle().clone(), Arc::clone(&shared));
        let service = Starter(Box::new(move |listener| {
            handle.spawn(accept(listener, service.clone(), Arc::clone(&of_calls)))
        }));
        let listener = runtime.block_on(TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let serving = Some((service.0)(listener));
        Ok(Self { address, shared, service, serving, runtime })
    }

    /// Where it listens, also while it is stopped.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of calls that have arrived since the start, answered or not.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// The last ten thousand requests, the oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<RateLimitRequest> {
        lock(&self.shared.requests).iter().cloned().collect()
    }

    /// Sets the round trip between the gateways and the service, zero at the start. Half of it passes before a call is counted and half
    /// before its answer leaves. Calls do not wait for one another.
    pub fn set_round_trip(&self, time: Duration) {
        *lock(&self.shared.round_trip) = time;
    }

    /// Returns the longest time that an answer took beyond the round trip, and starts again at zero. A long time means that the machine
    /// did not run the service, and with it probably nothing else.
    #[must_use]
    pub fn take_slowest(&self) -> Duration {
        std::mem::take(&mut *lock(&self.shared.slowest))
    }

    /// Spoils all answers from now on; `None` makes them good again.
    pub fn set_fault(&self, fault: Option<Fault>) {
        *lock(&self.shared.fault) = fault;
    }

    /// Closes its port and all its connections, as a killed process does.
    ///
    /// # Errors
    /// When the task that listens has panicked.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            // The port is free when the task is gone.
            let ended = self.runtime.block_on(serving);
            ensure!(ended.is_err_and(|error| error.is_cancelled()), "the service ended by itself");
        }
        Ok(())
    }

    /// Listens again where it was, if it is stopped.
    ///
    /// # Errors
    /// When its port has been taken meanwhile.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        if self.serving.is_none() {
            let listener = self.runtime.block_on(TcpListener::bind(self.address))?;
            self.serving = Some((self.service.0)(listener));
        }
        Ok(())
    }
}

async fn accept<S: RateLimitService>(
    listener: TcpListener,
    service: RateLimitServiceServer<S>,
    shared: Arc<Shared>,
) {
    // They end with the listener.
    let mut connections = JoinSet::new();
    loop {
        // A failed accept is one connection less, which its client will try again.
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Without it answers wait for the gateway's acknowledgements.
        let _ = stream.set_nodelay(true);
        while connections.try_join_next().is_some() {}
        let (service, shared) = (service.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let answer = service_fn(|call| answer(call, service.clone(), Arc::clone(&shared)));
            // A connection that breaks off is its client's to report.
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                // As gRPC in Go: all calls of a gateway fit into one connection.
                .max_concurrent_streams(None)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

/// Answers one call. A caller that gives up does not keep the call from being counted.
async fn answer<S: RateLimitService>(
    call: http::Request<Incoming>,
    mut service: RateLimitServiceServer<S>,
    shared: Arc<Shared>,
) -> anyhow::Result<http::Response<Body>> {
    let arrived = clock::now();
    shared.calls.fetch_add(1, Ordering::Relaxed);
    let (head, body) = call.into_parts();
    let call = http::Request::from_parts(head, Full::new(body.collect().await?.to_bytes()));
    let round_trip = *lock(&shared.round_trip);
    let counted = tokio::spawn(async move {
        travel(round_trip / 2).await;
        let answer = service.call(call).await;
        travel(round_trip / 2).await;
        answer
    });
    let answer = counted.await??;
    let took = clock::now().saturating_sub(arrived).saturating_sub(round_trip);
    let mut slowest = lock(&shared.slowest);
    *slowest = took.max(*slowest);
    drop(slowest);
    Ok(spoil(answer, &shared))
}

/// Takes no time at no distance, where a timer would take up to a millisecond.
async fn travel(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

fn spoil(answer: http::Response<Body>, shared: &Shared) -> http::Response<Body> {
    let fault = *lock(&shared.fault);
    match fault {
        None => answer,
        Some(Fault::Refuse(code)) => Status::new(code, "refused by the test").into_http(),
        Some(Fault::Garbage(garbage)) => {
            let mut ok = HeaderMap::new();
            ok.insert("grpc-status", HeaderValue::from_static("0"));
            let body = Full::new(Bytes::from_static(garbage.bytes()));
            let body = body.with_trailers(async move { Some(Ok(ok)) });
            let mut answer = http::Response::new(Body::new(body));
            let content = HeaderValue::from_static("application/grpc");
            answer.headers_mut().insert(http::header::CONTENT_TYPE, content);
            answer
        }
    }
}
