//! Calls of the ledger: what the filter's client of the ledger says is sent, and what comes back is handed to it.

use super::log::logged;
use crate::config::{AS_IT_IS, FleetSettings};
use crate::decide::limiter::Limiter;
use crate::decide::waiting::Responded;
use crate::fleet::client::Call;
use crate::fleet::messages::{self, AnswerError};
use crate::host::{self, Gateway};
use crate::request::header_pairs::HeaderPairs;

/// The call of a tick that is in flight.
#[derive(Default)]
pub(super) struct Ticking(Option<u32>);

impl Ticking {
    /// States what nobody waits for. Within a callback of the root context.
    pub(super) fn tick(&mut self, limiter: &mut Limiter) {
        let call = limiter.tick(&mut Gateway);
        self.send(limiter, call);
    }

    /// Takes the answer to a call, if that is the one in flight.
    pub(super) fn answer(&mut self, limiter: &mut Limiter, call: u32, answered: bool, body_size: usize) {
        if self.0.take_if(|in_flight| *in_flight == call).is_some() {
            let call = limiter.tick_answered(&mut Gateway, response(answered, body_size));
            self.send(limiter, call);
        }
    }

    fn send(&mut self, limiter: &mut Limiter, mut call: Option<Call>) {
        while let Some(next) = call.take() {
            match send(limiter, next) {
                Ok(number) => self.0 = Some(number),
                Err(error) => call = limiter.tick_answered(&mut Gateway, Err(error)),
            }
        }
    }
}

/// What the ledger has answered to a call, within its callback.
pub(super) fn response(answered: bool, body_size: usize) -> Responded {
    let (head, body) = logged(host::call_answer(answered, body_size));
    let head = HeaderPairs::parse(head.as_ref());
    messages::response(head.as_ref().and_then(|head| head.get(":status")), body.as_ref())
}

/// Sends a call. Returns its number.
pub(super) fn send(limiter: &Limiter, call: Call) -> Result<u32, AnswerError> {
    let Some(fleet) = &limiter.config().settings.fleet else { return Err(AnswerError::None) };
    let FleetSettings { cluster, bearer, .. } = fleet;
    let authorization = bearer.as_ref().map(|bearer| format!("Bearer {}", bearer.expose()));
    let mut headers = vec![
        (":method", "POST"),
        (":path", "/v1/shares"),
        (":authority", fleet.authority()),
        ("content-type", "application/json"),
        AS_IT_IS,
    ];
    headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
    let timeout = call.timeout;
    host::http_call(cluster, headers, Some(&messages::request(call)), timeout)
        .map_err(|error| AnswerError::NotSent { cluster: cluster.to_string(), error })
}
