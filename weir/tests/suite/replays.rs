//! Access logs, sent through a filter.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use demo::artifacts::filter_wasm;
use demo::policy::hash;
use flate2::{Compression, write::GzEncoder};
use host_sim::{Clock, Host, Module, Plugin};
use serde_json::{Value, json};
use weir::replay::{self, Callers, Fields, Log, Report, Side};

use crate::{CONFIGURATION, guests, weir_in};

/// A log of this number of requests, a second apart, to seven paths in turn.
fn log(lines: usize) -> String {
    let mut text = String::new();
    for line in 0..lines {
        let (hour, minute, second) = (line / 3600 % 24, line / 60 % 60, line % 60);
        writeln!(
            text,
            r#"{{"start_time":"2026-01-02T{hour:02}:{minute:02}:{second:02}.000Z","method":"GET","path":"/{}?q=1","protocol":"HTTP/1.1","response_code":200,"downstream_remote_address":"203.0.113.{}:5000","authority":"api","user_agent":"x","bytes_sent":12}}"#,
            line % 7,
            line % 3
        )
        .unwrap();
    }
    text
}

/// Replays a log through a guest that counts by itself, with the clock at the log's beginning, and returns where the clock stands then.
pub(crate) fn replayed(log: &str, guest: &str) -> (Report, u64) {
    let config = filter::config::Config::from_json(CONFIGURATION.as_bytes()).unwrap();
    let callers = Callers::new(&config, &Value::Null, None);
    let file: Box<dyn std::io::BufRead> = Box::new(std::io::Cursor::new(log.to_owned()));
    let mut log = Log::new(Fields::default(), [("access.log".into(), file)]).unwrap();
    let mut host = Host::builder().clock(Clock::at(log.begins().unwrap())).log_capacity(10).build();
    host.load(&Module::compile(guests::guest(guest)).unwrap(), Plugin::default()).unwrap();
    let mut sides = [Side::new(host, callers, false)];
    let report = replay::replay(&mut sides, &mut log).unwrap();
    (report, sides[0].host.clock().wall().as_secs())
}

/// The requests of each bar of a page's plot: those that went on, and those that were refused.
fn bars(page: &str) -> Vec<(u64, u64)> {
    let titles = page.split("<g><title>").skip(1).map(|rest| rest.split_once("</title>").unwrap().0);
    let numbers = |title: &str| {
        let mut words = title.split_once(": ").unwrap().1.split(' ').filter_map(|word| word.parse().ok());
        (words.next().unwrap(), words.next().unwrap())
    };
    titles.map(numbers).collect()
}

#[test]
fn a_summary_tells_what_would_have_been_refused() {
    let text = format!("{}oops\n\n{{\"path\":\"/\"}}\n", log(70));
    let (report, clock) = replayed(&text, "limiter");
    let object = report.json();
    assert_eq!(
        (&object["requests"], &object["forwarded"], &object["refused"]),
        (&json!(70), &json!(35), &json!(35))
    );
    assert_eq!(column(&object, "answer", "refused"), [("429 limited".to_owned(), 35)]);
    assert_eq!(object["path"][0], json!({"path": "/0", "requests": 10, "refused": 5}));
    assert_eq!(column(&object, "client", "requests").len(), 3);
    let bars = bars(&report.page("", 10));
    assert_eq!(bars.iter().map(|(forwarded, refused)| forwarded + refused).collect::<Vec<_>>(), [60, 10]);
    assert_eq!(clock, 1_767_312_069, "the clock went on as the log did");
    let told = report.text(10);
    for line in ["35 went on, 35 refused (50.0%)", "429 limited", "/0", "203.0.113.0"] {
        assert!(told.contains(line), "{line} in {told}");
    }
}

#[test]
fn the_page_has_its_plot_in_it_and_needs_no_network() {
    let page = replayed(&log(200), "limiter").0.page("a <title>", 10);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<h1>a &#60;title&#62;</h1>"));
    assert_eq!(bars(&page).len(), 4);
    for outside in ["http:", "https:", "src=", "href=", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_long_log_is_summed_up_within_bounds() {
    let mut lines = String::new();
    for day in 1..=28 {
        for hour in 0..24 {
            writeln!(lines, r#"{{"start_time":"2026-02-{day:02}T{hour:02}:00:00Z","path":"/{day}-{hour}"}}"#)
                .unwrap();
        }
    }
    let bars = bars(&replayed(&lines, "limiter").0.page("", 10));
    assert!(bars.len() <= 240, "{}", bars.len());
    assert_eq!(bars.iter().map(|(forwarded, refused)| forwarded + refused).sum::<u64>(), 28 * 24);
}

#[test]
fn a_log_is_replayed_through_a_module_that_is_no_limiter_too() {
    let report = replayed(&log(3), "phases").0.json();
    assert_eq!((&report["forwarded"], &report["refused"]), (&json!(3), &json!(0)));
}

/// How long requests of acme take, and when they begin, in milliseconds; those that take -1 do not say.
fn timed(field: &str, requests: &[(u64, &str)]) -> String {
    let line = |(begin, took): &(u64, &str)| {
        let mut line = json!({"time": format!("2026-01-02T00:00:{:02}.{:03}Z", begin / 1000, begin % 1000), "path": "/links", "key": "k", "status": 200});
        if !took.is_empty() {
            line[field] = json!(took);
        }
        format!("{line}\n")
    };
    requests.iter().map(line).collect()
}

#[test]
fn requests_in_flight_are_judged_by_their_durations_and_those_without_are_stated() {
    const NONE: &str = "Quotas of requests in flight are not judged: no line says how long its request took (--field duration=NAME names the field).";
    const SOME: &str = "1 requests are not judged by quotas of requests in flight: their lines do not say how long they took, or Weir refused them when they were logged.";
    let mut limits = limits();
    limits["plans"]["free"]["standard"] = json!([{"in_flight": 2}]);
    let together = [(0, "900"), (100, "1000"), (200, "50"), (950, "100"), (960, "900"), (1200, "1")];
    let without: Vec<_> = together.iter().map(|(begin, _)| (*begin, "")).collect();
    let mixed = [(0, "900"), (100, "1000"), (200, ""), (300, "")]
        .map(|(begin, took)| (begin, if begin == 300 { "5" } else { took }));
    let refused = timed("duration", &[(0, "900"), (100, "900")])
        + &timed("duration", &[(200, "0")]).replace(":200,", ":429,\"details\":\"weir_in_flight\",");
    let shadowed = timed("duration", &together)
        .replace(":200,", ":200,\"weir\":\"outcome=shadow_limited subscriber=acme\",");
    //  log, options, requests that are refused, what is stated
    let rows: [(String, &[&str], u64, &str); 9] = [
        // The upstream answered them.
        (shadowed, &[], 2, ""),
        (timed("duration", &together), &[], 2, ""),
        (timed("duration_ms", &together), &[], 2, ""),
        (timed("took", &together), &["--field", "duration=took"], 2, ""),
        (timed("took", &together), &[], 0, NONE),
        (timed("duration", &without), &[], 0, NONE),
        (timed("duration", &mixed), &[], 2, SOME),
        (refused, &[], 1, SOME),
        // As nginx, which logs when a request ends, and in seconds.
        (
            timed("request_time", &[(900, "0.900"), (1100, "1.000"), (250, "0.050"), (960, "0.010")]),
            &[],
            1,
            "",
        ),
    ];
    for (log, options, refused, stated) in rows {
        let folder = written(&[("limits.json", &limits.to_string()), ("access.log", &log)]);
        let arguments = [options, &["--header", "authorization=key", "access.log"]].concat();
        let (code, report, err) = replay_in(folder.path(), &arguments);
        assert_eq!((code, &report["refused"]), (0, &json!(refused)), "{log}{report:#}{err}");
        let found = report["notes"].as_array().unwrap().iter().filter_map(Value::as_str);
        let found: Vec<_> = found.filter(|note| note.contains("in flight")).collect();
        assert_eq!(found.concat(), stated, "{log}");
    }
}

/// What takes the machine for itself.
mod alone {
    use std::fs;
    use std::io::Read as _;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use demo::artifacts::filter_wasm;
    use demo::clock::eventually;

    use super::log;
    use crate::{CONFIGURATION, soak};

    /// Most of resident memory that the command may take, in kibibytes.
    const MOST_MEMORY: u64 = 400_000;

    const MOST_TIME: Duration = Duration::from_secs(20);

    #[test]
    #[ignore = "one of the long forms: make soak"]
    #[expect(clippy::disallowed_methods, reason = "it measures how long the command takes")]
    fn a_million_lines_take_at_most_20_seconds_and_400_megabytes() {
        const LINES: usize = 1_000_000;
        let folder = tempfile::tempdir().unwrap();
        let in_order: Vec<_> = log(LINES).lines().map(str::to_owned).collect();
        // As they end, and not as they begin.
        let locally: String =
            in_order.chunks(5).flat_map(|lines| lines.iter().rev()).map(|line| format!("{line}\n")).collect();
        fs::write(folder.path().join("limits.json"), CONFIGURATION).unwrap();
        for (form, log) in [("in order", in_order.join("\n")), ("locally out of order", locally)] {
            fs::write(folder.path().join("access.log"), log).unwrap();
            let started = std::time::Instant::now();
            let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
                .args(["replay", "limits.json", "access.log", "--html", "page.html", "--wasm"])
                .arg(filter_wasm())
                .current_dir(folder.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let status = format!("/proc/{}/status", child.id());
            let mut most = 0;
            let ended = eventually("the replay", Duration::from_secs(600), || {
                let status = fs::read_to_string(&status).unwrap_or_default();
                let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
                most = line.and_then(|kibibytes| kibibytes.trim().parse().ok()).unwrap_or(most);
                child.try_wait().unwrap()
            });
            let took = started.elapsed();
            let mut out = String::new();
            child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
            assert!(ended.unwrap().success() && out.starts_with("1000000 requests, "), "{out}");
            assert!((1..=MOST_MEMORY).contains(&most), "{most} kB");
            assert!(took <= MOST_TIME, "{took:?}");
            soak::row(
                "replay of an access log",
                format_args!("{LINES} lines, {form}"),
                format_args!("{took:.1?}, {} MB", most / 1000),
            );
        }
    }
}

/// What `weir replay` says, as an object, of logs in a folder that has the configuration `limits.json`; and its exit code and complaint.
fn replay_in(folder: &Path, arguments: &[&str]) -> (i32, Value, String) {
    let usual =
        ["replay", "--wasm", filter_wasm().to_str().unwrap(), "--format", "json", "--config", "limits.json"];
    let (code, out, err) = weir_in(folder, &[&usual, arguments].concat(), "");
    (code, serde_json::from_str(&out).unwrap_or_default(), err)
}

fn written(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Two keys of acme and one of other, and three requests of each client's address in a minute.
pub(crate) fn limits() -> Value {
    json!({
        "plans": {"free": {"standard": ["60/minute"], "reports": ["2/minute"]}},
        "classes": [{"name": "reports", "match": [{"path_prefix": "/reports"}]}],
        "subscribers": [
            {"id": "acme", "plan": "free", "keys": [hash("k"), hash("l")]},
            {"id": "other", "plan": "free", "keys": [hash("m")]},
        ],
        "missing_key": {"action": "limit", "quotas": ["3/minute"]},
    })
}

/// Lines with these fields beside a path, a second apart.
fn lines(fields: &[Value]) -> String {
    let line = |(second, fields): (usize, &Value)| {
        let mut line = json!({"time": format!("2026-01-02T00:{:02}:{:02}.000Z", second / 60, second % 60), "path": "/links", "client": "203.0.113.9", "status": 200});
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        format!("{line}\n")
    };
    fields.iter().enumerate().map(line).collect()
}

/// The rows of a table: the first column and another.
fn column(report: &Value, table: &str, name: &str) -> Vec<(String, u64)> {
    let rows = report[table].as_array().unwrap_or_else(|| panic!("no {table} in {report:#}"));
    let row = |row: &Value| (row[table].as_str().unwrap().to_owned(), row[name].as_u64().unwrap());
    rows.iter().map(row).collect()
}

#[test]
fn the_logs_of_the_shipped_files_have_their_clients() {
    // Each of twenty clients sends as many requests as it may.
    let clients: Vec<_> =
        (0..200).map(|line| json!({"client": format!("203.0.113.{}", line % 20)})).collect();
    let log = lines(&clients);
    let folder = written(&[("limits.json", CONFIGURATION), ("access.log", &log)]);
    let (code, report, err) = replay_in(folder.path(), &["access.log"]);
    assert_eq!(
        (code, &report["requests"], &report["refused"]),
        (0, &json!(200), &json!(0)),
        "{report:#}{err}"
    );
    assert_eq!(column(&report, "client", "requests").len(), 20);
}

#[test]
fn lines_are_replayed_in_the_order_of_their_time_in_and_across_logs() {
    // A minute of one gateway, then the same minute of another; and each line is written when its request ends.
    let requests = |from: usize| (from..60).step_by(2).map(|second| (second, second + 7 * (second % 3)));
    let lines = |from| {
        let mut ends: Vec<_> = requests(from).collect();
        ends.sort_by_key(|(_, end)| *end);
        let line = |(second, _): (usize, usize)| {
            format!(
                "{{\"time\":\"2026-01-02T{:02}:00:{second:02}Z\",\"path\":\"/\",\"client\":\"203.0.113.9\"}}\n",
                second % 24
            )
        };
        ends.into_iter().map(line).collect::<String>()
    };
    let (one, other) = (lines(0), lines(1));
    let mut limits = limits();
    limits["missing_key"]["quotas"] = json!(["1/minute", "3/hour"]);
    let both = one.clone() + &other;
    let mut sorted: Vec<_> = both.lines().collect();
    sorted.sort_unstable();
    let folder = written(&[
        ("limits.json", &limits.to_string()),
        ("one.log", &one),
        ("other.log", &other),
        ("both.log", &both),
        ("sorted.log", &sorted.join("\n")),
    ]);
    let (_, expected, _) = replay_in(folder.path(), &["sorted.log"]);
    assert_eq!(expected["requests"], 60, "{expected:#}");
    assert_ne!(expected["refused"], 0, "{expected:#}");
    for logs in [&["both.log"][..], &["one.log", "other.log"], &["other.log", "one.log"]] {
        let (code, report, err) = replay_in(folder.path(), logs);
        assert_eq!((code, &report), (0, &expected), "{logs:?}: {err}");
    }
}

#[test]
fn a_caller_is_known_by_its_key_or_the_keys_hash_or_the_subscriber_that_the_filter_named() {
    let weir = |subscriber: &str| json!({"weir": format!("outcome=allowed subscriber={subscriber} plan=free class=reports")});
    let key = |key: &str| json!({"key": key});
    let sha256 = |key_: &str| key(hash(key_).trim_start_matches("sha256:"));
    //  what the lines have, refused requests of acme and of other
    let rows: [(&str, Vec<Value>, [u64; 2]); 5] = [
        ("keys", vec![key("Bearer k"), key("k"), key("Bearer k"), key("l"), key("m")], [1, 0]),
        (
            "hashes",
            vec![sha256("k"), sha256("k"), sha256("k"), sha256("l"), sha256("m"), sha256("m"), sha256("m")],
            [1, 1],
        ),
        ("both", vec![sha256("k"), key("k"), key("k"), key("m")], [1, 0]),
        ("subscribers", vec![weir("acme"), weir("acme"), weir("acme"), weir("other")], [1, 0]),
        (
            "masked keys",
            vec![weir("acme"), json!({"key": "Bearer ***", "weir": weir("acme")["weir"]}), weir("acme")],
            [1, 0],
        ),
    ];
    for (what, fields, refused) in rows {
        let log = lines(&fields).replace("/links", "/reports");
        let folder = written(&[("limits.json", &limits().to_string()), ("access.log", &log)]);
        let header: &[&str] = if log.contains("\"key\"") { &["--header", "authorization=key"] } else { &[] };
        let (code, report, err) = replay_in(folder.path(), &[header, &["access.log"]].concat());
        assert_eq!(code, 0, "{what}: {err}");
        let found = column(&report, "subscriber", "refused");
        let of = |name: &str| {
            found.iter().find(|(subscriber, _)| subscriber == name).map_or(0, |(_, count)| *count)
        };
        assert_eq!([of("acme"), of("other")], refused, "{what}: {report:#}");
    }
}

#[test]
fn keys_of_the_directorys_document_are_known_in_the_same_ways() {
    let configuration = json!({
        "plans": {"free": {"standard": ["2/minute"]}},
        "directory": {"cluster": "keys", "path": "/", "not_ready": "unavailable"},
    });
    let sha256 = hash("k").replace("sha256:", "");
    let keys = json!({"keys": [{"sha256": sha256, "subscriber": "acme", "plan": "free"}]}).to_string();
    let weir = json!({"weir": "outcome=allowed subscriber=acme plan=free class=standard"});
    for fields in [json!({"key": "Bearer k"}), json!({"key": sha256}), weir] {
        let log = lines(&vec![fields.clone(); 3]);
        let folder = written(&[
            ("limits.json", &configuration.to_string()),
            ("keys.json", &keys),
            ("access.log", &log),
        ]);
        let header: &[&str] = if log.contains("\"key\"") { &["--header", "authorization=key"] } else { &[] };
        let (code, report, err) =
            replay_in(folder.path(), &[header, &["--keys", "keys.json", "access.log"]].concat());
        assert_eq!((code, err.as_str()), (0, ""), "{fields}");
        assert_eq!(
            column(&report, "subscriber", "refused"),
            [("acme".to_owned(), 1)],
            "{fields}: {report:#}"
        );
    }
}

#[test]
fn a_log_that_does_not_say_who_its_callers_are_is_refused_with_the_way_out() {
    let refused = json!({"weir": "outcome=limited subscriber=acme plan=free class=standard quota=standard"});
    let none = json!({});
    let unknown = json!({"key": "Bearer x"});
    let key = json!({"key": "Bearer k"});
    //  lines, options, exit code, what is said
    let rows: [(Vec<Value>, &[&str], i32, &str); 7] = [
        (
            vec![key.clone()],
            &["--header", "authorization=kee"],
            2,
            "no line has a value in the field \"kee\" (--header authorization=kee); the first has client, key, path, status, time",
        ),
        (
            vec![unknown.clone(), none.clone()],
            &["--header", "authorization=key"],
            2,
            "the log has 1 requests with keys, and the configuration knows none of the keys: it has 3 of its own",
        ),
        (vec![refused.clone(), none.clone()], &[], 2, "set \"log_fields\": \"all\""),
        (vec![none.clone()], &[], 0, "all callers are counted by their client address"),
        (
            vec![key.clone(), unknown],
            &["--header", "authorization=key"],
            0,
            "Callers: 1 by key, 1 with an unknown key.",
        ),
        (
            vec![key.clone(), refused],
            &["--header", "authorization=key"],
            0,
            "Callers: 1 by key, 1 by the subscriber in the field weir.",
        ),
        (vec![json!({"client": "-"})], &[], 0, "1 lines have no client address"),
    ];
    for (fields, options, code, said) in rows {
        let folder = written(&[("limits.json", &limits().to_string()), ("access.log", &lines(&fields))]);
        let (found, report, err) = replay_in(folder.path(), &[options, &["access.log"]].concat());
        let all = format!("{report:#}{err}").replace("\\\"", "\"");
        assert!(found == code && all.contains(said), "{fields:?} {options:?}: {found} {all}");
    }
}

#[test]
fn another_class_than_the_path_gives_is_reported_and_taken_where_that_is_asked_for() {
    let weir = json!({"path": "/rewritten?key=v", "weir": "outcome=allowed subscriber=acme plan=free class=reports"});
    let folder = written(&[("limits.json", &limits().to_string()), ("access.log", &lines(&vec![weir; 3]))]);
    let (_, report, _) = replay_in(folder.path(), &["access.log"]);
    assert_eq!(column(&report, "class", "refused"), [("standard".to_owned(), 0)]);
    let notes = report["notes"].to_string();
    let words = "3 requests have another class than the log says (3 of class reports in the log and standard by the path, such as /rewritten): --class-from-log takes the log's class.";
    assert!(notes.contains(words), "{notes}");
    let (_, report, _) = replay_in(folder.path(), &["--class-from-log", "access.log"]);
    assert_eq!(column(&report, "class", "refused"), [("reports".to_owned(), 1)], "{report:#}");
    assert!(!report["notes"].to_string().contains("another class"), "{report:#}");
    // The path is the log's.
    assert_eq!(column(&report, "path", "requests"), [("/rewritten".to_owned(), 3)]);
}

#[test]
fn logs_of_container_runtimes_and_gzipped_ones_are_read_and_what_is_skipped_is_counted() {
    let log = lines(&vec![json!({}); 10]);
    let prefixed: String = log.lines().map(|line| format!("[pod/envoy-1/envoy] {line}\n")).collect();
    let gzipped = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let folder = written(&[("limits.json", &limits().to_string())]);
    //  the log's bytes, exit code, refused
    let rows = [
        (log.clone().into_bytes(), 0, json!(7), ""),
        (prefixed.into_bytes(), 0, json!(7), ""),
        // As logrotate appends.
        ([gzipped(&log[..log.len() / 2]), gzipped(&log[log.len() / 2..])].concat(), 0, json!(7), ""),
        (format!("{log}[info] starting\n").into_bytes(), 0, json!(7), "1 of 11 lines are not requests"),
        (
            format!("{log}{}", "[info] starting\n".repeat(11)).into_bytes(),
            2,
            Value::Null,
            "access.log: 11 of 21 lines are not requests\n",
        ),
        (b"{}\n".to_vec(), 2, Value::Null, "access.log: line 1: no time: none of start_time, "),
        (Vec::new(), 2, Value::Null, "access.log: no request in it: it is empty"),
    ];
    for (bytes, code, refused, said) in rows {
        fs::write(folder.path().join("access.log"), bytes).unwrap();
        let (found, report, err) = replay_in(folder.path(), &["access.log"]);
        assert_eq!((found, &report["refused"]), (code, &refused), "{report:#}{err}");
        assert!(format!("{report:#}{err}").contains(said), "{said}: {report:#}{err}");
    }
}

#[test]
fn who_is_hit_is_a_table_by_subscriber_plan_class_quota_and_client_in_each_form() {
    let mut fields = vec![json!({"key": "k", "path": "/reports"}); 3];
    fields.extend(vec![json!({"client": "203.0.113.7"}); 4]);
    let folder = written(&[("limits.json", &limits().to_string()), ("access.log", &lines(&fields))]);
    let arguments = ["--header", "authorization=key", "access.log"];
    let (_, report, _) = replay_in(folder.path(), &arguments);
    let tables: [(&str, &[(&str, u64)]); 6] = [
        ("subscriber", &[("acme", 1)]),
        ("plan", &[("free", 1)]),
        ("class", &[("reports", 1), ("standard", 1)]),
        ("quota", &[("address", 1), ("reports", 1)]),
        ("client", &[("203.0.113.7", 1), ("203.0.113.9", 1)]),
        ("path", &[("/links", 1), ("/reports", 1)]),
    ];
    let usual = ["replay", "--wasm", filter_wasm().to_str().unwrap(), "limits.json", "--html", "page.html"];
    let (_, text, _) = weir_in(folder.path(), &[&usual[..], &arguments].concat(), "");
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    for (table, expected) in tables {
        let mut found = column(&report, table, "refused");
        found.sort();
        let expected: Vec<_> = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(found, expected, "{table}");
        assert!(text.contains(&format!("\nBy {table}\n")), "{table}: {text}");
        assert!(page.contains(&format!("<h2>By {table}</h2>")), "{table}");
        for (name, _) in expected {
            assert!(
                text.contains(&name) && page.contains(&format!("<td class=\"name\">{name}</td>")),
                "{name}"
            );
        }
    }
}

#[test]
fn what_weir_refused_when_it_was_logged_is_answered_by_the_upstream_under_a_higher_limit() {
    let mut limits = limits();
    limits["classes"] =
        json!([{"name": "reports", "match": [{"path_prefix": "/reports"}], "refund": {"statuses": [429]}}]);
    let refused = json!({"key": "k", "path": "/reports", "status": 429, "details": "weir_rate_limited"});
    let folder = written(&[("limits.json", &limits.to_string()), ("access.log", &lines(&vec![refused; 3]))]);
    let (code, report, err) = replay_in(folder.path(), &["--header", "authorization=key", "access.log"]);
    // A refund of what the upstream never answered would admit the third.
    assert_eq!((code, &report["refused"]), (0, &json!(1)), "{report:#}{err}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let folder = written(&[("limits.json", CONFIGURATION), ("access.log", &log(1))]);
    let rows: [(&[&str], &str); 4] = [
        (&["replay", "limits.json"], "no access log beside the configuration limits.json"),
        (&["replay", "limits.json", "no.log"], "error: no.log: "),
        (
            &["replay", "limits.json", "access.log", "--field", "uri=x"],
            "--field uri: expected one of time, duration, method, ",
        ),
        (&["replay", "limits.json", "access.log", "--header", "x"], "NAME=FIELD for the field"),
    ];
    for (arguments, said) in rows {
        let wasm = ["--wasm", filter_wasm().to_str().unwrap()];
        let (code, _, err) = weir_in(folder.path(), &[arguments, &wasm].concat(), "");
        assert!(code == 2 && err.contains(said), "{arguments:?}: {code} {err}");
    }
}
