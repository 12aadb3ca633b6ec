//! Every option and argument of every command: a value that it accepts, on the command line and in its variable, and a value that it
//! refuses with a message that names it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use clap::{Arg, CommandFactory as _};
use serde_json::Value;
use tempfile::TempDir;

#[path = "../../src/command/arguments.rs"]
mod arguments;

/// The arguments that each command needs. `{…}` stand for what [`Prepared`] has.
const NEEDED: [(&str, &[(&str, &str)]); 11] = [
    ("serve", &[DATABASE, ("--listen", "127.0.0.1:0"), ("--internal-listen", "127.0.0.1:0")]),
    ("migrate", &[DATABASE]),
    ("keys create", &[DATABASE, ("--plan", "pro")]),
    ("keys list", &[DATABASE]),
    ("keys revoke", &[DATABASE, ("<ID>", "{key}")]),
    ("domains assign", &[DATABASE, ("--workspace", "{workspace}"), ("<DOMAIN>", "go.test")]),
    ("domains remove", &[DATABASE, ("<DOMAIN>", "assigned.test")]),
    ("domains list", &[DATABASE]),
    ("usage export", &[DATABASE, ("--month", "2026-11")]),
    ("usage list", &[DATABASE]),
    ("backup", &[DATABASE, ("<FILE>", "{folder}/another.db")]),
];
const DATABASE: (&str, &str) = ("--database", "sqlite:{folder}/test.db");

/// A switch, which takes no value.
const SWITCH: &str = "(no value)";
const ANY: &str = "any text is accepted";

//  command, option, accepted value, refused value, reason in the message
const TABLE: [(&str, &str, &str, &str, &str); 57] = [
    ("", "--log-format", "json", "xml", "text, json"),
    (
        "serve",
        "--listen",
        "127.0.0.1:0",
        ":1",
        "expected an IP address and a port, for example 127.0.0.1:8081",
    ),
    ("serve", "--internal-listen", "127.0.0.1:0", "192.0.2.1:1", "192.0.2.1:1: "),
    ("serve", "--public-url", "https://s.test", "ftp://s.test", "expected http:// or https://"),
    ("serve", "--database", DATABASE.1, "mysql://u:s3cret@db/x", "\"mysql\": expected sqlite:<file>"),
    ("serve", "--allow-private-webhooks", SWITCH, "maybe", ""),
    ("serve", "--internal-token", "t", "", "a value is required"),
    ("serve", "--internal-token-file", "{folder}/token", "{folder}/none", "/none: No such file"),
    ("serve", "--request-timeout", "3600", "0", "0 is not in 1..=3600"),
    ("serve", "--max-connections", "1", "0", "expected a number from 1 to 1000000"),
    ("serve", "--write-timeout", "1", "3601", "3601 is not in 1..=3600"),
    ("serve", "--analytics-readers", "1", "1001", "1001 is not in 1..=1000"),
    ("serve", "--analytics-timeout", "1", "0", "0 is not in 1..=3600"),
    ("serve", "--max-stale", "0", "86401", "86401 is not in 0..=86400"),
    ("serve", "--click-log", "{folder}/clicks", "{folder}/none/clicks", "/none/clicks: No such file"),
    ("serve", "--max-webhooks", "1", "0", "0 is not in 1..=10000"),
    ("serve", "--retention", "1", "36501", "36501 is not in 1..=36500"),
    ("serve", "--count-bots", SWITCH, "maybe", ""),
    ("serve", "--once-per-hour", SWITCH, "maybe", ""),
    ("serve", "--trusted-hops", "255", "256", "256 is not in 0..=255"),
    ("serve", "--ip", "none", "some", "full, truncated, none"),
    ("serve", "--continent-header", "x-continent", "x continent", "invalid HTTP header name"),
    ("serve", "--country-header", "x-country", "x country", "invalid HTTP header name"),
    ("serve", "--region-header", "x-region", "x region", "invalid HTTP header name"),
    ("serve", "--city-header", "x-city", "x city", "invalid HTTP header name"),
    ("migrate", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("keys create", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("keys create", "--plan", "free", "Free", "\"Free\""),
    ("keys create", "--plans", "gold,pro", "pro,Gold", "\"Gold\""),
    ("keys create", "--limits", "standard=5/minute", "standard=5", "\"5\""),
    ("keys create", "--limits-file", "{folder}/limits", "{folder}/token", "token: expected quotas by class"),
    ("keys create", "--billing-anchor", "2026-01-31", "2026-02-31", "expected an instant such as"),
    ("keys create", "--workspace", "{workspace}", "ws_none", "no workspace has the id ws_none"),
    ("keys create", "--json", SWITCH, "maybe", ""),
    ("keys list", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("keys list", "--json", SWITCH, "maybe", ""),
    ("keys revoke", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("keys revoke", "<ID>", "{key}", "key_none", "no active key has the id key_none"),
    ("domains assign", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("domains assign", "--workspace", "{workspace}", "ws_none", "no workspace has the id ws_none"),
    ("domains assign", "<DOMAIN>", "go.test", "go.test/", "expected a host name"),
    ("domains remove", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("domains remove", "<DOMAIN>", "assigned.test", "go.test", "the domain go.test is not assigned"),
    ("domains list", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("domains list", "--json", SWITCH, "maybe", ""),
    ("usage export", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("usage export", "--month", "2026-02", "2026-13", "expected a year and a month"),
    ("usage export", "--format", "json", "xml", "csv, json"),
    ("usage export", "--subscriber", "acme", "", "a value is required"),
    ("usage list", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("usage list", "--sort", "used", "plan", "used, refused, share"),
    ("usage list", "--most", "1", "0", "0 is not in 1..=100000"),
    ("backup", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("backup", "<FILE>", "{folder}/another.db", "{folder}/test.db", "/test.db already exists"),
    ("seed", "--database", DATABASE.1, "weir.db", "expected sqlite:<file>"),
    ("seed", "--name", "acme", ANY, ""),
    ("seed", "--json", SWITCH, "maybe", ""),
];

/// A folder with a database and files that options name.
struct Prepared {
    folder: TempDir,
    workspace: String,
    key: String,
}

impl Prepared {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut prepared = Self { folder, workspace: String::new(), key: String::new() };
        prepared.succeed(&["migrate"]);
        let seeded = prepared.succeed(&["seed", "--json"]);
        let seeded: Value = serde_json::from_str(&seeded).unwrap();
        prepared.workspace = seeded["workspace"].as_str().unwrap().to_owned();
        prepared.key = seeded["keys"][0]["id"].as_str().unwrap().to_owned();
        prepared.succeed(&["domains", "assign", "--workspace", "{workspace}", "assigned.test"]);
        for (name, content) in
            [("token", "t"), ("limits", r#"{"standard": ["5/week"]}"#), ("test.db-clicks", "")]
        {
            fs::write(prepared.folder.path().join(name), content).unwrap();
        }
        prepared
    }

    /// The same in another folder, for one command.
    fn copy(&self) -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["test.db", "token", "limits", "test.db-clicks"] {
            fs::copy(self.folder.path().join(name), folder.path().join(name)).unwrap();
        }
        Self { folder, workspace: self.workspace.clone(), key: self.key.clone() }
    }

    fn fill(&self, text: &str) -> String {
        let text = text.replace("{workspace}", &self.workspace).replace("{key}", &self.key);
        text.replace("{folder}", self.folder.path().to_str().unwrap())
    }

    fn command(&self, words: impl IntoIterator<Item = impl AsRef<str>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
        command.args(words.into_iter().map(|word| self.fill(word.as_ref())));
        command.env("RUST_LOG", "backend=error").current_dir(self.folder.path());
        command
    }

    fn succeed(&self, words: &[&str]) -> String {
        let mut command = self.command(words);
        run(command.env("WEIR_DATABASE", self.fill(DATABASE.1))).unwrap()
    }

    /// Runs a command with what it needs and with a value of an option, or of its variable.
    fn run_with(
        &self,
        command: &str,
        option: &str,
        value: &str,
        variable: Option<&str>,
    ) -> Result<String, String> {
        let needed = NEEDED.iter().find(|(name, _)| *name == command).map_or(&[][..], |(_, needed)| *needed);
        let mut words: Vec<String> = Vec::new();
        let mut give = |(option, value): (&str, &str)| match option.starts_with("--") {
            true if value == SWITCH => words.push(option.to_owned()),
            true => words.push(format!("{option}={value}")),
            false => words.push(value.to_owned()),
        };
        if variable.is_none() {
            give((option, value));
        }
        needed.iter().filter(|(name, _)| *name != option).copied().for_each(give);
        // Options of all commands may come first.
        let command = if command.is_empty() { "keys list" } else { command };
        let words = command.split(' ').map(str::to_owned).chain(words);
        let mut command = self.command(words);
        command.env("WEIR_DATABASE", self.fill(DATABASE.1));
        if let Some(variable) = variable {
            command.env(variable, self.fill(if value == SWITCH { "true" } else { value }));
        }
        run(&mut command)
    }
}

/// What a command prints until it succeeds or serves, or its message.
fn run(command: &mut Command) -> Result<String, String> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut printed).unwrap();
    if printed.starts_with("listening on ") {
        child.kill().unwrap();
    }
    stdout.read_to_string(&mut printed).unwrap();
    let output = child.wait_with_output().unwrap();
    // 3: all is done but what the database still refuses.
    let done = output.status.code().is_none_or(|code| [0, 3].contains(&code));
    if done { Ok(printed) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

fn name(argument: &Arg) -> String {
    let id = argument.get_id().as_str();
    argument.get_long().map_or_else(|| format!("<{}>", id.to_uppercase()), |long| format!("--{long}"))
}

/// The arguments of a command and of those below it, with the names of their commands.
fn arguments(command: &clap::Command, path: &str) -> Vec<(String, Arg)> {
    let own = command.get_arguments().map(|argument| (path.to_owned(), argument.clone()));
    let below = command.get_subcommands().flat_map(|sub| {
        let path =
            if path.is_empty() { sub.get_name().to_owned() } else { format!("{path} {}", sub.get_name()) };
        arguments(sub, &path)
    });
    own.chain(below).collect()
}

#[test]
fn every_option_is_accepted_and_its_mistakes_are_named() {
    let prepared = Prepared::new();
    let arguments = arguments(&arguments::Cli::command(), "");
    let all: BTreeSet<_> =
        arguments.iter().map(|(command, argument)| (command.clone(), name(argument))).collect();
    let tested = TABLE.map(|(command, option, ..)| (command.to_owned(), option.to_owned()));
    assert_eq!(BTreeSet::from(tested), all);
    for (command, option, accepted, refused, reason) in TABLE {
        let is_this = |(of, argument): &&(String, Arg)| of == command && name(argument) == option;
        let variable = arguments.iter().find(is_this).unwrap().1.get_env().map(|name| name.to_str().unwrap());
        assert!(command != "serve" || variable.is_some(), "{option} has no variable");
        for variable in [None].into_iter().chain(variable.map(Some)) {
            let run = |value| prepared.copy().run_with(command, option, value, variable);
            let place = format!("{command} {option} {variable:?}");
            let done = run(accepted);
            assert!(done.is_ok(), "{place}: {done:?}");
            if refused == ANY {
                continue;
            }
            let message = run(refused).expect_err(&place);
            assert!(message.contains(reason) && !message.contains("s3cret"), "{place}: {message}");
            // A file is named by its path.
            let is_named =
                message.contains(option) || option.starts_with('<') || refused.contains("{folder}");
            assert!(is_named, "{place}: {message}");
        }
    }
}

#[test]
fn a_log_level_that_does_not_exist_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
    let message = run(command.args(["keys", "list"]).env("RUST_LOG", "backend=loud")).unwrap_err();
    assert!(message.contains("RUST_LOG: ") && message.contains("expected one of"), "{message}");
}
