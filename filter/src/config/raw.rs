//! The configuration as it is written, before anything is checked but types and field names.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, MapAccess, SeqAccess, Visitor};

use super::rate::{Grant, QuotaTerms, Rate};
use crate::quota::Mode;
use crate::request::readings::UpstreamPaths;
use crate::window::Window;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
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
    #[serde(default)]
    pub(super) plan_source: Option<PlanSource>,
    #[serde(default)]
    pub(super) directory: Option<Directory>,
    #[serde(default)]
    pub(super) count_by: CountBy,
    #[serde(default)]
    pub(super) unknown_key: Stranger,
    #[serde(default)]
    pub(super) missing_key: Stranger,
    #[serde(default)]
    pub(super) ipv6_prefix: Option<u8>,
    #[serde(default)]
    pub(super) not_in_plan: NotInPlan,
    #[serde(default)]
    pub(super) headers: Headers,
    #[serde(default)]
    pub(super) usage_path: Option<String>,
    #[serde(default)]
    pub(super) enforcement: Enforcement,
    #[serde(default)]
    pub(super) on_error: OnError,
    #[serde(default)]
    pub(super) counters: Counters,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) name: String,
    #[serde(default)]
    pub(super) cost: Option<u32>,
    #[serde(rename = "match", default)]
    pub(super) matches: Vec<Match>,
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
    pub(super) interval: Option<String>,
    pub(super) bearer: Option<String>,
    #[serde(default)]
    pub(super) not_ready: NotReady,
    pub(super) max_stale: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NotReady {
    #[default]
    Pass,
    Unavailable,
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
    pub(super) local_percent: Option<u8>,
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
pub(super) enum Limits {
    #[default]
    Sent,
    Configured,
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

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum CountBy {
    #[default]
    Key,
    Subscriber,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stranger {
    pub(super) action: Action,
    pub(super) quotas: Option<Vec<Quota>>,
}

impl Default for Stranger {
    fn default() -> Self {
        Self { action: Action::Limit, quotas: None }
    }
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Limit,
    Reject,
    Pass,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NotInPlan {
    pub(super) status: u16,
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
}

impl Default for Headers {
    fn default() -> Self {
        Self { x_ratelimit: true, x_ratelimit_limit: LimitHeader::PerHour, ietf: true, expose_cors: true }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LimitHeader {
    PerHour,
    PerWindow,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Enforcement {
    #[default]
    Enforced,
    Shadow,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnError {
    #[default]
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Counters {
    pub(super) known: u32,
    pub(super) strangers: u32,
}

impl Default for Counters {
    fn default() -> Self {
        Self { known: 262_144, strangers: 8192 }
    }
}

/// A JSON object whose keys are names that the user chose: in their order, and refused if one stands twice.
pub(super) struct Entries<T>(pub(super) Vec<(String, T)>);

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
                    let value = map.next_value()?;
                    if entries.iter().any(|(other, _)| *other == name) {
                        return Err(de::Error::custom(format_args!("{name:?} stands twice")));
                    }
                    entries.push((name, value));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

/// What replaces a plan's classes, as JSON: `{"standard": ["5000/minute"], "analytics": "unlimited"}`.
#[derive(Debug, Default)]
pub struct Grants(pub Vec<(String, Grant)>);

impl<'de> Deserialize<'de> for Grants {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Entries(entries) = Entries::<Quotas>::deserialize(deserializer)?;
        Ok(Self(entries.into_iter().map(|(class, Quotas(grant))| (class, grant)).collect()))
    }
}

/// [`Grant`], as JSON.
struct Quotas(Grant);

impl<'de> Deserialize<'de> for Quotas {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuotasVisitor;

        impl<'de> Visitor<'de> for QuotasVisitor {
            type Value = Quotas;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a list of quotas such as ["60/minute"], or "unlimited""#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                match text {
                    "unlimited" => Ok(Quotas(Grant::Unlimited)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                let quotas: Vec<Quota> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Quotas(Grant::Quotas(quotas.into_iter().map(|Quota(terms)| terms).collect())))
            }
        }

        deserializer.deserialize_any(QuotasVisitor)
    }
}

/// [`QuotaTerms`], as JSON: `"60/minute"`, or an object that says more.
pub(super) struct Quota(pub(super) QuotaTerms);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaObject {
    limit: std::num::NonZeroU32,
    #[serde(deserialize_with = "from_text")]
    window: Window,
    name: Option<String>,
    #[serde(default)]
    mode: QuotaMode,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum QuotaMode {
    #[default]
    Enforced,
    Shadow,
}

fn from_text<'de, D: de::Deserializer<'de>>(deserializer: D) -> Result<Window, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuotaVisitor;

        impl<'de> Visitor<'de> for QuotaVisitor {
            type Value = Quota;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a quota such as "60/minute" or {"limit": 60, "window": "90s"}"#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                let rate = text.parse().map_err(E::custom)?;
                Ok(Quota(QuotaTerms { rate, name: None, mode: Mode::Enforced }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let QuotaObject { limit, window, name, mode } =
                    QuotaObject::deserialize(MapAccessDeserializer::new(map))?;
                let mode = match mode {
                    QuotaMode::Enforced => Mode::Enforced,
                    QuotaMode::Shadow => Mode::Shadow,
                };
                Ok(Quota(QuotaTerms { rate: Rate { limit, window }, name, mode }))
            }
        }

        deserializer.deserialize_any(QuotaVisitor)
    }
}
