//! The connections to receivers.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::attempt::RECEIVER_TIMEOUT;
use super::resolver::CheckedResolver;
use crate::domain::address_policy::AddressPolicy;

/// Time after which an idle connection may be closed. The client looks for such connections once in this time, so each is closed after at most
/// 90 s, when many receivers close theirs.
pub(super) const IDLE: Duration = Duration::from_secs(45);
/// Maximum number of idle connections to one host.
const IDLE_PER_HOST: usize = 2;

#[cfg(feature = "tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector<CheckedResolver>>;
/// Without TLS, addresses with https are refused.
#[cfg(not(feature = "tls"))]
type Connector = HttpConnector<CheckedResolver>;

pub(super) type WebhookClient = Client<Connector, Full<Bytes>>;

/// A client that connects to permitted addresses only, and closes a connection that has been idle for `idle`.
pub(super) fn client(policy: AddressPolicy, idle: Duration) -> WebhookClient {
    let mut http = HttpConnector::new_with_resolver(CheckedResolver::new(policy));
    http.set_connect_timeout(Some(RECEIVER_TIMEOUT));
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(IDLE_PER_HOST)
        // Without a timer, the client closes an idle connection only when it looks for one to the same host.
        .pool_timer(TokioTimer::new())
        .build(connector(http))
}

#[cfg(feature = "tls")]
fn connector(mut http: HttpConnector<CheckedResolver>) -> Connector {
    use hyper_rustls::HttpsConnectorBuilder;

    http.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_native_roots().unwrap_or_else(|error| {
        tracing::warn!(%error, "no certificate authorities found: webhooks to https addresses will fail");
        let empty = rustls::RootCertStore::empty();
        HttpsConnectorBuilder::new().with_tls_config(
            rustls::ClientConfig::builder().with_root_certificates(empty).with_no_client_auth(),
        )
    });
    builder.https_or_http().enable_http1().wrap_connector(http)
}

#[cfg(not(feature = "tls"))]
fn connector(http: HttpConnector<CheckedResolver>) -> Connector {
    tracing::warn!("built without TLS: webhooks to https addresses will fail");
    http
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use http_body_util::BodyExt;
    use hyper::Request;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn few_connections_to_a_host_stay_open_and_those_are_closed_when_they_are_idle() {
        const AT_ONCE: usize = 6;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (open, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(AT_ONCE)));
        let receiver_open = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (open, all) = (Arc::clone(&receiver_open), Arc::clone(&all));
                open.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut bytes = [0; 4_096];
                    let _request = stream.read(&mut bytes).await;
                    // All requests are under way at once, so that each has a connection.
                    all.wait().await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let client = client(AddressPolicy::any(), Duration::from_secs(2));
        let requests = (0..AT_ONCE).map(async |_| {
            let response = client.request(Request::post(&url).body(Full::default()).unwrap()).await.unwrap();
            response.into_body().collect().await.unwrap();
        });
        join_all(requests).await;
        for most in [IDLE_PER_HOST, 0] {
            let closed = async {
                while open.load(Ordering::SeqCst) > most {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), closed).await.expect("connections are closed");
        }
        // The client is still there, so that it was not its end that closed them.
        drop(client);
    }
}
