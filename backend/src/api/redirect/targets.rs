//! A cache of short-link destinations.
//!
//! A visit waits for the database only if the link is not in the cache. A target that was read too long ago is still used, and read again in the
//! background. A change that another process makes therefore takes effect one visit later.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::FixedState;
use jiff::{SignedDuration, Timestamp};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;
use url::Url;

use crate::domain::clock::Clock;
use crate::domain::key::MAX_KEY;
use crate::http::error::ApiError;
use crate::store::{RedirectTarget, Store, StoreError};

/// Maximum number of cached targets of usual size.
const KEPT: usize = 100_000;
/// Maximum size of all cached targets, in bytes. A target may have 64 KiB.
const KEPT_BYTES: u64 = 128 * 1024 * 1024;
/// Maximum number of keys that are known to have no link. Each has at most 190 characters.
const MISSING: usize = 10_000;
/// Age up to which a target, and the knowledge that there is none, are not read again. Changes through this process take effect at once.
const FRESH: SignedDuration = SignedDuration::from_secs(1);
/// Maximum number of targets that are read again at once. What else is too old is read again after a later visit.
const AGAIN_AT_ONCE: usize = 4;
/// Maximum wait of a visit for the database.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The cache of targets.
#[derive(Debug)]
pub(crate) struct Targets {
    known: Arc<Known>,
    /// Permits to read targets again.
    again: Arc<Semaphore>,
}

#[derive(Debug)]
struct Known {
    store: Store,
    clock: Clock,
    seen: Cache<String, Arc<Seen>, Bytes>,
    /// When a key was found to have no link. Anybody can ask for such keys, which must not displace targets.
    missing: Cache<String, Timestamp>,
    /// Maximum age of a target that is used.
    max_stale: SignedDuration,
    /// Numbers of invalidations so far, by a hash of the name. A link that is read while another one changes is kept.
    forgotten: [AtomicU64; 1_024],
}

#[derive(Debug)]
struct Seen {
    at: Timestamp,
    target: Arc<RedirectTarget>,
    /// It is going to be read again.
    is_scheduled: AtomicBool,
}

impl Seen {
    fn new(at: Timestamp, target: RedirectTarget) -> Arc<Self> {
        Arc::new(Self { at, target: Arc::new(normalized(target)), is_scheduled: AtomicBool::new(false) })
    }
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

/// The cache key of a link. A domain contains no slash.
fn joined(domain: &str, folded_key: &str) -> String {
    [domain, "/", folded_key].concat()
}

impl Targets {
    pub(crate) fn new(store: Store, clock: Clock, max_stale: Duration) -> Self {
        let known = Arc::new(Known {
            store,
            clock,
            seen: Cache::with_weighter(KEPT, KEPT_BYTES, Bytes),
            missing: Cache::new(MISSING),
            max_stale: SignedDuration::try_from(max_stale).unwrap_or(SignedDuration::MAX).max(FRESH),
            forgotten: [const { AtomicU64::new(0) }; _],
        });
        Self { known, again: Arc::new(Semaphore::new(AGAIN_AT_ONCE)) }
    }

    /// The target of `key` on `domain`, if there is such a link. Requires a tokio runtime.
    pub(crate) async fn find(
        &self,
        domain: &str,
        key: &str,
    ) -> Result<Option<Arc<RedirectTarget>>, ApiError> {
        // No link has a longer key.
        if key.chars().nth(MAX_KEY).is_some() {
            return Ok(None);
        }
        let now = self.known.clock.now();
        let folded = key.to_lowercase();
        let name = joined(domain, &folded);
        if let Some(seen) = self.known.seen.get(&name) {
            let age = now.duration_since(seen.at).abs();
            if age < self.known.max_stale {
                if age > FRESH && !seen.is_scheduled.swap(true, Ordering::Relaxed) {
                    self.read_again(Arc::clone(&seen), domain.to_owned(), folded, now);
                }
                return Ok(Some(Arc::clone(&seen.target)));
            }
        } else if self.known.missing.get(&name).is_some_and(|at| now.duration_since(at).abs() < FRESH) {
            return Ok(None);
        }
        // Boxed, so that the usual case does not carry this future.
        Box::pin(bounded(self.known.read(name, domain, &folded, now))).await
    }

    /// Reads a cached target again, unless too many are being read. If that fails, a later visit does it.
    fn read_again(&self, seen: Arc<Seen>, domain: String, folded_key: String, now: Timestamp) {
        let (known, permit) = (Arc::clone(&self.known), Arc::clone(&self.again).try_acquire_owned());
        tokio::spawn(async move {
            let Ok(_permit) = permit else { return seen.is_scheduled.store(false, Ordering::Relaxed) };
            let name = joined(&domain, &folded_key);
            if let Err(error) = bounded(known.read(name, &domain, &folded_key, now)).await {
                tracing::debug!(%error, "could not read a cached link again");
                seen.is_scheduled.store(false, Ordering::Relaxed);
            }
        });
    }

    /// Invalidates a link. Call this after each creation and change of a link.
    pub(crate) fn forget(&self, domain: &str, key: &str) {
        let name = joined(domain, &key.to_lowercase());
        self.known.forgotten(&name).fetch_add(1, Ordering::SeqCst);
        self.known.seen.remove(&name);
        self.known.missing.remove(&name);
    }
}

/// Waits for a query as long as a visit does.
async fn bounded<T>(query: impl Future<Output = Result<T, StoreError>>) -> Result<T, ApiError> {
    Ok(tokio::time::timeout(MAX_WAIT, query).await.map_err(|_elapsed| ApiError::unavailable())??)
}

impl Known {
    async fn read(
        &self,
        name: String,
        domain: &str,
        folded_key: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<RedirectTarget>>, StoreError> {
        let forgotten = self.forgotten(&name);
        let before = forgotten.load(Ordering::SeqCst);
        let target =
            self.store.redirect_target(domain, folded_key).await?.map(|target| Seen::new(now, target));
        match &target {
            Some(seen) => self.seen.insert(name.clone(), Arc::clone(seen)),
            None => {
                self.seen.remove(&name);
                self.missing.insert(name.clone(), now);
            }
        }
        if forgotten.load(Ordering::SeqCst) != before {
            // The link may have been created or changed since the read.
            self.seen.remove(&name);
            self.missing.remove(&name);
        }
        Ok(target.map(|seen| Arc::clone(&seen.target)))
    }

    /// The number of invalidations of this link, and of some others.
    fn forgotten(&self, name: &str) -> &AtomicU64 {
        let hash = FixedState::default().hash_one(name);
        &self.forgotten[hash as usize % self.forgotten.len()]
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
    use crate::domain::link::Details;

    fn target(url: usize, geo: usize, comments: usize) -> RedirectTarget {
        let text = |length: usize| "x".repeat(length);
        let geo = (geo > 0).then(|| BTreeMap::from([("DE".to_owned(), text(geo))]));
        let details = Details { geo, comments: Some(text(comments)), ..Details::default() };
        let (link_id, url) = ("link_1".to_owned(), format!("https://example.com/{}", text(url)));
        RedirectTarget { link_id, url, details }
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
            let seen = Seen::new(Timestamp::UNIX_EPOCH, target(url, geo, comments));
            for number in 0..KEPT + KEPT / 10 {
                cache.insert(format!("s.test/{number}"), Arc::clone(&seen));
            }
            assert!(cache.weight() <= KEPT_BYTES, "{} bytes", cache.weight());
            let found = cache.len();
            assert!(found <= kept && found >= kept * 4 / 5, "{found} of {url}, {geo} and {comments} bytes");
        }
    }
}
