//! The directory: a service from which the filter fetches subscribers.

use core::fmt;

use super::leaf::{Authority, Path, Seconds, Span, Text};
use super::service::{Secret, authority};
use super::strangers::NotReady;
use crate::read::fields;

fields! {
    /// A service that lists subscribers.
    pub struct DirectorySettings as "Directory" derive(Clone) {
        /// The gateway's cluster of the directory.
        pub cluster: Text,
        /// Path of the list. A query is added to it for its other pages, and for changes.
        pub path: Path,
        /// Host that polls name as `:authority`, with or without a port. The default is the part of the cluster's name after its last vertical
        /// bar, as Istio's names have it, or the whole name if it has none. If that is not a host, the default is `weir.internal`.
        authority: Option<Authority>,
        /// Time between polls, such as `10s`, `5m` or `2h`. A poll that takes longer delays the next one.
        pub interval: Seconds<1> = "10s",
        /// How long a poll may take, from `1s` to `10m`.
        timeout: Span<1_000, 1, 600> = "5s",
        /// Bearer token that the filter sends to the directory: a string, or `{"env": "NAME"}` for the value of an environment variable of the
        /// gateway. A token in the configuration can be read in the gateway's config dump, and the value of a variable cannot. The gateway has
        /// to pass the variable to the filter: `host_env_keys` in Envoy, `valueFrom: HOST` in Istio, `env.hostKeys` in Envoy Gateway, `env`
        /// in nginx. A variable that is not set refuses the configuration. By default the filter sends no token.
        pub bearer: Option<Secret>,
        /// Policy for requests with an unknown key before the first good answer, and after `max_stale`. By default each client address has 600
        /// requests a minute.
        pub(super) not_ready: NotReady = {"action": "limit", "quotas": ["600/minute"]},
        /// Time after which the filter drops the last good answer, such as `30s`, `5m` or `2h`. `not_ready` then applies. With `0s` the
        /// filter keeps the answer for as long as the directory does not answer.
        pub max_stale: Seconds<0> = "0s",
        /// Most rows that the list may have. Rows beyond it are refused and counted, and their keys are unknown. `counters.known` is apart from it: that
        /// many callers may be active.
        pub capacity: u32 = 1048576,
    }
}

/// Without the bearer token, and without the path, which may hold a token, too.
impl fmt::Debug for DirectorySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectorySettings").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl DirectorySettings {
    /// The `:authority` of polls.
    #[must_use]
    pub fn authority(&self) -> &str {
        authority(&self.cluster, self.authority.as_ref())
    }

    /// Timeout of a poll in milliseconds.
    #[must_use]
    pub fn timeout_milliseconds(&self) -> u32 {
        self.timeout.0 * 1000
    }
}
