//! What is known of the upstream that a request goes to.

use std::net::SocketAddr;

/// The server that a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upstream {
    /// Its address, which `upstream.address` gives.
    pub address: SocketAddr,
    /// The gateway's own address on the connection to it, which `upstream.local_address` gives, once there is one.
    pub local_address: Option<SocketAddr>,
}

/// How far a request has come with its upstream; the times are nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub(crate) upstream: Option<Upstream>,
    /// When the request's headers went there.
    pub(crate) sent: Option<u64>,
    /// When the end of the response came from there.
    pub(crate) answered: Option<u64>,
}
