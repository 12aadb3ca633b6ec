//! The commands that pages show do what the pages say.
//!
//! A block of `sh` is a script, which has to succeed. A block of `console` is what a reader types, with what is printed: each line that
//! the page shows has to come, in that order, whatever numbers are in it. Both are run as they stand, unless a block has a mark
//! that says what it needs and a test cannot give:
//!
//! | mark | it needs |
//! |---|---|
//! | `build` | minutes: it builds from nothing, and what it builds is tested elsewhere |
//! | `cluster` | a Kubernetes cluster, or a registry |
//! | `containers` | Docker |
//! | `host` | a machine of its own: it listens on fixed ports, or writes to system folders |

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use demo::clock::wait_for_room;
use serde_json::json;
use tests::artifacts;
use tests::process::Process;

use crate::pages::{Block, Page, all};

const MARKS: [&str; 4] = ["build", "cluster", "containers", "host"];

/// What a reader of the book has built already, and what stands for the time that building takes: `cargo run` runs what is built,
/// and `make` runs in the repository.
const PRELUDE: &str = r#"
set -uo pipefail
make() { command make --no-print-directory --directory "$REPOSITORY" "$@"; }
cargo() {
    case $1 in
        build) return ;;
        run) shift ;;
        *) echo "cargo $1: not known here" >&2; return 1 ;;
    esac
    local command
    while [ "$1" != -- ]; do
        case $1 in
            --bin) command=$2 ;;
            -p) command=${command:-${2%-cli}} ;;
            *) echo "cargo run $1: not known here" >&2; return 1 ;;
        esac
        shift 2
    done
    shift
    "$command" "$@"
}
"#;

/// A folder as a reader has it: the repository's, with files of the reader's own.
fn readers_folder(pages: &[Page]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["docs", "envoy", "scripts", "target"] {
        std::os::unix::fs::symlink(artifacts::root().join(name), folder.path().join(name)).unwrap();
    }
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let shown = |page: &str, kind: &str| {
        let page = pages.iter().find(|each| each.path == Path::new("docs/src").join(page)).unwrap();
        page.blocks().into_iter().find(|block| block.info == [kind]).unwrap().text
    };
    write("limits.json", &shown("start.md", "json"));
    std::fs::create_dir(folder.path().join("scenarios")).unwrap();
    write("scenarios/quota.yaml", &shown("simulator.md", "text"));
    let line = |second: u32| {
        json!({"start_time": format!("2026-01-01T00:00:{second:02}Z"), "method": "GET", "path": "/links",
            "downstream_remote_address": "203.0.113.9:5000", "authorization": "Bearer try-free"})
    };
    write("access.log", &(0..50).map(|second| format!("{}\n", line(second))).collect::<String>());
    let key = json!({"sha256": tests::policy::hash("try-free").trim_start_matches("sha256:"), "subscriber": "acme", "plan": "free"});
    write("keys.json", &json!({"keys": [key]}).to_string());
    folder
}

fn bash(script: &str, folder: &Path, variables: &[String]) -> Output {
    let commands = artifacts::command("host-sim").parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(commands.to_path_buf())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let variables = variables.iter().filter_map(|line| line.split_once('='));
    Command::new("bash")
        .arg("-c")
        .arg(format!("{PRELUDE}{script}"))
        .current_dir(folder)
        .env("PATH", path.unwrap())
        .env("REPOSITORY", artifacts::root())
        .envs(variables)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The commands of a block of `console`, and the lines that the page says they print, on either stream.
fn session(block: &Block) -> (String, Vec<&str>) {
    let (mut commands, mut printed) = ("exec 2>&1\n".to_owned(), Vec::new());
    for line in block.text.lines() {
        // The shell's prompts: for a command, and for the rest of one.
        match line.strip_prefix("$ ").or_else(|| line.strip_prefix("> ")) {
            Some(command) => commands += &format!("{command}\n"),
            None if !line.is_empty() => printed.push(line),
            None => {}
        }
    }
    (commands, printed)
}

/// A line without its numbers, most of which depend on when it is printed.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    for letter in line.trim_end().chars() {
        if !letter.is_ascii_digit() {
            text.push(letter);
        } else if !text.ends_with('0') {
            text.push('0');
        }
    }
    text
}

/// The demo, which stays until it is asked to end, and then ends the processes that it has started.
struct Demo(Process);

impl Demo {
    fn start() -> Self {
        let mut up = Command::new(artifacts::command("weir-demo"));
        let demo = Self(Process::start("weir-demo", up.arg("up")).unwrap());
        demo.0.wait_for(|line| line.starts_with("# Ctrl-C").then_some(())).unwrap();
        demo
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        if asked.is_ok_and(|status| status.success()) {
            // Dropping the process kills it in any case.
            let _ended = self.0.wait();
        }
    }
}

#[test]
fn every_block_of_commands_that_a_page_shows_can_be_run_and_prints_what_the_page_says() {
    assert!(artifacts::filter_wasm().is_file());
    let pages = all();
    let folder = readers_folder(&pages);
    let demo = Demo::start();
    let variables = demo.0.output().lines();
    let mut run = 0;
    for page in &pages {
        // A page uses up the quota of one minute.
        wait_for_room(Duration::from_secs(60), Duration::from_secs(25));
        for block in page.blocks() {
            let info: Vec<_> = block.info.iter().map(String::as_str).collect();
            let shown = format!("{}:\n{}", page.path.display(), block.text);
            let (script, printed) = match info.as_slice() {
                ["sh"] => (format!("set -e\n{}", block.text), Vec::new()),
                ["console"] => {
                    let (commands, printed) = session(&block);
                    assert!(!printed.is_empty(), "{shown}prints nothing that could be checked");
                    (commands, printed)
                }
                _ => continue,
            };
            let output = bash(&script, folder.path(), &variables);
            let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            assert!(info == ["console"] || output.status.success(), "{shown}{stdout}{stderr}");
            let mut lines = stdout.lines().map(without_numbers);
            for line in printed {
                let wanted = without_numbers(line);
                assert!(lines.any(|line| line == wanted), "{shown}does not print: {line}\n{stdout}");
            }
            run += 1;
        }
    }
    assert!(run >= 8, "{run}");
}

#[test]
fn a_block_that_is_not_run_says_why() {
    let mut used = BTreeSet::new();
    for page in all() {
        for block in page.blocks().iter().filter(|block| ["sh", "console"].contains(&block.info[0].as_str()))
        {
            let marks = &block.info[1..];
            assert!(
                marks.len() <= 1 && marks.iter().all(|mark| MARKS.contains(&mark.as_str())),
                "{}: {:?}",
                page.path.display(),
                block.info
            );
            used.extend(marks.iter().cloned());
        }
    }
    assert_eq!(used.len(), MARKS.len(), "{used:?}");
}
