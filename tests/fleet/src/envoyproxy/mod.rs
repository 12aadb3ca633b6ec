//! A service that decides as envoyproxy/ratelimit does with its Redis backend and default settings.
//!
//! It copies what a gateway can observe, at commit f2fb157 of that repository. Each row is a test in `tests/services.rs`.
//!
//! | behaviour | source |
//! |---|---|
//! | adds a call's hits first and compares afterwards: a call for more than is left is OVER_LIMIT with `limit_remaining` 0, and its hits stay counted | `src/redis/fixed_cache_impl.go` DoLimit |
//! | adds the hits of every descriptor, also when another descriptor of the call is over its limit | same |
//! | answers gRPC UNKNOWN while Redis does not answer, and for an empty domain or an empty list of descriptors | `src/service/ratelimit.go` ShouldRateLimit |
//! | answers OK without `current_limit` and with `limit_remaining` 0 for a descriptor without a limit | `src/limiter/base_limiter.go` GetResponseDescriptorStatus |
//! | the same for every descriptor of a domain that it does not know, even if the descriptor carries a limit | `src/config/config_impl.go` GetLimit |
//! | answers OK without `current_limit` and with `limit_remaining` 2³²−1 for `unlimited: true` | `src/service/ratelimit.go` shouldRateLimitWorker |
//! | in a domain that it knows, a descriptor's `limit` replaces the configured limit, and needs no configured descriptor; an override is never in shadow mode | `src/config/config_impl.go` GetLimit |
//! | prefers a configured `key` with `value` to the `key` alone; a limit applies only to a descriptor that ends at it | same |
//! | reads `hits_addend` 0 of a call as 1, but of a descriptor as 0, which reads the counter | `src/utils/utilities.go` GetHitsAddends |
//! | a limit in shadow mode is OK with `limit_remaining` 0 beyond the limit | `src/limiter/base_limiter.go` |
//! | windows are multiples of the unit since the epoch: 30 days for MONTH, 365 days for YEAR | `src/utils/utilities.go` UnitToDivider |
//! | `duration_until_reset` is whole seconds, from the unit's length down to 1, by the service's clock after the count | same, CalculateReset |
//! | the counter's name has no limit in it: another limit of the same unit counts on | `src/limiter/cache_key.go` |
//!
//! It differs from the real service in the following points:
//!
//! - The real process ends at a limit override whose unit it does not know. The stand-in answers UNKNOWN.
//! - The stand-in refuses configurations with wildcards, `name`, `replaces`, `quota_mode`, `detailed_metric` and the like.
//! - It has neither the local cache nor STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT, which are off by default.
//! - Its counters expire with their window. The real service adds up to 300 s to an expiry.

mod configuration;

use envoy_types::pb::google::protobuf::Duration as Seconds;
use redis::aio::ConnectionManager;
use tests::clock;
use tonic::{Request, Response, Status};

pub use self::configuration::{Configuration, Limit, Rule};
use crate::redis::connection;
use crate::wire::{
    Code, DescriptorStatus, RateLimit, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    RateLimitService, Unit,
};

/// The service.
#[derive(Clone)]
pub struct Envoyproxy {
    redis: ConnectionManager,
    configuration: Configuration,
}

impl std::fmt::Debug for Envoyproxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Envoyproxy").field("configuration", &self.configuration).finish_non_exhaustive()
    }
}

impl Envoyproxy {
    /// Counts in the Redis at `url`, which may come later. To be called in a runtime.
    ///
    /// # Errors
    /// When `url` is none.
    pub fn new(url: &str, configuration: Configuration) -> anyhow::Result<Self> {
        Ok(Self { redis: connection(url)?, configuration })
    }

    /// Adds the hits of each descriptor that has a limit, all in one pipeline, and returns what the counters have come to.
    async fn add(&self, counters: &[(String, u64, Unit)]) -> Result<Vec<u64>, Status> {
        if counters.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        for (key, hits, unit) in counters {
            pipeline.cmd("INCRBY").arg(key).arg(hits);
            pipeline.cmd("EXPIRE").arg(key).arg(unit.seconds()).ignore();
        }
        // The service returns a plain error, for which gRPC in Go answers UNKNOWN.
        pipeline
            .query_async(&mut self.redis.clone())
            .await
            .map_err(|error| Status::unknown(format!("redis: {error}")))
    }
}

/// The name of a counter: the domain, each entry's key and value, and the start of the window.
#[must_use]
pub fn cache_key(domain: &str, descriptor: &RateLimitDescriptor, unit: Unit, now: u64) -> String {
    let mut key = format!("{domain}_");
    for entry in &descriptor.entries {
        key.push_str(&format!("{}_{}_", entry.key, entry.value));
    }
    key.push_str(&(now - now % unit.seconds()).to_string());
    key
}

/// What one descriptor adds: its own addend, which may be 0, else the request's, which is 1 if it is not given.
fn hits(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> u64 {
    match &descriptor.hits_addend {
        Some(hits) => hits.value,
        None => u64::from(request.hits_addend.max(1)),
    }
}

/// The answer for a descriptor whose counter has come to `count`.
#[must_use]
pub fn status(limit: &Limit, count: u64, now: u64) -> DescriptorStatus {
    let left = u64::from(limit.requests_per_unit).checked_sub(count);
    let code = if left.is_some() || limit.shadow { Code::Ok } else { Code::OverLimit };
    let reset = limit.unit.seconds() - now % limit.unit.seconds();
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(RateLimit {
            name: String::new(),
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit as i32,
        }),
        limit_remaining: left.and_then(|left| u32::try_from(left).ok()).unwrap_or(0),
        duration_until_reset: Some(Seconds { seconds: i64::try_from(reset).unwrap_or(i64::MAX), nanos: 0 }),
        ..DescriptorStatus::default()
    }
}

#[tonic::async_trait]
impl RateLimitService for Envoyproxy {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        if request.domain.is_empty() {
            return Err(Status::unknown("rate limit domain must not be empty"));
        }
        if request.descriptors.is_empty() {
            return Err(Status::unknown("rate limit descriptor list must not be empty"));
        }
        let mut rules = Vec::with_capacity(request.descriptors.len());
        for descriptor in &request.descriptors {
            rules.push(self.configuration.rule(&request.domain, descriptor).map_err(Status::unknown)?);
        }

        let now = clock::now().as_secs();
        let counters: Vec<_> = request
            .descriptors
            .iter()
            .zip(&rules)
            .filter_map(|(descriptor, rule)| {
                let Some(Rule::Limited(Limit { unit, .. })) = *rule else { return None };
                let key = cache_key(&request.domain, descriptor, unit, now);
                Some((key, hits(&request, descriptor), unit))
            })
            .collect();
        let mut counts = self.add(&counters).await?.into_iter();
        let answered = clock::now().as_secs();
        let ok = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
        let statuses: Vec<_> = rules
            .iter()
            .map(|rule| match rule {
                Some(Rule::Limited(limit)) => status(limit, counts.next().unwrap_or_default(), answered),
                Some(Rule::Unlimited) => DescriptorStatus { limit_remaining: u32::MAX, ..ok.clone() },
                None => ok.clone(),
            })
            .collect();
        let over = statuses.iter().any(|status| status.code == i32::from(Code::OverLimit));
        let overall_code = if over { Code::OverLimit } else { Code::Ok };
        Ok(Response::new(RateLimitResponse {
            overall_code: overall_code.into(),
            statuses,
            ..RateLimitResponse::default()
        }))
    }
}
