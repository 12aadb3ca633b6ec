//! The timer for the headers of the requests on a connection.
//!
//! hyper starts a new sleep for each request and drops it when it has read the headers. With tokio's own timers, each sleep would be
//! entered into the timer wheel of the runtime and removed from it, under a lock that all threads share. This timer enters one sleep for
//! a connection. If it ends before the deadline of the current request, it is moved to that deadline.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// The timer of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ConnectionTimer(Arc<Mutex<Pin<Box<tokio::time::Sleep>>>>);

impl ConnectionTimer {
    /// Requires a tokio runtime. `first` is the length of the first sleep.
    pub(super) fn new(first: Duration) -> Self {
        Self(Arc::new(Mutex::new(Box::pin(tokio::time::sleep(first)))))
    }
}

impl Timer for ConnectionTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Until { deadline: deadline.into(), shared: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }
}

/// A sleep until a deadline.
#[derive(Debug)]
struct Until {
    deadline: tokio::time::Instant,
    shared: ConnectionTimer,
}

impl Sleep for Until {}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.deadline() > self.deadline {
            shared.as_mut().reset(self.deadline);
        }
        ready!(shared.as_mut().poll(context));
        while shared.deadline() < self.deadline {
            shared.as_mut().reset(self.deadline);
            ready!(shared.as_mut().poll(context));
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const UNIT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn each_sleep_ends_at_its_deadline_whatever_the_one_before() {
        //  lengths of sleeps, and the time after which each is dropped, unless it ends before
        for sleeps in [
            vec![(6, 100)],
            vec![(6, 1), (6, 100)],
            vec![(6, 0), (6, 5), (6, 100)],
            vec![(600, 1), (5, 100)],
            vec![(6, 100), (6, 100)],
            vec![(2, 1), (6, 100)],
        ] {
            let timer = ConnectionTimer::new(6 * UNIT);
            for (length, dropped) in &sleeps {
                let began = timer.now();
                let ended = timeout(*dropped * UNIT, timer.sleep(*length * UNIT)).await.is_ok();
                let took = began.elapsed();
                assert!(ended || length > dropped, "{length} of {sleeps:?} did not end in {took:?}");
                assert!(!ended || took >= *length * UNIT, "{length} of {sleeps:?} ended in {took:?}");
            }
        }
    }
}
