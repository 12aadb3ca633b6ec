//! The contexts of the Rust SDK: callbacks to calls.
//!
//! A root context owns the state of one configuration in this VM ([`state::Active`]). An HTTP context owns the state of its stream, and holds
//! an `Rc` of its root's.

mod fleet;
mod log;
mod metrics;
mod poll;
mod root;
mod state;
mod stream;
mod usage;

use crate::decide::host::{CounterHost as _, LogLevel};
use crate::host::Gateway;

proxy_wasm::main! {{
    std::panic::set_hook(Box::new(|panic| Gateway.log(LogLevel::Error, format_args!("weir: {panic}"))));
    proxy_wasm::set_root_context(|_| Box::new(root::Root::default()));
}}
