//! Connections to a cluster, whatever authority a request to it names.

use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

/// Connects to a cluster's address.
#[derive(Debug, Clone)]
pub(super) struct ToCluster {
    connector: HttpConnector,
    address: Uri,
}

impl ToCluster {
    pub(super) fn new(connector: HttpConnector, address: Uri) -> Self {
        Self { connector, address }
    }
}

impl Service<Uri> for ToCluster {
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
