//! A receiver of webhooks.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// One delivery, as it arrived.
#[derive(Debug, Clone)]
pub struct Delivery {
    headers: HeaderMap,
    body: Bytes,
}

impl Delivery {
    /// Verifies the signature as any receiver that follows Standard Webhooks does, and returns the event.
    ///
    /// # Errors
    /// When the signature is not the secret's, or the body is no JSON.
    pub fn verify(&self, secret: &str) -> anyhow::Result<Value> {
        let webhook = Webhook::new(secret).context("the webhook's secret")?;
        webhook.verify(&self.body, &self.headers).context("the signature of a delivery")?;
        serde_json::from_slice(&self.body).context("the body of a delivery")
    }
}

#[derive(Debug, Default)]
struct Mailbox {
    deliveries: Mutex<Vec<Delivery>>,
    more: Condvar,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Delivery>> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes every delivery, answers 200 and keeps it.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    mailbox: Arc<Mailbox>,
    // Its end is the listener's.
    _runtime: Runtime,
}

impl Receiver {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let mailbox = Arc::new(Mailbox::default());
        runtime.spawn(accept(listener, Arc::clone(&mailbox)));
        Ok(Self { address, mailbox, _runtime: runtime })
    }

    /// Where webhooks are to be sent.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Waits until at least `count` have arrived, and returns all.
    ///
    /// # Errors
    /// When they do not arrive within `patience`.
    pub fn wait_for(&self, count: usize, patience: Duration) -> anyhow::Result<Vec<Delivery>> {
        let (deliveries, _) = self
            .mailbox
            .more
            .wait_timeout_while(self.mailbox.lock(), patience, |deliveries| deliveries.len() < count)
            .unwrap_or_else(PoisonError::into_inner);
        let arrived = deliveries.len();
        ensure!(arrived >= count, "{arrived} of {count} deliveries arrived within {patience:?}");
        Ok(deliveries.clone())
    }
}

async fn accept(listener: TcpListener, mailbox: Arc<Mailbox>) {
    // A failed accept is one connection less, which its sender will try again.
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let mailbox = Arc::clone(&mailbox);
        tokio::spawn(async move {
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                let mailbox = Arc::clone(&mailbox);
                async move {
                    let (head, body) = request.into_parts();
                    let mut answer = http::Response::new(Full::new(Bytes::new()));
                    match body.collect().await {
                        Ok(body) => {
                            mailbox.lock().push(Delivery { headers: head.headers, body: body.to_bytes() });
                            mailbox.more.notify_all();
                        }
                        Err(_) => *answer.status_mut() = http::StatusCode::BAD_REQUEST,
                    }
                    Ok::<_, Infallible>(answer)
                }
            });
            // A connection that breaks off is its sender's to report.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
