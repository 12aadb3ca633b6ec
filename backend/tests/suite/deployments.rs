//! What the repository ships to run the service, and how many proxies each of them trusts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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
        ("docs/src/gateways.md", Some("--env WEIR_TRUSTED_HOPS=1 ")),
        ("envoy/compose.yaml", Some("WEIR_TRUSTED_HOPS: \"1\"\n")),
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
    assert_eq!(commands, 2);
}
