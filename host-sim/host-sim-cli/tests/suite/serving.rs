//! `host-sim serve`, as a user starts it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
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

/// The processor time that a process has used.
#[cfg(target_os = "linux")]
fn cpu_time(process: u32) -> Duration {
    // After the name, which is in parentheses: the twelfth and thirteenth field, in hundredths of a second.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

#[cfg(unix)]
fn signal(serving: &Serving, name: &str) {
    let told = Command::new("kill").args([name, &serving.child.id().to_string()]).status().unwrap();
    assert!(told.success());
}

/// Whether the command ends within a time.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a process ends in real time, and is asked whether it has")]
fn ends_within(serving: &mut Serving, time: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < time {
        if serving.child.try_wait().unwrap().is_some() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A request whose answer does not come, on a connection that is given back.
#[cfg(unix)]
fn begin(address: SocketAddr) -> std::net::TcpStream {
    let (mut stream, _) = connect(address);
    stream.write_all(b"POST /begun HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf").unwrap();
    stream
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_while_connections_come() {
    let folder = folder("configuration", "one");
    let mut serving = Serving::start(folder.path(), &[]);
    let address = serving.address;
    let (stop, stopped) = mpsc::channel::<()>();
    let clients = thread::spawn(move || {
        let mut open = Vec::new();
        while stopped.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout) {
            open.extend(std::net::TcpStream::connect(address));
        }
    });
    signal(&serving, "-INT");
    assert!(ends_within(&mut serving, Duration::from_secs(8)), "it serves on");
    drop(stop);
    clients.join().unwrap();
}

#[cfg(unix)]
#[test]
#[expect(clippy::disallowed_methods, reason = "the patience of a test is real time")]
fn while_it_drains_it_is_not_ready_and_a_second_interrupt_ends_it_at_once() {
    let folder = folder("configuration", "one");
    let mut serving = Serving::start(folder.path(), &[]);
    let _begun = begin(serving.address);
    assert_eq!(get(serving.admin, "/ready").text(), "LIVE\n");
    signal(&serving, "-INT");
    // The first of these may come before the signal.
    let patience = Instant::now();
    while get(serving.admin, "/ready").text() == "LIVE\n" && patience.elapsed() < PATIENCE {}
    let answer = get(serving.admin, "/ready");
    assert_eq!((answer.status(), answer.text().as_str()), (503, "DRAINING\n"));
    signal(&serving, "-INT");
    assert!(ends_within(&mut serving, Duration::from_secs(10)), "it waits for the request");
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::disallowed_methods, reason = "what is measured is the CPU time of a second")]
fn without_a_descriptor_left_it_waits_until_there_is_one() {
    let folder = folder("configuration", "one");
    let serving = Serving::start(folder.path(), &[]);
    let limits = format!("--pid={}", serving.child.id());
    let limited = Command::new("prlimit").args([&limits, "--nofile=64:64"]).status().unwrap();
    assert!(limited.success());
    let open: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(serving.address).unwrap()).collect();
    thread::sleep(Duration::from_millis(300));
    let before = cpu_time(serving.child.id());
    thread::sleep(Duration::from_secs(1));
    let used = cpu_time(serving.child.id()) - before;
    assert!(used < Duration::from_millis(200), "{used:?} in a second");
    drop(open);
    assert_eq!(get(serving.address, "/").status(), 200);
}

#[test]
fn without_options_it_answers_with_what_requests_said() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_host-sim"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = lines(child.stdout.take().unwrap());
    let address: SocketAddr = after(&out, "listening on http://").parse().unwrap();
    after(&out, "no --wasm");
    after(&out, "no --upstream");
    let (mut stream, mut reader) = connect(address);
    stream
        .write_all(b"POST /said?q HTTP/1.1\r\nhost: a\r\nx-said: yes\r\ncontent-length: 3\r\n\r\nabc")
        .unwrap();
    let answer = read_message(&mut reader).unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.text();
    for part in ["POST /said?q\n", "\nx-said: yes\n", "\n\nabc"] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_host-sim")).args(["serve", "--help"]).output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains("[default: 127.0.0.1:8080]"));
}
