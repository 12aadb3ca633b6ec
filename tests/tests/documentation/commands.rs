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
//! | `host` | a separate machine: it listens on fixed ports, or writes to system folders |
//!
//! A block `console,server` is a command that keeps running until the page ends. A block `text,server` is what the server that was
//! started last prints next. On a page with servers, the commands use free ports in place of those that the page shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use demo::clock::{eventually, wait_for_room};
use serde_json::json;
use tests::artifacts;
use tests::process::Process;

use crate::pages::{Block, Page, all};

const MARKS: [&str; 5] = ["build", "cluster", "containers", "host", "server"];

const MINUTE: Duration = Duration::from_secs(60);
/// What a server may take to print a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a reader of the book has built already, and what stands for the time that building takes: `cargo run` runs what is built,
/// and `make` runs in the repository.
const PRELUDE: &str = r#"
set -uo pipefail
source "$REPOSITORY/target/up.env"
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

fn bash(script: &str, folder: &Path) -> Command {
    let commands = artifacts::command("host-sim").parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(commands.to_path_buf())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg(format!("{PRELUDE}{script}"))
        .current_dir(folder)
        .env("PATH", path.unwrap())
        .env("PYTHONUNBUFFERED", "1")
        .env("REPOSITORY", artifacts::root())
        .stdin(Stdio::null());
    command
}

/// The commands of a block of `console`, and the lines that the page says they print, on either stream.
fn session(block: &Block) -> (String, Vec<&str>) {
    let (mut commands, mut printed) = (String::new(), Vec::new());
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

/// A free port for each port of this machine that a page with servers names.
fn free_ports(page: &Page) -> BTreeMap<String, u16> {
    let blocks = page.blocks();
    if !blocks.iter().any(|block| block.info == ["console", "server"]) {
        return BTreeMap::new();
    }
    let named: BTreeSet<&str> = blocks
        .iter()
        .flat_map(|block| block.text.split("127.0.0.1:").skip(1))
        .filter_map(|text| text.split(|letter: char| !letter.is_ascii_digit()).next())
        .collect();
    // All are taken before one is given back, so that they differ.
    let taken =
        named.iter().map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect::<Vec<_>>();
    let free = taken.iter().map(|listener| listener.local_addr().unwrap().port());
    named.into_iter().map(str::to_owned).zip(free).collect()
}

/// A text with other ports.
fn with_ports(text: &str, ports: &BTreeMap<String, u16>) -> String {
    let pieces = text.split_inclusive(|letter: char| !letter.is_ascii_digit());
    let replaced = pieces.map(|piece| {
        let number = piece.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        match ports.get(number) {
            Some(port) => format!("{port}{}", &piece[number.len()..]),
            None => piece.to_owned(),
        }
    });
    replaced.collect()
}

/// A command of a page that keeps running.
struct Server {
    process: Process,
    /// Number of lines up to the last one that was waited for.
    seen: usize,
}

impl Server {
    fn start(command: &str, folder: &Path) -> Self {
        let process = Process::start("a server of the page", &mut bash(&format!("exec {command}"), folder));
        Self { process: process.unwrap(), seen: 0 }
    }

    /// Waits for these lines, in this order, after those that were waited for before.
    fn prints(&mut self, lines: &[&str]) {
        for line in lines {
            let wanted = without_numbers(line);
            let found = eventually(line, PATIENCE, || {
                let printed = self.process.output().lines();
                printed.iter().skip(self.seen).position(|line| without_numbers(line) == wanted)
            });
            self.seen += 1 + found.unwrap();
        }
    }
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
    let _demo = Demo::start();
    let mut run = 0;
    for page in &pages {
        let (folder, ports) = (readers_folder(&pages), free_ports(page));
        let mut servers: Vec<Server> = Vec::new();
        // A page uses up the quota of one minute, in which its commands have to end on a busy machine, too.
        wait_for_room(MINUTE, Duration::from_secs(40));
        for block in page.blocks() {
            let info: Vec<_> = block.info.iter().map(String::as_str).collect();
            let shown = format!("{}:\n{}", page.path.display(), block.text);
            let (script, printed) = match info.as_slice() {
                ["sh"] => (format!("set -e\n{}", block.text), Vec::new()),
                ["console"] => {
                    let (commands, printed) = session(&block);
                    assert!(!printed.is_empty(), "{shown}prints nothing that could be checked");
                    (format!("exec 2>&1\n{commands}"), printed)
                }
                ["console", "server"] => {
                    let (command, printed) = session(&block);
                    let mut server = Server::start(&with_ports(&command, &ports), folder.path());
                    server.prints(&printed);
                    servers.push(server);
                    wait_for_room(MINUTE, Duration::from_secs(30));
                    continue;
                }
                ["text", "server"] => {
                    let server = servers.last_mut().unwrap_or_else(|| panic!("no server runs: {shown}"));
                    server.prints(&block.text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>());
                    continue;
                }
                _ => continue,
            };
            let output = bash(&with_ports(&script, &ports), folder.path()).output().unwrap();
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
    assert!(run >= 20, "{run}");
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

/// Helm installs into a cluster, and renders without one.
#[test]
#[ignore = "builds Helm"]
fn the_commands_of_the_chart_that_pages_show_render_what_the_filter_takes() {
    let helm = Command::new(artifacts::root().join("scripts/helm.sh")).output().unwrap();
    let helm = String::from_utf8(helm.stdout).unwrap();
    let pages = all();
    let mut run = 0;
    for page in &pages {
        for block in page.blocks().iter().filter(|block| block.info == ["sh", "cluster"]) {
            let text = block.text.replace("\\\n", " ");
            for line in text.lines().filter(|line| line.contains("envoy/chart ")) {
                let Some((_, arguments)) = line.split_once(" weir envoy/chart ") else { continue };
                // What is in force is in the cluster.
                if line.contains("--reuse-values") {
                    continue;
                }
                let arguments = arguments.split(['|', '>']).next().unwrap();
                let folder = readers_folder(&pages);
                let script = format!(
                    "export IMAGES=registry.example.com/weir DIGEST=sha256:$(printf '0%.0s' {{1..64}})\n\
                     LEDGER_DIGEST=$DIGEST\n\
                     printf 'configuration: %s\\n' \"$(cat limits.json)\" >values.yaml\n\
                     set -e\n{} template weir envoy/chart {arguments} | weir check -",
                    helm.trim()
                );
                let output = bash(&script, folder.path()).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}: {line}: {said}", page.path.display());
                run += 1;
            }
        }
    }
    assert!(run >= 8, "{run}");
}
