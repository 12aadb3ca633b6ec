//! The fields of the configuration. Their comments are the configuration reference.

use super::directory::DirectorySettings;
use super::fleet::FleetSettings;
use super::headers::HeaderOptions;
use super::leaf::{BasePath, MetadataPath, Name, Path, PlanName, PrefixBits, RefusalStatus};
use super::operators::OperatorSettings;
use super::plans::Class;
use super::quota::Grants;
use super::requests::Match;
use super::strangers::StrangerPolicy;
use super::subscribers::{CountBy, Subscriber};
use super::usage::UsageSettings;
use crate::count::table::Capacity;
use crate::quota::Mode;
use crate::read::{Entries, NonEmpty, fields, words};
use crate::request::identity::KeySource;
use crate::request::readings::UpstreamPaths;

fields! {
    /// The configuration of Weir's filter.
    ///
    /// Fields that are not listed here are refused.
    pub struct Settings as "Config" derive(Debug) {
        /// Plans by name, each with its quotas by class.
        ///
        /// A class with `"unlimited"` in place of a list of quotas is never limited. A class that a plan does not mention is not in the plan:
        /// the filter answers 403, or the status of `not_in_plan`, and counts nothing. The name of a plan is 1 to 64 of `A-Z`, `a-z`, `0-9`,
        /// `_` and `-`. `none` is reserved.
        pub(super) plans: Entries<Grants, PlanName> where {"minProperties": 1}
            => {"free": {"standard": ["60/minute"]}, "pro": {"standard": ["600/minute", "100000/month"], "analytics": "unlimited"}},
        /// Groups of endpoints that share quotas. The first class with a match wins. All other requests belong to `default_class`.
        pub(super) classes: Vec<Class> = []
            => [{"name": "analytics", "match": [{"methods": ["GET"], "path": "/analytics"}]}]
            => [{"name": "chat", "cost": {"reserve": 1000, "actual": {"response_header": "x-cost"}}, "match": [{"path": "/chat"}]}]
            => [{"name": "search", "refund": {"statuses": ["5xx", 408], "grpc": ["UNAVAILABLE"]}, "match": [{"path_prefix": "/search"}]}],
        /// Class of the requests that match no entry of `classes`. It needs no entry there.
        pub(super) default_class: Name = "standard",
        /// Requests that pass untouched: the filter neither identifies nor counts them, and adds no headers.
        pub(super) exempt: Vec<Match> = [{"methods": ["OPTIONS"]}]
            => [{"methods": ["OPTIONS"]}, {"methods": ["GET"], "path_prefix": "/r"}],
        /// Prefix that is stripped from a path before it is matched. A path outside this prefix matches only entries without a path.
        pub base_path: BasePath = "" => "/v1",
        /// How the upstream reads unusual paths. Each declaration makes fewer paths ambiguous.
        pub(super) upstream_paths: UpstreamPaths = {}
            => {"merge_slashes": true, "matrix_parameters": "keep"},
        /// Places where a request may carry its key. The filter answers 400 to a request with different keys.
        pub(super) key_sources: NonEmpty<KeySource> = [{"header": "authorization", "scheme": "Bearer"}]
            => [{"header": "x-api-key"}]
            => [{"query": "api_key"}]
            => [{"metadata": ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]}],
        /// Whether the filter answers 400 to a request in which a header or a parameter of the query has another spelling of a name in `key_sources`:
        /// `X_Api_Key` beside `x-api-key`, or `?x=1;api_key=k`. Some upstreams read these as the key. The filter then
        /// finds out each caller anew, which costs as much as a key in the query.
        pub strict_headers: bool = false,
        /// The owners of keys, each with a plan. At most 10,000 keys can be listed, in a configuration of at most 4 MiB. With `directory`, more
        /// subscribers come from a service.
        pub(super) subscribers: Vec<Subscriber> = []
            => [{
                "id": "acme",
                "plan": "free",
                "keys": ["sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"],
                "limits": {"standard": ["5000/minute"]}
            }],
        /// Takes the plan of a key without a subscriber from metadata that an authentication filter has written.
        ///
        /// `key_sources` then needs a `metadata` source such as the token's subject: otherwise every refreshed token would get a fresh quota.
        pub plan_source: Option<PlanSource>
            => {"metadata": ["filter_metadata", "envoy.filters.http.jwt_authn", "payload", "plan"]},
        /// A service that lists subscribers. One worker polls it, and all share its list, which may be long: `subscribers` has at most 10,000 keys.
        pub directory: Option<DirectorySettings>
            => {"cluster": "backend-internal", "path": "/internal/keys", "bearer": {"env": "WEIR_DIRECTORY_TOKEN"}, "not_ready": "unavailable"},
        /// The owner of a quota.
        pub count_by: CountBy = "key",
        /// Policy for requests with an unknown key.
        pub(super) unknown_key: StrangerPolicy = {"action": "limit"} => {"action": "reject"},
        /// Policy for requests without a key.
        pub(super) missing_key: StrangerPolicy = {"action": "limit"} => {"action": "limit", "quotas": ["10/minute", "200/day"]},
        /// Number of IPv6 address bits that identify a client without a known key. An IPv4 client is identified by its whole address.
        pub ipv6_prefix: PrefixBits = 64,
        /// The answer to a request of a class that the plan lacks. Such requests are not counted.
        pub not_in_plan: NotInPlan = {"status": 403},
        /// Headers that the filter adds to responses.
        pub headers: HeaderOptions = {},
        /// Path of the usage endpoint. The filter answers `GET` there with the limits, the remaining units and the resets of the caller's
        /// plan, and consumes no quota. Callers without a known key get 401.
        pub(super) usage_path: Option<Path> => "/quota",
        /// Whether the filter refuses requests. In shadow mode it counts, reports what it would have refused, and adds no headers unless
        /// `headers.in_shadow` is true.
        pub enforcement: Mode = "enforced",
        /// Whether the filter writes a debug line for each decision, with the reasons. The gateway's log has these lines if its log level for
        /// Wasm is debug. They cost time with every request.
        pub log_decisions: bool = false,
        /// Requests that the gateway's access log can describe. For these, the filter state `wasm.weir` holds one line with the outcome, the
        /// subscriber, the plan, the class and the quota. In Envoy's access log format it is `%FILTER_STATE(wasm.weir:PLAIN)%`.
        pub log_fields: LogFields = "refused",
        /// Policy for a request that could not be counted.
        pub on_error: OnError = "allow",
        /// Capacity of the counters, in records. A record holds what one caller has used in one class. Capacity is fixed when the gateway
        /// starts; changing it needs a restart.
        pub counters: Capacity = {},
        /// Text that is hashed into the names in shared data. It keeps two Weir filters apart that share a `vm_id`, as in Istio.
        pub namespace: String = "",
        /// Turns this filter instance into an operator endpoint. Put it on an internal listener, with the same `vm_id` and settings as the
        /// public filter. Operators see where a subscriber stands, and reset a quota.
        pub operators: Option<OperatorSettings>
            => {"path": "/weir", "tokens": [{
                "name": "on-call",
                "token": "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
            }]},
        /// Shares quotas among gateways through a ledger. Strangers, and quotas in shadow mode, are counted by each gateway.
        pub fleet: Option<FleetSettings>
            => {"cluster": "ledger", "bearer": {"env": "WEIR_LEDGER_TOKEN"}, "on_unavailable": {"local": 10}},
        /// Reports to a service what each caller has used, in batches of CloudEvents.
        pub usage: Option<UsageSettings>
            => {"cluster": "backend-internal", "path": "/internal/usage", "bearer": {"env": "WEIR_USAGE_TOKEN"}, "thresholds": [80, 100]},
    }
}

fields! {
    /// A place that has the name of the caller's plan.
    pub struct PlanSource as "PlanSource" derive(Debug) {
        /// Path of the plan's name in the metadata of the request.
        pub metadata: MetadataPath,
    }
}

fields! {
    /// The answer to a request of a class that the plan lacks.
    pub struct NotInPlan as "NotInPlan" derive(Debug) {
        /// Status from 400 to 499, except 429.
        pub status: RefusalStatus,
    }
}

words! {
    /// The requests that the filter describes in the filter state `wasm.weir`, for access logs.
    pub enum LogFields derive(Clone, Copy, Debug, PartialEq, Eq) {
        /// No requests.
        "none" => None,
        /// Requests that the filter refuses, and those that it would refuse without shadow mode.
        "refused" => Refused,
        /// All requests that are not exempt.
        "all" => All,
    }
}

words! {
    /// Policy for a request that could not be counted.
    pub enum OnError derive(Clone, Copy, Debug, PartialEq, Eq) {
        /// Forward the request.
        "allow" => Allow,
        /// Answer 503.
        "deny" => Deny,
    }
}
