//! What filters put into a stream for each other: Envoy's filter state.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;

use crate::lock::lock;

/// What filters have put into a stream for each other. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilterState(Arc<Mutex<BTreeMap<Vec<u8>, StateObject>>>);

/// What a guest declared a property to be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Declared {
    /// It can be set only once.
    pub(crate) readonly: bool,
    /// Expressions take it for text, not for bytes.
    pub(crate) text: bool,
}

/// A value of the filter state.
#[derive(Debug, Clone)]
pub(crate) enum StateValue {
    Bytes(Bytes),
    Text(Bytes),
    /// Has an `ip` and a `port`.
    Address(SocketAddr),
    /// Is there, but cannot be read.
    Hidden,
}

/// An object of the filter state.
#[derive(Debug, Clone)]
pub(crate) struct StateObject {
    pub(crate) value: StateValue,
    /// It was declared to be set only once.
    pub(crate) readonly: bool,
}

impl FilterState {
    /// The value of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<StateValue> {
        let objects = lock(&self.0);
        objects.get(name).map(|object| object.value.clone())
    }

    /// The value of this name as an access log has it, if it is a text.
    pub(crate) fn text(&self, name: &[u8]) -> Option<String> {
        match self.get(name)? {
            StateValue::Bytes(text) | StateValue::Text(text) => {
                Some(String::from_utf8_lossy(&text).into_owned())
            }
            StateValue::Address(_) | StateValue::Hidden => None,
        }
    }

    /// All values, by name.
    #[cfg(feature = "expressions")]
    pub(crate) fn all(&self) -> Vec<(Bytes, StateValue)> {
        let objects = lock(&self.0);
        objects.iter().map(|(name, object)| (name.clone().into(), object.value.clone())).collect()
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
