//! gRPC through a real Envoy: what a call is charged when it fails, whatever fails it, and when its cost comes in trailers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use filter::event::Event;
use serde_json::{Value, json};
use tests::clock;
use tests::envoy::{self, Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::grpc::{Reply, Server, call};
use tests::policy::Policy;
use tokio::net::TcpSocket;

const KEY: &str = "key";
const LIMIT: u64 = 100_000;
const ROUTES: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";

/// A class `chat`, whose calls reserve one unit.
fn policy(refund: &Value) -> Policy {
    let mut chat = json!({
        "name": "chat",
        "cost": {"reserve": 1, "actual": {"response_header": "x-cost"}},
        "match": [{"path_prefix": "/chat.Chat"}, {"path_prefix": "/gone.Chat"}],
    });
    if !refund.is_null() {
        chat["refund"] = refund.clone();
    }
    Policy::contract()
        .unwrap()
        .with("plans", json!({"pro": {"standard": ["4000000000/month"], "chat": [format!("{LIMIT}/month")]}}))
        .with("classes", json!([chat]))
        .with("usage_path", json!("/quota"))
        .subscriber("acme", "pro", KEY)
}

fn reply(path: &str) -> Reply {
    const OK: (&str, &str) = ("grpc-status", "0");
    const UNAVAILABLE: (&str, &str) = ("grpc-status", "14");
    match path.trim_start_matches("/chat.Chat/") {
        "Ok" => Reply::Message(&[], &[OK]),
        "CostInTrailers" => Reply::Message(&[], &[OK, ("x-cost", "4")]),
        "CostInHeaders" => Reply::Message(&[("x-cost", "3")], &[OK, ("x-cost", "9")]),
        "LateUnavailable" => Reply::Message(&[], &[UNAVAILABLE]),
        "LateUnavailableWithCost" => Reply::Message(&[], &[UNAVAILABLE, ("x-cost", "4")]),
        "Unavailable" => Reply::HeadersOnly(&[UNAVAILABLE]),
        "NotFound" => Reply::HeadersOnly(&[("grpc-status", "5")]),
        "DeadlineExceeded" => Reply::Message(&[], &[("grpc-status", "4")]),
        _ => Reply::Silence,
    }
}

/// An Envoy whose routes lead to the server, to one that is not there, or to a cluster that takes no request. `/gone.Chat` has no route.
fn envoy(policy: Policy, server: SocketAddr, nobody: SocketAddr) -> Envoy {
    let amended = Envoy::start_amended(Setup::new(policy, Upstream::At(server)), |bootstrap, _| {
        let backend = envoy::cluster(bootstrap, "backend")?;
        backend["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        });
        let backend = backend.clone();
        let clusters =
            bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut).unwrap();
        for name in ["refusing", "full"] {
            let mut cluster = backend.clone();
            cluster["name"] = json!(name);
            cluster["load_assignment"]["cluster_name"] = json!(name);
            if name == "full" {
                cluster["circuit_breakers"] = json!({"thresholds": [{"max_requests": 0}]});
            }
            clusters.push(cluster);
        }
        envoy::set_cluster(bootstrap, "refusing", nobody)?;
        let route = |path: &str, route: Value| json!({"match": {"path": path}, "route": route});
        *bootstrap.pointer_mut(ROUTES).unwrap() = json!([
            route("/chat.Chat/Refused", json!({"cluster": "refusing"})),
            route("/chat.Chat/Full", json!({"cluster": "full"})),
            {"match": {"prefix": "/chat.Chat/"}, "route": {"cluster": "backend", "timeout": "0.3s"}},
        ]);
        Ok(())
    });
    amended.unwrap()
}

/// Units left of the class, as the caller sees them without being charged.
fn left(envoy: &Envoy) -> u64 {
    let usage = envoy.send(&get("/quota").key(KEY)).unwrap().json().unwrap();
    let classes = usage["classes"].as_array().unwrap();
    let chat = classes.iter().find(|class| class["name"] == "chat").unwrap();
    chat["quotas"][0]["remaining"].as_u64().unwrap()
}

#[test]
fn a_call_that_fails_is_refunded_by_its_grpc_status_and_a_cost_is_read_from_trailers() {
    const REFUNDS: [fn() -> Value; 3] =
        [|| Value::Null, || json!({"statuses": ["5xx"]}), || json!({"grpc": ["UNAVAILABLE"]})];
    //  the method, its gRPC status and whether it comes in trailers, and what the call is charged without refunds, by HTTP
    //  statuses, and by gRPC's
    let rows = [
        ("/chat.Chat/Ok", 0, true, [1, 1, 1]),
        // Envoy's own answers, without trailers: the upstream is not there, does not answer in time, takes no more, or there is none.
        ("/chat.Chat/Refused", 14, false, [1, 0, 0]),
        ("/chat.Chat/Silence", 14, false, [1, 0, 0]),
        ("/chat.Chat/Full", 14, false, [1, 0, 0]),
        ("/gone.Chat/NoRoute", 12, false, [1, 0, 1]),
        ("/chat.Chat/Unavailable", 14, false, [1, 0, 0]),
        ("/chat.Chat/NotFound", 5, false, [1, 1, 1]),
        ("/chat.Chat/LateUnavailable", 14, true, [1, 0, 0]),
        ("/chat.Chat/LateUnavailableWithCost", 14, true, [4, 0, 0]),
        ("/chat.Chat/DeadlineExceeded", 4, true, [1, 0, 1]),
        ("/chat.Chat/CostInTrailers", 0, true, [4, 4, 4]),
        ("/chat.Chat/CostInHeaders", 0, true, [3, 3, 3]),
    ];
    let server = Server::start(reply).unwrap();
    // Its port is taken, so that no other server gets it, and refuses connections.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let nobody_address = nobody.local_addr().unwrap();
    for (form, refund) in REFUNDS.into_iter().enumerate() {
        let refund = refund();
        let envoy = envoy(policy(&refund), server.address(), nobody_address);
        let mut before = left(&envoy);
        assert_eq!(before, LIMIT);
        for (method, status, in_trailers, charged) in rows {
            let answer = call(envoy.address(), method, KEY).unwrap();
            let found = (answer.status.as_u16(), answer.grpc_status(), answer.trailers.is_some());
            assert_eq!(found, (200, Some(status), in_trailers), "{method}: {answer:?}");
            let after = left(&envoy);
            assert_eq!(before - after, charged[form], "{method}, refund {refund}");
            before = after;
        }
        let refunds = rows.iter().filter(|(.., charged)| charged[form] == 0).count() as u64;
        let events = || {
            [Event::CostRefunded, Event::CostUnsettled]
                .map(|event| envoy.stat(&format!("wasmcustom.{}", event.metric())).unwrap())
        };
        clock::eventually("the refunds", Duration::from_secs(10), || {
            (events() == [refunds, 0]).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:?} of {refunds}", events()));
    }
}
