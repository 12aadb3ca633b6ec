//! `host-sim serve`, as a user starts it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
};

use crate::{
    guests,
    http::{PATIENCE, connect, echo, get, read_message, upstream},
    recent,
};

/// A gateway that was started with the command, and what it prints.
struct Serving {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    address: SocketAddr,
    admin: SocketAddr,
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Once the test is over, nobody reads on.
        BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| sender.send(line).ok())
    });
    receiver
}

/// The first line that holds a text, and what stands after it there.
fn after(lines: &Receiver<String>, text: &str) -> String {
    let mut before = Vec::new();
    loop {
        let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {text:?} in {before:#?}"));
        if let Some((_, rest)) = line.split_once(text) {
            return rest.to_owned();
        }
        before.push(line);
    }
}

impl Serving {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let upstream = format!("http://{}", upstream(echo));
        let mut child = Command::new(env!("CARGO_BIN_EXE_host-sim"))
            .args(["serve", "--wasm", "filter.wasm", "--config", "config", "--listen", "127.0.0.1:0"])
            .args(["--admin", "127.0.0.1:0", "--workers", "1", "--upstream", &upstream])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (out, err) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        let address = after(&out, "listening on http://").parse().unwrap();
        let admin = after(&out, "admin on http://").parse().unwrap();
        Self { child, out, err, address, admin }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It is over already, if it cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with a filter and its configuration.
fn folder(guest: &str, configuration: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("filter.wasm"), guests::guest(guest)).unwrap();
    fs::write(folder.path().join("config"), configuration).unwrap();
    folder
}

#[test]
fn a_filter_is_loaded_again_when_its_files_change_and_connections_stay() {
    let folder = folder("configuration", "one");
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let serving = Serving::start(folder.path(), &["--watch"]);
    let (mut stream, mut reader) = connect(serving.address);
    let mut ask = |header: &str| {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        read_message(&mut reader).unwrap().header(header).map(str::to_owned)
    };
    assert_eq!(ask("x-configuration").as_deref(), Some("one"));
    write("config", b"the second");
    after(&serving.out, "reloaded");
    assert_eq!(ask("x-configuration").as_deref(), Some("the second"));

    //  the file, what is written to it, and why it is not loaded
    let module = guests::guest("configuration");
    let rows: [(&str, &[u8], &str); 3] = [
        ("config", b"bad", "the filter refused its configuration (proxy_on_configure answered false)"),
        ("filter.wasm", &module[..40], "filter.wasm: "),
        ("filter.wasm", b"", "filter.wasm: "),
    ];
    for (file, bytes, why) in rows {
        write(file, bytes);
        let said = after(&serving.err, "Reload failed; still running the previous filter: ");
        assert!(said.contains(why), "{why} in {said}");
        assert_eq!(ask("x-configuration").as_deref(), Some("the second"), "{why}");
    }
    write("config", b"x");
    write("filter.wasm", &guests::guest("chain"));
    after(&serving.out, "reloaded");
    assert_eq!(ask("x-answered").as_deref(), Some("x"));
}

#[test]
fn traces_are_printed_in_their_form_and_shown_on_the_page() {
    let folder = folder("configuration", "one");
    //  the option, a part of what is printed of a request, whether the page has a trace
    let rows: [(&[&str], Option<&str>, bool); 3] = [
        (&["--trace"], Some("worker 0: proxy_on_response_headers(context: 2, "), true),
        (&["--trace=json"], Some(r#""callback":"proxy_on_response_headers""#), true),
        (&[], None, false),
    ];
    for (option, part, traced) in rows {
        let serving = Serving::start(folder.path(), option);
        assert_eq!(get(serving.address, "/").status(), 200);
        let page = recent::page(serving.admin, 1).text();
        for part in ["<h2>Trace</h2>", "proxy_on_response_headers(", "proxy_on_done("] {
            assert_eq!(page.contains(part), traced, "{option:?}, {part}: {page}");
        }
        match part {
            Some(part) => drop(after(&serving.err, part)),
            None => {
                let told: Vec<_> = serving.err.try_iter().filter(|line| line.contains("proxy_on_")).collect();
                assert!(told.is_empty(), "{told:?}");
            }
        }
    }
}

#[test]
fn the_access_log_is_printed_or_appended_to_a_file() {
    let folder = folder("configuration", "one");
    let serving = Serving::start(folder.path(), &["--access-log", "-"]);
    get(serving.address, "/printed");
    assert!(after(&serving.out, "\"GET /printed HTTP/1.1\" 200 ").starts_with("- 0 "));
    drop(serving);
    let file = folder.path().join("access.log");
    fs::write(&file, "a line before\n").unwrap();
    for path in ["/first", "/second"] {
        let serving = Serving::start(folder.path(), &["--access-log", "access.log"]);
        get(serving.address, path);
        recent::page(serving.admin, 1);
    }
    let written = fs::read_to_string(file).unwrap();
    let paths: Vec<_> = written.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(paths, ["before", "/first", "/second"], "{written}");
}
