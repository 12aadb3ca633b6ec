//! Where a gateway listens, and what it stands in front of.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use http::Uri;

use super::history::{AccessLog, Recent};

/// Where a gateway listens, and what it stands in front of.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The upstream, `http://host:port`.
    pub upstream: Uri,
    /// Clusters that the filter can call, by name.
    pub clusters: BTreeMap<String, Uri>,
    /// The address for `/ready`, `/stats` and `/stats/prometheus`, and for `/requests` where [`recent`](Self::recent) is set.
    pub admin: Option<SocketAddr>,
    /// Where a line is written for each request.
    pub access_log: Option<AccessLog>,
    /// Keeps the last requests, which the admin address shows with their headers and bodies.
    pub recent: Option<Recent>,
    /// How long a shutdown waits for clients to come to the end of their requests before it closes idle connections.
    pub grace: Duration,
    /// How long a shutdown waits for requests in progress before it gives them up.
    pub drain: Duration,
    /// How long the upstream may take for its whole answer once it has the whole request (`timeout` of a route): then
    /// the client gets 504, or its answer is broken off. 15 s, as in Envoy, unless set.
    pub response_timeout: Duration,
}

impl Options {
    /// A gateway on a free loopback port in front of `upstream`.
    pub fn new(upstream: Uri) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            upstream,
            clusters: BTreeMap::new(),
            admin: None,
            access_log: None,
            recent: None,
            grace: Duration::from_millis(500),
            drain: Duration::from_secs(30),
            response_timeout: Duration::from_secs(15),
        }
    }
}
