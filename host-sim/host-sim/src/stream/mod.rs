//! What a VM does for its streams and its plugins: Envoy's filter manager at one filter, and all that a root context is
//! told. What a guest asks for in a callback is done when the callback has returned.

mod answers;
mod deferred;
mod ends;
pub(crate) mod filter;
pub(crate) mod filter_vm;
mod roots;
