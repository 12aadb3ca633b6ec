//! The recent requests of a gateway: on its admin address, and in the access log.

use std::{
    io::{self, BufRead as _, BufReader, Write},
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
    let host = builder.on_trace(move |callback| traced.trace(callback)).build();
    let module = Module::compile(guests::guest(guest)).unwrap();
    let mut options = Options::new(format!("http://{upstream}").parse().unwrap());
    options.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.recent = Some(recent);
    change(&mut options);
    let gateway = Gateway::start(host, [(&module, Plugin::default())], options).unwrap();
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
    assert_eq!(between(&text, "<script", "</script>"), [" src=\"/requests.js\">"]);
    assert!(!text.contains("<img"), "{text}");
    assert!(text.contains(
        "&#60;script&#62;alert(1)&#60;/script&#62;&#60;img src=x onerror=&#39;alert(2)&#39;&#62;&#34;&#38;amp;"
    ));
    let policy = page.header("content-security-policy");
    assert_eq!(
        policy,
        Some(
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; form-action 'self'"
        )
    );
    for path in ["/requests/1", "/requestsx"] {
        assert_eq!(get(admin, path).status(), 404, "{path}");
    }
}

#[test]
fn requests_come_by_themselves_as_they_end() {
    let (gateway, admin) = watched("limiter", upstream(echo), |_| {});
    let (mut stream, mut reader) = connect(admin);
    stream.write_all(b"GET /requests/events HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let next = |reader: &mut BufReader<_>, wanted: &str| loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the events end before {wanted}");
        if line.contains(wanted) {
            return line;
        }
    };
    next(&mut reader, "text/event-stream");
    next(&mut reader, ": open");
    for path in ["/first", "/second"] {
        send(gateway.address(), format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes());
        let event = next(&mut reader, "data: <details");
        assert!(event.contains(&format!("<span>GET {path}</span>")), "{event}");
    }
    // What has ended before is not sent again, unless it is asked for.
    let (mut stream, mut reader) = connect(admin);
    stream.write_all(b"GET /requests/events?ended=1 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let event = next(&mut reader, "data: <details");
    assert!(event.contains("<span>GET /second</span>"), "{event}");
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
    let (mut gateway, _) = watched("configuration", upstream, |_| {});
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
    let host = builder.on_log(move |line| logged.log(line)).build();
    let module = Module::compile(guests::guest("bodies")).unwrap();
    let mut options = Options::new(format!("http://{}", upstream(echo)).parse().unwrap());
    options.recent = Some(recent);
    let gateway = Gateway::start(host, [(&module, Plugin::default())], options).unwrap();
    for path in ["/one?a=b", "/two"] {
        assert_eq!(get(gateway.address(), path).status(), 200);
        let ended = ended.recv_timeout(PATIENCE).unwrap();
        assert_eq!((ended.method.as_str(), ended.path.as_str(), ended.status), ("GET", path, 200));
        assert!(!ended.log.is_empty(), "{path}");
    }
}
