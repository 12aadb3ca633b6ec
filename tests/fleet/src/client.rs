//! A client of the services for code that waits for each answer.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use crate::wire::{RateLimitRequest, RateLimitResponse, RateLimitServiceClient};

/// Asks one service.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    channel: Channel,
}

impl Client {
    /// A client of the service at `address`, which it connects to when it is first asked, and again whenever it has to.
    ///
    /// # Errors
    /// When the runtime cannot be started.
    pub fn to(address: SocketAddr) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let channel = {
            let _inside = runtime.enter();
            endpoint.connect_lazy()
        };
        Ok(Self { runtime, channel })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The gRPC status, if it is not OK.
    pub fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Box<tonic::Status>> {
        self.ask_within(Duration::from_secs(60), request)
    }

    /// Asks, and gives up after `patience`.
    ///
    /// # Errors
    /// The gRPC status, if it is not OK; after `patience` CANCELLED.
    pub fn ask_within(
        &self,
        patience: Duration,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, Box<tonic::Status>> {
        let mut client = RateLimitServiceClient::new(self.channel.clone());
        let mut request = tonic::Request::new(request);
        request.set_timeout(patience);
        let answer = self.runtime.block_on(client.should_rate_limit(request));
        answer.map(tonic::Response::into_inner).map_err(Box::new)
    }
}
