//! `envoy/fleet/systemd`: the unit of the ledger, as systemd itself reads it, and its command.

use std::fs;
use std::process::Command;

use tests::artifacts;
use tests::client::Client;
use tests::clock;
use tests::exchange::{get, post};
use tests::process::Process;

use crate::tools::{run, text};

const UNIT: &str = "envoy/fleet/systemd/weir-ledger.service";
/// Where the unit expects the program.
const INSTALLED: &str = "/usr/local/bin/weir-ledger";

/// systemd is Linux's.
#[cfg(target_os = "linux")]
#[test]
fn the_unit_is_valid_and_confines_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let unit = text(UNIT);
    assert_eq!(unit.matches(INSTALLED).count(), 2, "where it is installed and started");
    let path = folder.path().join("weir-ledger.service");
    let program = artifacts::command("weir-ledger").to_str().unwrap();
    let analyze = |unit: &str, arguments: &[&str]| {
        fs::write(&path, unit.replace(INSTALLED, program)).unwrap();
        run(Command::new("systemd-analyze").args(arguments).arg(&path))
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

#[test]
fn its_command_and_its_environment_start_the_ledger_with_its_token() {
    let unit = text(UNIT);
    let folder = tempfile::tempdir().unwrap();
    let setting = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let credential = setting("LoadCredential=").split_once(':').unwrap().0;
    fs::write(folder.path().join(credential), "s3cret\n").unwrap();
    let mut words = setting("ExecStart=").split(' ').map(|word| {
        word.replace("${CREDENTIALS_DIRECTORY}", folder.path().to_str().unwrap())
            .replace(INSTALLED, artifacts::command("weir-ledger").to_str().unwrap())
    });
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env_clear();
    // The environment is the unit's, but for a free port, and for a store in memory.
    let environment: Vec<_> =
        unit.lines().filter_map(|line| line.strip_prefix("Environment=")?.split_once('=')).collect();
    assert_eq!(
        environment.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["WEIR_LEDGER_LISTEN", "WEIR_LEDGER_STORE"]
    );
    for (name, value) in environment {
        command.env(name, if name.ends_with("LISTEN") { "127.0.0.1:0" } else { value });
    }
    let process = Process::start("weir-ledger", command.env("WEIR_LEDGER_STORE", "memory")).unwrap();
    let address = process.wait_for(|line| line.strip_prefix("listening on http://")?.parse().ok()).unwrap();
    let client = Client::to(address).unwrap();
    let call = |token: &str| {
        let body = serde_json::json!({"gateway": "0".repeat(32), "now": 1, "items": []});
        client.send(&post("/v1/shares").json(&body).key(token)).unwrap()
    };
    //  token, status
    for (token, status) in [("s3cret", 200), ("other", 401)] {
        assert_eq!(call(token).status(), status, "{token}");
    }
    clock::eventually("a ledger that is ready", std::time::Duration::from_secs(10), || {
        (client.send(&get("/readyz")).ok()?.status() == 200).then_some(())
    })
    .unwrap();
}
