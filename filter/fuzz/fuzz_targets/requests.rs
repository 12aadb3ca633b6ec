//! Whatever headers a request has, it is decided on; and nobody has a plan who did not bring a key.
#![no_main]

use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use filter::config::{Config, digest};
use filter::decide::decision::Decided;
use filter::decide::limiter::Limiter;
use filter::decide::reply::Reply;
use filter::request::header_pairs::serialize;
use filter_fuzz::MemoryHost;
use libfuzzer_sys::fuzz_target;

const KEY: &[u8] = b"k3y";

/// Two configurations: keys in headers alone, and everywhere.
static CONFIGURATIONS: LazyLock<[Arc<Config>; 2]> = LazyLock::new(|| {
    let hash = digest(KEY).map(|byte| format!("{byte:02x}")).concat();
    let headers = r#"{"header": "authorization", "scheme": "Bearer"}, {"header": "x-api-key"}"#;
    let more = r#"{"query": "api_key"}, {"metadata": ["filter_metadata", "jwt", "sub"]}"#;
    [headers.to_owned(), format!("{headers}, {more}")].map(|sources| {
        let json = format!(
            r#"{{"plans": {{"pro": {{"standard": ["3/minute", "5/month"], "analytics": ["3/second"]}}}},
                "classes": [{{"name": "analytics", "cost": 2, "match": [{{"methods": ["GET"], "path": "/analytics"}}]}}],
                "exempt": [{{"methods": ["OPTIONS"]}}, {{"path_prefix": "/r"}}], "base_path": "/v1", "usage_path": "/quota",
                "counters": {{"known": 16, "strangers": 16}}, "key_sources": [{sources}],
                "subscribers": [{{"id": "p", "plan": "pro", "keys": ["sha256:{hash}"]}}]}}"#
        );
        Arc::new(Config::from_json(json.as_bytes()).expect("a configuration"))
    })
});

#[derive(Arbitrary, Debug)]
enum Name {
    Method,
    Path,
    Authorization,
    ApiKey,
    ContentType,
    Origin,
}

impl Name {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Method => ":method",
            Self::Path => ":path",
            Self::Authorization => "authorization",
            Self::ApiKey => "x-api-key",
            Self::ContentType => "content-type",
            Self::Origin => "origin",
        }
    }
}

#[derive(Arbitrary, Debug)]
struct Request<'r> {
    headers: Vec<(Name, &'r [u8])>,
    property: Option<Vec<u8>>,
    everywhere: bool,
    seconds: u16,
}

fuzz_target!(|requests: Vec<Request<'_>>| {
    let mut limiters = CONFIGURATIONS.each_ref().map(|config| Limiter::new(Arc::clone(config)));
    let mut host = MemoryHost::default();
    for Request { headers, property, everywhere, seconds } in requests {
        host.nanoseconds += u64::from(seconds) * 1_000_000_000;
        host.property = property;
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let limiter = &mut limiters[usize::from(everywhere)];
        let mut decided = Decided::default();
        limiter.decide(&mut host, &serialize(&headers), &mut decided);
        let brings = headers.iter().any(|(_, value)| value.windows(KEY.len()).any(|part| part == KEY));
        assert!(decided.plan.is_none() || brings || everywhere, "{headers:?}");
        if let Some(answer) = &decided.answer {
            let reply = Reply::new(limiter.config(), &decided, answer, None);
            assert!((200..600).contains(&reply.status), "{}", reply.status);
        }
        if let Some(charged) = decided.charged {
            let written: Result<(), std::convert::Infallible> =
                charged.write_headers(&limiter.config().settings.headers, |_, _| Ok(()));
            assert!(written.is_ok());
        }
    }
});
