//! Header maps.

use host_sim::{Request, Response};

use crate::host;

#[test]
fn values_need_be_no_utf_8() {
    let host = host("headers");
    let value: &[u8] = &[0xff, b'k', 0x80];
    let outcome = host.send(Request::get("/").header("authorization", value), |request| {
        Response::ok().header("x-back", request.headers().get("authorization").cloned().unwrap_or_default())
    });
    assert_eq!(outcome.headers().get("x-back").map(AsRef::as_ref), Some(value));
}
