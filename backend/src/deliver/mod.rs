//! Sends events to webhooks.
//!
//! A webhook's next deliveries are its retries, then the events that a transaction has written, and then those of the clicks after its cursor.

mod attempt;
mod connections;
mod resolver;
mod slots;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use url::Url;

use self::attempt::{Answer, DeliveryError, RECEIVER_TIMEOUT, judge, request, retry_after};
use self::connections::{IDLE, WebhookClient, client};
use self::slots::{SLOTS, Slots};
use crate::domain::address_policy::AddressPolicy;
use crate::domain::clock::Clock;
use crate::domain::delivery::{DueDelivery, DueWebhook, Outcome};
use crate::domain::public_url::PublicUrl;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

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
/// A webhook is disabled if no attempt has succeeded for this time after a first one failed. The attempts of an event take three days, so
/// that a receiver that is away over a long weekend loses neither its webhook nor an event.
pub(crate) const DISABLE_AFTER: SignedDuration = SignedDuration::from_hours(5 * 24);
/// Maximum number of webhooks whose deliveries one transaction takes. An event may have 64 KiB and more, and SQLite has one writer.
const WEBHOOKS_AT_ONCE: usize = 8;

/// Sends deliveries until it is stopped.
#[derive(Clone)]
pub(crate) struct Deliverer {
    store: Store,
    clock: Clock,
    policy: AddressPolicy,
    client: WebhookClient,
    public: PublicUrl,
    announced: Arc<Notify>,
    metrics: Metrics,
}

impl Deliverer {
    pub(crate) fn new(
        store: Store,
        clock: Clock,
        policy: AddressPolicy,
        public: PublicUrl,
        announced: Arc<Notify>,
        metrics: Metrics,
    ) -> Self {
        let client = client(policy.clone(), IDLE);
        Self { store, clock, policy, client, public, announced, metrics }
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

    /// Takes deliveries up to the limits. If they cannot be read, `leased` names them, and the next call reads them.
    async fn take(&self, slots: &Slots, leased: &mut Vec<i64>) -> Result<Vec<DueDelivery>, StoreError> {
        let now = self.clock.now();
        if leased.is_empty() && !slots.are_taken() {
            let due = self.store.webhooks_due(now, &slots.without_room(), SLOTS).await?;
            let wanted = slots.share_out(&due);
            for webhooks in wanted.chunks(WEBHOOKS_AT_ONCE) {
                let taken = self.store.lease_deliveries(webhooks, LEASE, now, &self.public).await?;
                leased.extend(taken.deliveries);
                if taken.more {
                    self.announced.notify_one();
                }
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
        let ended = self.clock.now();
        let (attempt, outcome) = judge(delivery, (at, ended), answer);
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
        let finished = self.store.finish_attempt(delivery, &attempt, &outcome, DISABLE_AFTER, ended);
        if let Err(error) = finished.await {
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
        let retry_after = retry_after(&response, self.clock.now());
        let (mut body, mut kept) = (response.into_body(), Vec::new());
        // If the connection breaks, what has come is kept. Only the status matters.
        while kept.len() < RESPONSE_KEPT
            && let Some(Ok(frame)) = body.frame().await
        {
            kept.extend(frame.into_data().unwrap_or_default());
        }
        kept.truncate(RESPONSE_KEPT);
        let body = String::from_utf8_lossy(&kept).replace('\0', "\u{fffd}");
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

/// The running deliveries.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<(DueWebhook, Heard)>,
    slots: Slots,
}

impl UnderWay {
    fn start(&mut self, deliverer: Deliverer, delivery: DueDelivery) {
        let webhook = delivery.webhook;
        self.slots.take(webhook);
        self.tasks.spawn(async move {
            let heard = AssertUnwindSafe(deliverer.deliver(&delivery)).catch_unwind().await;
            let heard = heard.unwrap_or_else(|_panic| {
                tracing::error!(event = %delivery.event_id, "a webhook delivery panicked");
                Heard::Error
            });
            (webhook, heard)
        });
    }

    /// Waits until a delivery has ended. None if none is running.
    async fn ended(&mut self) -> Option<()> {
        let ended = self.tasks.join_next().await?;
        self.forget(&ended);
        Some(())
    }

    fn forget_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            self.forget(&ended);
        }
    }

    fn forget(&mut self, ended: &Result<(DueWebhook, Heard), JoinError>) {
        // No task panics or is aborted.
        let Ok((webhook, heard)) = *ended else { return };
        self.slots.release(webhook);
        match heard {
            Heard::Answer => self.slots.answered(webhook.seq),
            Heard::Nothing => self.slots.timed_out(webhook.seq),
            Heard::Error => {}
        }
    }
}
