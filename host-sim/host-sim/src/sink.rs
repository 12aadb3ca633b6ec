//! What is told of something as it happens.

use std::fmt;

/// Is told of each `T`, on the thread where it happens.
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
