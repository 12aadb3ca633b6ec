//! The command: what scripts read of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{database_in, migrate};

fn backend(folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
    command.env("WEIR_DATABASE", database_in(folder.path()));
    command
}

fn json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn keys_are_seeded_made_listed_and_revoked() {
    let folder = TempDir::new().unwrap();
    migrate(&database_in(folder.path()));
    let seeded = json(backend(&folder).args(["seed", "--json"]));
    let plans: Vec<&str> =
        seeded["keys"].as_array().unwrap().iter().map(|key| key["plan"].as_str().unwrap()).collect();
    assert_eq!(plans, ["free", "pro", "business", "advanced", "enterprise"]);
    let workspace = seeded["workspace"].as_str().unwrap();
    let made =
        json(backend(&folder).args(["keys", "create", "--plan", "pro", "--workspace", workspace, "--json"]));
    assert_eq!(made["workspace"], workspace);
    let listed = json(backend(&folder).args(["keys", "list", "--json"]));
    assert_eq!(listed.as_array().unwrap().len(), 6);
    assert!(!listed.to_string().contains(made["key"].as_str().unwrap()));
    assert!(
        backend(&folder).args(["keys", "revoke", made["id"].as_str().unwrap()]).status().unwrap().success()
    );
    assert_eq!(json(backend(&folder).args(["keys", "list", "--json"])).as_array().unwrap().len(), 5);
}

#[test]
fn domains_are_assigned_listed_and_removed() {
    let folder = TempDir::new().unwrap();
    migrate(&database_in(folder.path()));
    let seeded = json(backend(&folder).args(["seed", "--json"]));
    let workspace = seeded["workspace"].as_str().unwrap();
    let run = |arguments: &[&str]| backend(&folder).arg("domains").args(arguments).output().unwrap();
    assert!(run(&["assign", "--workspace", workspace, "Go.example.com"]).status.success());
    let listed = json(backend(&folder).args(["domains", "list", "--json"]));
    assert_eq!(listed, serde_json::json!([{"domain": "go.example.com", "workspace": workspace}]));
    let shown = String::from_utf8(run(&["list"]).stdout).unwrap();
    assert_eq!(shown, format!("{workspace}  go.example.com\n"));
    assert!(run(&["remove", "go.example.com"]).status.success());
    assert!(run(&["list"]).stdout.is_empty());
}

#[test]
fn what_is_wrong_on_the_command_line_is_named() {
    let folder = TempDir::new().unwrap();
    migrate(&database_in(folder.path()));
    std::fs::write(folder.path().join("limits.json"), r#"{"standard": 5}"#).unwrap();
    let no_quota = "--limits: the plan enterprise has no default quotas";
    let table: [(&[&str], &str); 17] = [
        (&["keys", "create", "--plan", "Pro"], "Pro"),
        (&["keys", "create", "--plan", "pro", "--limits", "standard=60/fortnight"], "60/fortnight"),
        (
            &["keys", "create", "--plan", "pro", "--limits-file", "nowhere.json"],
            "--limits-file nowhere.json: ",
        ),
        (
            &["keys", "create", "--plan", "pro", "--limits-file", "limits.json"],
            "--limits-file limits.json: expected quotas by class",
        ),
        (&["keys", "create", "--plan", "pro", "--billing-anchor", "the 31st"], "expected an instant such as"),
        (
            &["keys", "create", "--plan", "pro", "--workspace", "ws_nobody"],
            "no workspace has the id ws_nobody",
        ),
        (
            &["keys", "create", "--plan", "gold"],
            "backend: --plan gold: no such plan. Expected one of free, pro, business, advanced, enterprise; --plans changes them",
        ),
        (&["keys", "create", "--plan", "pro", "--plans", "free,gold"], "Expected one of free, gold"),
        (&["keys", "create", "--plan", "enterprise"], no_quota),
        (&["keys", "create", "--plan", "enterprise", "--limits", "analytics=20/second"], no_quota),
        (&["keys", "revoke", "key_nobody"], "no active key has the id key_nobody"),
        (&["domains", "assign", "--workspace", "ws_nobody", "go.test"], "no workspace has the id ws_nobody"),
        (
            &["domains", "assign", "--workspace", "ws_nobody", "https://go.test"],
            "expected a host name in ASCII",
        ),
        (&["domains", "remove", "go.test"], "the domain go.test is not assigned"),
        (&["serve", "--retention", "0"], "0 is not in 1..=36500"),
        (&["serve", "--ip", "whole"], "full, truncated, none"),
        (
            &["serve", "--internal-token", "t", "--internal-token-file", "t"],
            "'--internal-token <INTERNAL_TOKEN>' cannot be used with '--internal-token-file",
        ),
    ];
    for (arguments, expected) in table {
        let output = backend(&folder).current_dir(&folder).args(arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(expected), "{arguments:?}: {message}");
    }
}

fn serve(folder: &TempDir, arguments: &[&str]) -> Child {
    let mut command = backend(folder);
    command.args(["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"]).args(arguments);
    command.env("RUST_LOG", "backend=debug").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn the_token_of_the_operators_listener_may_be_in_a_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, " \n").unwrap();
    let options = ["--internal-token-file", file.to_str().unwrap()];
    let refused = serve(&folder, &options).wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the token is empty"), "{refused:?}");
    std::fs::write(&file, "s3cret\n").unwrap();
    let mut serving = serve(&folder, &options);
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("internal on http://").map(str::to_owned)).unwrap();
    for (token, status) in [("s3cret", "200"), ("other", "401")] {
        let mut stream = TcpStream::connect(&address).unwrap();
        let request = format!(
            "GET /internal/keys HTTP/1.1\r\nhost: s.test\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    serving.kill().unwrap();
    serving.wait().unwrap();
}

#[test]
fn each_line_of_the_log_names_its_request_in_either_format() {
    for format in ["text", "json"] {
        let folder = TempDir::new().unwrap();
        let mut serving = serve(&folder, &["--log-format", format]);
        let mut line = String::new();
        BufReader::new(serving.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut stream =
            TcpStream::connect(line.trim().strip_prefix("listening on http://").unwrap()).unwrap();
        stream
            .write_all(
                b"GET /links HTTP/1.1\r\nhost: s.test\r\nx-request-id: mine-1\r\nconnection: close\r\n\r\n",
            )
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("x-request-id: mine-1"), "{answer}");
        let mut log = BufReader::new(serving.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = log.find(|line| line.contains("answered")).unwrap();
        serving.kill().unwrap();
        serving.wait().unwrap();
        let json = serde_json::from_str::<Value>(&line);
        match format {
            "json" => {
                let line = json.unwrap();
                assert_eq!(
                    (&line["level"], &line["fields"]["status"]),
                    (&"DEBUG".into(), &401.into()),
                    "{line}"
                );
                assert_eq!(
                    (&line["span"]["id"], &line["span"]["route"]),
                    (&"mine-1".into(), &"/links".into())
                );
            }
            _ => {
                assert!(json.is_err(), "{line}");
                assert!(
                    line.contains("DEBUG") && line.contains("mine-1") && line.contains("status=401"),
                    "{line}"
                );
            }
        }
    }
}

#[test]
fn serving_prints_the_addresses_that_it_took() {
    let folder = TempDir::new().unwrap();
    let mut serving = serve(&folder, &[]);
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines();
    let mut address = |prefix: &str| {
        let line = lines.next().unwrap().unwrap();
        line.strip_prefix(prefix)
            .unwrap_or_else(|| panic!("{line:?}"))
            .parse::<std::net::SocketAddr>()
            .unwrap()
    };
    for prefix in ["listening on http://", "internal on http://"] {
        assert!(TcpStream::connect(address(prefix)).is_ok());
    }
    serving.kill().unwrap();
    serving.wait().unwrap();
}
