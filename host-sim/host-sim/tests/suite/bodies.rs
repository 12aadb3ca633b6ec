//! Bodies: held, changed, taken, made up.

use host_sim::{Request, Response};

use crate::{host, lines, ok};

/// Sends "ab" and "cd" to a guest that handles bodies as the path says, and tells what went on and what it logged.
fn send(path: &'static str) -> (String, Vec<String>) {
    let host = host("bodies");
    let mut stream = host.stream(&Request::post(path), false);
    stream.body("ab", false);
    stream.body("cd", true);
    assert!(stream.is_forwarded(), "{path}");
    let body = stream.forwarded().map(|request| request.body_bytes().clone()).unwrap_or_default();
    let said = lines(&host).into_iter().filter(|line| line.starts_with("body 0")).collect();
    (String::from_utf8_lossy(&body).into_owned(), said)
}

#[test]
fn the_filter_decides_what_of_a_body_goes_on() {
    //  path          goes on      the callbacks' bodies
    let rows: [(&str, &str, &[&str]); 6] = [
        ("/pass", "abcd", &["body 0 of 2: ab", "body 0 of 2: cd"]),
        ("/buffer", "new", &["body 0 of 2: ab", "body 0 of 4: abcd"]),
        ("/watermark", "abcd", &["body 0 of 2: ab", "body 0 of 2: cd"]),
        ("/drop", "cd", &["body 0 of 2: ab", "body 0 of 2: cd"]),
        ("/around", "<ab><cd>", &["body 0 of 2: ab", "body 0 of 2: cd"]),
        ("/stop-all", "", &[]),
    ];
    for (path, goes_on, said) in rows {
        if path == "/stop-all" {
            let host = host("bodies");
            let mut stream = host.stream(&Request::post(path), false);
            stream.body("ab", true);
            assert!(
                stream.forwarded().is_none() && lines(&host).iter().all(|line| !line.starts_with("body 0"))
            );
            continue;
        }
        assert_eq!(
            send(path),
            (goes_on.to_owned(), said.iter().map(|line| (*line).to_owned()).collect()),
            "{path}"
        );
    }
}

#[test]
fn what_cannot_be_changed_answers_bad_argument() {
    let host = host("bodies");
    host.send(Request::post("/around").body("abc"), ok);
    assert_eq!(
        lines(&host)[1..8],
        [
            "body 0 of 3: abc",
            "prepend 0",
            "append 0",
            "in between 2",
            "of callout 1",
            "of configuration 2",
            "no such buffer 2",
        ]
    );
}

#[test]
fn response_bodies_are_handled_alike() {
    let outcome = host("bodies").send(Request::get("/buffer"), |_| Response::ok().body("old"));
    assert_eq!(outcome.text(), "new");
}

#[test]
fn trailers_can_be_made_up_in_the_last_body_callback_only() {
    let host = host("bodies");
    let mut stream = host.stream(&Request::post("/trailers"), false);
    stream.body("ab", false);
    stream.body("cd", true);
    let trailers = stream.forwarded().and_then(Request::trailers).unwrap();
    assert_eq!(trailers.get("x-made").map(AsRef::as_ref), Some(&b"up"[..]));
    let said: Vec<_> = lines(&host).into_iter().filter(|line| line.starts_with("trailers")).collect();
    assert_eq!(said, ["trailers 2", "trailers 0"]);
}
