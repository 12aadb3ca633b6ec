//! A semaphore for each key in use, for example for each workspace with requests.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// The semaphores. Those that nothing uses are removed. They are never closed.
#[derive(Debug)]
pub(crate) struct Semaphores<K>(Mutex<HashMap<K, Arc<Semaphore>>>);

impl<K> Default for Semaphores<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Semaphores<K> {
    /// The semaphore of a key, with this number of permits if it is new.
    pub(crate) fn of(&self, key: K, permits: usize) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A permit and a waiting request each hold a clone of the semaphore.
        all.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        Arc::clone(all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(permits))))
    }

    /// The number of permits and waiting requests of a key.
    #[cfg(test)]
    pub(crate) fn uses(&self, key: &K) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).map_or(0, |semaphore| Arc::strong_count(semaphore) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semaphore_is_kept_while_something_uses_it() {
        let semaphores = Semaphores::default();
        let kept = semaphores.of("kept", 1);
        let _permit = Arc::clone(&kept).try_acquire_owned().unwrap();
        for other in ["a", "b"] {
            drop(semaphores.of(other, 1));
        }
        assert_eq!(semaphores.uses(&"kept"), 2);
        assert_eq!(semaphores.of("kept", 1).available_permits(), 0);
        let keys: Vec<_> = semaphores.0.lock().unwrap().keys().copied().collect();
        assert_eq!(keys, ["kept"]);
    }
}
