//! `envoy/ecds`: the filter of `envoy/envoy.yaml` for updates of a running Envoy.

use serde_json::{Value, json};
use tests::policy;

#[test]
fn the_resource_is_the_filter_of_envoy_yaml_and_its_entry_names_it() {
    let bootstrap = policy::bootstrap().unwrap();
    let filters = bootstrap.pointer(policy::HTTP_FILTERS).and_then(Value::as_array).unwrap();
    let weir = filters.iter().find(|filter| filter["name"] == "weir").unwrap();
    let resource = policy::yaml("envoy/ecds/weir.yaml").unwrap();
    assert_eq!(resource["resources"][0]["typed_config"], weir["typed_config"]);
    let entry = policy::yaml("envoy/ecds/http-filter.yaml").unwrap();
    assert_eq!(entry[0]["name"], resource["resources"][0]["name"]);
    assert_eq!(entry[0]["config_discovery"]["type_urls"], json!([weir["typed_config"]["@type"]]));
}
