//! Paces new connections: a fruitless one costs the next ones a pause.
//!
//! A connection is fruitless if it ends without a successful response. A client that opens one after another costs far more time than it
//! would with requests on one connection, and no key or workspace bounds it. The pauses bound how many such connections there are in a
//! second, and leave the processors to the requests on open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::http::StatusCode;

/// Pause before the next connection is accepted, for each fruitless one that has ended.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum pause. Many idle connections may reach their timeouts at the same time.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The pace of a listener's new connections.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The fruitless connections that have ended since the last pause.
    fruitless: Arc<AtomicU32>,
}

impl Pace {
    /// The pause before the next connection is accepted, for the fruitless ones that have ended since the last call.
    pub(super) fn pause(&self) -> Duration {
        let ended = self.fruitless.swap(0, Ordering::Relaxed);
        PAUSE.saturating_mul(ended).min(LONGEST_PAUSE)
    }

    /// Follows a connection until the result is dropped.
    pub(super) fn follow(&self) -> Followed {
        Followed { has_fruit: AtomicBool::new(false), fruitless: Arc::clone(&self.fruitless) }
    }
}

/// A connection that counts as fruitless when it ends, unless it had a successful response.
#[derive(Debug)]
pub(super) struct Followed {
    has_fruit: AtomicBool,
    fruitless: Arc<AtomicU32>,
}

impl Followed {
    /// Notes a response on the connection.
    pub(super) fn note(&self, status: StatusCode) {
        if status.is_success() || status.is_redirection() {
            self.has_fruit.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if !*self.has_fruit.get_mut() {
            self.fruitless.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fruitless_connection_costs_the_next_ones_a_millisecond_up_to_a_bound() {
        //  the responses of the connections that ended, the pause before the next in milliseconds
        let none: &[u16] = &[];
        for (connections, expected) in [
            (vec![], 0),
            (vec![none], 1),
            (vec![&[200]], 0),
            (vec![&[204]], 0),
            (vec![&[302]], 0),
            (vec![&[400]], 1),
            (vec![&[401]], 1),
            (vec![&[404]], 1),
            (vec![&[503]], 1),
            (vec![&[404, 200]], 0),
            (vec![&[200, 404]], 0),
            (vec![&[404, 404]], 1),
            (vec![&[404], &[200], none], 2),
            (vec![none; 20], 20),
            (vec![none; 4_096], 20),
        ] {
            let pace = Pace::default();
            for statuses in &connections {
                let followed = pace.follow();
                for status in *statuses {
                    followed.note(StatusCode::from_u16(*status).unwrap());
                }
            }
            for expected in [expected, 0] {
                assert_eq!(pace.pause(), Duration::from_millis(expected), "{connections:?}");
            }
        }
    }

    #[test]
    fn an_open_connection_costs_nothing() {
        let pace = Pace::default();
        let _open = pace.follow();
        assert_eq!(pace.pause(), Duration::ZERO);
    }
}
