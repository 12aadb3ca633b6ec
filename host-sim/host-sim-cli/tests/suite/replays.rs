//! Access logs, sent through a filter.

use std::{fmt::Write as _, fs, path::Path};

use host_sim::{Clock, Host, Module, Plugin};
use host_sim_cli::replay::{self, Fields, Outcomes};

use crate::{commands::host_sim, guests, soak};

/// A log of so many requests, a second apart, of seven paths by turns.
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
    assert!(page.contains("<h1>a &lt;title&gt;</h1>"));
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

/// Runs `host-sim replay` in a folder, with the module there.
fn command(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    host_sim(&[&["replay", "--wasm", "filter.wasm"], arguments].concat(), folder)
}

#[test]
fn counters_are_told_by_the_tags_of_a_bootstrap() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("filter.wasm"), guests::guest("metrics")).unwrap();
    fs::write(at("access.log"), log(3)).unwrap();
    let bootstrap = r"stats_config: {stats_tags: [{tag_name: what, regex: '^wasmcustom\.made(\.(.+))$'}]}";
    fs::write(at("envoy.yaml"), bootstrap).unwrap();
    let tagged = ["access.log", "--stats-tags", "envoy.yaml"];
    let (code, out, err) = command(directory.path(), &tagged);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let table = out.lines().skip_while(|line| !line.starts_with("made, by ")).take(2);
    let words: Vec<Vec<_>> = table.map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words, [vec!["made,", "by", "what", "counter"], vec!["15"]], "{out}");

    fs::write(at("envoy.yaml"), "stats_config: {stats_tags: [{tag_name: what, regex: '('}]}").unwrap();
    let (code, _, err) = command(directory.path(), &tagged);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("error: envoy.yaml: stats_config.stats_tags: expected regular"), "{err}");
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
    assert_eq!((code, err.as_str()), (Some(0), ""));
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
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("70 requests, 2026-01-02T00:00:00Z to 2026-01-02T00:01:09Z\n"), "{out}");
    assert!(fs::read_to_string(at("page.html")).unwrap().contains("Replay of access.log"));
    let (code, _, err) = run(&["none.log"]);
    let words = "error: none.log: no request in it (line 1: none of start_time";
    assert!(code == Some(2) && err.starts_with(words), "{err}");
}

#[test]
fn the_log_is_dealt_out_to_a_module_that_is_no_limiter_too() {
    let mut host = Host::builder().build();
    host.load(&Module::compile(guests::guest("phases")).unwrap(), Plugin::default()).unwrap();
    let summary = replay::replay(&host, log(3).as_bytes(), &Fields::default(), |_| {}).unwrap();
    assert_eq!(summary.outcomes, Outcomes { forwarded: 3, refused: 0 });
}
