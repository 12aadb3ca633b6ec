//! What the limiter has decided about a request.

use arrayvec::ArrayVec;

use crate::decide::limiter::Reservation;
use crate::decide::outcome::Outcome;
use crate::decide::reply::Reply;
use crate::decide::response_headers::Report;

/// What is to be done with a request.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The subscriber's plan, as an index into [`crate::config::Catalog::plans`]; `None` for a stranger.
    pub plan: Option<usize>,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub class: usize,
    /// What to count in metrics.
    pub outcomes: ArrayVec<Outcome, 4>,
    /// What to tell the client in headers of the response, whoever sends that.
    pub report: Option<Box<Report>>,
    /// The charge, if the response or the end of the stream settles it.
    pub reservation: Option<Box<Reservation>>,
    /// The reply to send instead of passing the request on.
    pub reply: Option<Box<Reply>>,
}
