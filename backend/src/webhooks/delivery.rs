//! Sends the due deliveries of the outbox.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::{SignedDuration, Timestamp};
use rand::RngExt;
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinError, JoinSet};
use url::Url;

use super::address::{AddressPolicy, CheckedResolver};
use super::signature;
use super::slots::{SLOTS, Slots};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::store::{Attempt, DueDelivery, DueWebhook, Outcome, Store, StoreError};

/// Time limit for the receiver's response.
const RECEIVER_TIMEOUT: Duration = Duration::from_secs(15);
/// Lease of a delivery: the time limit of the receiver, twice. After it, another process may take the delivery.
const LEASE: SignedDuration = SignedDuration::from_secs(30);
/// Maximum stored length of a response body, in bytes.
const RESPONSE_KEPT: usize = 1024;
/// Interval at which the outbox is read without a notification. It finds the events of other processes.
const POLL: SignedDuration = SignedDuration::from_millis(500);
/// Delay of the read after a notification. Others that come meanwhile need no read of their own.
const NOTICED_AFTER: Duration = Duration::from_millis(20);
/// Pause after a database error.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// Delays before the second and later attempts (Standard Webhooks 1.0.0, section "Deliverability and reliability").
const RETRY_AFTER_SECONDS: [i64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// Maximum delay that a receiver may request.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);
/// Maximum jitter as a fraction of the delay. Jitter prevents that a recovered receiver gets all events at once.
const JITTER: f64 = 0.2;
/// Number of consecutive failed events after which a webhook is disabled.
const DISABLE_AFTER: u32 = 20;

type HttpsClient = Client<HttpsConnector<HttpConnector<CheckedResolver>>, Full<Bytes>>;

/// Sends deliveries until it is stopped.
#[derive(Clone)]
pub(crate) struct Deliverer {
    store: Store,
    clock: Clock,
    policy: AddressPolicy,
    client: HttpsClient,
    announced: Arc<Notify>,
    metrics: Metrics,
}

impl Deliverer {
    pub(crate) fn new(
        store: Store,
        clock: Clock,
        policy: AddressPolicy,
        announced: Arc<Notify>,
        metrics: Metrics,
    ) -> Self {
        let mut http = HttpConnector::new_with_resolver(CheckedResolver::new(policy.clone()));
        http.enforce_http(false);
        http.set_connect_timeout(Some(RECEIVER_TIMEOUT));
        let builder = HttpsConnectorBuilder::new().with_native_roots().unwrap_or_else(|error| {
            tracing::warn!(%error, "no certificate authorities found: webhooks to https addresses will fail");
            let nobody = rustls::RootCertStore::empty();
            HttpsConnectorBuilder::new().with_tls_config(
                rustls::ClientConfig::builder().with_root_certificates(nobody).with_no_client_auth(),
            )
        });
        let connector = builder.https_or_http().enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { store, clock, policy, client, announced, metrics }
    }

    /// Runs until `stop` is true or its sender is dropped, then finishes the running deliveries.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        if let Err(error) = self.store.release_deliveries(self.clock.now()).await {
            tracing::error!(%error, "could not release the webhook deliveries of an earlier process");
        }
        let mut under_way = UnderWay::default();
        let mut leased = Vec::new();
        while !*stop.borrow() {
            // The interval starts before the read, so that deliveries that become due during the read are not missed.
            let look_again = self.clock.now().saturating_add(POLL).unwrap_or(Timestamp::MAX);
            match self.take(&under_way.slots, &mut leased).await {
                Ok(due) => {
                    for delivery in due {
                        under_way.start(self.clone(), delivery);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "could not read the webhook outbox");
                    tokio::select! {
                        () = tokio::time::sleep(STORE_PAUSE) => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                    continue;
                }
            }
            tokio::select! {
                () = self.announced() => {}
                () = self.clock.wait_until(look_again) => {}
                Some(()) = under_way.ended() => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
            under_way.forget_ended();
        }
        while under_way.ended().await.is_some() {}
    }

    /// Waits until there are new events.
    async fn announced(&self) {
        self.announced.notified().await;
        tokio::time::sleep(NOTICED_AFTER).await;
    }

    /// Takes due deliveries up to the limits. If they cannot be read, `leased` names them, and the next call reads them.
    async fn take(&self, slots: &Slots, leased: &mut Vec<i64>) -> Result<Vec<DueDelivery>, StoreError> {
        let now = self.clock.now();
        if leased.is_empty() && !slots.are_taken() {
            let due = self.store.webhooks_due(now, &slots.without_room(), SLOTS).await?;
            let wanted = slots.share_out(&due);
            if !wanted.is_empty() {
                *leased = self.store.lease_deliveries(&wanted, LEASE, now).await?;
            }
        }
        if leased.is_empty() {
            return Ok(Vec::new());
        }
        let due = self.store.leased_deliveries(leased, now).await?;
        leased.clear();
        Ok(due)
    }

    async fn deliver(&self, delivery: &DueDelivery) -> Heard {
        let at = self.clock.now();
        let answer = match tokio::time::timeout(RECEIVER_TIMEOUT, self.send(delivery, at)).await {
            Ok(answer) => answer,
            Err(_) => Err(DeliveryError::Timeout),
        };
        let heard = match &answer {
            Ok(_) => Heard::Answer,
            Err(error) if error.is_timeout() => Heard::Nothing,
            Err(_) => Heard::Error,
        };
        let (attempt, outcome) = judge(delivery, at, answer);
        self.metrics.webhook_attempt(match &outcome {
            Outcome::Delivered => "delivered",
            Outcome::Retry(_) => "retry",
            Outcome::Failed => "failed",
            Outcome::Gone => "gone",
        });
        match (&outcome, &attempt.error) {
            (Outcome::Delivered, _) => tracing::debug!(event = %delivery.event_id, "webhook event delivered"),
            (_, error) => tracing::info!(
                event = %delivery.event_id, status = attempt.http_status, error, ?outcome, "webhook event not delivered"
            ),
        }
        // If this fails, the lease expires and the delivery is repeated: at least once.
        if let Err(error) = self.store.finish_attempt(delivery, &attempt, &outcome, DISABLE_AFTER).await {
            tracing::error!(%error, event = %delivery.event_id, "could not record a webhook attempt");
        }
        heard
    }

    async fn send(&self, delivery: &DueDelivery, at: Timestamp) -> Result<Answer, DeliveryError> {
        let url = Url::parse(&delivery.url).map_err(|_| DeliveryError::Address)?;
        if !self.policy.allows_url(&url) {
            return Err(DeliveryError::Address);
        }
        let response = self.client.request(request(delivery, at)?).await?;
        let status = response.status().as_u16();
        let retry_after = retry_after(&response, at);
        let body = match Limited::new(response.into_body(), RESPONSE_KEPT).collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).replace('\0', "\u{fffd}"),
            // The body is too long or the connection broke. Only the status matters.
            Err(_) => String::new(),
        };
        Ok(Answer { status, retry_after, body })
    }
}

/// What the sender heard from a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Answer,
    /// Nothing, within the time limit.
    Nothing,
    /// An error before the time limit, for example that the receiver refuses connections.
    Error,
}

/// The running deliveries and their webhooks.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<Heard>,
    webhooks: HashMap<Id, DueWebhook>,
    slots: Slots,
}

impl UnderWay {
    fn start(&mut self, deliverer: Deliverer, delivery: DueDelivery) {
        let webhook = delivery.webhook;
        let task = self.tasks.spawn(async move { deliverer.deliver(&delivery).await });
        self.webhooks.insert(task.id(), webhook);
        self.slots.take(webhook);
    }

    /// Waits until a delivery has ended. None if none is running.
    async fn ended(&mut self) -> Option<()> {
        let ended = self.tasks.join_next_with_id().await?;
        self.forget(&ended);
        Some(())
    }

    fn forget_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.forget(&ended);
        }
    }

    fn forget(&mut self, ended: &Result<(Id, Heard), JoinError>) {
        let (id, heard) = match ended {
            Ok((id, heard)) => (*id, *heard),
            Err(error) => {
                tracing::error!(%error, "a webhook delivery panicked");
                (error.id(), Heard::Error)
            }
        };
        let Some(webhook) = self.webhooks.remove(&id) else { return };
        self.slots.release(webhook);
        match heard {
            Heard::Answer => self.slots.answered(webhook.seq),
            Heard::Nothing => self.slots.timed_out(webhook.seq),
            Heard::Error => {}
        }
    }
}

/// The response of a receiver.
#[derive(Debug)]
struct Answer {
    status: u16,
    retry_after: Option<SignedDuration>,
    body: String,
}

#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("the address is not public")]
    Address,
    #[error("no answer within {} s", RECEIVER_TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    Secret(#[from] signature::InvalidSecret),
    #[error("request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("connection: {}", innermost(.0))]
    Connection(#[from] hyper_util::client::legacy::Error),
}

impl DeliveryError {
    /// Whether the receiver did not answer in time, or no connection to it was made in time.
    fn is_timeout(&self) -> bool {
        match self {
            Self::Timeout => true,
            Self::Connection(error) => {
                let cause = innermost(error).downcast_ref::<std::io::Error>();
                cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::TimedOut)
            }
            Self::Address | Self::Secret(_) | Self::Request(_) => false,
        }
    }
}

/// The innermost cause, which is more specific than "client error (Connect)".
fn innermost(error: &hyper_util::client::legacy::Error) -> &(dyn std::error::Error + 'static) {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

fn request(delivery: &DueDelivery, at: Timestamp) -> Result<Request<Full<Bytes>>, DeliveryError> {
    let body = Bytes::from(delivery.payload.clone());
    let sign = |secret| signature::standard(secret, &delivery.event_id, at.as_second(), &body);
    let mut signature = sign(&delivery.secret)?;
    if let Some(old) = &delivery.old_secret {
        signature.push(' ');
        signature.push_str(&sign(old)?);
    }
    // The header can contain one signature. Every receiver knows the previous secret, so that secret signs it.
    let known = delivery.old_secret.as_ref().unwrap_or(&delivery.secret);
    Ok(Request::post(&delivery.url)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("weir-backend/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", &delivery.event_id)
        .header("webhook-timestamp", at.as_second())
        .header("webhook-signature", signature)
        .header("dub-signature", signature::dub(known, &body))
        .body(Full::new(body))?)
}

/// The delay in `Retry-After`, in seconds or as a date.
fn retry_after<B>(response: &Response<B>, now: Timestamp) -> Option<SignedDuration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let wait = match text.trim().parse::<i64>() {
        Ok(seconds) => SignedDuration::from_secs(seconds),
        Err(_) => jiff::fmt::rfc2822::parse(text).ok()?.timestamp().duration_since(now),
    };
    Some(wait)
}

/// The outcome of an attempt. 2xx is success, 410 disables the webhook, and all else is retried until the last attempt.
fn judge(delivery: &DueDelivery, at: Timestamp, answer: Result<Answer, DeliveryError>) -> (Attempt, Outcome) {
    let (attempt, asked) = match answer {
        Ok(answer) => {
            let attempt =
                Attempt { at, http_status: Some(answer.status), error: None, response_body: answer.body };
            match answer.status {
                200..=299 => return (attempt, Outcome::Delivered),
                410 => return (attempt, Outcome::Gone),
                _ => (attempt, answer.retry_after),
            }
        }
        Err(error) => {
            let error = Some(error.to_string());
            (Attempt { at, http_status: None, error, response_body: String::new() }, None)
        }
    };
    let outcome = match RETRY_AFTER_SECONDS.get(delivery.attempts as usize) {
        None => Outcome::Failed,
        Some(seconds) => {
            let wait = SignedDuration::from_secs(*seconds);
            let jittered = wait.mul_f64(1.0 + JITTER * rand::rng().random::<f64>());
            let wait = jittered.max(asked.unwrap_or(SignedDuration::ZERO).min(LONGEST_WAIT));
            Outcome::Retry(at.saturating_add(wait).unwrap_or(Timestamp::MAX))
        }
    };
    (attempt, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(attempts: u32) -> DueDelivery {
        DueDelivery {
            seq: 1,
            webhook: DueWebhook { seq: 1, workspace_seq: 1 },
            event_id: "evt_1".to_owned(),
            payload: "{}".to_owned(),
            url: "https://rx.example.test/".to_owned(),
            secret: "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".to_owned(),
            old_secret: None,
            attempts,
        }
    }

    fn outcome(attempts: u32, status: u16, retry_after: Option<i64>) -> Outcome {
        let retry_after = retry_after.map(SignedDuration::from_secs);
        let answer = Answer { status, retry_after, body: String::new() };
        judge(&delivery(attempts), Timestamp::UNIX_EPOCH, Ok(answer)).1
    }

    fn wait(outcome: &Outcome) -> i64 {
        let Outcome::Retry(at) = outcome else { panic!("{outcome:?} is no retry") };
        at.as_second()
    }

    #[test]
    fn only_success_ends_well_and_gone_ends_everything() {
        for status in [200, 201, 204] {
            assert_eq!(outcome(0, status, None), Outcome::Delivered, "{status}");
        }
        assert_eq!(outcome(0, 410, None), Outcome::Gone);
        for status in [301, 302, 400, 404, 429, 500, 503] {
            assert!(matches!(outcome(0, status, None), Outcome::Retry(_)), "{status}");
        }
    }

    #[test]
    fn waits_grow_with_jitter_until_the_event_is_given_up() {
        for (attempts, seconds) in RETRY_AFTER_SECONDS.iter().enumerate() {
            let waited = wait(&outcome(u32::try_from(attempts).unwrap(), 500, None));
            assert!(
                (*seconds..=seconds + seconds / 5).contains(&waited),
                "attempt {attempts} waits {waited} s"
            );
        }
        assert_eq!(outcome(9, 500, None), Outcome::Failed);
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_wait_but_not_for_a_shorter_one() {
        assert_eq!(wait(&outcome(0, 503, Some(600))), 600);
        assert!(wait(&outcome(1, 503, Some(1))) >= 300);
        assert_eq!(wait(&outcome(0, 503, Some(i64::MAX))), 86_400);
    }

    #[test]
    fn a_date_in_retry_after_is_a_wait() {
        let now: Timestamp = "2026-01-05T10:00:00Z".parse().unwrap();
        let response =
            Response::builder().header(RETRY_AFTER, "Mon, 05 Jan 2026 10:02:00 GMT").body(()).unwrap();
        assert_eq!(retry_after(&response, now), Some(SignedDuration::from_secs(120)));
    }
}
