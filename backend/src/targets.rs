//! A cache of short-link destinations.
//!
//! A link that is visited often is refreshed before its entry expires, together with other links. Only the first visit,
//! or one after a pause, waits for the database. While the database is unavailable, cached links are followed and other
//! links are refused at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::mpsc;
use url::Url;

use crate::availability::{Availability, Away};
use crate::clock::Clock;
use crate::error::{ApiError, Code};
use crate::links::input::MAX_KEY;
use crate::store::{RedirectTarget, Store, StoreError};

/// Maximum number of cached targets of usual size.
const KEPT: usize = 100_000;
/// Maximum size of all cached targets, in bytes. A target may have 64 KiB.
const KEPT_BYTES: u64 = 128 * 1024 * 1024;
/// Maximum number of keys that are known to have no link. Each has at most 190 characters.
const MISSING: usize = 10_000;
/// Lifetime of a target, and of the knowledge that there is none. Changes through this process take effect at once, and changes through other processes within
/// this time.
const TRUSTED: SignedDuration = SignedDuration::from_secs(1);
/// Age at which a visited target is refreshed.
const AGED: SignedDuration = SignedDuration::from_millis(750);
/// Delay of a refresh, in which other targets join it.
const GATHERING: Duration = Duration::from_millis(20);
/// Maximum wait of a visit for the database if the link is cached.
const PATIENCE: Duration = Duration::from_millis(250);
/// Maximum wait of a visit for the database if the link is not cached. There is no wait once the database is known to
/// be unavailable.
const LONG_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of targets that one query refreshes.
const AT_ONCE: usize = 1_000;

/// The cache of targets.
#[derive(Debug)]
pub(crate) struct Targets {
    known: Arc<Known>,
    aged: mpsc::Sender<Name>,
}

#[derive(Debug)]
struct Known {
    store: Store,
    clock: Clock,
    seen: Cache<String, Arc<Seen>, Bytes>,
    /// When a key was found to have no link. Anybody can ask for such keys, which must not displace targets.
    missing: Cache<String, Timestamp>,
    /// Maximum age of a target that is used while the database is unavailable.
    max_stale: SignedDuration,
    availability: Availability,
    /// Number of invalidations so far.
    forgotten: AtomicU64,
}

#[derive(Debug)]
struct Seen {
    at: Timestamp,
    target: Arc<RedirectTarget>,
    /// A refresh is scheduled.
    aged: AtomicBool,
}

/// Weighs cached targets by their size in bytes, and at least so much that there are at most [`KEPT`].
#[derive(Clone, Debug)]
struct Bytes;

impl Weighter<String, Arc<Seen>> for Bytes {
    fn weight(&self, name: &String, seen: &Arc<Seen>) -> u64 {
        let bytes =
            (name.len() + size_of::<Seen>() + size_of::<RedirectTarget>() + text_of(&seen.target)) as u64;
        bytes.max(KEPT_BYTES.div_ceil(KEPT as u64))
    }
}

/// The size of the texts of a target, in bytes.
fn text_of(target: &RedirectTarget) -> usize {
    let details = &target.details;
    let texts = [&details.expired_url, &details.ios, &details.android];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    // An entry of a map takes about as much as two texts without their letters.
    let entry = |(country, url): (&String, &String)| 2 * size_of::<String>() + country.len() + url.len();
    let geo: usize = details.geo.iter().flatten().map(entry).sum();
    target.link_id.len() + target.url.len() + texts + geo
}

/// The reason why a target could not be determined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookUpError {
    #[error(transparent)]
    Away(#[from] Away),
    #[error(transparent)]
    Store(StoreError),
}

impl From<LookUpError> for ApiError {
    fn from(error: LookUpError) -> Self {
        match error {
            LookUpError::Away(Away) => {
                Self::new(Code::ServiceUnavailable, "The link cannot be looked up now. Try again later.")
            }
            LookUpError::Store(error) => error.into(),
        }
    }
}

/// Domain and lower-case key.
type Name = (String, String);

/// The cache key of a link. A domain contains no slash.
fn joined(domain: &str, folded_key: &str) -> String {
    [domain, "/", folded_key].concat()
}

impl Targets {
    /// Requires a tokio runtime.
    pub(crate) fn new(store: Store, availability: Availability, clock: Clock, max_stale: Duration) -> Self {
        let known = Arc::new(Known {
            store,
            clock,
            seen: Cache::with_weighter(KEPT, KEPT_BYTES, Bytes),
            missing: Cache::new(MISSING),
            max_stale: SignedDuration::try_from(max_stale).unwrap_or(SignedDuration::MAX),
            availability,
            forgotten: AtomicU64::new(0),
        });
        let (aged, names) = mpsc::channel(AT_ONCE);
        tokio::spawn(read_again(Arc::clone(&known), names));
        Self { known, aged }
    }

    /// The target of `key` on `domain`, if there is such a link.
    pub(crate) async fn find(
        &self,
        domain: &str,
        key: &str,
    ) -> Result<Option<Arc<RedirectTarget>>, LookUpError> {
        // No link has a longer key.
        if key.chars().nth(MAX_KEY).is_some() {
            return Ok(None);
        }
        let now = self.known.clock.now();
        let folded = key.to_lowercase();
        let name = joined(domain, &folded);
        let mut stale = None;
        if let Some(seen) = self.known.seen.get(&name) {
            let age = now.duration_since(seen.at).abs();
            if age < TRUSTED {
                if age >= AGED && !seen.aged.swap(true, Ordering::Relaxed) {
                    // If the queue is full, a later visit reads the target when it has expired.
                    let _full = self.aged.try_send((domain.to_owned(), folded));
                }
                return Ok(Some(Arc::clone(&seen.target)));
            }
            if age < self.known.max_stale {
                stale = Some(Arc::clone(&seen.target));
            }
        } else if self.known.missing.get(&name).is_some_and(|at| now.duration_since(at).abs() < TRUSTED) {
            return Ok(None);
        }
        // Boxed, so that the usual case does not carry this future.
        Box::pin(Known::read_or_trust(&self.known, name, domain, &folded, now, stale)).await
    }

    /// Invalidates a link. Call this after each creation and change of a link.
    pub(crate) fn forget(&self, domain: &str, key: &str) {
        self.known.forgotten.fetch_add(1, Ordering::SeqCst);
        let name = joined(domain, &key.to_lowercase());
        self.known.seen.remove(&name);
        self.known.missing.remove(&name);
    }
}

impl Known {
    /// Reads a target from the database. Falls back to the cached target while the database is unavailable.
    async fn read_or_trust(
        &self,
        name: String,
        domain: &str,
        folded_key: &str,
        now: Timestamp,
        stale: Option<Arc<RedirectTarget>>,
    ) -> Result<Option<Arc<RedirectTarget>>, LookUpError> {
        // While the database is suspected, the cached target is as good as it will be after the wait.
        if stale.is_none() || self.availability.is_certain() {
            let patience = if stale.is_some() { PATIENCE } else { LONG_PATIENCE };
            let reading = tokio::time::timeout(patience, self.read(name, domain, folded_key, now));
            match self.availability.while_available(reading).await {
                Ok(Ok(Ok(found))) => return Ok(found),
                Ok(Ok(Err(StoreError::Database(error)))) => self.availability.suspect(&error),
                Ok(Ok(Err(error))) => return Err(LookUpError::Store(error)),
                Ok(Err(elapsed)) => self.availability.suspect(&elapsed),
                Err(Away) => {}
            }
        }
        stale.map(Some).ok_or(LookUpError::Away(Away))
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
            self.missing.insert(name.clone(), now);
            if self.forgotten.load(Ordering::SeqCst) != forgotten {
                // The link may have been created since the read.
                self.missing.remove(&name);
            }
            return Ok(None);
        };
        Ok(Some(self.keep(&name, now, target, forgotten)))
    }

    /// Caches a target that was read after `forgotten` invalidations.
    fn keep(&self, name: &str, at: Timestamp, target: RedirectTarget, forgotten: u64) -> Arc<RedirectTarget> {
        let target = Arc::new(normalized(target));
        let seen = Seen { at, target: Arc::clone(&target), aged: AtomicBool::new(false) };
        self.seen.insert(name.to_owned(), Arc::new(seen));
        if self.forgotten.load(Ordering::SeqCst) != forgotten {
            // The link may have changed since the read.
            self.seen.remove(name);
        }
        target
    }
}

/// Refreshes the scheduled targets until the cache is dropped.
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
            // Missing links were deleted. The next visit finds this out.
            Ok(Ok(targets)) => {
                for ((domain, key), target) in targets {
                    known.keep(&joined(&domain, &key), now, target, forgotten);
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "could not refresh cached links"),
            Err(elapsed) => known.availability.suspect(&elapsed),
        }
        gathered.clear();
    }
}

/// A target with destinations that headers can contain, and without the texts that redirects do not need.
fn normalized(mut target: RedirectTarget) -> RedirectTarget {
    let details = &mut target.details;
    for text in [
        &mut details.title,
        &mut details.description,
        &mut details.image,
        &mut details.video,
        &mut details.comments,
        &mut details.program_id,
        &mut details.partner_id,
    ] {
        *text = None;
    }
    let others = [&mut details.ios, &mut details.android, &mut details.expired_url];
    let by_country = details.geo.iter_mut().flat_map(|geo| geo.values_mut());
    for destination in others.into_iter().flatten().chain(by_country).chain([&mut target.url]) {
        // All other destinations keep their bytes. A header has only visible ASCII characters.
        if !destination.bytes().all(|byte| byte.is_ascii_graphic())
            && let Ok(url) = Url::parse(destination)
        {
            *destination = url.into();
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::links::Details;

    fn target(url: usize, geo: usize, comments: usize) -> RedirectTarget {
        let text = |length: usize| "x".repeat(length);
        let geo = (geo > 0).then(|| BTreeMap::from([("DE".to_owned(), text(geo))]));
        let details = Details { geo, comments: Some(text(comments)), ..Details::default() };
        let (link_id, url) = ("link_1".to_owned(), format!("https://example.com/{}", text(url)));
        normalized(RedirectTarget { link_id, workspace_seq: 1, url, details })
    }

    #[test]
    fn the_cache_has_a_maximum_number_of_targets_and_of_bytes() {
        //  lengths of the destination, of that of a country and of the comments, and about how many of these targets are kept
        for (url, geo, comments, kept) in [
            (0, 0, 0, KEPT),
            (100, 0, 32_000, KEPT),
            (32_000, 0, 0, KEPT_BYTES as usize / 32_400),
            (32_000, 32_000, 0, KEPT_BYTES as usize / 64_400),
        ] {
            let cache = Cache::with_weighter(KEPT, KEPT_BYTES, Bytes);
            let target = Arc::new(target(url, geo, comments));
            for number in 0..KEPT + KEPT / 10 {
                let (at, target) = (Timestamp::UNIX_EPOCH, Arc::clone(&target));
                cache.insert(
                    format!("s.test/{number}"),
                    Arc::new(Seen { at, target, aged: AtomicBool::new(false) }),
                );
            }
            assert!(cache.weight() <= KEPT_BYTES, "{} bytes", cache.weight());
            let found = cache.len();
            assert!(found <= kept && found >= kept * 4 / 5, "{found} of {url}, {geo} and {comments} bytes");
        }
    }
}
