//! Rate-limit services for tests, and fleets of gateways that share them.
//!
//! Stand-ins: they answer as envoyproxy/ratelimit and limitador-server do, on a real Redis and over real gRPC, so that the suites need
//! no Go and no container. What they leave out is what no gateway sees: statistics, tracing, reloading, clusters of Redis.
//!
//! [`Fleet`] starts a Redis, a service and several real Envoys. [`load::Load`] offers them requests over time, and [`burst::Clients`]
//! many at once.

pub mod burst;
pub mod client;
pub mod envoyproxy;
pub mod gateways;
pub mod limitador;
pub mod load;
pub mod native;
pub mod redis;
pub mod server;
pub mod wire;

pub use gateways::{Fleet, Limiter, Setup};
