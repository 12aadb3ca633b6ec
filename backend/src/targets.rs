//! Where short links lead, kept in memory.
//!
//! A link that is followed again and again is read again before what is known of it grows too old, together with others,
//! so that only a first visit, or one after a pause, waits for the database. While the database is away, a known link leads
//! where it led, and one that is not known is refused at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
use tokio::sync::mpsc;
use url::Url;

use crate::clock::Clock;
use crate::error::{ApiError, Code};
use crate::store::{RedirectTarget, Store, StoreError};

/// Targets kept in memory at most.
const KEPT: usize = 100_000;
/// How long a target is trusted; a change made through this process is seen at once, one made through another within
/// this time.
const TRUSTED: SignedDuration = SignedDuration::from_secs(1);
/// The age from which on a target that is asked for is read again.
const AGED: SignedDuration = SignedDuration::from_millis(750);
/// How long a target that is to be read again waits for others.
const GATHERING: Duration = Duration::from_millis(20);
/// How long a visit of a link that is known waits for the database before the link leads where it led.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a visit of a link that is not known waits for the database, unless that is away already.
const LONG_PATIENCE: Duration = Duration::from_secs(2);
/// How often a database that is away is asked whether it is back.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// How long it may take to answer that.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// Targets read again by one query at most.
const AT_ONCE: usize = 1_000;

/// Where short links lead, as seen lately.
#[derive(Debug)]
pub(crate) struct Targets {
    known: Arc<Known>,
    aged: mpsc::Sender<Name>,
}

#[derive(Debug)]
struct Known {
    store: Store,
    clock: Clock,
    seen: Cache<String, Arc<Seen>>,
    /// How old a target may be that is trusted because the database is away.
    max_stale: SignedDuration,
    /// The database has failed or did not answer, and is asked until it does.
    away: AtomicBool,
    /// Grows with each link that is forgotten.
    forgotten: AtomicU64,
}

#[derive(Debug)]
struct Seen {
    at: Timestamp,
    target: Arc<RedirectTarget>,
    /// Somebody has asked for it to be read again.
    aged: AtomicBool,
}

/// Why nobody knows where a link leads.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookUpError {
    #[error("the database is away")]
    Away,
    #[error(transparent)]
    Store(StoreError),
}

impl From<LookUpError> for ApiError {
    fn from(error: LookUpError) -> Self {
        match error {
            LookUpError::Away => {
                Self::new(Code::ServiceUnavailable, "The link cannot be looked up now. Try again later.")
            }
            LookUpError::Store(error) => error.into(),
        }
    }
}

/// Domain and folded key.
type Name = (String, String);

/// What a link is kept under. A domain has no slash.
fn joined(domain: &str, folded_key: &str) -> String {
    [domain, "/", folded_key].concat()
}

impl Targets {
    /// Needs a tokio runtime.
    pub(crate) fn new(store: Store, clock: Clock, max_stale: Duration) -> Self {
        let known = Arc::new(Known {
            store,
            clock,
            seen: Cache::new(KEPT),
            max_stale: SignedDuration::try_from(max_stale).unwrap_or(SignedDuration::MAX),
            away: AtomicBool::new(false),
            forgotten: AtomicU64::new(0),
        });
        let (aged, names) = mpsc::channel(AT_ONCE);
        tokio::spawn(read_again(Arc::clone(&known), names));
        Self { known, aged }
    }

    /// Where `key` on `domain` leads, if it is a link.
    pub(crate) async fn find(
        &self,
        domain: &str,
        key: &str,
    ) -> Result<Option<Arc<RedirectTarget>>, LookUpError> {
        let now = self.known.clock.now();
        let folded = key.to_lowercase();
        let name = joined(domain, &folded);
        let mut stale = None;
        if let Some(seen) = self.known.seen.get(&name) {
            let age = now.duration_since(seen.at).abs();
            if age < TRUSTED {
                if age >= AGED && !seen.aged.swap(true, Ordering::Relaxed) {
                    // If too many wait already, this one is read when it is too old.
                    let _full = self.aged.try_send((domain.to_owned(), folded));
                }
                return Ok(Some(Arc::clone(&seen.target)));
            }
            if age < self.known.max_stale {
                stale = Some(Arc::clone(&seen.target));
            }
        }
        // On the heap, so that those who need not wait do not carry it along.
        Box::pin(Known::read_or_trust(&self.known, name, domain, &folded, now, stale)).await
    }

    /// To be called after a link has changed.
    pub(crate) fn forget(&self, domain: &str, key: &str) {
        self.known.forgotten.fetch_add(1, Ordering::SeqCst);
        self.known.seen.remove(&joined(domain, &key.to_lowercase()));
    }
}

impl Known {
    /// Reads a target, or trusts what was known of it while the database is away.
    async fn read_or_trust(
        self: &Arc<Self>,
        name: String,
        domain: &str,
        folded_key: &str,
        now: Timestamp,
        stale: Option<Arc<RedirectTarget>>,
    ) -> Result<Option<Arc<RedirectTarget>>, LookUpError> {
        if !self.away.load(Ordering::SeqCst) {
            let patience = if stale.is_some() { PATIENCE } else { LONG_PATIENCE };
            match tokio::time::timeout(patience, self.read(name, domain, folded_key, now)).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(StoreError::Database(error))) => self.lose(&error),
                Ok(Err(error)) => return Err(LookUpError::Store(error)),
                Err(elapsed) => self.lose(&elapsed),
            }
        }
        stale.map(Some).ok_or(LookUpError::Away)
    }

    /// The database is away, for a reason. It is asked from now on whether it is back.
    fn lose(self: &Arc<Self>, reason: &dyn std::fmt::Display) {
        if self.away.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::warn!(%reason, "the database is away: links lead where they led");
        let known = Arc::clone(self);
        tokio::spawn(async move {
            while !matches!(tokio::time::timeout(PROBE_PATIENCE, known.store.ping()).await, Ok(Ok(()))) {
                tokio::time::sleep(PROBE_EVERY).await;
            }
            known.away.store(false, Ordering::SeqCst);
            tracing::info!("the database is back");
        });
    }

    async fn read(
        &self,
        name: String,
        domain: &str,
        folded_key: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<RedirectTarget>>, StoreError> {
        let forgotten = self.forgotten.load(Ordering::SeqCst);
        let Some(target) = self.store.redirect_target(domain, folded_key).await? else {
            self.seen.remove(&name);
            return Ok(None);
        };
        Ok(Some(self.keep(&name, now, target, forgotten)))
    }

    /// Keeps a target that was read after `forgotten` links had been forgotten.
    fn keep(&self, name: &str, at: Timestamp, target: RedirectTarget, forgotten: u64) -> Arc<RedirectTarget> {
        let target = Arc::new(normalized(target));
        let seen = Seen { at, target: Arc::clone(&target), aged: AtomicBool::new(false) };
        self.seen.insert(name.to_owned(), Arc::new(seen));
        if self.forgotten.load(Ordering::SeqCst) != forgotten {
            // It may be one that has changed since it was read.
            self.seen.remove(name);
        }
        target
    }
}

/// Reads targets again that have aged, until nobody asks any more.
async fn read_again(known: Arc<Known>, mut names: mpsc::Receiver<Name>) {
    let mut gathered = Vec::new();
    while names.recv_many(&mut gathered, AT_ONCE).await > 0 {
        tokio::time::sleep(GATHERING).await;
        while gathered.len() < AT_ONCE
            && let Ok(name) = names.try_recv()
        {
            gathered.push(name);
        }
        let (now, forgotten) = (known.clock.now(), known.forgotten.load(Ordering::SeqCst));
        let reading = known.store.redirect_targets(&gathered);
        match tokio::time::timeout(LONG_PATIENCE, reading).await {
            // Those that are missing are gone, and found to be so by whoever asks for them next.
            Ok(Ok(targets)) => {
                for ((domain, key), target) in targets {
                    known.keep(&joined(&domain, &key), now, target, forgotten);
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "links could not be read ahead"),
            Err(elapsed) => known.lose(&elapsed),
        }
        gathered.clear();
    }
}

/// A target with its destinations as they are sent.
fn normalized(mut target: RedirectTarget) -> RedirectTarget {
    let details = &mut target.details;
    let others = [&mut details.ios, &mut details.android, &mut details.expired_url];
    let by_country = details.geo.iter_mut().flat_map(|geo| geo.values_mut());
    for destination in others.into_iter().flatten().chain(by_country).chain([&mut target.url]) {
        if let Ok(url) = Url::parse(destination) {
            *destination = url.into();
        }
    }
    target
}
