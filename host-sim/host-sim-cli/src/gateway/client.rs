//! Requests over HTTP/1.1 to the upstream and to clusters, on connections that are kept for the next one.
//!
//! hyper-util's client also speaks HTTP/2 and serves many threads. For each request it spawns a task and takes several
//! microseconds more.

use std::{cell::RefCell, collections::HashMap};

use http::{Request, Response, Uri, uri::Authority};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service as _;

use host_sim::driver::Upstream;

use super::body::StreamBody;

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// There is no connection to the server.
    Unreachable,
    /// The connection ended before the answer.
    Broken,
}

/// An answer, and the addresses of the connection that it came over.
pub(super) type Answer = Result<(Response<Incoming>, Upstream), Failure>;

#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<StreamBody>,
    upstream: Upstream,
}

/// Connections to servers, of one thread.
#[derive(Debug)]
pub(super) struct Client {
    connector: HttpConnector,
    /// Connections that have begun to answer their last request, the latest last. One is ready for another when it has
    /// answered whole.
    kept: RefCell<HashMap<Authority, Vec<Connection>>>,
}

impl Client {
    pub(super) fn new(connector: HttpConnector) -> Self {
        Self { connector, kept: RefCell::default() }
    }

    /// Sends a request to the server of a URL. One that a connection closes on before any of it is sent goes over another.
    pub(super) async fn request(&self, server: &Uri, mut request: Request<StreamBody>) -> Answer {
        loop {
            let kept = self.take(server);
            let is_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect(server).await?,
            };
            match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    let upstream = connection.upstream;
                    self.keep(server, connection);
                    return Ok((response, upstream));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_kept => request = unsent,
                    _ => return Err(Failure::Broken),
                },
            }
        }
    }

    fn take(&self, server: &Uri) -> Option<Connection> {
        let mut kept = self.kept.borrow_mut();
        let connections = kept.get_mut(server.authority()?)?;
        let ready = connections.iter().rposition(|connection| connection.sender.is_ready());
        if ready.is_none() {
            connections.retain(|connection| !connection.sender.is_closed());
        }
        ready.map(|place| connections.swap_remove(place))
    }

    fn keep(&self, server: &Uri, connection: Connection) {
        let mut kept = self.kept.borrow_mut();
        if let Some(authority) = server.authority() {
            match kept.get_mut(authority) {
                Some(connections) => connections.push(connection),
                None => drop(kept.insert(authority.clone(), vec![connection])),
            }
        }
    }

    async fn connect(&self, server: &Uri) -> Result<Connection, Failure> {
        let unreachable = |_| Failure::Unreachable;
        let stream = self.connector.clone().call(server.clone()).await.map_err(unreachable)?;
        let address = stream.inner().peer_addr().map_err(|_| Failure::Unreachable)?;
        let upstream = Upstream { address, local_address: stream.inner().local_addr().ok() };
        let (sender, connection) = http1::handshake(stream).await.map_err(|_| Failure::Broken)?;
        tokio::task::spawn_local(async move {
            // A request that it breaks off hears of it.
            let _ = connection.await;
        });
        Ok(Connection { sender, upstream })
    }
}
