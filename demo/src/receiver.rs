//! A receiver of webhooks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use standardwebhooks::Webhook;

use crate::server::{self, Server};

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
    server: Server,
    mailbox: Arc<Mailbox>,
}

impl Receiver {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start() -> anyhow::Result<Self> {
        let mailbox = Arc::new(Mailbox::default());
        let kept = Arc::clone(&mailbox);
        let server = Server::start(move |delivery| {
            let (head, body) = delivery.into_parts();
            kept.lock().push(Delivery { headers: head.headers, body });
            kept.more.notify_all();
            server::Response::default()
        })?;
        Ok(Self { server, mailbox })
    }

    /// Where webhooks are to be sent.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.server.address())
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
