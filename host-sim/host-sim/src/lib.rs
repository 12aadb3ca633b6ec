//! A proxy-wasm host on wasmtime that runs HTTP filters without a gateway: several VMs over one shared store, a clock
//! that a test steps, faults on demand, and interleavings that replay from a seed. It behaves as Envoy does.
//!
//! A request goes in and a response comes out; what a filter calls in between is its own affair:
//!
//! ```
//! use std::time::Duration;
//!
//! use host_sim::{Host, Module, Plugin, Request, Response};
//!
//! # let wasm = wat::parse_str(r#"(module
//! #   (import "env" "proxy_get_shared_data" (func $get (param i32 i32 i32 i32 i32) (result i32)))
//! #   (import "env" "proxy_set_shared_data" (func $set (param i32 i32 i32 i32 i32) (result i32)))
//! #   (import "env" "proxy_send_local_response" (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
//! #   (memory (export "memory") 1)
//! #   (data (i32.const 0) "first")
//! #   (func (export "proxy_abi_version_0_2_1"))
//! #   (func (export "malloc") (param i32) (result i32) (i32.const 64))
//! #   (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
//! #     (if (i32.eqz (call $get (i32.const 0) (i32.const 5) (i32.const 16) (i32.const 20) (i32.const 24)))
//! #       (then (drop (call $reply (i32.const 429) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
//! #         (i32.const 0) (i32.const 0) (i32.const -1)))))
//! #     (call $set (i32.const 0) (i32.const 5) (i32.const 0) (i32.const 5) (i32.const 0))))"#).unwrap();
//! let mut host = Host::builder().workers(8).build();
//! host.load(&Module::compile(&wasm)?, Plugin::new("{}"))?;
//!
//! let request = || Request::get("/links").header("authorization", "Bearer k").source("203.0.113.9:5000");
//! let mut upstream = |request: &Request| Response::ok().body(request.path().to_owned());
//!
//! let first = host.send(request(), &mut upstream);
//! assert_eq!((first.status(), first.text().as_str()), (200, "/links"));
//!
//! // Another worker's VM sees what the first has stored: this filter lets one request pass.
//! let second = host.worker(7).send(request(), &mut upstream);
//! assert_eq!(second.status(), 429);
//! assert!(second.is_local_reply());
//!
//! // Sixty seconds go by; timers fire on the way.
//! host.advance(Duration::from_secs(60));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! When a test panics, its host prints the last request's [`Outcome`] with what the filter logged, the trap and its backtrace, and
//! with [`Builder::trace`] each callback and host call. libtest shows that of a test that fails.
//!
//! | what | where |
//! |---|---|
//! | a module that the test builds | [`ModuleBuild`] |
//! | another worker than the first | [`Host::worker`] |
//! | requests to several workers at once, in an order that a seed decides at every host call | [`Host::interleave`] |
//! | real threads | [`Host::threads`] |
//! | a stream step by step | [`Host::stream`] |
//! | answers that are late | [`Host::send_and_wait`] |
//! | host calls that fail | [`Host::inject`] |
//! | what filter and host say to each other | [`Builder::trace`], [`Outcome::trace`] |
//! | a new configuration in the same VMs | [`Host::update`] |
//! | several filters one after the other, in VMs of their own or in one | [`Host::load_chain`], [`Host::replace_chain`] |
//! | a gateway of one's own | [`driver`] |
//! | scenarios in a file, and a gateway behind a socket | the crate `host-sim-cli` |
#![doc = include_str!("support.md")]

mod abi;
mod builder;
mod clock;
mod clusters;
pub mod driver;
pub mod edge;
mod host;
mod hostcalls;
mod load_error;
mod lock;
mod module_build;
mod module_error;
mod outcome;
mod parameter;
mod rules;
mod shared;
mod signature;
mod sink;
mod state;
mod stream;
mod trace;
mod vm;
mod vm_name;
mod wire;
mod worker;

pub use abi::{LogLevel, MetricKind, Status};
pub use builder::Builder;
pub use clock::Clock;
pub use envoy_config::{
    ConfigurationError, FailurePolicy, Plugin, Surrounding, XdsValue, configuration, surroundings,
};
pub use host::{Host, stream::Stream, worker::HostWorker};
pub use load_error::LoadError;
pub use module_build::{ModuleBuild, ModuleBuildError};
pub use module_error::{AbiVersion, ModuleError};
pub use outcome::{End, Outcome};
pub use rules::{EnvoyVersion, Flavour, UnknownFlavour, UnknownVersion};
pub use shared::{
    data::SharedData,
    faults::{Fault, UnknownHostCall},
    logs::LogLine,
    logs::Logs,
    metrics::{Histogram, MetricValue, Metrics},
    reloads::ReloadStats,
};
pub use signature::{Import, Signature, ValueType};
pub use trace::{
    arguments::{Argument, Shown},
    backtrace::{GuestBacktrace, GuestFrame},
    record::{CallAnswer, TracedCall, TracedCallback, causes},
};
pub use vm::{
    code_cache::{CodeCache, Kept},
    engine::Compiler,
    error::VmError,
    module::Module,
};
pub use vm_name::VmName;
pub use wire::{
    framing::{Framing, UnknownFraming},
    headers::Headers,
    message::{ClusterCall, Request, Response},
    property::{Value, path as property_path},
};
