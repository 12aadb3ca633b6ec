//! The resolution of the names of receivers.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use crate::domain::address_policy::AddressPolicy;

/// Resolves names with the system's resolver and returns only the permitted addresses.
#[derive(Clone, Debug)]
pub(crate) struct CheckedResolver {
    policy: AddressPolicy,
}

impl CheckedResolver {
    pub(crate) fn new(policy: AddressPolicy) -> Self {
        Self { policy }
    }
}

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let policy = self.policy.clone();
        Box::pin(async move {
            let mut allowed: Vec<SocketAddr> = Vec::new();
            if !policy.allows_none() {
                let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
                allowed.extend(found.filter(|address| policy.allows(address.ip())));
            }
            if allowed.is_empty() {
                return Err(io::Error::other(format!("{name} resolves to no public address")));
            }
            Ok(allowed.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_refused_when_it_is_resolved() {
        let name = || "localhost".parse::<Name>().unwrap();
        assert!(CheckedResolver::new(AddressPolicy::public_only()).call(name()).await.is_err());
        assert!(CheckedResolver::new(AddressPolicy::none()).call(name()).await.is_err());
        let mut found = CheckedResolver::new(AddressPolicy::any()).call(name()).await.unwrap();
        assert!(found.all(|address| address.ip().is_loopback()));
    }
}
