//! What became of a request, as it is counted in metrics.

use core::fmt;

/// What became of a request. A request may have several: one of an unknown key may be limited, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Passed on, its quota consumed.
    Allowed,
    /// Refused: a quota is used up.
    Limited,
    /// A quota in shadow mode, or any quota of a filter in shadow mode, would have refused it.
    ShadowLimited,
    /// Refused: the plan lacks the class.
    NotInPlan,
    /// Its key is unknown, or it has several.
    UnknownKey,
    /// It has no key.
    MissingKey,
    /// Upstreams may read its path in ways that select different rules.
    AmbiguousPath,
    /// Passed untouched.
    Exempt,
    /// Counted in the record that strangers share whose entry is full.
    Overflow,
    /// The directory, which may know its key, has not answered.
    NotReady,
    /// Could not be counted; `on_error` decided.
    Error,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Allowed,
        Self::Limited,
        Self::ShadowLimited,
        Self::NotInPlan,
        Self::UnknownKey,
        Self::MissingKey,
        Self::AmbiguousPath,
        Self::Exempt,
        Self::Overflow,
        Self::NotReady,
        Self::Error,
    ];

    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Limited => "limited",
            Self::ShadowLimited => "shadow_limited",
            Self::NotInPlan => "not_in_plan",
            Self::UnknownKey => "unknown_key",
            Self::MissingKey => "missing_key",
            Self::AmbiguousPath => "ambiguous_path",
            Self::Exempt => "exempt",
            Self::Overflow => "overflow",
            Self::NotReady => "not_ready",
            Self::Error => "error",
        }
    }

    /// Whether requests of subscribers, or else of strangers, can come to this.
    #[must_use]
    pub const fn is_of(self, subscriber: bool) -> bool {
        match self {
            Self::Limited | Self::ShadowLimited | Self::AmbiguousPath | Self::Error => true,
            Self::Allowed | Self::NotInPlan => subscriber,
            Self::UnknownKey | Self::MissingKey | Self::Exempt | Self::Overflow | Self::NotReady => {
                !subscriber
            }
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

impl From<Outcome> for Outcomes {
    fn from(outcome: Outcome) -> Self {
        Self(1 << outcome as u16)
    }
}
