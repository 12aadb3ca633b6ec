//! `weir-ratelimit`: the services as a program.

use std::net::SocketAddr;
use std::process::Command;

use fleet::client::Client;
use fleet::redis::{Memory, Redis};
use fleet::wire::{Code, RateLimitDescriptor, Unit, descriptor, limited, request};
use tests::artifacts;
use tests::process::Process;

#[test]
fn the_program_serves_both_services_from_their_files() {
    let redis = Redis::start(Memory::Volatile).unwrap();
    let of_plan = |plan| {
        descriptor(&[
            ("class", "standard"),
            ("window", "minute"),
            ("plan", plan),
            ("index", "1"),
            ("who", "a"),
        ])
    };
    let rows: [(&str, &str, RateLimitDescriptor); 2] = [
        ("envoyproxy", "ratelimit/weir.yaml", limited(of_plan("free"), 60, Unit::Minute)),
        ("limitador", "limitador/limits.yaml", of_plan("free")),
    ];
    for (service, file, descriptor) in rows {
        let program = Process::start(
            "weir-ratelimit",
            Command::new(env!("CARGO_BIN_EXE_weir-ratelimit"))
                .args(["--service", service, "--redis", &redis.url(), "--listen", "127.0.0.1:0", "--config"])
                .arg(artifacts::root().join("envoy/fleet").join(file)),
        )
        .unwrap();
        let address =
            |line: &str| line.strip_prefix("listening on ")?.split(',').next()?.parse::<SocketAddr>().ok();
        let client = Client::to(program.wait_for(address).unwrap()).unwrap();
        let code = |hits| client.ask(request("weir", descriptor.clone(), hits)).unwrap().overall_code();
        assert_eq!([code(60), code(60)], [Code::Ok, Code::OverLimit], "{service}");
    }
}

#[test]
fn its_help_says_what_it_is_for() {
    let help = Command::new(env!("CARGO_BIN_EXE_weir-ratelimit")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for expected in
        ["stand-in", "do not run it where a quota matters", "Examples:", "--redis <URL>", "Exit status:"]
    {
        assert!(help.contains(expected), "{help}");
    }
}
