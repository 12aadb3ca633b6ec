//! The unit of systemd, as systemd itself reads it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use axum::http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::database::Database;
use crate::process::{Caller, Process, database_in, make_key};

/// Where the unit expects the program.
const INSTALLED: &str = "/usr/local/bin/weir-backend";
const UNIT: &str = "weir-backend.service";

fn unit() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/weir-backend.service")).unwrap()
}

#[test]
fn the_unit_is_valid_and_confines_the_service() {
    let folder = TempDir::new().unwrap();
    let unit = unit();
    assert_eq!(unit.matches(INSTALLED).count(), 2, "where it is installed and started");
    let path = folder.path().join(UNIT);
    let analyze = |unit: &str, arguments: &[&str]| {
        fs::write(&path, unit.replace(INSTALLED, env!("CARGO_BIN_EXE_backend"))).unwrap();
        let output = Command::new("systemd-analyze").args(arguments).arg(&path).output();
        let output = output.expect("systemd-analyze, which `make test` sets up on Debian");
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let verify = ["verify"];
    assert_eq!(analyze(&unit, &verify), (true, String::new()));
    // An unknown value is ignored by systemd with a warning, and so is an unknown name.
    for (mistaken, told) in [("Restart=sometimes", "restart specifier"), ("Restrat=on-failure", "Restrat")] {
        let (_, said) = analyze(&unit.replace("Restart=on-failure", mistaken), &verify);
        assert!(said.contains(told), "{mistaken}: {said}");
    }
    // Of 10, at which a service may do anything; in tenths.
    let exposed = ["security", "--offline=true", "--threshold=15"];
    let (confined, said) = analyze(&unit, &exposed);
    assert!(confined, "{said}");
    assert!(!analyze(&unit.replace("CapabilityBoundingSet=\n", ""), &exposed).0);
}

/// The system calls of a group of systemd's, or the call of this name.
fn calls(name: &str) -> BTreeSet<String> {
    if !name.starts_with('@') {
        return BTreeSet::from([name.to_owned()]);
    }
    let listed = Command::new("systemd-analyze").args(["syscall-filter", name]).output().unwrap();
    assert!(listed.status.success(), "{name}");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let members = listed.lines().skip(1).map(str::trim);
    members.filter(|member| !member.is_empty() && !member.starts_with('#')).flat_map(calls).collect()
}

/// The system calls that a unit permits.
fn permitted(unit: &str) -> BTreeSet<String> {
    let mut permitted = calls("@default");
    for names in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let removed = names.strip_prefix('~');
        let named = removed.unwrap_or(names).split_whitespace().flat_map(calls);
        match removed {
            Some(_) => named.for_each(|call| _ = permitted.remove(&call)),
            None => permitted.extend(named),
        }
    }
    permitted
}

/// Starts the service with the system calls that a unit permits.
fn start_confined(unit: &str, folder: &TempDir) -> Process {
    let [calls, confined] = ["calls.h", "confined"].map(|name| folder.path().join(name));
    let mut permits = String::new();
    for call in permitted(unit) {
        // Groups have calls of other processors too.
        writeln!(permits, "#ifdef SYS_{call}\nPERMIT(SYS_{call})\n#endif").unwrap();
    }
    fs::write(&calls, permits).unwrap();
    let compiled = Command::new("cc")
        .arg(format!("-DPERMITTED=\"{}\"", calls.display()))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/confined.c"))
        .arg("-o")
        .arg(&confined)
        .status();
    assert!(compiled.unwrap().success());
    let mut command = Command::new(&confined);
    command.arg(env!("CARGO_BIN_EXE_backend"));
    Process::run(command, &database_in(folder.path()), &[])
}

#[tokio::test]
async fn the_units_system_calls_suffice_for_requests() {
    let folder = TempDir::new().unwrap();
    let caller = Caller::new(make_key(&database_in(folder.path())));
    let process = start_confined(&unit(), &folder);
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    for path in ["/analytics", "/qr?url=https://example.com"] {
        let (status, _) = caller.call(Method::GET, process.url(path), &Value::Null).await.unwrap();
        assert_eq!(status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_units_command_and_environment_start_the_service_with_its_token() {
    let unit = unit();
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("internal-token"), "s3cret\n").unwrap();
    let credential = unit.lines().find_map(|line| line.strip_prefix("LoadCredential=")).unwrap();
    assert_eq!(credential.split_once(':').unwrap().0, "internal-token");
    // The environment is the unit's and that of the file that the installation writes, and the ports and the database are free ones.
    let of_file = unit.lines().find_map(|line| line.split_once("backend.env <<<'")).unwrap().1;
    let database = Database::sqlite();
    let environment: Vec<(&str, String)> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Environment="))
        .chain([of_file.trim_end_matches('\'')])
        .map(|assignment| assignment.split_once('=').unwrap())
        .map(|(name, value)| match name {
            "WEIR_LISTEN" | "WEIR_INTERNAL_LISTEN" => {
                (name, format!("{}:0", value.rsplit_once(':').unwrap().0))
            }
            "WEIR_DATABASE" => (name, database.url.clone()),
            _ => (name, value.to_owned()),
        })
        .collect();
    assert_eq!(environment.len(), 5, "{environment:?}");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut words = start.split(' ').map(|word| {
        word.replace("${CREDENTIALS_DIRECTORY}", folder.path().to_str().unwrap())
            .replace(INSTALLED, env!("CARGO_BIN_EXE_backend"))
    });
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env_clear().envs(environment);
    let process = Process::start_as_it_is(command);
    for address in [process.url(""), process.internal_url("")] {
        assert!(!address.contains(":808"), "the unit's variables are not read: {address}");
    }

    let caller = Caller::new(make_key(&database.url));
    for (url, answer) in [
        (process.url("/healthz"), "ok\n"),
        (process.internal_url("/healthz"), "ok\n"),
        (process.internal_url("/readyz"), "ready\n"),
    ] {
        assert_eq!(caller.text(url.clone()).await.unwrap(), answer, "{url}");
    }
    let link = json!({"url": "https://example.com", "key": "k"});
    let link = caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    assert_eq!(link["shortLink"], "https://go.example.com/r/k");
    //  the token of the file, another, and the listener that clients reach
    for (caller, url, status) in [
        (Caller::new("s3cret".to_owned()), process.internal_url("/internal/keys"), 200),
        (Caller::new("other".to_owned()), process.internal_url("/internal/keys"), 401),
        (Caller::new("s3cret".to_owned()), process.url("/internal/keys"), 404),
    ] {
        let (found, _) = caller.call(Method::GET, url.clone(), &Value::Null).await.unwrap();
        assert_eq!(found.as_u16(), status, "{url}");
    }
}
