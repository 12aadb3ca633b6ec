//! What the filter sees of a request that the gateway changes: a real Envoy with the settings that the control planes make of a rewrite.

use serde_json::{Value, json};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::policy::Policy;
use tests::server::{Response, Server};

/// The connection manager, which `headers.earlyRequestHeaders` of a `ClientTrafficPolicy` changes.
const MANAGER: &str = "";
/// The route and its action, which `URLRewrite`, a `VirtualService` and their modifiers of headers change.
const ROUTE: &str = "/route_config/virtual_hosts/0/routes/0";
const ACTION: &str = "/route_config/virtual_hosts/0/routes/0/route";

/// An upstream that says which path and which key it has seen.
fn upstream() -> Server {
    Server::start(|request| {
        let key = request.headers().get("authorization").map(|key| key.as_bytes().to_vec());
        let response = http::Response::builder()
            .header("x-seen-path", request.uri().path())
            .header("x-seen-key", key.unwrap_or_default());
        response.body(bytes::Bytes::new().into()).unwrap_or_else(|_| Response::default())
    })
    .unwrap()
}

/// An Envoy with these fields at a place in its connection manager.
fn start(upstream: &Server, place: &str, fields: &Value) -> Envoy {
    let policy = Policy::contract().unwrap();
    let policy = policy.subscriber("one", "pro", "key-of-one").subscriber("two", "business", "key-of-two");
    let setup = Setup::new(policy, Upstream::At(upstream.address())).workers(1);
    let envoy = Envoy::start_amended(setup, |bootstrap, _| {
        let place = format!("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config{place}");
        let changed = bootstrap.pointer_mut(&place).and_then(Value::as_object_mut).unwrap();
        changed.extend(fields.as_object().unwrap().clone());
        Ok(())
    });
    envoy.unwrap()
}

/// What the plans of the two keys have: `pro` and `business`.
const PRO: &str = r#""standard";q=600;w=60"#;
const ANALYTICS: &str = r#""analytics";q=2;w=1"#;
const BUSINESS: &str = r#""standard";q=1200;w=60"#;

#[test]
fn a_rewrite_and_a_routes_header_come_after_the_filter_and_an_early_header_before_it() {
    let header = json!({"header": {"key": "authorization", "value": "Bearer key-of-two"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"});
    let early = json!({"early_header_mutation_extensions": [{
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
            "mutations": [{"append": header}],
        },
    }]});
    let to_analytics =
        json!({"regex_rewrite": {"pattern": {"regex": "^/links"}, "substitution": "/analytics"}});
    let below_v2 = json!({"prefix_rewrite": "/v2/"});
    let on_the_route = json!({"request_headers_to_add": [header]});
    //  where it is changed and how, the path, the path and the key that the upstream sees, the quota that counts
    let rows = [
        (ACTION, &to_analytics, "/links", ["/analytics", "key-of-one"], PRO),
        (ACTION, &below_v2, "/analytics", ["/v2/analytics", "key-of-one"], ANALYTICS),
        (ROUTE, &on_the_route, "/links", ["/links", "key-of-two"], PRO),
        (MANAGER, &early, "/links", ["/links", "key-of-two"], BUSINESS),
    ];
    let upstream = upstream();
    for (place, fields, path, seen, quota) in rows {
        let envoy = start(&upstream, place, fields);
        let answer = envoy.send(&get(path).key("key-of-one")).unwrap();
        let found = [answer.header("x-seen-path"), answer.header("x-seen-key")];
        assert_eq!(found, [Some(seen[0]), Some(&*format!("Bearer {}", seen[1]))], "{fields}: {answer}");
        assert_eq!(answer.header("ratelimit-policy"), Some(quota), "{fields}: {answer}");
    }
}
