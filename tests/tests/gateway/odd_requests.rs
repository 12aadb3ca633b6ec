//! Requests that no well-meaning client sends get a clear answer, and the filter lives on.

use tests::exchange::{Request, get};
use tests::gateway::Kind;
use tests::on_both_gateways;
use tests::stage::Stage;

/// A request of a known key is served on every worker, so no VM has died.
fn assert_alive(stage: &Stage, after: &str) {
    for _ in 0..8 {
        let answer = stage.send_as("business", get("/links/count"));
        assert_eq!(answer.status(), 200, "after {after}: {answer}");
        assert!(answer.header("x-ratelimit-remaining").is_some(), "after {after}: {answer}");
    }
}

fn bytes_that_are_no_text_are_an_unknown_key(kind: Kind) {
    let stage = Stage::contract(kind);
    for value in
        [&b"Bearer \xff\xfe\x80"[..], b"Bearer ", b"Bearer", b"\xc3\x28", b"", b" ", b"bearer \xf0\x9f"]
    {
        let answer = stage.send(&get("/links").header("authorization", value));
        assert!(matches!(answer.status(), 400 | 401), "{value:?}: {answer}");
        assert!(answer.header("x-ratelimit-remaining").is_some(), "{value:?}: counted by address: {answer}");
    }
    let answer =
        stage.send_as("pro", get("/links").header("x-note", b"\x80\xff").header("cookie", b"\xfe=\xff"));
    assert_eq!(answer.status(), 200, "{answer}");
    assert_alive(&stage, "bytes that are no text");
}

fn two_keys_in_one_request_are_refused(kind: Kind) {
    let stage = Stage::contract(kind);
    let pro = stage.keys.of("pro").to_owned();
    let requests = [
        get("/links").key(&pro).key("weir_other"),
        get("/links").key("weir_other").key(&pro),
        get("/links").key(&pro).key(stage.keys.of("free")),
        get("/links").header("authorization", format!("Bearer {pro}, Bearer weir_other")),
        get("/links").header("authorization", format!("Bearer {pro},weir_other")),
    ];
    for request in requests {
        let answer = stage.send(&request);
        assert_eq!(answer.status(), 400, "{request:?}: {answer}");
        assert_eq!(answer.error_code().as_deref(), Some("bad_request"), "{request:?}: {answer}");
    }
    assert_alive(&stage, "two keys");
}

fn sixty_kilobytes_of_headers_are_answered(kind: Kind) {
    let stage = Stage::contract(kind);
    let padded = |fields: usize, bytes: usize| -> Request {
        (0..fields)
            .fold(get("/links/count"), |request, i| request.header(&format!("x-pad-{i}"), vec![b'x'; bytes]))
    };
    for (fields, bytes) in [(60, 950), (1, 59_000), (90, 600)] {
        let answer = stage.send_as("pro", padded(fields, bytes));
        assert!(matches!(answer.status(), 200 | 431), "{fields} of {bytes} bytes: {answer}");
    }
    // More than a gateway takes: Envoy answers 431 itself, and the service does so behind a gateway that does not.
    let answer = stage.send_as("pro", padded(60, 4000));
    assert_eq!(answer.status(), 431, "{answer}");
    assert_alive(&stage, "60 KB of headers");
}

fn a_request_without_headers_is_a_request_without_a_key(kind: Kind) {
    let stage = Stage::contract(kind);
    let answer = stage.send(&get("/links"));
    assert_eq!(answer.status(), 401, "{answer}");
    assert_eq!(answer.error_code().as_deref(), Some("unauthorized"), "{answer}");
    assert_alive(&stage, "no headers");
}

fn strange_paths_are_answered(kind: Kind) {
    let stage = Stage::contract(kind);
    let long = format!("/{}", "a".repeat(20_000));
    for path in
        ["/%", "/%zz", "/%00", "/..", "/../../..", "/?", "/;", "//", "/analytics%", "*", long.as_str()]
    {
        let answer = stage.send_as("advanced", get(path));
        assert!((400..500).contains(&answer.status()), "{path:.40}: {answer}");
    }
    assert_alive(&stage, "strange paths");
}

on_both_gateways! {
    bytes_that_are_no_text_are_an_unknown_key
    two_keys_in_one_request_are_refused
    sixty_kilobytes_of_headers_are_answered
    a_request_without_headers_is_a_request_without_a_key
    strange_paths_are_answered
}
