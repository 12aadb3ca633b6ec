//! What filters put into a stream for each other: Envoy's filter state.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;

use crate::lock::lock;

/// What filters have put into a stream for each other. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilterState(Arc<Mutex<BTreeMap<Vec<u8>, StateObject>>>);

/// An object of the filter state.
#[derive(Debug, Clone)]
pub(crate) struct StateObject {
    pub(crate) value: Bytes,
    /// It was declared to be set only once.
    pub(crate) readonly: bool,
}

impl FilterState {
    /// The value of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Bytes> {
        lock(&self.0).get(name).map(|object| object.value.clone())
    }

    /// Sets a value; false where the one that is there was declared to stay.
    pub(crate) fn set(&self, name: Vec<u8>, object: StateObject) -> bool {
        let mut objects = lock(&self.0);
        if objects.get(&name).is_some_and(|there| there.readonly) {
            return false;
        }
        objects.insert(name, object);
        true
    }
}
