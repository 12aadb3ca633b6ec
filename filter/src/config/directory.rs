//! Where subscribers are fetched from, and what happens until they are there.

use super::error::{ConfigError, Problem};
use super::raw;
use crate::config::rate::duration;

/// Longest wait for an answer, in seconds.
const MAX_TIMEOUT: u32 = 5;

/// A directory to poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySettings {
    /// The gateway's cluster.
    pub cluster: String,
    /// The path of the document.
    pub path: String,
    /// Seconds between polls; at least 1.
    pub interval: u32,
    /// The token that the directory asks for.
    pub bearer: Option<String>,
    /// What happens to unknown keys until the directory has answered.
    pub not_ready: NotReady,
    /// Seconds after which an answer is no longer believed; 0: never.
    pub max_stale: u32,
}

/// What happens to unknown keys until the directory has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// They pass, uncounted: they may be paying customers.
    Pass,
    /// They are refused with 503.
    Unavailable,
}

impl DirectorySettings {
    pub(super) fn check(raw: raw::Directory) -> Result<Self, ConfigError> {
        let seconds = |field: &str, given: Option<String>, default: u32| match given {
            None => Ok(default),
            Some(text) => duration(&text)
                .flatten()
                .ok_or_else(|| ConfigError::new(field, Problem::Duration(text)).within("directory")),
        };
        if raw.cluster.is_empty() {
            return Err(ConfigError::new("directory.cluster", Problem::NoneGiven));
        }
        if !raw.path.starts_with('/') {
            return Err(ConfigError::new("directory.path", Problem::NoSlash(raw.path)));
        }
        let interval = seconds("interval", raw.interval, 10)?;
        if interval == 0 {
            let problem = Problem::Range { given: 0, expected: "1 second or more" };
            return Err(ConfigError::new("directory.interval", problem));
        }
        Ok(Self {
            cluster: raw.cluster,
            path: raw.path,
            interval,
            bearer: raw.bearer,
            not_ready: match raw.not_ready {
                raw::NotReady::Pass => NotReady::Pass,
                raw::NotReady::Unavailable => NotReady::Unavailable,
            },
            max_stale: seconds("max_stale", raw.max_stale, 0)?,
        })
    }

    /// How long an answer is waited for, in milliseconds: an interval, and five seconds at most.
    #[must_use]
    pub fn timeout_milliseconds(&self) -> u32 {
        self.interval.min(MAX_TIMEOUT) * 1000
    }
}
