//! What a request holds while it runs: its permits, and the room for its body.
//!
//! It is released when the response begins. If a client disconnects, the threads in the background that the request has started
//! continue. Each of them shares what the request holds, so that a client cannot start more of them than it has permits.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

tokio::task_local! {
    static HELD: Held;
}

/// What a request holds. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<Mutex<Vec<Box<dyn Any + Send>>>>);

impl Held {
    /// Runs a request, which may [`hold`] something until it ends.
    pub(crate) async fn during<T>(request: impl Future<Output = T>) -> T {
        HELD.scope(Self::default(), request).await
    }

    /// What the current request holds.
    pub(crate) fn of_request() -> Self {
        HELD.try_with(Clone::clone).unwrap_or_default()
    }

    fn add(&self, thing: impl Any + Send) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(thing));
    }
}

/// Takes something of a type from what the current request holds.
pub(crate) fn take<T: Any>() -> Option<T> {
    let held = Held::of_request();
    let mut things = held.0.lock().unwrap_or_else(PoisonError::into_inner);
    let thing =
        things.iter().position(|thing| thing.as_ref().is::<T>()).map(|index| things.swap_remove(index))?;
    let thing: Box<dyn Any> = thing;
    thing.downcast().ok().map(|thing| *thing)
}

/// Holds something until the response of the current request begins.
pub(crate) fn hold(thing: impl Any + Send) {
    Held::of_request().add(thing);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::background;

    #[tokio::test]
    async fn a_request_holds_something_until_it_and_its_threads_end() {
        let thing = Arc::new(());
        Held::during(async {
            hold(Arc::clone(&thing));
            assert_eq!(Arc::strong_count(&thing), 2);
        })
        .await;
        assert_eq!(Arc::strong_count(&thing), 1);

        Held::during(async {
            hold(Arc::clone(&thing));
            hold(7);
            assert_eq!(take::<i32>(), Some(7));
            assert_eq!(take::<i32>(), None);
            assert_eq!(Arc::strong_count(&thing), 2, "something else is still held");
            drop(take::<Arc<()>>());
            assert_eq!(Arc::strong_count(&thing), 1);
        })
        .await;

        let (end, ended) = mpsc::channel::<()>();
        let mut request = Box::pin(Held::during(async {
            hold(Arc::clone(&thing));
            background::run(move || ended.recv()).await
        }));
        assert!(futures_util::poll!(&mut request).is_pending());
        drop(request);
        assert_eq!(Arc::strong_count(&thing), 2, "the client is gone, and the thread is not");
        drop(end);
        while Arc::strong_count(&thing) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
