//! `run --framings`, and the cache of compiled modules.

use std::{fs, path::Path};

use crate::{commands::host_sim, guests};

const UPLOADS: &str = "upstream: {body: there}
steps:
- {request: {method: POST, path: /pass, body: hello}, expect: {status: 200}}
- {request: {method: POST, path: /PATH, body: hello, chunked: true}, expect: {status: 200}}
";

fn write(directory: &Path, guest: &str, scenario: &str) {
    fs::write(directory.join("filter.wasm"), guests::guest(guest)).unwrap();
    fs::write(directory.join("scenario.yaml"), scenario).unwrap();
}

fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    host_sim(&[&["run", "--wasm", "filter.wasm", "scenario.yaml"], arguments].concat(), directory)
}

#[test]
fn a_filter_that_tells_framings_apart_misses() {
    let directory = tempfile::tempdir().unwrap();
    // The second path has the filter put something around each piece of the body.
    for (path, code, missed) in [("/buffer", 0, 0), ("/around", 1, 1)] {
        write(directory.path(), "bodies", &UPLOADS.replace("/PATH", path));
        let (found, out, err) = run(directory.path(), &["--framings"]);
        let misses = out.matches("MISS").count();
        assert_eq!((found, misses), (Some(code), missed), "{path}: {out}{err}");
        let (found, out, _) = run(directory.path(), &[]);
        assert_eq!(found, Some(0), "{out}");
    }
    let (_, out, _) = run(directory.path(), &["--framings"]);
    assert!(
        out.contains("request 1 with framing http2\n") && out.contains("request 1 with framing 1\n"),
        "{out}"
    );
    assert!(!out.contains("with framing http1") && !out.contains("with framing 16384"), "{out}");
}

#[test]
fn a_compiled_module_is_kept_and_a_damaged_one_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "limiter", "steps: [{request: {path: /a}}]");
    let cache = directory.path().join("cache");
    let execute = || {
        std::process::Command::new(env!("CARGO_BIN_EXE_host-sim"))
            .args(["run", "--wasm", "filter.wasm", "scenario.yaml"])
            .current_dir(directory.path())
            .env("HOST_SIM_CACHE", &cache)
            .output()
            .unwrap()
    };
    let run = || {
        let output = execute();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let files = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = files.map(|path| (fs::read(&path).unwrap(), path)).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files.into_iter().next().unwrap()
    };
    let (kept, path) = run();
    assert!(kept.len() > 1000, "{} bytes", kept.len());
    assert!(run().0.len() < 2 * kept.len());
    let mut damaged = kept.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for bytes in [damaged.as_slice(), &kept[..100], b""] {
        fs::write(&path, bytes).unwrap();
        let (replaced, _) = run();
        assert!(replaced.len() > 1000 && replaced != bytes, "{} bytes", replaced.len());
    }
    // A folder that cannot be made is warned of, and changes nothing else.
    fs::remove_dir_all(&cache).unwrap();
    fs::write(&cache, "no folder").unwrap();
    let output = execute();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && err.starts_with("warning: the compiled module is not kept in "),
        "{err}"
    );
}
