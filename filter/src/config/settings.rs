//! The fields of the configuration. Their comments are the configuration reference.

use serde::Deserialize;

use super::directory::DirectorySettings;
use super::entries::Entries;
use super::fleet::FleetSettings;
use super::headers::HeaderOptions;
use super::leaf::{BasePath, MetadataPath, Name, NonEmpty, Path, PrefixBits, RefusalStatus};
use super::operators::OperatorSettings;
use super::plans::Class;
use super::rate::Grants;
use super::requests::{KeySourceFields, Match, default_exempt, default_key_sources};
use super::strangers::StrangerFields;
use super::subscribers::{CountBy, Subscriber};
use crate::count::table::Capacity;
use crate::quota::Mode;
use crate::request::readings::UpstreamPaths;

/// The configuration of Weir's filter.
///
/// Fields that are not listed here are refused.
#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Config", title = "Configuration of Weir")
)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Plans by name, each with its quotas by class.
    ///
    /// A class with `"unlimited"` in place of a list of quotas is never limited. A class that a plan does not mention is not in the plan:
    /// the filter answers 403, or the status of `not_in_plan`, and counts nothing. The name of a plan is 1 to 64 of `A-Z`, `a-z`, `0-9`,
    /// `_` and `-`. `none` is reserved.
    #[cfg_attr(feature = "schema", schemars(extend(
        "minProperties" = 1,
        "propertyNames" = {"pattern": "^[A-Za-z0-9_-]{1,64}$", "not": {"const": "none"}},
        "examples" = [{"free": {"standard": ["60/minute"]}, "pro": {"standard": ["600/minute", "100000/month"], "analytics": "unlimited"}}],
    )))]
    pub(super) plans: Entries<Grants>,
    /// Groups of endpoints that share quotas. The first class with a match wins. All other requests belong to `default_class`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = [], "examples" = [
        [{"name": "analytics", "match": [{"methods": ["GET"], "path": "/analytics"}]}],
        [{"name": "chat", "cost": {"reserve": 1000, "actual": {"response_header": "x-cost"}}, "match": [{"path": "/chat"}]}],
        [{"name": "search", "refund": {"statuses": ["5xx", 408], "grpc": ["UNAVAILABLE"]}, "match": [{"path_prefix": "/search"}]}],
    ])))]
    pub(super) classes: Vec<Class>,
    /// Class of the requests that match no entry of `classes`. It needs no entry there.
    #[serde(default = "default_class")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "standard")))]
    pub(super) default_class: Name,
    /// Requests that pass untouched: the filter neither identifies nor counts them, and adds no headers.
    #[serde(default = "default_exempt")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "default" = [{"methods": ["OPTIONS"]}],
        "examples" = [[{"methods": ["OPTIONS"]}, {"methods": ["GET"], "path_prefix": "/r"}]],
    )))]
    pub(super) exempt: Vec<Match>,
    /// Prefix that is stripped from a path before it is matched. A path outside this prefix matches only entries without a path.
    #[serde(default = "default_base_path")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "", "examples" = ["/v1"])))]
    pub base_path: BasePath,
    /// How the upstream reads unusual paths. Each declaration makes fewer paths ambiguous.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("examples" = [{"merge_slashes": true, "matrix_parameters": "keep"}])))]
    pub(super) upstream_paths: UpstreamPaths,
    /// Places where a request may carry its key. The filter answers 400 to a request with different keys.
    #[serde(default = "default_key_sources")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "default" = [{"header": "authorization", "scheme": "Bearer"}],
        "examples" = [
            [{"header": "x-api-key"}],
            [{"query": "api_key"}],
            [{"metadata": ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]}],
        ],
    )))]
    pub(super) key_sources: NonEmpty<KeySourceFields>,
    /// The owners of keys, each with a plan. At most 10,000 keys can be listed, in a configuration of at most 4 MiB. With `directory`, more
    /// subscribers come from a service.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = [], "examples" = [[{
        "id": "acme",
        "plan": "free",
        "keys": ["sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"],
        "limits": {"standard": ["5000/minute"]},
    }]])))]
    pub(super) subscribers: Vec<Subscriber>,
    /// Takes the plan of a key without a subscriber from metadata that an authentication filter has written.
    ///
    /// `key_sources` then needs a `metadata` source such as the token's subject: otherwise every refreshed token would get a fresh quota.
    #[cfg_attr(feature = "schema", schemars(extend(
        "examples" = [{"metadata": ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "plan"]}],
    )))]
    pub plan_source: Option<PlanSource>,
    /// A service that lists subscribers. One worker polls it, and all share its list, which may be long: `subscribers` has at most 10,000 keys.
    #[cfg_attr(feature = "schema", schemars(extend("examples" = [{
        "cluster": "backend-internal",
        "path": "/internal/keys",
        "bearer": {"env": "WEIR_DIRECTORY_TOKEN"},
        "not_ready": "unavailable",
    }])))]
    pub directory: Option<DirectorySettings>,
    /// The owner of a quota.
    #[serde(default)]
    pub count_by: CountBy,
    /// Policy for requests with an unknown key.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {"action": "limit"}, "examples" = [{"action": "reject"}])))]
    pub(super) unknown_key: StrangerFields,
    /// Policy for requests without a key.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend(
        "default" = {"action": "limit"},
        "examples" = [{"action": "limit", "quotas": ["10/minute", "200/day"]}],
    )))]
    pub(super) missing_key: StrangerFields,
    /// Number of IPv6 address bits that identify a client without a known key. An IPv4 client is identified by its whole address.
    #[serde(default = "default_ipv6_prefix")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = 64)))]
    pub ipv6_prefix: PrefixBits,
    /// The answer to a request of a class that the plan lacks. Such requests are not counted.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {"status": 403})))]
    pub not_in_plan: NotInPlan,
    /// Headers that the filter adds to responses.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {
        "x_ratelimit": true,
        "x_ratelimit_limit": "per_hour",
        "ietf": true,
        "expose_cors": true,
        "upstream": "replace",
        "in_shadow": false,
    })))]
    pub headers: HeaderOptions,
    /// Path of the usage endpoint. The filter answers `GET` there with the limits, the remaining units and the resets of the caller's
    /// plan, and consumes no quota. Callers without a known key get 401.
    #[cfg_attr(feature = "schema", schemars(extend("examples" = ["/quota"])))]
    pub(super) usage_path: Option<Path>,
    /// Whether the filter refuses requests. In shadow mode it counts, reports what it would have refused, and adds no headers unless
    /// `headers.in_shadow` is true.
    #[serde(default)]
    pub enforcement: Mode,
    /// Whether the filter writes a debug line for each decision, with the reasons. The gateway's log has these lines if its log level for
    /// Wasm is debug. They cost time with every request.
    #[serde(default)]
    pub log_decisions: bool,
    /// Requests that the gateway's access log can describe. For these, the filter state `wasm.weir` holds one line with the outcome, the
    /// subscriber, the plan, the class and the quota. In Envoy's access log format it is `%FILTER_STATE(wasm.weir:PLAIN)%`.
    #[serde(default)]
    pub log_fields: LogFields,
    /// Policy for a request that could not be counted.
    #[serde(default)]
    pub on_error: OnError,
    /// Capacity of the counters, in records. A record holds what one caller has used in one class. Capacity is fixed when the gateway
    /// starts; changing it needs a restart.
    #[serde(default)]
    pub counters: Capacity,
    /// Text that is hashed into the names in shared data. It keeps two Weir filters apart that share a `vm_id`, as in Istio.
    #[serde(default)]
    pub namespace: String,
    /// Turns this filter instance into an operator endpoint. Put it on an internal listener, with the same `vm_id` and settings as the
    /// public filter. Operators see where a subscriber stands, and reset a quota.
    #[cfg_attr(feature = "schema", schemars(extend("examples" = [{"path": "/weir", "tokens": [{
        "name": "on-call",
        "token": "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    }]}])))]
    pub operators: Option<OperatorSettings>,
    /// Shares quotas among gateways through a ledger. Strangers, and quotas in shadow mode, are counted by each gateway.
    #[cfg_attr(feature = "schema", schemars(extend("examples" = [{
        "cluster": "ledger",
        "bearer": {"env": "WEIR_LEDGER_TOKEN"},
        "on_unavailable": {"local": 10},
    }])))]
    pub fleet: Option<FleetSettings>,
}

fn default_class() -> Name {
    Name("standard".to_owned())
}

fn default_base_path() -> BasePath {
    BasePath("".to_owned())
}

const fn default_ipv6_prefix() -> PrefixBits {
    PrefixBits(64)
}

/// A place that has the name of the caller's plan.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanSource {
    /// Path of the plan's name in the metadata of the request.
    pub metadata: MetadataPath,
}

/// The answer to a request of a class that the plan lacks.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NotInPlan {
    /// Status from 400 to 499, except 429.
    pub status: RefusalStatus,
}

impl Default for NotInPlan {
    fn default() -> Self {
        Self { status: RefusalStatus(403) }
    }
}

/// The requests that the filter describes in the filter state `wasm.weir`, for access logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum LogFields {
    /// No requests.
    None,
    /// Requests that the filter refuses, and those that it would refuse without shadow mode.
    #[default]
    Refused,
    /// All requests that are not exempt.
    All,
}

/// Policy for a request that could not be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Forward the request.
    #[default]
    Allow,
    /// Answer 503.
    Deny,
}
