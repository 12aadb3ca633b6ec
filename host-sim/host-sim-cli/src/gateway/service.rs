//! The requests of a connection: those that the gateway refuses itself, and those that filters see.

use std::{
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

use host_sim::{
    Headers, driver,
    edge::{self, Refusal},
};
use http::{HeaderValue, Request, Response, Version, header, request};
use hyper::body::Incoming;
use tokio::{sync::oneshot, task::spawn_local};

use super::{
    body::{Aborted, Body},
    exchange::Exchange,
    history::{Recent, Record},
    local::Local,
    translate,
};

/// Envoy's limit of a request's headers (`max_request_headers_kb`).
pub(super) const MAX_HEADER_BYTES: u32 = 60 * 1024;

/// What is known of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    peer: SocketAddr,
    /// The client's address, without the port.
    client: String,
    source: Arc<str>,
    destination: Arc<str>,
    id: u64,
}

impl Connection {
    pub(super) fn new(peer: SocketAddr, destination: SocketAddr, id: u64) -> Self {
        let (source, destination) = (peer.to_string().into(), destination.to_string().into());
        Self { peer, client: peer.ip().to_string(), source, destination, id }
    }

    fn speaking(&self, protocol: &'static str) -> driver::Connection {
        let (source, destination) = (Arc::clone(&self.source), Arc::clone(&self.destination));
        driver::Connection { source, destination, protocol, id: self.id }
    }
}

/// Why the gateway answers a request itself, if it does.
fn refusal(parts: &request::Parts, headers: &Headers) -> Option<Refusal> {
    if headers.byte_size() > MAX_HEADER_BYTES as usize {
        return Some(Refusal::TOO_LARGE);
    }
    let is_http1 = parts.version != Version::HTTP_2;
    if is_http1 && !translate::knows_coding(parts) {
        return Some(Refusal::CODING);
    }
    if is_http1 && parts.uri.scheme_str() == Some("https") {
        return Some(Refusal::SCHEME);
    }
    let refusal = edge::refusal(headers, translate::protocol(parts.version));
    refusal.or_else(|| translate::is_upgrade(parts).then_some(Refusal::UPGRADE))
}

/// Answers a request of a connection. An error breaks the connection, or the stream of an h2c connection, off.
pub(super) async fn serve(
    local: Rc<Local>,
    request: Request<Incoming>,
    connection: Rc<Connection>,
) -> Result<Response<Body>, Aborted> {
    let stats = &local.common.stats;
    stats.requests.fetch_add(1, Ordering::Relaxed);
    let (parts, body) = request.into_parts();
    let protocol = translate::protocol(parts.version);
    let sent = translate::sent_headers(&parts);
    let mut record = local.is_recording().then(|| {
        let worker = local.number();
        Record::new(local.common.clock.wall(), worker, connection.peer, protocol, sent.clone())
    });
    let headers = translate::request_headers(sent, &connection.client);
    if let Some(record) = &mut record {
        record.headers.clone_from(&headers);
    }
    let id = local.common.options.recent.as_ref().map(Recent::begin);
    if let Some(refusal) = refusal(&parts, &headers) {
        stats.count_response(refusal.status);
        if let Some(mut record) = record {
            record.refuse(refusal);
            local.note(id, record);
        }
        return translate::refused(refusal).ok_or(Aborted);
    }
    let (answer, answered) = oneshot::channel();
    let exchange = Exchange::new(Rc::clone(&local), &connection.speaking(protocol), id, record, answer);
    spawn_local(exchange.run(headers, body));
    let mut response = answered.await.map_err(|_| Aborted)?;
    if local.common.is_draining() && parts.version != Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}
