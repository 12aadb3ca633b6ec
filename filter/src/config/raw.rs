//! The configuration as JSON has it: types and field names are checked, values are not.

use core::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};

use super::directory::NotReady;
use super::fleet::Limits;
use super::headers::{LimitHeader, UpstreamHeaders};
use super::rate::{Grant, QuotaTerms};
use super::{CountBy, OnError};
use crate::count::table::Capacity;
use crate::quota::Mode;
use crate::request::readings::UpstreamPaths;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) plans: Entries<Grants>,
    #[serde(default)]
    pub(super) classes: Vec<Class>,
    #[serde(default = "default_class")]
    pub(super) default_class: String,
    #[serde(default = "default_exempt")]
    pub(super) exempt: Vec<Match>,
    #[serde(default)]
    pub(super) base_path: String,
    #[serde(default)]
    pub(super) upstream_paths: UpstreamPaths,
    #[serde(default = "default_key_sources")]
    pub(super) key_sources: Vec<KeySource>,
    #[serde(default)]
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) plan_source: Option<PlanSource>,
    pub(super) directory: Option<Directory>,
    #[serde(default)]
    pub(super) count_by: CountBy,
    #[serde(default)]
    pub(super) unknown_key: Stranger,
    #[serde(default)]
    pub(super) missing_key: Stranger,
    #[serde(default = "default_ipv6_prefix")]
    pub(super) ipv6_prefix: u32,
    #[serde(default)]
    pub(super) not_in_plan: NotInPlan,
    #[serde(default)]
    pub(super) headers: Headers,
    pub(super) usage_path: Option<String>,
    #[serde(default)]
    pub(super) enforcement: Mode,
    #[serde(default)]
    pub(super) on_error: OnError,
    #[serde(default)]
    pub(super) counters: Capacity,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) fleet: Option<Fleet>,
}

fn default_class() -> String {
    "standard".to_owned()
}

fn default_exempt() -> Vec<Match> {
    vec![Match { methods: Some(vec!["OPTIONS".to_owned()]), path: None, path_prefix: None }]
}

fn default_key_sources() -> Vec<KeySource> {
    vec![KeySource {
        header: Some("authorization".to_owned()),
        scheme: Some("Bearer".to_owned()),
        query: None,
        metadata: None,
    }]
}

const fn default_ipv6_prefix() -> u32 {
    64
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) name: String,
    #[serde(default = "default_cost")]
    pub(super) cost: u32,
    #[serde(rename = "match", default)]
    pub(super) matches: Vec<Match>,
}

const fn default_cost() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Match {
    pub(super) methods: Option<Vec<String>>,
    pub(super) path: Option<String>,
    pub(super) path_prefix: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeySource {
    pub(super) header: Option<String>,
    pub(super) scheme: Option<String>,
    pub(super) query: Option<String>,
    pub(super) metadata: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanSource {
    pub(super) metadata: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Directory {
    pub(super) cluster: String,
    pub(super) path: String,
    #[serde(default = "default_interval")]
    pub(super) interval: String,
    pub(super) bearer: Option<String>,
    #[serde(default)]
    pub(super) not_ready: NotReady,
    #[serde(default = "default_max_stale")]
    pub(super) max_stale: String,
}

fn default_interval() -> String {
    "10s".to_owned()
}

fn default_max_stale() -> String {
    "0s".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fleet {
    pub(super) cluster: String,
    #[serde(default = "default_domain")]
    pub(super) domain: String,
    #[serde(default = "default_timeout")]
    pub(super) timeout: String,
    #[serde(default = "default_min_window")]
    pub(super) min_window: String,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) window_index: bool,
    #[serde(default)]
    pub(super) on_unavailable: OnUnavailable,
    pub(super) local_percent: Option<u32>,
}

fn default_domain() -> String {
    "weir".to_owned()
}

fn default_timeout() -> String {
    "250ms".to_owned()
}

fn default_min_window() -> String {
    "10s".to_owned()
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnUnavailable {
    #[default]
    Local,
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscriber {
    pub(super) id: String,
    pub(super) plan: String,
    #[serde(default)]
    pub(super) keys: Vec<String>,
    #[serde(default)]
    pub(super) limits: Grants,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stranger {
    pub(super) action: Action,
    pub(super) quotas: Option<Vec<QuotaTerms>>,
}

impl Default for Stranger {
    fn default() -> Self {
        Self { action: Action::Limit, quotas: None }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Limit,
    Reject,
    Pass,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NotInPlan {
    pub(super) status: u32,
}

impl Default for NotInPlan {
    fn default() -> Self {
        Self { status: 403 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Headers {
    pub(super) x_ratelimit: bool,
    pub(super) x_ratelimit_limit: LimitHeader,
    pub(super) ietf: bool,
    pub(super) expose_cors: bool,
    pub(super) upstream: UpstreamHeaders,
}

impl Default for Headers {
    fn default() -> Self {
        Self {
            x_ratelimit: true,
            x_ratelimit_limit: LimitHeader::PerHour,
            ietf: true,
            expose_cors: true,
            upstream: UpstreamHeaders::Replace,
        }
    }
}

/// A JSON object whose names the user chose, in their order. A repeated name is refused.
#[derive(Debug)]
pub struct Entries<T>(pub Vec<(String, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The classes of a plan, or those that a subscriber's limits replace:
/// `{"standard": ["5000/minute"], "analytics": "unlimited"}`.
pub type Grants = Entries<Grant>;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(String, T)> = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if entries.iter().any(|(other, _)| *other == name) {
                        return Err(de::Error::custom("given twice"));
                    }
                    entries.push((name, map.next_value()?));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}
