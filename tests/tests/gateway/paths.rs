//! Which endpoint a path is, in every form in which clients have tried to pass one off as another: with the shipped `envoy.yaml`, whose
//! Envoy normalises paths first, and in gateways that hand paths over as they were sent.

use tests::backend::Service;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Answer, get};
use tests::gateway::{Kind, wait_for_directory};
use tests::on_gateways;
use tests::policy::Policy;
use tests::stage::Stage;

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Was {
    /// Counted as analytics.
    Analytics,
    /// Counted as standard.
    Standard,
    /// Passed on uncounted.
    Exempt,
    /// Refused: upstreams may read the path differently.
    Ambiguous,
}

use Was::{Ambiguous, Analytics, Exempt, Standard};

/// A path, what it is after Envoy has normalised it, and what it is as it was sent. Envoy 1.40 takes `..;x` for a dot segment and sends the
/// upstream what is left, so that what is exempt there is a redirect for the upstream, too.
const PATHS: [(&str, Was, Was); 23] = [
    ("/analytics", Analytics, Analytics),
    ("/analytics/", Analytics, Analytics),
    ("/%61nalytics", Analytics, Analytics),
    ("/analytics?x=/r", Analytics, Analytics),
    ("/Analytics", Standard, Standard),
    ("/analytics/x", Standard, Standard),
    ("/links/ext_a%2Fb%20c", Standard, Standard),
    ("//analytics", Analytics, Ambiguous),
    ("/x/../analytics", Analytics, Ambiguous),
    ("/x/%2e%2E/analytics", Analytics, Ambiguous),
    ("/analytics\\", Analytics, Ambiguous),
    ("/analytics;a=b", Ambiguous, Ambiguous),
    ("/analytics%2F", Ambiguous, Ambiguous),
    ("/analytics%5C", Ambiguous, Ambiguous),
    ("/links/ext_a/..;/..;/r", Exempt, Ambiguous),
    ("/links/ext_a/%2E.;/%2E.;/r", Ambiguous, Ambiguous),
    ("/links/ext_a%2F..%3B%2F..%3B%2Fr", Ambiguous, Ambiguous),
    ("/links/a/..;x=1/../r/b", Exempt, Ambiguous),
    ("/links/%2e%2e;/r", Ambiguous, Ambiguous),
    ("/links/ext_a%2f..%2f..%2fr%2fx", Ambiguous, Ambiguous),
    ("/links/a;/../../r", Exempt, Ambiguous),
    ("/links/.;/../r/x", Exempt, Ambiguous),
    ("/r/../links", Standard, Ambiguous),
];

fn was(answer: &Answer) -> Was {
    match (answer.status(), answer.number("x-ratelimit-limit")) {
        (400, None) if answer.error_code().as_deref() == Some("bad_request") => Ambiguous,
        (_, Some(300_000)) => Standard,
        (_, Some(72_000)) => Analytics,
        (200..400 | 404, None) => Exempt,
        _ => panic!("neither counted nor exempt nor refused as ambiguous: {answer}"),
    }
}

fn assert_paths(send: impl Fn(&str) -> Answer, expected: impl Fn((Was, Was)) -> Was) {
    let found = PATHS.map(|(path, ..)| (path, was(&send(path))));
    assert_eq!(found, PATHS.map(|(path, normalised, as_sent)| (path, expected((normalised, as_sent)))));
}

fn a_path_is_judged_as_it_was_sent(kind: Kind) {
    let stage = Stage::contract(kind);
    assert_paths(|path| stage.send_as("enterprise", get(path)), |(_, as_sent)| as_sent);
}

on_gateways! { [simulator: SIMULATOR, ngx: NGX] { a_path_is_judged_as_it_was_sent } }

#[test]
fn the_shipped_envoy_normalises_paths_and_the_filter_refuses_what_is_ambiguous_still() {
    let stage = Stage::contract(Kind::Envoy);
    assert_paths(|path| stage.send_as("enterprise", get(path)), |(normalised, _)| normalised);
}

#[test]
fn in_an_envoy_that_normalises_nothing_a_path_is_judged_as_it_was_sent() {
    let service = Service::start().unwrap();
    let setup = Setup::new(Policy::deployed().unwrap(), Upstream::At(service.address()));
    let envoy = Envoy::start_amended(setup.keys_from(service.directory()), |bootstrap, _| {
        let manager = &mut bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0];
        for field in ["normalize_path", "merge_slashes", "path_with_escaped_slashes_action"] {
            let removed = manager["typed_config"].as_object_mut().and_then(|fields| fields.remove(field));
            assert!(removed.is_some(), "envoy.yaml has no {field}");
        }
        Ok(())
    });
    let envoy = envoy.unwrap();
    wait_for_directory(&envoy);
    let key = service.keys.of("enterprise");
    let send = |path: &str| envoy.send(&get(path).key(key)).unwrap();
    assert_paths(send, |(_, as_sent)| as_sent);
}
