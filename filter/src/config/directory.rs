//! The directory: a service from which the filter fetches subscribers.

use core::fmt;

use serde::Deserialize;

use super::error::ConfigError;
use super::problem::Problem;
use super::raw;
use crate::config::rate::duration;

/// Upper bound of a poll's timeout, in seconds.
const MAX_TIMEOUT: u32 = 5;

/// A directory to poll.
#[derive(Clone, PartialEq, Eq)]
pub struct DirectorySettings {
    /// The gateway's cluster of the directory.
    pub cluster: String,
    /// The path of the document.
    pub path: String,
    /// Seconds between polls; at least 1.
    pub interval: u32,
    /// The bearer token that the filter sends to the directory.
    pub bearer: Option<String>,
    /// Policy for unknown keys before the first good answer.
    pub not_ready: NotReady,
    /// Seconds after which the filter drops the last good answer; 0 for never.
    pub max_stale: u32,
}

/// Without the bearer token, and without the path, which may hold a token, too.
impl fmt::Debug for DirectorySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, path: _, interval, bearer: _, not_ready, max_stale } = self;
        f.debug_struct("DirectorySettings")
            .field("cluster", cluster)
            .field("interval", interval)
            .field("not_ready", not_ready)
            .field("max_stale", max_stale)
            .finish_non_exhaustive()
    }
}

/// Policy for unknown keys before the directory's first good answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum NotReady {
    /// Forward the request without counting it: the key may be a subscriber's.
    #[default]
    Pass,
    /// Answer 503.
    Unavailable,
}

impl DirectorySettings {
    pub(super) fn check(raw: raw::Directory) -> Result<Self, ConfigError> {
        let seconds = |field, text: String| {
            duration(&text).flatten().ok_or_else(|| ConfigError::new(field, Problem::Duration).given(text))
        };
        if raw.cluster.is_empty() {
            return Err(ConfigError::new("cluster", Problem::NoneGiven));
        }
        if !raw.path.starts_with('/') {
            return Err(ConfigError::new("path", Problem::NoSlash).given(raw.path));
        }
        let interval = seconds("interval", raw.interval)?;
        if interval == 0 {
            return Err(ConfigError::new("interval", Problem::Range { expected: "1 second or more" }));
        }
        Ok(Self {
            cluster: raw.cluster,
            path: raw.path,
            interval,
            bearer: raw.bearer,
            not_ready: raw.not_ready,
            max_stale: seconds("max_stale", raw.max_stale)?,
        })
    }

    /// Timeout of a poll in milliseconds: the interval, and at most five seconds.
    #[must_use]
    pub fn timeout_milliseconds(&self) -> u32 {
        self.interval.min(MAX_TIMEOUT) * 1000
    }
}
