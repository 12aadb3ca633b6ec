//! Answers of a gateway in the place of the filter's: what the page says of them, in a real Envoy.

use serde_json::{Value, json};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{get, post};
use tests::mesh::{self, Proxy};
use tests::page;
use tests::policy::Policy;

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

/// What the page has for Envoy, Istio and Envoy Gateway.
fn shown() -> [Value; 3] {
    let blocks = page::texts("own-answers.md").unwrap();
    let blocks: Vec<Value> = blocks.iter().map(|block| serde_saphyr::from_str(block).unwrap()).collect();
    let [envoy, istio, gateway] = blocks.as_slice() else { panic!("{} blocks", blocks.len()) };
    let istio = istio.pointer("/spec/configPatches/0/patch/value/typed_config/local_reply_config");
    let gateway = gateway.pointer("/spec/jsonPatches/0/operation/value");
    [&envoy["local_reply_config"], istio.unwrap(), gateway.unwrap()].map(Value::clone)
}

#[test]
fn a_page_shows_the_same_answers_for_each_gateway_and_they_keep_the_headers_of_the_filter() {
    let shown = shown();
    assert_eq!([&shown[1], &shown[2]], [&shown[0]; 2]);
    let policy = Policy::contract().unwrap().subscriber("acme", "free", "key");
    let policy = policy.with_at("/plans/free/standard", json!(["1/month"]));
    let put_in = |bootstrap: &mut Value| {
        bootstrap.pointer_mut(MANAGER).unwrap()["local_reply_config"] = shown[0].clone();
        Ok(())
    };
    for proxy in [None, Some(Proxy::IngressGateway), Some(Proxy::EnvoyGateway)] {
        let setup = Setup::new(policy.clone(), Upstream::DirectResponse).workers(1);
        let envoy = match proxy {
            None => Envoy::start_amended(setup, |bootstrap, _| put_in(bootstrap)),
            Some(proxy) => mesh::start_amended(proxy, setup, put_in),
        };
        let envoy = envoy.unwrap();
        let send = |request| envoy.send(&request).unwrap();
        assert_eq!(send(get("/links").key("key")).status(), 200, "{proxy:?}");

        let limited = send(get("/links").key("key"));
        assert_eq!(
            (limited.status(), limited.header("x-support")),
            (429, Some("https://example.com/limits"))
        );
        let wait = limited.header("retry-after").unwrap_or_else(|| panic!("{proxy:?}: {limited}"));
        assert_eq!(limited.json().unwrap(), json!({"code": "weir_rate_limited", "retry_after": wait}));
        for header in ["ratelimit", "ratelimit-policy", "x-ratelimit-reset", "cache-control"] {
            assert!(limited.header(header).is_some(), "{proxy:?}: {header}: {limited}");
        }

        let refused = send(get("/analytics").key("key"));
        assert_eq!(refused.status(), 402, "{proxy:?}: {refused}");
        assert_eq!(&refused.body()[..], b"This endpoint is not part of your plan.", "{proxy:?}");

        let call = post("/links").key("key").header("content-type", "application/grpc");
        let message = send(call).header("grpc-message").unwrap_or_default().to_owned();
        assert!(message.contains("weir_rate_limited"), "{proxy:?}: {message}");
    }
}
