//! Two filters in one proxy without a `vm_id`, as Istio configures them: they share a VM and one store.

use serde_json::{Value, json};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::policy::{HTTP_FILTERS, Policy};

/// Replaces the filter by two of this name, in these namespaces.
fn double(bootstrap: &mut Value, namespaces: [&str; 2]) {
    let filters = bootstrap.pointer_mut(HTTP_FILTERS).and_then(Value::as_array_mut).unwrap();
    let place = filters.iter().position(|filter| filter["name"] == "weir").unwrap();
    let filter = filters.remove(place);
    for (index, namespace) in namespaces.into_iter().enumerate() {
        let mut filter = filter.clone();
        let name = format!("{namespace}.weir-{index}");
        filter["name"] = json!(name);
        let config = &mut filter["typed_config"]["config"];
        config["name"] = json!(name);
        config["vm_config"].as_object_mut().unwrap().remove("vm_id");
        let given = config.pointer_mut("/configuration/value").unwrap();
        let policy: Value = serde_json::from_str(given.as_str().unwrap()).unwrap();
        *given = json!(Policy::from(policy).with("namespace", json!(namespace)).to_string());
        filters.insert(place + index, filter);
    }
}

#[test]
fn each_counts_for_itself_in_a_namespace_of_its_own() {
    // Each request passes both filters. In one namespace both take it from the same quota.
    for (namespaces, served) in [(["inbound", "outbound"], 4), (["same", "same"], 2)] {
        let policy = Policy::contract().unwrap().with_at("/plans/pro/standard", json!(["4/month"]));
        let policy = policy.subscriber("acme", "pro", "key");
        let setup = Setup::new(policy, Upstream::DirectResponse);
        let envoy = Envoy::start_amended(setup, |bootstrap, _| {
            double(bootstrap, namespaces);
            Ok(())
        });
        let envoy = envoy.unwrap();
        for request in 0..served {
            let answer = envoy.send(&get("/links").key("key")).unwrap();
            assert_eq!(answer.status(), 200, "{namespaces:?}, request {request}: {answer}");
        }
        assert_eq!(envoy.send(&get("/links").key("key")).unwrap().status(), 429, "{namespaces:?}");
    }
}
