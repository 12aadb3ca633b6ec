//! Header maps.

use host_sim::{Request, Response};

use crate::{host, lines};

#[test]
fn a_filter_reads_and_changes_request_headers() {
    let host = host("headers");
    let request = Request::get("/")
        .header("Authorization", "Bearer a")
        .header("authorization", "Bearer b")
        .header("x-many", "1")
        .header("x-many", "2")
        .header("x-empty", "")
        .header("x-remove", "gone");
    let outcome = host.send(request, |_| Response::ok().header("x", "y"));
    assert_eq!(
        lines(&host)[..13],
        [
            "authorization Bearer a,Bearer b",
            "x-many 1",
            "x-empty ",
            "absent 1",
            "no such map 2",
            "response too early 2",
            "add 0",
            "add again 0",
            "replace 0",
            "remove 0",
            "remove absent 0",
            "size 0",
            "bytes 234",
        ]
    );
    let forwarded = outcome.forwarded().unwrap().headers();
    let all = |name: &str| {
        forwarded.get_all(name).map(|v| String::from_utf8_lossy(v).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (all("x-added"), all("x-many"), all("x-remove")),
        (vec!["1".into(), "2".into()], vec!["one".into()], vec![])
    );
}

#[test]
fn pairs_go_out_and_come_back_as_one_blob() {
    let host = host("headers");
    let outcome = host
        .send(Request::get("/"), |_| Response::new(201).header("set-cookie", "a").header("set-cookie", "b"));
    let said = lines(&host);
    assert_eq!(
        said[said.len() - 5..],
        ["pairs 0", "of them 3", "set pairs 0", "status header 0", "marker 1"]
    );
    assert_eq!(outcome.status(), 201);
    assert_eq!(outcome.headers().get_all("set-cookie").count(), 2);
}

#[test]
fn a_malformed_blob_empties_the_map_as_envoy_does() {
    let host = host("headers");
    let outcome =
        host.send(Request::get("/"), |_| Response::ok().header("x-malformed", "1").header("x", "2"));
    assert!(lines(&host).contains(&"malformed 0".to_owned()));
    assert_eq!((outcome.status(), outcome.headers().len()), (204, 1));
}

#[test]
fn values_need_be_no_utf_8() {
    let host = host("headers");
    let value: &[u8] = &[0xff, b'k', 0x80];
    let outcome = host.send(Request::get("/").header("authorization", value), |request| {
        Response::ok().header("x-back", request.headers().get("authorization").cloned().unwrap_or_default())
    });
    assert_eq!(outcome.headers().get("x-back").map(AsRef::as_ref), Some(value));
}
