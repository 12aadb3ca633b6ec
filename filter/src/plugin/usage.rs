//! Posts what callers have used.

use super::log::logged;
use crate::config::UsageSettings;
use crate::count::shared_data::HostError;
use crate::decide::limiter::Limiter;
use crate::host::{self, Gateway};
use crate::request::header_pairs::HeaderPairs;
use crate::usage::batch::CONTENT_TYPE;

/// The call of a batch that is in flight.
#[derive(Default)]
pub(super) struct Posting(Option<u32>);

impl Posting {
    /// Posts the batch that is due. Within a callback of the root context.
    pub(super) fn tick(&mut self, limiter: &mut Limiter) {
        let config = limiter.config().clone();
        let Some(settings) = config.settings.usage.as_ref().filter(|_| self.0.is_none()) else { return };
        match limiter.report(&mut Gateway).map(|batch| post(settings, batch)) {
            None => {}
            Some(Ok(call)) => self.0 = Some(call),
            Some(Err(error)) => {
                logged::<()>(Err(error));
                limiter.reported(&mut Gateway, None);
            }
        }
    }

    /// Takes the answer to a call, if that is the one in flight, and posts the next batch that is due.
    pub(super) fn answer(&mut self, limiter: &mut Limiter, call: u32, answered: bool) {
        if self.0.take_if(|in_flight| *in_flight == call).is_none() {
            return;
        }
        let (head, _) = logged(host::call_answer(answered, 0));
        let status = HeaderPairs::parse(head.as_ref()).and_then(|head| head.get(":status"));
        let status = status.and_then(|status| str::from_utf8(status).ok()?.parse().ok());
        limiter.reported(&mut Gateway, status);
        self.tick(limiter);
    }
}

fn post(settings: &UsageSettings, batch: &[u8]) -> Result<u32, HostError> {
    let authorization = settings.bearer.as_ref().map(|bearer| format!("Bearer {}", bearer.expose()));
    let mut headers = vec![
        (":method", "POST"),
        (":path", &*settings.path),
        (":authority", settings.authority()),
        ("content-type", CONTENT_TYPE),
    ];
    headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
    host::http_call(&settings.cluster, headers, Some(batch), settings.timeout_milliseconds())
}
