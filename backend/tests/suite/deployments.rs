//! What the repository ships to run the service: how many proxies each of them trusts, and at which ports its parts meet.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What is built, and the tests and the sources of the service itself.
const OTHERS: [&str; 5] = ["target", "node_modules", "tests", "backend/src", "backend/tests"];

/// The files below a folder, with paths from the root.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if is_hidden || OTHERS.iter().any(|other| path == Path::new(other)) {
            continue;
        }
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found
}

fn text(file: impl AsRef<Path>) -> String {
    fs::read(Path::new(ROOT).join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap()
}

#[test]
fn every_deployment_behind_a_gateway_trusts_one_proxy_and_the_image_none() {
    //  file that says where the internal listener is, its setting of the number of proxies
    let table = [
        ("backend/systemd/weir-backend.service", Some("Environment=WEIR_TRUSTED_HOPS=1\n")),
        ("demo/src/backend.rs", Some(r#"["--trusted-hops", "1"]"#)),
        // Lists the options and starts nothing.
        ("docs/src/faq.md", None),
        ("docs/src/gateways.md", Some("--env WEIR_TRUSTED_HOPS=1 ")),
        ("docs/src/usage-store.md", Some("--trusted-hops 1\n")),
        ("envoy/compose.yaml", Some("WEIR_TRUSTED_HOPS: \"1\"\n")),
        ("envoy/fleet/compose.yaml", Some("WEIR_TRUSTED_HOPS: \"1\"\n")),
        // Runs without a gateway too, where every client can write the header.
        ("scripts/image/image.py", None),
    ];
    let deploys = |file: &PathBuf| {
        let text = text(file);
        ["WEIR_INTERNAL_LISTEN", "--internal-listen"].iter().any(|setting| text.contains(setting))
    };
    let found: BTreeSet<PathBuf> = files(Path::new("")).into_iter().filter(deploys).collect();
    assert_eq!(found, BTreeSet::from(table.map(|(file, _)| PathBuf::from(file))));
    for (file, setting) in table {
        let text = text(file).to_lowercase();
        let is_set = text.contains("trusted_hops") || text.contains("trusted-hops");
        assert_eq!(is_set, setting.is_some(), "{file}");
        assert!(setting.is_none_or(|setting| text.contains(&setting.to_lowercase())), "{file}");
    }
}

#[test]
fn every_page_that_starts_the_service_says_how_many_proxies_to_trust() {
    let mut commands = 0;
    let is_page = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
    for file in files(Path::new("")).into_iter().filter(is_page) {
        let text = text(&file).replace("\\\n", " ");
        let starts = |line: &&str| line.starts_with("backend serve ") || line.starts_with("docker run ");
        for command in text.lines().filter(starts) {
            let trusts = command.contains("--trusted-hops 1") || command.contains("WEIR_TRUSTED_HOPS=1");
            assert!(trusts, "{}: {command}", file.display());
            commands += 1;
        }
    }
    assert_eq!(commands, 3);
}

#[test]
fn every_file_sends_requests_to_the_ports_at_which_the_services_listen() {
    const GATEWAY: &str = "8080";
    const PUBLIC: &str = "8081";
    const INTERNAL: &str = "8082";
    const LEDGER: &str = "8083";
    const SECOND_GATEWAY: &str = "8090";
    const LISTENS: &str = r#"LISTEN(?:=|: "?|` \| `)(?:[\d.]+|\[::\]):(\d+)"#;
    const BOTH: [&str; 2] = [PUBLIC, INTERNAL];
    const ALL: [&str; 3] = [PUBLIC, INTERNAL, LEDGER];
    //  file, what is around a port in it, the ports
    let table: &[(&str, &str, &[&str])] = &[
        ("backend/systemd/weir-backend.service", LISTENS, &BOTH),
        ("scripts/image/image.py", LISTENS, &ALL),
        ("scripts/image/image.py", r"(\d+)/tcp", &ALL),
        ("docs/src/gateways.md", r"--publish 127\.0\.0\.1:\d+:(\d+)", &BOTH),
        ("docs/src/gateways.md", LISTENS, &BOTH),
        ("envoy/compose.yaml", LISTENS, &BOTH),
        ("envoy/compose.yaml", r"PUBLIC_URL: http://[\d.]+:(\d+)", &[GATEWAY]),
        ("envoy/envoy.yaml", r"(?s)- name: api\n +address:\n.*?port_value: (\d+)", &[GATEWAY]),
        ("envoy/envoy.yaml", r"(?s)cluster_name: backend(?:-internal)?\n.*?port_value: (\d+)", &BOTH),
        ("envoy/nginx/nginx.conf", r"listen (\d+);", &[GATEWAY]),
        ("envoy/nginx/nginx.conf", r"server [\d.]+:(\d+);", &[PUBLIC]),
        ("envoy/prometheus/prometheus.yaml", r"(?s)job_name: backend\n.*?:(\d+)\]", &[INTERNAL]),
        ("envoy/envoy-gateway/gateway.yaml", r"name: backend\n +port: (\d+)", &[PUBLIC]),
        ("envoy/envoy-gateway/services.yaml", r"(?s)app: backend\n.*?port: (\d+)", &BOTH),
        ("envoy/istio/services.yaml", r"(?s)app: backend\n.*?port: (\d+)", &BOTH),
        ("envoy/chart/examples/istio-sidecar.yaml", r"ports: \[(\d+)\]", &[PUBLIC]),
        ("envoy/chart/values.yaml", r"port: (\d+)", &[INTERNAL, LEDGER]),
        ("backend/src/command/arguments.rs", r#"_LISTEN", default_value = "[\d.]+:(\d+)"#, &BOTH),
        ("ledger/src/options.rs", r#"WEIR_LEDGER_LISTEN", default_value = "[\d.]+:(\d+)"#, &[LEDGER]),
        // The ledgers' and the backend's.
        ("envoy/fleet/compose.yaml", LISTENS, &[LEDGER, PUBLIC, INTERNAL]),
        ("envoy/fleet/compose.yaml", r"PUBLIC_URL: http://[\d.]+:(\d+)", &[GATEWAY]),
        ("envoy/fleet/compose.yaml", r"- 127\.0\.0\.1:(\d+):8080", &[GATEWAY, SECOND_GATEWAY]),
        ("envoy/fleet/envoy.yaml", r"(?s)- name: api\n +address:\n.*?port_value: (\d+)", &[GATEWAY]),
        ("envoy/fleet/envoy.yaml", r"(?s)cluster_name: backend(?:-internal)?\n.*?port_value: (\d+)", &BOTH),
        ("envoy/fleet/envoy.yaml", r"address: ledger-\d, port_value: (\d+)", &[LEDGER; 2]),
        ("envoy/fleet/prometheus.yaml", r"backend:(\d+)", &[INTERNAL]),
        ("envoy/fleet/prometheus.yaml", r"ledger-\d:(\d+)", &[LEDGER; 2]),
        ("envoy/fleet/systemd/weir-ledger.service", LISTENS, &[LEDGER; 2]),
        (
            "envoy/chart/templates/ledger.yaml",
            r#"_LISTEN\n(?: +#.*\n)? +value: "\[::\]:(\d+)"#,
            &[LEDGER, "9083"],
        ),
        (
            "envoy/chart/templates/ledger.yaml",
            r"[pP]ort: (\d+)",
            &[LEDGER, "9083", LEDGER, LEDGER, LEDGER, "15008", "9083"],
        ),
    ];
    for (file, pattern, expected) in table {
        let text = text(file);
        let pattern = Regex::new(pattern).unwrap();
        let ports: Vec<&str> = pattern.captures_iter(&text).map(|found| found.extract::<1>().1[0]).collect();
        assert_eq!(ports, *expected, "{file}: {pattern}");
    }
    let a_port = Regex::new(&format!(r"\b(?:{})\b", ALL.join("|"))).unwrap();
    let shipped = ["backend/systemd", "envoy", "scripts/image"].map(|folder| files(Path::new(folder)));
    for file in shipped.iter().flatten() {
        let names_a_port = a_port.is_match(&text(file));
        assert_eq!(
            names_a_port,
            table.iter().any(|(known, ..)| file == Path::new(known)),
            "{}",
            file.display()
        );
    }
}
