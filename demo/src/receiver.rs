//! A receiver of webhooks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use serde_json::Value;
use sha2::Sha256;

use crate::clock;
use crate::server::{self, Server};

/// How much older or newer a signature may be than its receipt.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

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
        let key = secret.strip_prefix("whsec_").context("the webhook's secret has no prefix")?;
        let key = BASE64_STANDARD.decode(key).context("the webhook's secret")?;
        let [id, timestamp, signature] =
            ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| self.header(name));
        let (id, timestamp) = (id?, timestamp?);
        let signed = Duration::from_secs(timestamp.parse().context("the time of a delivery")?);
        ensure!(clock::now().abs_diff(signed) <= TOLERANCE, "a delivery was signed at {signed:?}");
        let mut expected = Hmac::<Sha256>::new_from_slice(&key).context("the webhook's secret")?;
        expected.update(format!("{id}.{timestamp}.").as_bytes());
        expected.update(&self.body);
        // There may be several, separated by spaces, of other versions or with other secrets.
        let mut signatures = signature?.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
        let is_signed = signatures.any(|given| {
            BASE64_STANDARD.decode(given).is_ok_and(|given| expected.clone().verify_slice(&given).is_ok())
        });
        ensure!(is_signed, "the signature of a delivery is not the secret's");
        serde_json::from_slice(&self.body).context("the body of a delivery")
    }

    fn header(&self, name: &str) -> anyhow::Result<&str> {
        let value = self.headers.get(name).with_context(|| format!("a delivery without {name}"))?;
        value.to_str().with_context(|| format!("{name} of a delivery"))
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
