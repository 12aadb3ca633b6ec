//! The API, tested from its own description by schemathesis.

use std::net::Ipv4Addr;
use std::process::Command;

use backend::{AddressPolicy, Backend, Clock, PublicUrl, Settings, Store, Terms, server};
use tests::artifacts;
use tests::backend::database_in;
use tests::soak::row;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long it looks, in seconds.
const SECONDS: u32 = 8;
const LONG_SECONDS: u32 = 600;

#[test]
fn schemathesis_finds_nothing() {
    let python = artifacts::python_with("tests/clients/schemathesis");
    run(&python, SECONDS);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn schemathesis_finds_nothing_in_ten_minutes() {
    let python = artifacts::python_with("tests/clients/schemathesis");
    run(&python, LONG_SECONDS);
}

fn run(python: &std::path::Path, seconds: u32) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let (_backend, address, key) = runtime.block_on(async {
        let store = Store::open_or_create(&database_in(folder.path())).await.unwrap();
        let clock = Clock::system();
        let workspace = store.create_workspace("tested", clock.now()).await.unwrap();
        let (_, key) = store.create_key(&workspace, &Terms::of_plan("pro"), clock.now()).await.unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let public_url = PublicUrl::parse(&format!("http://{address}")).unwrap();
        let settings = Settings {
            // Receivers are made up: nothing may be sent to whoever has such a name.
            webhook_addresses: AddressPolicy::none(),
            ..Settings::new(public_url)
        };
        let backend = Backend::start(store, clock, settings);
        tokio::spawn(server::serve(listener, backend.front(), server::Bounds::default(), stopped));
        (backend, address, key)
    });
    let output = Command::new(python)
        // It writes what it has learnt into the current folder.
        .current_dir(folder.path())
        .args(["-m", "schemathesis.cli", "--no-color", "--config-file"])
        .arg(artifacts::root().join("backend/schemathesis.toml"))
        // One worker: hypothesis parses the sources of lambdas as it makes strategies, and two threads that do so at once may
        // fail ("AST constructor recursion depth mismatch", python/cpython#106905, in Python up to 3.11.7). One is also
        // faster, since only one thread at a time runs Python.
        .args(["run", &format!("http://{address}/openapi.json"), "--workers", "1"])
        .args(["--max-time", &seconds.to_string()])
        .env("WEIR_KEY", key)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    let told = report.lines().filter(|line| line.contains("generated,") || line.starts_with("Seed:"));
    row("schemathesis", format!("{seconds} s"), told.map(str::trim).collect::<Vec<_>>().join(", "));
}
