//! The unit of systemd, as systemd itself reads it.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

/// Where the unit expects the program.
const INSTALLED: &str = "/usr/local/bin/weir-backend";
const UNIT: &str = "weir-backend.service";

#[test]
fn the_unit_is_valid_and_confines_the_service() {
    let folder = TempDir::new().unwrap();
    let unit =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/weir-backend.service")).unwrap();
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
