//! The recent requests of a gateway: on its admin address, saved as scenarios, and in the access log.

use std::{
    io::{self, BufReader, Write},
    net::{SocketAddr, TcpListener},
    sync::{Mutex, mpsc},
};

use host_sim::{Clock, Host, Module, Plugin};
use host_sim_cli::gateway::{AccessLog, Gateway, Options, Recent};

use crate::{
    guests,
    http::{Message, PATIENCE, connect, echo, get, read_message, send, upstream},
};

/// A gateway that keeps recent requests with their traces.
pub(crate) fn watched(
    guest: &str,
    upstream: SocketAddr,
    change: impl FnOnce(&mut Options),
) -> (Gateway, SocketAddr) {
    let recent = Recent::default();
    let traced = recent.clone();
    let builder = Host::builder().workers(2).clock(Clock::real()).system_randomness();
    let mut host = builder.on_trace(move |callback| traced.trace(callback)).build();
    host.load(&Module::compile(guests::guest(guest)).unwrap(), Plugin::default()).unwrap();
    let mut options = Options::new(format!("http://{upstream}").parse().unwrap());
    options.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.recent = Some(recent);
    change(&mut options);
    let gateway = Gateway::start(host, options).unwrap();
    let admin = gateway.admin_address().unwrap();
    (gateway, admin)
}

/// The page, once it shows `requests` requests that have ended: a client gets its answer a moment before that.
pub(crate) fn page(admin: SocketAddr, requests: usize) -> Message {
    let clock = Clock::real();
    loop {
        let page = get(admin, "/requests");
        let text = page.text();
        if text.matches("<summary><b").count() == requests {
            return page;
        }
        assert!(clock.monotonic() < PATIENCE, "{text}");
    }
}

/// The parts of a page between two texts.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    text.split(start).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

#[test]
fn the_page_shows_what_was_asked_answered_and_traced() {
    let (gateway, admin) = watched("bodies", upstream(echo), |_| {});
    send(
        gateway.address(),
        b"POST /pass HTTP/1.1\r\nhost: a\r\nx-one: two\r\ncontent-length: 5\r\n\r\nhello",
    );
    let page = page(admin, 1).text();
    assert_eq!(between(&page, "<span>", "</span>"), ["POST /pass"]);
    let titles = between(&page, "<h2>", "</h2>");
    let expected = ["Request from", "Answer of the upstream", "Answer to the client", "Trace"];
    assert!(titles.iter().zip(expected).all(|(title, begin)| title.starts_with(begin)), "{titles:?}");
    let shown = between(&page, "<pre>", "</pre>");
    let parts = [
        (0, "x-one: two\ncontent-length: 5\n\nhello"),
        (1, ":status: 200"),
        (2, ":status: 200"),
        (3, "proxy_on_request_headers("),
        (3, "proxy_on_response_body("),
    ];
    for (index, part) in parts {
        assert!(shown[index].contains(part), "{part} in {}", shown[index]);
    }
}

#[test]
fn nothing_that_a_client_sends_becomes_part_of_the_page() {
    let (gateway, admin) = watched("limiter", upstream(echo), |_| {});
    let hostile = "</pre><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;";
    let request = format!("GET /'%22 HTTP/1.1\r\nhost: a\r\nx-hostile: {hostile}\r\n\r\n");
    assert_eq!(send(gateway.address(), request.as_bytes()).status(), 200);
    let page = page(admin, 1);
    let text = page.text();
    assert!(!text.contains("<script") && !text.contains("<img"), "{text}");
    assert!(text.contains(
        "&#60;script&#62;alert(1)&#60;/script&#62;&#60;img src=x onerror=&#39;alert(2)&#39;&#62;&#34;&#38;amp;"
    ));
    let policy = page.header("content-security-policy");
    assert_eq!(policy, Some("default-src 'none'; style-src 'unsafe-inline'"));
    for path in [
        "/requests/0/scenario.json",
        "/requests/x/alone.json",
        "/requests/1/other",
        "/requests/1",
        "/requestsx",
    ] {
        assert_eq!(get(admin, path).status(), 404, "{path}");
    }
}

#[test]
fn a_hundred_requests_are_kept() {
    let (gateway, admin) = watched("replies", upstream(echo), |_| {});
    let (mut stream, mut reader) = connect(gateway.address());
    for index in 0..103 {
        stream.write_all(format!("GET /{index} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).unwrap();
        assert!(read_message(&mut reader).is_some());
    }
    let text = page(admin, 100).text();
    let paths = between(&text, "<span>", "</span>");
    assert_eq!((paths[0], paths[99]), ("GET /102", "GET /3"));
    assert!(text.contains("The last 100 of 103."), "{text}");
}

#[cfg(feature = "scenarios")]
mod scenarios {
    use std::{fs, path::Path};

    use super::*;
    use crate::commands::host_sim;

    /// Saves a request as a scenario and runs it. Returns the exit code, and what was printed with the scenario.
    fn run(folder: &Path, admin: SocketAddr, guest: &str, file: &str) -> (Option<i32>, String) {
        let saved = get(admin, &format!("/requests/{file}"));
        let disposition =
            saved.header("content-disposition").unwrap_or_else(|| panic!("{file}: {}", saved.start));
        let name = disposition.split('"').nth(1).unwrap();
        fs::write(folder.join(name), &saved.body).unwrap();
        fs::write(folder.join("filter.wasm"), guests::guest(guest)).unwrap();
        let (code, out, err) = host_sim(&["run", "--wasm", "filter.wasm", name], folder);
        (code, format!("{out}{err}{}", saved.text()))
    }

    #[test]
    fn a_request_is_saved_with_those_before_it_as_a_scenario_that_passes() {
        let folder = tempfile::tempdir().unwrap();
        let (gateway, admin) = watched("limiter", upstream(echo), |_| {});
        let statuses: Vec<_> = (0..6).map(|_| get(gateway.address(), "/k").status()).collect();
        assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
        page(admin, 6);
        //  the file, the exit code: alone, the sixth request is not refused, so its scenario misses
        let rows = [("6/scenario.json", 0), ("5/scenario.json", 0), ("1/alone.json", 0), ("6/alone.json", 1)];
        for (file, code) in rows {
            let (found, said) = run(folder.path(), admin, "limiter", file);
            assert_eq!(found, Some(code), "{file}: {said}");
        }
    }

    #[test]
    fn bodies_clusters_and_upstreams_that_fail_are_part_of_the_scenario() {
        let folder = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let post = b"POST /pass HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let plain = b"GET /a?b=c HTTP/1.1\r\nhost: a\r\nx: 1\r\nx: 2\r\n\r\n";
        /// Guest, upstream, cluster, request, status.
        type Row<'a> = (&'a str, SocketAddr, SocketAddr, &'a [u8], u16);
        let server = upstream(echo);
        let rows: [Row<'_>; 5] = [
            ("bodies", server, free, post, 200),
            ("callouts", server, server, plain, 200),
            ("callouts", server, free, plain, 403),
            ("limiter", free, free, plain, 503),
            ("traps", server, free, b"GET /unreachable HTTP/1.1\r\nhost: a\r\n\r\n", 503),
        ];
        for (guest, to, cluster, request, status) in rows {
            let (gateway, admin) = watched(guest, to, |options| {
                options.clusters.insert("auth".to_owned(), format!("http://{cluster}").parse().unwrap());
            });
            assert_eq!(send(gateway.address(), request).status(), status, "{guest}");
            page(admin, 1);
            for file in ["1/scenario.json", "1/alone.json"] {
                let (code, said) = run(folder.path(), admin, guest, file);
                assert_eq!(code, Some(0), "{guest}: {said}");
            }
        }
    }

    #[test]
    fn a_request_that_no_scenario_can_say_is_offered_as_none() {
        let (gateway, admin) = watched("limiter", upstream(echo), |_| {});
        let large = "x".repeat(65 << 10);
        let large = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{large}", large.len());
        let rows: [(&[u8], u16, &str); 3] = [
            (b"GET / HTTP/1.1\r\nhost: a\r\nx: \xff\r\n\r\n", 200, "it has bytes that are not UTF-8"),
            (large.as_bytes(), 200, "a body has more than 64 KiB"),
            (b"NOPE / HTTP/1.1\r\nhost: a\r\n\r\n", 400, "the gateway refused it before the filter"),
        ];
        for (index, (request, status, why)) in rows.into_iter().enumerate() {
            assert_eq!(send(gateway.address(), request).status(), status, "{why}");
            let text = page(admin, index + 1).text();
            assert!(text.contains(&format!("<p>No scenario: {why}.</p>")), "{text}");
            assert_eq!(get(admin, &format!("/requests/{}/scenario.json", index + 1)).status(), 404, "{why}");
        }
    }
}

#[test]
fn a_request_in_progress_ends_with_the_filter_that_it_began_with() {
    let (arrived, arrives) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let (arrived, wait) = (Mutex::new(arrived), Mutex::new(wait));
    let upstream = upstream(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = read_message(&mut reader) {
            if request.start.contains("/slow") {
                arrived.lock().unwrap().send(()).unwrap();
                wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    let (mut gateway, admin) = watched("configuration", upstream, |_| {});
    gateway.update("one").unwrap();
    let (mut stream, mut reader) = connect(gateway.address());
    stream.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    arrives.recv_timeout(PATIENCE).unwrap();

    let [next, bad] = ["chain", "traps"].map(|guest| Module::compile(guests::guest(guest)).unwrap());
    let named = |name: &'static str| Plugin::new(name);
    gateway.replace_chain([(&next, named("x"))]).unwrap();
    assert_eq!(get(gateway.address(), "/").header("x-answered"), Some("x"));
    go_on.send(()).unwrap();
    assert_eq!(read_message(&mut reader).unwrap().header("x-configuration"), Some("one"));
    // The next request of the same connection goes through the new filter.
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert_eq!(read_message(&mut reader).unwrap().header("x-answered"), Some("x"));

    let strict = Module::compile(guests::guest("configuration")).unwrap();
    assert!(gateway.replace_chain([(&bad, named("y")), (&strict, named("bad"))]).is_err());
    assert_eq!(get(gateway.address(), "/").header("x-answered"), Some("x"));
    let text = page(admin, 4).text();
    assert_eq!(
        text.matches("<p>No scenario: it came before the filter was reloaded.</p>").count(),
        1,
        "{text}"
    );
}

/// A writer whose lines a test receives.
struct Lines(mpsc::Sender<String>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_access_log_has_a_line_for_each_request_in_envoys_default_format() {
    let (server, free) = (upstream(echo), TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let agent = b"POST /a?b HTTP/1.1\r\nhost: example.com\r\nuser-agent: curl \"8\"\r\nx-forwarded-for: 198.51.100.1\r\n\
                  x-request-id: 7\r\ncontent-length: 5\r\n\r\nhello";
    let plain = b"GET /p HTTP/1.1\r\nhost: a\r\n\r\n";
    let to = |address: SocketAddr| format!("\"{address}\"");
    //  guest, upstream, request, the line after its time; `*` stands for durations, ids and lengths of answers
    let rows: [(&str, SocketAddr, &[u8], String); 5] = [
        (
            "limiter",
            server,
            agent,
            format!(
                "\"POST /a?b HTTP/1.1\" 200 - 5 * * - \"198.51.100.1,127.0.0.1\" \"curl \"8\"\" * \"example.com\" {}",
                to(server)
            ),
        ),
        (
            "limiter",
            free,
            plain,
            format!("\"GET /p HTTP/1.1\" 503 UF 0 * * - \"127.0.0.1\" \"-\" * \"a\" {}", to(free)),
        ),
        (
            "traps",
            server,
            b"GET /unreachable HTTP/1.1\r\nhost: a\r\n\r\n",
            "\"GET /unreachable HTTP/1.1\" 503 - 0 * * - \"127.0.0.1\" \"-\" * \"a\" \"-\"".to_owned(),
        ),
        (
            "limiter",
            server,
            b"NOPE /p HTTP/1.1\r\nhost: a\r\n\r\n",
            "\"NOPE /p HTTP/1.1\" 400 - 0 * * - \"127.0.0.1\" \"-\" * \"a\" \"-\"".to_owned(),
        ),
        (
            "limiter",
            server,
            b"GET /p HTTP/1.0\r\n\r\n",
            "\"GET /p HTTP/1.0\" 426 - 0 * * - \"127.0.0.1\" \"-\" * \"-\" \"-\"".to_owned(),
        ),
    ];
    for (guest, to, request, expected) in rows {
        let (lines, written) = mpsc::channel();
        let (gateway, _) =
            watched(guest, to, |options| options.access_log = Some(AccessLog::to(Lines(lines))));
        send(gateway.address(), request);
        let line = written.recv_timeout(PATIENCE).unwrap();
        let (time, rest) = line.strip_prefix('[').and_then(|line| line.split_once("] ")).unwrap();
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{line}");
        let (rest, expected) = (rest.trim_end(), expected.as_str());
        let mut found = rest.split(' ');
        for word in expected.split(' ') {
            let given = found.next();
            assert!(word == "*" || given == Some(word), "{word} is not {given:?} in\n{rest}\n{expected}");
        }
        assert!(rest.ends_with('"') && found.next().is_none(), "{line}");
    }
}

#[test]
fn a_listener_is_told_of_each_request_that_has_ended_with_what_the_filter_logged_in_it() {
    let (sender, ended) = mpsc::channel();
    let recent = Recent::on_end(move |ended| sender.send(ended.clone()).unwrap());
    let logged = recent.clone();
    let builder = Host::builder().workers(2).clock(Clock::real()).system_randomness();
    let mut host = builder.on_log(move |line| logged.log(line)).build();
    host.load(&Module::compile(guests::guest("bodies")).unwrap(), Plugin::default()).unwrap();
    let mut options = Options::new(format!("http://{}", upstream(echo)).parse().unwrap());
    options.recent = Some(recent);
    let gateway = Gateway::start(host, options).unwrap();
    for path in ["/one?a=b", "/two"] {
        assert_eq!(get(gateway.address(), path).status(), 200);
        let ended = ended.recv_timeout(PATIENCE).unwrap();
        assert_eq!((ended.method.as_str(), ended.path.as_str(), ended.status), ("GET", path, 200));
        assert!(!ended.log.is_empty(), "{path}");
    }
}
