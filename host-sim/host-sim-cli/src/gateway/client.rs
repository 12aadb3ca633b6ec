//! Requests to the upstream and to clusters: over HTTP/1.1, and over h2c for gRPC.

use std::{
    cell::RefCell,
    collections::HashMap,
    error::Error as _,
    task::{Context, Poll},
};

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client, ResponseFuture, connect::HttpConnector},
    rt::TokioExecutor,
};
use tower_service::Service;

use super::body::Body;

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// There is no connection to the server.
    Unreachable,
    /// The connection ended before the answer.
    Broken,
    /// What was answered is no HTTP.
    Malformed,
}

impl From<legacy::Error> for Failure {
    fn from(error: legacy::Error) -> Self {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
        if error.is_connect() {
            Self::Unreachable
        } else if cause.is_some_and(hyper::Error::is_parse) {
            Self::Malformed
        } else {
            Self::Broken
        }
    }
}

/// The response to a request. That of the upstream has the addresses of its connection among its extensions.
pub(super) type Answer = Result<Response<Incoming>, legacy::Error>;

/// Connects to one address, whatever authority a request names.
#[derive(Debug, Clone)]
struct Fixed {
    connector: HttpConnector,
    address: Uri,
}

impl Service<Uri> for Fixed {
    type Response = <HttpConnector as Service<Uri>>::Response;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = <HttpConnector as Service<Uri>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, _authority: Uri) -> Self::Future {
        self.connector.call(self.address.clone())
    }
}

/// The clients of one thread, which keep their connections for the next request.
#[derive(Debug)]
pub(super) struct Clients {
    connector: HttpConnector,
    http1: Client<HttpConnector, Body>,
    /// Clients of clusters that were called by gRPC.
    grpc: RefCell<HashMap<String, Client<Fixed, Body>>>,
}

impl Clients {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http1 = Client::builder(TokioExecutor::new()).set_host(false).build(connector.clone());
        Self { connector, http1, grpc: RefCell::default() }
    }

    /// Sends a request over HTTP/1.1 to the server that its URL names.
    pub(super) fn request(&self, request: Request<Body>) -> ResponseFuture {
        self.http1.request(request)
    }

    /// Sends a request over h2c to a cluster at this address, under any authority.
    pub(super) fn call(&self, cluster: &str, address: &Uri, request: Request<Body>) -> ResponseFuture {
        let mut clients = self.grpc.borrow_mut();
        let client = clients.entry(cluster.to_owned()).or_insert_with(|| {
            let connector = Fixed { connector: self.connector.clone(), address: address.clone() };
            Client::builder(TokioExecutor::new()).http2_only(true).build(connector)
        });
        client.request(request)
    }
}
