//! Where the filter's module is looked for, and what commands say of one that they cannot run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use demo::artifacts::filter_wasm;
use serde_json::json;

use crate::{CONFIGURATION, guests, run, weir_in};

/// The command in a folder of its own.
fn installed() -> (tempfile::TempDir, PathBuf) {
    // In a folder of the build, so that the command is linked and not copied.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let command = folder.path().join("weir");
    fs::hard_link(env!("CARGO_BIN_EXE_weir"), &command).unwrap();
    fs::write(folder.path().join("limits.json"), CONFIGURATION).unwrap();
    (folder, command)
}

fn explain(command: &Path, folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    run(Command::new(command).args(["explain", "limits.json"]).args(arguments).current_dir(folder), "")
}

#[test]
fn the_module_is_the_one_that_is_named_or_beside_the_command_or_built() {
    let (folder, command) = installed();
    let folder = folder.path();
    let explain = |arguments: &[&str]| explain(&command, folder, arguments);
    let (code, _, err) = explain(&[]);
    let beside = folder.canonicalize().unwrap().join("filter.wasm");
    let expected = format!(
        "error: no module of the filter: --wasm names none, and there is neither {} nor target/wasm/filter.wasm; \
         `make wasm` builds it\n",
        beside.display()
    );
    assert_eq!((code, err), (2, expected));

    let silent = guests::guest("limiter");
    fs::create_dir_all(folder.join("target/wasm")).unwrap();
    //  the file that becomes the filter, the options, whether the filter runs then
    let rows: [(&str, &[u8], &[&str], bool); 4] = [
        ("target/wasm/filter.wasm", &fs::read(filter_wasm()).unwrap(), &[], true),
        ("filter.wasm", &silent, &[], false),
        ("named.wasm", &fs::read(filter_wasm()).unwrap(), &["--wasm", "named.wasm"], true),
        ("filter.wasm", &fs::read(filter_wasm()).unwrap(), &[], true),
    ];
    for (file, bytes, options, runs) in rows {
        fs::write(folder.join(file), bytes).unwrap();
        let (code, out, err) = explain(options);
        assert_eq!((code, out.contains("forwarded")), (i32::from(!runs), runs), "{file} {options:?}: {err}");
    }
}

#[test]
fn every_command_refuses_what_is_not_a_module_and_a_configuration_that_the_filter_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("limits.json", CONFIGURATION);
    write("bad.yaml", "plans: {free: {standard: [60/minutes]}}");
    write("trailing.json", "{\"plans\": {\"free\": {\"standard\": [\"60/minute\"]}},}");
    write("keys.json", "{}");
    let directory = json!({"cluster": "keys", "path": "/keys", "bearer": {"env": "NOT_SET"}});
    write(
        "variable.json",
        &json!({"plans": {"free": {"standard": ["60/minute"]}}, "directory": directory}).to_string(),
    );
    write("several.json", &json!([filter("a"), filter("b")]).to_string());
    write("filter.wasm", "no module");
    write("access.log", r#"{"start_time":"2026-01-01T00:00:00Z","path":"/"}"#);
    //  the configuration, the exit code, what is said
    let rows = [
        ("bad.yaml", 1, "bad.yaml:1:27: plans.free.standard[0]: \"60/minutes\": unknown unit"),
        ("trailing.json", 1, "trailing.json:1:49: not JSON: a comma behind the last entry"),
        ("variable.json", 1, "variable.json: directory.bearer.env: "),
        (
            "several.json",
            2,
            "error: several.json: several Wasm filters (1: \"a\", 2: \"b\"): choose one with --plugin",
        ),
        ("absent.json", 2, "error: absent.json: "),
        ("limits.json", 2, "error: filter.wasm: "),
    ];
    for (configuration, code, said) in rows {
        let commands: [&[&str]; 3] = [
            &["explain", configuration],
            &["serve", configuration, "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"],
            &["replay", "--config", configuration, "access.log"],
        ];
        for command in commands {
            let arguments = [command, &["--wasm", "filter.wasm"]].concat();
            let (found, out, err) = weir_in(folder.path(), &arguments, "");
            assert_eq!((found, out.as_str()), (code, ""), "{arguments:?}: {err}");
            assert!(err.starts_with(said), "{arguments:?}: {err}");
        }
        let (checked, _, err) = weir_in(folder.path(), &["check", configuration], "");
        let is_the_filters = code == 1 && configuration != "variable.json";
        assert!(!is_the_filters || (checked == 1 && err.starts_with(said)), "{configuration}: {err}");
    }
}

/// A filter of an Envoy, without a configuration.
fn filter(name: &str) -> serde_json::Value {
    json!({"name": name, "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
        "config": {"name": name, "vm_config": {}},
    }})
}
