//! The configuration as JSON has it: types and field names are checked, values are not.

use core::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};

use super::cost::{Cost, RefundFields};
use super::directory::NotReadyFields;
use super::headers::{AllowOrigin, LimitHeader, UpstreamHeaders};
use super::operators::Operators;
use super::rate::{Grant, QuotaTerms};
use super::roster::ParentTerms;
use super::{CountBy, LogFields, OnError, Secret};
use crate::count::table::Capacity;
use crate::quota::Mode;
use crate::request::readings::UpstreamPaths;

/// The configuration of Weir's filter.
///
/// Fields that are not listed here are refused.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Plans by name, each with its quotas by class.
    ///
    /// A class with `"unlimited"` in place of a list of quotas is never limited. A class that a plan does not mention is not in the plan:
    /// the filter answers 403, or the status of `not_in_plan`, and counts nothing. The name of a plan is 1 to 64 of `A-Z`, `a-z`, `0-9`,
    /// `_` and `-`. `none` is reserved.
    pub(super) plans: Entries<Grants>,
    /// Groups of endpoints that share quotas. The first class with a match wins. All other requests belong to `default_class`.
    #[serde(default)]
    pub(super) classes: Vec<Class>,
    /// Class of the requests that match no entry of `classes`. It needs no entry there.
    #[serde(default = "default_class")]
    pub(super) default_class: String,
    /// Requests that pass untouched: the filter neither identifies nor counts them, and adds no headers.
    #[serde(default = "default_exempt")]
    pub(super) exempt: Vec<Match>,
    /// Prefix that is stripped from a path before it is matched. A path outside this prefix matches only entries without a path.
    #[serde(default)]
    pub(super) base_path: String,
    /// How the upstream reads unusual paths. Each declaration makes fewer paths ambiguous.
    #[serde(default)]
    pub(super) upstream_paths: UpstreamPaths,
    /// Places where a request may carry its key. The filter answers 400 to a request with different keys.
    #[serde(default = "default_key_sources")]
    pub(super) key_sources: Vec<KeySource>,
    /// The owners of keys, each with a plan. With `directory`, more subscribers come from a service.
    #[serde(default)]
    pub(super) subscribers: Vec<Subscriber>,
    /// Takes the plan of a key without a subscriber from metadata that an authentication filter has written.
    ///
    /// `key_sources` then needs a `metadata` source such as the token's subject, because a token that is refreshed would start a new
    /// quota.
    pub(super) plan_source: Option<PlanSource>,
    /// A service that lists subscribers. Every worker polls it.
    pub(super) directory: Option<Directory>,
    /// The owner of a quota.
    #[serde(default)]
    pub(super) count_by: CountBy,
    /// Policy for requests with an unknown key.
    #[serde(default)]
    pub(super) unknown_key: Stranger,
    /// Policy for requests without a key.
    #[serde(default)]
    pub(super) missing_key: Stranger,
    /// Number of IPv6 address bits that identify a client without a known key. An IPv4 client is identified by its whole address.
    #[serde(default = "default_ipv6_prefix")]
    pub(super) ipv6_prefix: u32,
    /// The answer to a request of a class that the plan lacks. Such requests are not counted.
    #[serde(default)]
    pub(super) not_in_plan: NotInPlan,
    /// Rate-limit headers of responses.
    #[serde(default)]
    pub(super) headers: Headers,
    /// Path of the usage endpoint. The filter answers `GET` there with the limits, the remaining units and the resets of the caller's
    /// plan, and consumes no quota. Callers without a known key get 401.
    pub(super) usage_path: Option<String>,
    /// Whether the filter refuses requests. In shadow mode it counts, and reports what it would have refused.
    #[serde(default)]
    pub(super) enforcement: Mode,
    /// A debug line for each decision.
    #[serde(default)]
    pub(super) log_decisions: bool,
    /// Requests that the filter describes for access logs.
    #[serde(default)]
    pub(super) log_fields: LogFields,
    /// Policy for a request that could not be counted.
    #[serde(default)]
    pub(super) on_error: OnError,
    /// Capacity of the counters, in records. A record holds what one caller has used in one class. The first VM of a `vm_id` fixes the
    /// capacity; a later value takes effect after a restart of the gateway.
    #[serde(default)]
    pub(super) counters: Capacity,
    /// Text that is hashed into the names in shared data. It keeps two Weir filters apart that share a `vm_id`, as in Istio.
    #[serde(default)]
    pub(super) namespace: String,
    /// Makes the filter answer operators, and nothing else: they see where a subscriber stands, and reset a quota. It belongs on an internal
    /// listener, beside a filter of the same `vm_id` that has the same other fields and is on the public listener.
    pub(super) operators: Option<Operators>,
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

/// A group of endpoints that share quotas.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    /// Name of the class: 1 to 32 of `a-z`, `0-9`, `_` and `-`.
    pub(super) name: String,
    /// Units that a request of this class consumes. With an object, a request reserves units, and its actual cost takes their place once it is
    /// known.
    #[serde(default = "default_cost")]
    pub(super) cost: Cost,
    /// Responses that give back what their request was charged.
    pub(super) refund: Option<RefundFields>,
    /// Requests of this class. A class without a match can be the default class.
    #[serde(rename = "match", default)]
    pub(super) matches: Vec<Match>,
}

const fn default_cost() -> Cost {
    Cost::Fixed(1)
}

/// A condition on requests. All given fields must match, and at least one is required.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(super) struct Match {
    /// Methods in upper case. `GET` also matches `HEAD`.
    pub(super) methods: Option<Vec<String>>,
    /// Exact path. A trailing slash of the request does not matter. Excludes `path_prefix`.
    pub(super) path: Option<String>,
    /// Path and everything below it, by whole segments: `/r` matches `/r/x` and does not match `/rx`. Excludes `path`.
    pub(super) path_prefix: Option<String>,
}

/// A place where a request may carry its key. Exactly one of `header`, `query` and `metadata` is required.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(super) struct KeySource {
    /// Name of a request header.
    pub(super) header: Option<String>,
    /// Authentication scheme before the key in the header, in any case. Only with `header`.
    pub(super) scheme: Option<String>,
    /// Name of a query parameter.
    pub(super) query: Option<String>,
    /// Path of a value in the metadata of the request, as an authentication filter writes it.
    pub(super) metadata: Option<Vec<String>>,
}

/// A place that has the name of the caller's plan.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct PlanSource {
    /// Path of the plan's name in the metadata of the request.
    pub(super) metadata: Vec<String>,
}

/// A service that lists subscribers.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Directory {
    /// The gateway's cluster of the directory.
    pub(super) cluster: String,
    /// Path of the document.
    pub(super) path: String,
    /// Time between polls, such as `10s`, `5m` or `2h`. A poll times out after the interval or 5 s, whichever is shorter.
    #[serde(default = "default_interval")]
    pub(super) interval: String,
    /// Bearer token that the filter sends to the directory. Without it the filter sends none.
    pub(super) bearer: Option<Secret>,
    /// The `:authority` of polls.
    pub(super) authority: Option<String>,
    /// Policy for unknown keys before the first good answer.
    #[serde(default)]
    pub(super) not_ready: NotReadyFields,
    /// Time after which the filter drops the last good answer, such as `30s`, `5m` or `2h`. `not_ready` then applies. With `0s` the
    /// filter keeps the answer for as long as the directory does not answer.
    #[serde(default = "default_max_stale")]
    pub(super) max_stale: String,
}

fn default_interval() -> String {
    "10s".to_owned()
}

fn default_max_stale() -> String {
    "0s".to_owned()
}

/// The owner of keys.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Subscriber {
    /// Unique id.
    pub(super) id: String,
    /// Name of a plan.
    pub(super) plan: String,
    /// SHA-256 of each key, as `sha256:` and 64 hexadecimal digits. A plain key is refused.
    #[serde(default)]
    pub(super) keys: Vec<String>,
    /// Quotas by class that replace those of the plan. Classes that are not named here keep the plan's quotas.
    #[serde(default)]
    pub(super) limits: Grants,
    /// The organisation that the subscriber belongs to. A request is charged to the quotas of its key and to those of the organisation.
    pub(super) parent: Option<Parent>,
}

/// An organisation whose subscribers share quotas.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// Id of the organisation. All its subscribers share one count of each class.
    organisation: String,
    /// Quotas by class that all subscribers of the organisation share. Each subscriber of an organisation gives the same ones. A class that is
    /// not named here has no shared quota. The name of a quota defaults to `organisation`, followed by the window if the class has several.
    limits: Grants,
}

impl From<Parent> for ParentTerms {
    /// The limits in the order of the classes' names, so that limits that were written in another order are the same.
    fn from(Parent { organisation, limits: Entries(mut limits) }: Parent) -> Self {
        limits.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self { organisation, limits }
    }
}

/// Policy for requests without a known key.
#[derive(Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema, serde::Serialize),
    schemars(rename = "StrangerPolicy")
)]
#[serde(deny_unknown_fields)]
pub(super) struct Stranger {
    /// What the filter does with the request.
    pub(super) action: Action,
    /// Quotas of each client address. Only with `"action": "limit"`.
    #[cfg_attr(feature = "schema", serde(skip_serializing))]
    pub(super) quotas: Option<Vec<QuotaTerms>>,
}

impl Stranger {
    pub(super) fn new(action: Action, quotas: Option<Vec<QuotaTerms>>) -> Self {
        Self { action, quotas }
    }
}

impl Default for Stranger {
    fn default() -> Self {
        Self { action: Action::Limit, quotas: None }
    }
}

/// What the filter does with a request without a known key.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    /// Count the request per client address. Forward it while quota is left, so that the upstream answers, and refuse it after that.
    Limit,
    /// Answer 401.
    Reject,
    /// Forward the request without counting it.
    Pass,
}

/// The answer to a request of a class that the plan lacks.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(super) struct NotInPlan {
    /// Status from 400 to 499, except 429.
    pub(super) status: u32,
}

impl Default for NotInPlan {
    fn default() -> Self {
        Self { status: 403 }
    }
}

/// Rate-limit headers of responses.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub(super) struct Headers {
    /// Whether responses carry `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    pub(super) x_ratelimit: bool,
    /// What `X-RateLimit-Limit` states.
    pub(super) x_ratelimit_limit: LimitHeader,
    /// Whether responses carry `RateLimit` and `RateLimit-Policy` of the IETF draft.
    pub(super) ietf: bool,
    /// Whether `Access-Control-Expose-Headers` lists the rate-limit headers, for requests with an `Origin`.
    pub(super) expose_cors: bool,
    /// How the upstream's headers of the same names are kept from clients.
    pub(super) upstream: UpstreamHeaders,
    /// Whether responses carry them in shadow mode.
    pub(super) in_shadow: bool,
    /// Origins that may read the filter's own answers.
    pub(super) allow_origin: AllowOrigin,
}

impl Default for Headers {
    fn default() -> Self {
        Self {
            x_ratelimit: true,
            x_ratelimit_limit: LimitHeader::PerHour,
            ietf: true,
            expose_cors: true,
            upstream: UpstreamHeaders::Replace,
            in_shadow: false,
            allow_origin: AllowOrigin::None,
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
