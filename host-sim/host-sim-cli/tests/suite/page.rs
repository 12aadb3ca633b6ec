//! The page of recent requests, in a browser.

use std::{path::Path, process::Command};

use crate::{
    http::{echo, send, upstream},
    recent,
};

/// Opens a page in a headless browser and returns what the browser prints.
fn browse(address: &str, arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/browse.sh");
    let output = Command::new(script).args(arguments).arg(address).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_browser_shows_hostile_headers_as_text_and_runs_nothing() {
    let (gateway, admin) = recent::watched("limiter", upstream(echo), |_| {});
    let hostile = "</pre></details><script>console.log('ran')</script><img src='http://127.0.0.1:1/x' onerror='console.log(1)'>";
    let request = format!("GET /hostile HTTP/1.1\r\nhost: a\r\nx-hostile: {hostile}\r\n\r\n");
    assert_eq!(send(gateway.address(), request.as_bytes()).status(), 200);
    recent::page(admin, 1);
    // `scripts/browse.sh` fails if anything is on the console, and a blocked script is.
    let dom = browse(&format!("http://{admin}/requests"), &["--dump-dom"]);
    for (part, times) in [("<details", 1), ("<script", 1), ("<img", 0), ("proxy_on_request_headers(", 1)] {
        assert_eq!(dom.matches(part).count(), times, "{part} in {dom}");
    }
    // The page's own script, which its policy lets run.
    assert!(dom.contains("<script src=\"/requests.js\">"), "{dom}");
    assert!(dom.contains("GET /hostile") && dom.contains("&lt;script&gt;console.log('ran')"), "{dom}");
}
