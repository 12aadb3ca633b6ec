//! The subscribers of the configuration: whose each key is, and on what terms.
//!
//! A roster does not know the plans and classes that its terms refer to, so successive configurations share it.

use std::collections::HashMap;

use super::leaf::Text;
use super::quota::{Grant, Grants};
use crate::count::fingerprint::KeyDigest;
use crate::read::fields;
use crate::window::Anchor;

/// A plan and what replaces its classes, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The plan's name.
    pub plan: String,
    /// Classes' names and what is granted in them instead of what the plan grants.
    pub limits: Vec<(String, Grant)>,
    /// Where its billing periods begin.
    pub billing_anchor: Option<Anchor>,
    /// The organisation that the subscriber belongs to.
    pub parent: Option<ParentTerms>,
}

fields! {
    /// An organisation whose subscribers share quotas.
    pub struct ParentTerms as "Parent" derive(Clone, Debug, PartialEq, Eq, Hash) {
        /// Id of the organisation. All its subscribers share one count of each class.
        pub organisation: Text,
        /// Quotas by class that all subscribers of the organisation share. Each subscriber of an organisation gives the same ones. A class that is
        /// not named here has no shared quota. The name of a quota defaults to `organisation`, followed by the window if the class has several.
        pub limits: Grants,
        /// When a billing period of the organisation begins; see a subscriber's. Each subscriber of an organisation gives the same.
        pub billing_anchor: Option<Anchor>,
    }
}

/// The subscribers and their keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// In the order of the configuration.
    pub(super) owners: Vec<Owner>,
    /// The place of the owner of each key.
    pub(super) keys: HashMap<KeyDigest, usize>,
    /// The different terms that owners have.
    pub(super) terms: Vec<Terms>,
}

/// A subscriber.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) id: String,
    /// In the order of the configuration.
    pub(super) keys: Vec<KeyDigest>,
    /// The place of its terms.
    pub(super) terms: usize,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<'r> {
    /// Its SHA-256.
    pub digest: &'r KeyDigest,
    /// Its subscriber.
    pub subscriber: &'r str,
}

impl Roster {
    /// How many keys are known.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// How many subscribers have keys.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.owners.iter().filter(|owner| !owner.keys.is_empty()).count()
    }
}
