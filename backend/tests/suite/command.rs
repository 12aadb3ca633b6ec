//! The command: what scripts read of it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn backend(folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
    command.env("WEIR_DATABASE", format!("sqlite:{}", folder.path().join("test.db").display()));
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
fn what_is_wrong_on_the_command_line_is_named() {
    let folder = TempDir::new().unwrap();
    let table: [(&[&str], &str); 4] = [
        (&["keys", "create", "--plan", "Pro"], "Pro"),
        (&["keys", "create", "--plan", "pro", "--limits", "standard=60/fortnight"], "60/fortnight"),
        (
            &["keys", "create", "--plan", "pro", "--workspace", "ws_nobody"],
            "no workspace has the id ws_nobody",
        ),
        (&["keys", "revoke", "key_nobody"], "no key has the id key_nobody"),
    ];
    for (arguments, expected) in table {
        let output = backend(&folder).args(arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn serving_prints_the_addresses_that_it_took() {
    let folder = TempDir::new().unwrap();
    let mut serving = backend(&folder)
        .args(["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines();
    let mut address = |prefix: &str| {
        let line = lines.next().unwrap().unwrap();
        line.strip_prefix(prefix)
            .unwrap_or_else(|| panic!("{line:?}"))
            .parse::<std::net::SocketAddr>()
            .unwrap()
    };
    for prefix in ["listening on http://", "internal on http://"] {
        assert!(std::net::TcpStream::connect(address(prefix)).is_ok());
    }
    serving.kill().unwrap();
    serving.wait().unwrap();
}
