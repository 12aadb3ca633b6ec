//! Access logs, sent through a filter.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use demo::artifacts::filter_wasm;
use demo::policy::hash;
use host_sim::{Clock, Host, Module, Plugin};
use serde_json::json;
use weir::replay::{self, Fields, Outcomes};

use crate::{CONFIGURATION, guests, soak, weir_in};

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

fn limiter() -> Host {
    let clock = Clock::at("2026-01-02T00:00:00Z".parse::<jiff::Timestamp>().unwrap());
    let mut host = Host::builder().workers(2).clock(clock).log_capacity(10).build();
    host.load(&Module::compile(guests::guest("limiter")).unwrap(), Plugin::default()).unwrap();
    host
}

#[test]
fn a_summary_tells_what_would_have_been_refused() {
    let host = limiter();
    let text = format!("{}oops\n\n{{\"path\":\"/\"}}\n", log(70));
    let mut bytes = 0;
    let summary = replay::replay(&host, text.as_bytes(), &Fields::default(), |read| bytes += read).unwrap();
    assert_eq!(bytes, text.len() as u64);
    assert_eq!((summary.requests, summary.skipped), (70, 2));
    assert_eq!(summary.outcomes, Outcomes { forwarded: 35, refused: 35 });
    assert_eq!(summary.replies.iter().collect::<Vec<_>>(), [(&(429, "limited".to_owned()), &35)]);
    assert_eq!(summary.paths(1), [("/0", Outcomes { forwarded: 5, refused: 5 })]);
    assert_eq!(summary.clients(9).len(), 3);
    let minutes: Vec<_> = summary.buckets().iter().map(|bucket| bucket.outcomes.total()).collect();
    assert_eq!(minutes, [60, 10]);
    assert_eq!(host.clock().wall().as_secs(), 1_767_312_069, "the clock went on as the log did");

    let told = summary.to_string();
    for line in [
        "went on",
        "429 limited",
        "/0",
        "203.0.113.0",
        "2 lines are no requests",
        "line 71: not a JSON object",
    ] {
        assert!(told.contains(line), "{line} in {told}");
    }
}

#[test]
fn the_page_has_its_plots_in_it_and_needs_no_network() {
    let summary = replay::replay(&limiter(), log(200).as_bytes(), &Fields::default(), |_| {}).unwrap();
    let page = replay::page(&summary, "a <title>");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<h1>a &#60;title&#62;</h1>"));
    assert_eq!(page.matches("<rect class=\"refused\"").count(), 4);
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
    let summary = replay::replay(&limiter(), lines.as_bytes(), &Fields::default(), |_| {}).unwrap();
    let buckets = summary.buckets();
    assert!(buckets.len() <= 240, "{}", buckets.len());
    assert_eq!(buckets.iter().map(|bucket| bucket.outcomes.total()).sum::<u64>(), 28 * 24);
}

/// Runs `weir replay` in a folder, with the module there.
fn command(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    fs::write(folder.join("config"), CONFIGURATION).unwrap();
    weir_in(folder, &[&["replay", "--wasm", "filter.wasm", "--config", "config"], arguments].concat(), "")
}

#[test]
#[ignore = "one of the long forms: make soak"]
#[expect(clippy::disallowed_methods, reason = "how long it takes is told, not judged")]
fn a_million_lines() {
    const LINES: usize = 1_000_000;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("filter.wasm"), guests::guest("limiter")).unwrap();
    fs::write(at("access.log"), log(LINES)).unwrap();
    let started = std::time::Instant::now();
    let (code, out, err) = command(directory.path(), &["access.log", "--html", "page.html"]);
    let took = started.elapsed();
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("1000000 requests, "), "{out}");
    soak::row("replay of an access log", format_args!("{LINES} lines"), format_args!("{took:.1?}"));
}

#[test]
fn the_command_prints_the_summary_and_writes_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("filter.wasm"), guests::guest("limiter")).unwrap();
    fs::write(at("access.log"), log(70)).unwrap();
    fs::write(at("none.log"), "{}\n").unwrap();
    let run = |arguments: &[&str]| command(directory.path(), arguments);
    let (code, out, err) = run(&["access.log", "--html", "page.html", "--header", "authorization=key"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("70 requests, 2026-01-02T00:00:00Z to 2026-01-02T00:01:09Z\n"), "{out}");
    assert!(fs::read_to_string(at("page.html")).unwrap().contains("Replay of access.log"));
    let (code, _, err) = run(&["none.log"]);
    let words = "error: none.log: no request in it (line 1: none of start_time";
    assert!(code == 2 && err.starts_with(words), "{err}");
}

#[test]
fn the_filters_own_counters_are_tables_of_plans_and_classes() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let sha256 = hash("k").replace("sha256:", "");
    let configuration = json!({
        "plans": {"free": {"standard": ["60/minute"]}},
        "directory": {"cluster": "keys", "path": "/", "not_ready": "unavailable"},
    });
    let keys = json!({"keys": [{"sha256": sha256, "subscriber": "acme", "plan": "free"}]});
    fs::write(at("limits.json"), configuration.to_string()).unwrap();
    fs::write(at("keys.json"), keys.to_string()).unwrap();
    fs::write(at("access.log"), log(70).replace("\"x\"", "\"x\",\"key\":\"Bearer k\"")).unwrap();
    let wasm = filter_wasm().to_str().unwrap();
    let usual = ["replay", "--wasm", wasm, "--config", "limits.json", "--header", "authorization=key"];
    let (code, out, err) =
        weir_in(directory.path(), &[&usual[..], &["--keys", "keys.json", "access.log"]].concat(), "");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let table = out.lines().skip_while(|line| !line.contains("requests_total, by plan and class")).take(2);
    let words: Vec<Vec<_>> = table.map(|line| line.split_whitespace().collect()).collect();
    let head = ["weir.requests_total,", "by", "plan", "and", "class", "allowed"];
    assert_eq!(words, [&head[..], &["free", "standard", "70"]], "{out}");
    let (code, out, err) = weir_in(directory.path(), &[&usual[..], &["access.log"]].concat(), "");
    assert!(code == 0 && err.contains("this gateway has no cluster \"keys\""), "{err}");
    assert!(out.contains("503 weir_directory_not_ready"), "{out}");
}

#[test]
fn the_log_is_dealt_out_to_a_module_that_is_no_limiter_too() {
    let mut host = Host::builder().build();
    host.load(&Module::compile(guests::guest("phases")).unwrap(), Plugin::default()).unwrap();
    let summary = replay::replay(&host, log(3).as_bytes(), &Fields::default(), |_| {}).unwrap();
    assert_eq!(summary.outcomes, Outcomes { forwarded: 3, refused: 0 });
}
