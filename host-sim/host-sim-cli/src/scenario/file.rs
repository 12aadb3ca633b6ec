//! What a scenario's file holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    path::PathBuf,
    str::FromStr,
};

use bytes::Bytes;
use host_sim::{EnvoyVersion, FailurePolicy, Framing, Plugin, Request, property_path};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::{
    answer::{Answers, duration},
    expect::Expect,
    message::message,
};

/// A scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The filter's configuration, in place of the command's: the path of a file, or the configuration itself.
    pub config: Option<Value>,
    /// What the scenario shows.
    pub name: Option<String>,
    /// Filters that a request passes after the command's, in order.
    #[serde(default)]
    pub then: Vec<Link>,
    /// How many workers there are.
    #[serde(default = "one")]
    pub workers: usize,
    /// In which pieces bodies come to the filter: `envoy` (unless given), `http1`, `http2` or a number of bytes.
    #[serde(default, deserialize_with = "named")]
    pub framing: Framing,
    /// `per_connection_buffer_limit_bytes`: how much of a body a filter may hold; 1 MiB unless given.
    pub buffer_limit: Option<usize>,
    /// Whether 1 from a headers callback lets body callbacks run.
    #[serde(default)]
    pub allow_on_headers_stop_iteration: bool,
    /// The first Envoy that behaves so, as in `1.40`; 1.36 unless given.
    #[serde(default = "oldest", deserialize_with = "named")]
    pub since: EnvoyVersion,
    /// When it begins; 2026-01-01T00:00:00Z unless given.
    pub clock: Option<Timestamp>,
    /// What the upstream answers; 200 unless given. A list is answered in its order, and its last goes on.
    #[serde(default)]
    pub upstream: Answers,
    /// What happens when a VM fails, in place of what the configuration says.
    pub failure_policy: Option<FailurePolicy>,
    /// The host calls and callbacks that there are for the filter; all unless given.
    #[serde(default)]
    pub allowed_capabilities: BTreeSet<String>,
    /// Clusters that the filter can call, and what they answer, as for `upstream`.
    #[serde(default)]
    pub clusters: BTreeMap<String, Answers>,
    /// In place of steps: the filter refuses its configuration, and this text is in the reason or in a line of its log.
    pub refused: Option<String>,
    /// What happens, in order.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// A filter of the chain. What is not given is as of the command's filter, but its configuration and name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its module's file, seen from the scenario.
    pub wasm: Option<PathBuf>,
    /// The plugin's name.
    #[serde(default)]
    pub name: String,
    /// Its `root_id`.
    pub root_id: Option<String>,
    /// Its `vm_id`.
    pub vm_id: Option<String>,
    /// Its configuration: the path of a file, or the configuration itself.
    pub config: Option<Value>,
    /// What happens when its VM fails.
    pub failure_policy: Option<FailurePolicy>,
}

impl Link {
    /// The plugin, with what is not given as of `first`.
    pub fn plugin(&self, first: &Plugin) -> Plugin {
        let mut plugin = first.clone().name(&self.name);
        plugin.configuration = Bytes::new();
        plugin.root_id = self.root_id.clone().unwrap_or(plugin.root_id);
        plugin.vm_id = self.vm_id.clone().unwrap_or(plugin.vm_id);
        plugin.failure_policy = self.failure_policy.unwrap_or(plugin.failure_policy);
        plugin
    }
}

/// Something that is given by its name or by a number.
fn named<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    let given = Value::deserialize(deserializer)?;
    let text = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
    text.parse().map_err(D::Error::custom)
}

fn oldest() -> EnvoyVersion {
    EnvoyVersion::V1_36
}

fn one() -> usize {
    1
}

/// The values of a header: one, or several lines of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts; numbers, yes and no need quotes")]
pub enum Lines {
    /// One line.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Lines {
    /// Each line.
    pub fn iter(&self) -> impl Iterator<Item = &String> {
        match self {
            Self::One(line) => std::slice::from_ref(line).iter(),
            Self::Several(lines) => lines.iter(),
        }
    }
}

/// One thing that happens. Exactly one of its kinds is given.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// What the step shows.
    pub name: Option<String>,
    /// A request is sent.
    pub request: Option<Call>,
    /// How often the request is sent; each time the expectations hold.
    pub repeat: Option<u32>,
    /// Requests are sent at the same time.
    pub interleave: Option<Interleave>,
    /// What the upstream answers to the requests of this step, in place of the scenario's answer.
    pub upstream: Option<Answers>,
    /// Time goes by, and timers fire on the way: `60s`, `1h 30m`.
    #[serde(deserialize_with = "duration")]
    pub advance: Option<SignedDuration>,
    /// The wall is set; the monotonic clock stands.
    pub wall: Option<Timestamp>,
    /// Host calls fail.
    pub fault: Option<FaultStep>,
    /// All faults end.
    pub clear_faults: Option<bool>,
    /// The filter gets a new configuration: the path of a file, or the configuration itself.
    pub update: Option<Value>,
    /// What is expected.
    pub expect: Expect,
}

message! {
    /// A request.
    #[derive(Debug, Clone, Deserialize)]
    pub struct Call as Request {
        /// The worker that serves it.
        #[serde(default)]
        pub worker: usize,
        /// The method; GET unless given.
        #[serde(default = "get")]
        pub method: String,
        /// The path with its query.
        pub path: String,
        /// The authority; `localhost` unless given.
        pub authority: Option<String>,
        /// Whether it is sent by HTTP/2.
        #[serde(default)]
        pub http2: bool,
        /// The client's address and port.
        pub source: Option<String>,
        /// Properties, by their parts joined with dots; a part that holds dots itself is in double quotes.
        #[serde(default)]
        pub properties: BTreeMap<String, Value>,
    }
}

impl Call {
    /// The request that it describes.
    pub fn request(&self) -> Request {
        let mut request = self.with_body(Request::new(self.method.clone(), self.path.clone()));
        if let Some(authority) = &self.authority {
            request = request.authority(authority.clone());
        }
        if let Some(source) = &self.source {
            request = request.source(source.clone());
        }
        if self.http2 {
            request = request.http2();
        }
        for (path, value) in &self.properties {
            request = request.property(property_path(path), host_sim::Value::from(value.clone()));
        }
        self.with_fields(request)
    }
}

fn get() -> String {
    "GET".to_owned()
}

/// Requests that are sent at the same time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interleave {
    /// The seed that decides which VM goes on; 0 unless given.
    #[serde(default)]
    pub seed: u64,
    /// The requests; those to one worker follow each other.
    pub requests: Vec<Call>,
}

/// A host call that fails.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultStep {
    /// The host call, as in `proxy_set_shared_data`.
    pub call: String,
    /// The status that it answers, as in `CasMismatch`.
    pub status: String,
    /// How many of the next calls fail; one unless given.
    pub times: Option<u64>,
    /// Every call fails.
    #[serde(default)]
    pub every: bool,
    /// The first call that fails, counted from 1.
    pub nth: Option<u64>,
    /// Only calls of this worker's VM count.
    pub worker: Option<usize>,
}
