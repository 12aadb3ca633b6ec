//! What became of a request, as it is counted in metrics.

use core::fmt;

use serde::{Serialize, Serializer};

use crate::event::table;

/// Whose requests can come to an outcome.
enum Callers {
    All,
    Subscribers,
    Strangers,
}

table! {
    /// What became of a request: its name in metrics and logs, and whose requests can come to it. A request may have several: one of an unknown
    /// key may be limited, too.
    pub enum Outcome: (&'static str, Callers) {
        /// Passed on, its quota consumed.
        Allowed = ("allowed", Callers::Subscribers),
        /// Refused: a quota is used up.
        Limited = ("limited", Callers::All),
        /// A quota in shadow mode, or any quota of a filter in shadow mode, would have refused it.
        ShadowLimited = ("shadow_limited", Callers::All),
        /// Refused: the plan lacks the class.
        NotInPlan = ("not_in_plan", Callers::Subscribers),
        /// Its key is unknown, or it has several.
        UnknownKey = ("unknown_key", Callers::Strangers),
        /// It has no key.
        MissingKey = ("missing_key", Callers::Strangers),
        /// Upstreams may read its path in ways that select different rules.
        AmbiguousPath = ("ambiguous_path", Callers::All),
        /// Passed untouched.
        Exempt = ("exempt", Callers::Strangers),
        /// Counted in the record that strangers share whose entry is full.
        Overflow = ("overflow", Callers::Strangers),
        /// The directory, which may know its key, has not answered.
        NotReady = ("not_ready", Callers::Strangers),
        /// Could not be counted; `on_error` decided.
        Error = ("error", Callers::All),
    }
}

impl Outcome {
    /// The name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.properties().0
    }

    /// Whether requests of subscribers, or else of strangers, can come to this.
    #[must_use]
    pub fn is_of(self, subscriber: bool) -> bool {
        match self.properties().1 {
            Callers::All => true,
            Callers::Subscribers => subscriber,
            Callers::Strangers => !subscriber,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The outcomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes(u16);

impl Outcomes {
    /// Adds an outcome.
    pub const fn add(&mut self, outcome: Outcome) {
        self.0 |= 1 << outcome as u16;
    }

    /// The outcomes, in the order of [`Outcome::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Outcome> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let outcome = Outcome::ALL.get(usize::try_from(left.trailing_zeros()).ok()?)?;
            // Without its lowest bit.
            left &= left.wrapping_sub(1);
            Some(*outcome)
        })
    }
}

impl Serialize for Outcomes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Outcome::name))
    }
}

impl From<Outcome> for Outcomes {
    fn from(outcome: Outcome) -> Self {
        Self(1 << outcome as u16)
    }
}
