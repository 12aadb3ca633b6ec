//! Callbacks that receive log lines, traces and other events as they occur.

use std::fmt;

/// Receives each `T`, on the thread where it occurs.
pub(crate) struct Sink<T>(Box<dyn Fn(&T) + Send + Sync>);

impl<T> Sink<T> {
    pub(crate) fn new(sink: impl Fn(&T) + Send + Sync + 'static) -> Self {
        Self(Box::new(sink))
    }

    pub(crate) fn tell(&self, what: &T) {
        (self.0)(what);
    }
}

impl<T> fmt::Debug for Sink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}
