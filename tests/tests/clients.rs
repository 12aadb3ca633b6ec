//! The published API clients, pointed at a real Envoy.

use std::process::Command;
use std::time::Duration;

use tests::backend::Service;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::gateway::wait_for_directory;
use tests::policy::Policy;
use tests::{artifacts, clock};

#[test]
fn the_python_client_works_and_gets_its_typed_error_at_the_61st_request_of_a_free_key() {
    let python = artifacts::python_with_clients();
    let service = Service::start().unwrap();
    let setup = Setup::new(Policy::deployed().unwrap(), Upstream::At(service.address()));
    let envoy = Envoy::start(setup.keys_from(service.directory())).unwrap();
    wait_for_directory(&envoy);

    clock::wait_for_room(Duration::from_secs(60), Duration::from_secs(20));
    let story = Command::new(python)
        .arg(artifacts::root().join("tests/clients/python/story.py"))
        .arg(format!("http://{}", envoy.address()))
        .args([service.keys.of("pro"), service.keys.of("free")])
        .output()
        .unwrap();
    assert!(story.status.success(), "{}", String::from_utf8_lossy(&story.stderr));
}
