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
fn links_are_imported_line_by_line() {
    let folder = TempDir::new().unwrap();
    let seeded = json(backend(&folder).args(["seed", "--json"]));
    let file = folder.path().join("links.csv");
    let mut csv = "url,key,title,archived,tagNames,geo,unknown\n".to_owned();
    for n in 0..250 {
        csv.push_str(&format!("https://example.com/{n},k{n},\"a, \"\"b\"\"\",true,\"x,y\",\"{{\"\"DE\"\":\"\"de.test\"\"}}\",?\n"));
    }
    csv.push_str("nonsense,,,,,,\nhttps://example.com/,K7,,,,,\nhttps://example.com/,,,maybe,,,\n");
    std::fs::write(&file, csv).unwrap();
    let workspace = seeded["workspace"].as_str().unwrap();
    let mut import = backend(&folder);
    import.args(["import", "--public-url", "https://s.test", "--workspace", workspace]).arg(&file);
    let output = import.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(),
        [
            "line 252: custom: url: Invalid destination URL",
            "line 253: Duplicate key: This short link already exists.",
            "line 254: invalid_type: archived: Invalid input: expected boolean, received string",
            "250 links made, 3 lines refused",
        ]
    );
    std::fs::write(&file, "key,title\na,b\n").unwrap();
    let output = import.output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("links.csv: the first line names no column \"url\"")
    );
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
