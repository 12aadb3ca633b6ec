//! The contexts of the Rust SDK: callbacks to calls.
//!
//! A root context owns the state of one configuration in this VM ([`state::Active`]). An HTTP context owns the state of its stream, and holds
//! an `Rc` of its root's.

mod log;
mod metrics;
mod poll;
mod root;
mod state;
mod stream;

use crate::host;

proxy_wasm::main! {{
    host::start_log();
    proxy_wasm::set_root_context(|_| Box::new(root::Root::default()));
}}
