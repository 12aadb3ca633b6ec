//! The published API clients, pointed at a real Envoy.

use std::process::Command;
use std::time::Duration;

use tests::backend::Service;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::policy::Policy;
use tests::{artifacts, clock};

#[test]
fn the_python_client_works_and_gets_its_typed_error_at_the_61st_request_of_a_free_key() {
    let python = artifacts::python_with_clients();
    let service = Service::start().unwrap();
    let policy = service.keys.known_to(Policy::contract().unwrap());
    let envoy = Envoy::start(Setup::new(policy, Upstream::At(service.address()))).unwrap();

    clock::wait_for_room(Duration::from_secs(60), Duration::from_secs(20));
    let story = Command::new(python)
        .arg(artifacts::root().join("tests/clients/python/story.py"))
        .arg(format!("http://{}", envoy.address()))
        .args([service.keys.of("pro"), service.keys.of("free")])
        .output()
        .unwrap();
    assert!(story.status.success(), "{}", String::from_utf8_lossy(&story.stderr));
}
