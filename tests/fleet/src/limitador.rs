//! A service that decides as limitador-server does on Redis, asked and answered as its `envoy_rls` does with rate-limit headers off.
//!
//! What is different from envoyproxy/ratelimit: a window starts at its first hit, what is refused is not counted, the check and the
//! count are two steps between which others may count, and an answer holds nothing but its code.
//!
//! Limits, their conditions and their counters are those of the crate `limitador`. Its Redis storage is only compiled together with
//! RocksDB (its issue 459), so the two scripts that it runs are run here.

use std::collections::HashMap;
use std::sync::Arc;

use ::limitador::counter::Counter;
use ::limitador::limit::{Context, Limit};
use anyhow::Context as _;
use redis::aio::ConnectionManager;
use redis::{RedisResult, Script};
use tonic::{Request, Response, Status};

use crate::redis::connection;
use crate::wire::{Code, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitService};

/// The values of counters.
const VALUES: &str = "
    local values = {}
    for _, key in ipairs(KEYS) do
        table.insert(values, tonumber(redis.call('get', key) or 0))
    end
    return values";

/// Adds to a counter, which starts to expire with its first hit.
const ADD: &str = "
    local count = redis.call('incrby', KEYS[1], ARGV[2])
    if count == tonumber(ARGV[2]) then
        redis.call('expire', KEYS[1], ARGV[1], 'NX')
        redis.call('sadd', KEYS[2], KEYS[1])
    end
    return count";

/// The service.
#[derive(Clone)]
pub struct Limitador {
    redis: ConnectionManager,
    limits: Vec<Arc<Limit>>,
}

impl std::fmt::Debug for Limitador {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limitador").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Reads Limitador's file of limits: a list of namespaces' limits.
///
/// # Errors
/// When it is none, or a condition or variable is no CEL.
pub fn limits_from_yaml(yaml: &str) -> anyhow::Result<Vec<Limit>> {
    serde_saphyr::from_str(yaml).context("Limitador's limits")
}

impl Limitador {
    /// Counts in the Redis at `url`, which may come later. To be called in a runtime.
    ///
    /// # Errors
    /// When `url` is none.
    pub fn new(url: &str, limits: Vec<Limit>) -> anyhow::Result<Self> {
        Ok(Self { redis: connection(url)?, limits: limits.into_iter().map(Arc::new).collect() })
    }

    /// The counters of the limits that apply to a request.
    fn counters(&self, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> Result<Vec<Counter>, Status> {
        let descriptors = descriptors.into_iter().map(|descriptor| {
            let entries = descriptor.entries.into_iter().map(|entry| (entry.key, entry.value));
            entries.collect::<HashMap<_, _>>()
        });
        let mut context = Context::default();
        context.list_binding("descriptors".to_owned(), descriptors.collect());
        let of_domain = self.limits.iter().filter(|limit| limit.namespace().as_ref() == domain);
        let counters = of_domain
            .filter(|limit| limit.applies(&context))
            .filter_map(|limit| Counter::new(Arc::clone(limit), &context).transpose());
        counters.collect::<Result<_, _>>().map_err(|_| unavailable())
    }

    /// Counts `hits` in all counters if all have room.
    async fn check_and_update(&self, counters: &[Counter], hits: u64) -> RedisResult<Code> {
        if counters.is_empty() {
            return Ok(Code::Ok);
        }
        let mut redis = self.redis.clone();
        let check = Script::new(VALUES);
        let mut check = check.prepare_invoke();
        for counter in counters {
            check.key(name(counter, "counter", counter)?);
        }
        let values: Vec<u64> = check.invoke_async(&mut redis).await?;
        if counters.iter().zip(values).any(|(counter, value)| value + hits > counter.max_value()) {
            return Ok(Code::OverLimit);
        }
        for counter in counters {
            let add = Script::new(ADD);
            let mut add = add.key(name(counter, "counter", counter)?);
            add.key(name(counter, "counters_of_limit", counter.limit())?);
            let _: u64 = add.arg(counter.window().as_secs()).arg(hits).invoke_async(&mut redis).await?;
        }
        Ok(Code::Ok)
    }
}

/// What Redis knows a counter, or a limit's counters, by.
fn name(counter: &Counter, kind: &str, what: impl serde::Serialize) -> RedisResult<String> {
    let what = serde_json::to_string(&what).map_err(std::io::Error::other)?;
    Ok(format!("namespace:{{{}}},{kind}:{what}", counter.namespace().as_ref()))
}

fn unavailable() -> Status {
    Status::unavailable("Service unavailable")
}

#[tonic::async_trait]
impl RateLimitService for Limitador {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let code = if request.domain.is_empty() {
            Code::Unknown
        } else {
            let counters = self.counters(&request.domain, request.descriptors)?;
            let hits = u64::from(request.hits_addend.max(1));
            self.check_and_update(&counters, hits).await.map_err(|_| unavailable())?
        };
        Ok(Response::new(RateLimitResponse { overall_code: code.into(), ..RateLimitResponse::default() }))
    }
}
