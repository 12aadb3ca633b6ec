//! One attempt: the request, what its answer means, and when the next attempt is due.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use rand::RngExt;

use crate::domain::delivery::{Attempt, DueDelivery, Outcome};
use crate::domain::signature;

/// Time limit for the receiver's response.
pub(super) const RECEIVER_TIMEOUT: Duration = Duration::from_secs(15);
/// Delays before the second and later attempts (Standard Webhooks 1.0.0, section "Deliverability and reliability"). They count from the end of
/// an attempt.
const RETRY_AFTER_SECONDS: [i64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// Maximum delay that a receiver may request.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);
/// Maximum jitter as a fraction of the delay. Jitter prevents that a recovered receiver gets all events at once.
const JITTER: f64 = 0.2;

/// The response of a receiver.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<SignedDuration>,
    pub(super) body: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
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
    pub(super) fn is_timeout(&self) -> bool {
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

pub(super) fn request(delivery: &DueDelivery, at: Timestamp) -> Result<Request<Full<Bytes>>, DeliveryError> {
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
pub(super) fn retry_after<B>(response: &Response<B>, now: Timestamp) -> Option<SignedDuration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let wait = match text.trim().parse::<i64>() {
        Ok(seconds) => SignedDuration::from_secs(seconds),
        Err(_) => jiff::fmt::rfc2822::parse(text).ok()?.timestamp().duration_since(now),
    };
    Some(wait)
}

/// The outcome of an attempt that began and ended at these times. 2xx is success, 410 disables the webhook, and all else is retried until the
/// last attempt.
pub(super) fn judge(
    delivery: &DueDelivery,
    (at, ended): (Timestamp, Timestamp),
    answer: Result<Answer, DeliveryError>,
) -> (Attempt, Outcome) {
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
        Err(error) => (Attempt::failed(at, error.to_string()), None),
    };
    let outcome = match RETRY_AFTER_SECONDS.get(delivery.attempts as usize) {
        None => Outcome::Failed,
        Some(seconds) => {
            let wait = SignedDuration::from_secs(*seconds);
            let jittered = wait.mul_f64(1.0 + JITTER * rand::rng().random::<f64>());
            let wait = jittered.max(asked.unwrap_or(SignedDuration::ZERO).min(LONGEST_WAIT));
            Outcome::Retry(ended.saturating_add(wait).unwrap_or(Timestamp::MAX))
        }
    };
    (attempt, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::delivery::DueWebhook;

    /// Waits count from the end of an attempt.
    const BEGAN: Timestamp = Timestamp::constant(-15, 0);

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
            leased_until: 0,
        }
    }

    fn outcome(attempts: u32, status: u16, retry_after: Option<i64>) -> Outcome {
        let retry_after = retry_after.map(SignedDuration::from_secs);
        let answer = Answer { status, retry_after, body: String::new() };
        judge(&delivery(attempts), (BEGAN, Timestamp::UNIX_EPOCH), Ok(answer)).1
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
