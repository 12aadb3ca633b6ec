//! Whether the database is available.
//!
//! A request that fails because of the database, or waits for it for long, makes it suspected. One probe at a time then asks it over a
//! new connection. If the probe fails, the database is away, and requests are refused at once until a later probe succeeds. If the
//! probe succeeds, the database is only busy.

use std::fmt::{Debug, Display};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::{Store, StoreError};

/// Interval of the probes.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Time limit of a probe.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// Time for which a request that the database had no space for counts. It is longer than the usual interval of the checks of readiness. Only
/// another request can find out whether there is space again, and it needs a process that is ready.
const EXHAUSTED_FOR: Duration = Duration::from_secs(15);

/// The state of the database. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Availability {
    state: watch::Sender<State>,
    /// When the database last had no space for a request.
    exhausted: Arc<Mutex<Option<Instant>>>,
    /// Whether the database answers.
    probe: Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Available,
    /// A probe asks whether it is available.
    Suspected,
    Away,
}

/// The database is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the database is unavailable")]
pub(crate) struct Away;

impl Debug for Availability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Availability").field(&*self.state.borrow()).finish()
    }
}

impl Availability {
    pub(crate) fn of(store: Store) -> Self {
        Self::probed_by(move || {
            let store = store.clone();
            Box::pin(async move {
                matches!(tokio::time::timeout(PROBE_PATIENCE, store.probe()).await, Ok(Ok(())))
            })
        })
    }

    fn probed_by(probe: impl Fn() -> BoxFuture<'static, bool> + Send + Sync + 'static) -> Self {
        Self {
            state: watch::Sender::new(State::Available),
            exhausted: Arc::default(),
            probe: Arc::new(probe),
        }
    }

    /// Notes that the database had no space for a request.
    pub(crate) fn note_exhaustion(&self) {
        *self.exhausted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the database had no space for a request a short time ago.
    pub(crate) fn is_exhausted(&self) -> bool {
        let exhausted = *self.exhausted.lock().unwrap_or_else(PoisonError::into_inner);
        exhausted.is_some_and(|at| at.elapsed() < EXHAUSTED_FOR)
    }

    /// Runs `work` until the database is away.
    pub(crate) async fn while_available<T>(&self, work: impl Future<Output = T>) -> Result<T, Away> {
        let mut state = self.state.subscribe();
        if *state.borrow_and_update() == State::Away {
            return Err(Away);
        }
        let away = pin!(state.wait_for(|state| *state == State::Away));
        tokio::select! {
            biased;
            done = work => Ok(done),
            _ = away => Err(Away),
        }
    }

    /// Waits for a query, and suspects the database if the query fails because of it or takes longer than `patience`.
    pub(crate) async fn observe<T>(
        &self,
        patience: Duration,
        query: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut query = pin!(query);
        let answer = match tokio::time::timeout(patience, query.as_mut()).await {
            Ok(answer) => answer,
            Err(elapsed) => {
                self.suspect(&elapsed);
                query.await
            }
        };
        answer.inspect_err(|error| {
            if error.is_unavailability() {
                self.suspect(error);
            }
        })
    }

    /// Begins to probe the database, unless a probe already runs.
    pub(crate) fn suspect(&self, reason: &dyn Display) {
        if !self.change(State::Available, State::Suspected) {
            return;
        }
        tracing::debug!(%reason, "the database is suspected to be unavailable");
        let availability = self.clone();
        tokio::spawn(async move {
            while !(availability.probe)().await {
                if availability.change(State::Suspected, State::Away) {
                    tracing::warn!(
                        "the database is unavailable: redirects use cached links, other requests are refused"
                    );
                }
                tokio::time::sleep(PROBE_EVERY).await;
            }
            if availability.state.send_replace(State::Available) == State::Away {
                tracing::info!("the database is available again");
            }
        });
    }

    /// Whether the state was `from`. It is then `to`.
    fn change(&self, from: State, to: State) -> bool {
        self.state.send_if_modified(|state| {
            let changes = *state == from;
            if changes {
                *state = to;
            }
            changes
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::sync::mpsc;
    use tokio::sync::mpsc::UnboundedReceiver;
    use tokio::sync::oneshot;

    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    /// An availability, and its probes, which the test answers.
    fn availability() -> (Availability, UnboundedReceiver<oneshot::Sender<bool>>) {
        let (started, probes) = mpsc::unbounded_channel();
        let probe = move || {
            let (answer, answered) = oneshot::channel();
            started.send(answer).unwrap();
            async { answered.await.unwrap() }.boxed()
        };
        (Availability::probed_by(probe), probes)
    }

    fn is_available(availability: &Availability) -> bool {
        *availability.state.borrow() == State::Available
    }

    fn timed_out() -> Result<(), StoreError> {
        Err(StoreError::from(sqlx::Error::PoolTimedOut))
    }

    #[tokio::test]
    async fn while_the_database_is_away_requests_are_refused_and_one_probe_runs() {
        let (availability, mut probes) = availability();
        let waiting = join_all((0..100).map(|_| availability.while_available(pending::<()>())));
        let mut waiting = pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        for _ in 0..100 {
            assert!(availability.observe(AT_ONCE, ready(timed_out())).await.is_err());
        }
        let probe = probes.recv().await.unwrap();
        assert!(probes.try_recv().is_err(), "one probe");
        assert!(waiting.as_mut().now_or_never().is_none(), "it is not away yet");
        assert!(!is_available(&availability));

        probe.send(false).unwrap();
        assert_eq!(waiting.await, [Err(Away); 100]);
        let probe = probes.recv().await.unwrap();
        for _ in 0..1_000 {
            // While the probe hangs.
            assert_eq!(availability.while_available(pending::<()>()).now_or_never(), Some(Err(Away)));
            availability.suspect(&"another");
        }
        assert!(probes.try_recv().is_err(), "one probe");

        probe.send(true).unwrap();
        while !is_available(&availability) {
            tokio::task::yield_now().await;
        }
        assert_eq!(availability.while_available(ready(7)).await, Ok(7));
    }

    #[tokio::test]
    async fn a_busy_database_is_not_away() {
        let (availability, mut probes) = availability();
        let (finish, finished) = oneshot::channel();
        let query = async { Ok(finished.await.unwrap()) };
        let mut query = pin!(availability.while_available(availability.observe(AT_ONCE, query)));
        let probe = tokio::select! {
            biased;
            _ = &mut query => panic!("the query hangs"),
            probe = probes.recv() => probe.unwrap(),
        };
        probe.send(true).unwrap();
        while !is_available(&availability) {
            tokio::task::yield_now().await;
        }
        assert!(query.as_mut().now_or_never().is_none(), "it is not refused");
        finish.send(7).unwrap();
        assert_eq!(query.await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn other_errors_of_a_query_say_nothing_about_the_database() {
        let (availability, mut probes) = availability();
        for error in [sqlx::Error::RowNotFound, sqlx::Error::ColumnNotFound("x".to_owned())] {
            let failed = ready(Err::<(), _>(StoreError::from(error)));
            assert!(availability.observe(Duration::MAX, failed).await.is_err());
        }
        assert!(is_available(&availability) && probes.try_recv().is_err());
    }
}
