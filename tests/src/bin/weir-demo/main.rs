//! The command behind `make demo`, `make up` and `make envoy`: the backend and a gateway with the filter in front of it,
//! both on free loopback ports and on a database of their own under `target/`.

mod story;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use tempfile::TempDir;
use tests::backend::{Backend, Keys, database_in};
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::gateway::wait_for_directory;
use tests::policy::Policy;
use tests::process::Process;
use tests::{artifacts, clock};
use tokio::signal::unix::{SignalKind, signal};

/// The API behind a gateway with plan quotas
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Plays the contract as a client, and shows it
    Story,
    /// Stays until it is interrupted; prints its address and keys as shell variables
    Up {
        /// The gateway
        #[arg(long, value_enum, default_value = "host-sim")]
        gateway: GatewayKind,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GatewayKind {
    /// The simulator, serving
    HostSim,
    /// A real Envoy
    Envoy,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Story => World::start(GatewayKind::HostSim).and_then(|world| story::play(&world)),
        Task::Up { gateway } => World::start(gateway).and_then(|world| world.stay()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a command tells why it failed")]
            {
                eprintln!("weir-demo: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Workers of the gateway: more than one, so that counters are shared.
const WORKERS: usize = 2;

/// The backend and the gateway, which end with it.
#[derive(Debug)]
struct World {
    address: SocketAddr,
    keys: Keys,
    _gateway: Gateway,
    _backend: Backend,
    _folder: TempDir,
}

#[expect(dead_code, reason = "held so that it ends with the world")]
#[derive(Debug)]
enum Gateway {
    HostSim(Process),
    Envoy(Box<Envoy>),
}

impl World {
    fn start(gateway: GatewayKind) -> anyhow::Result<Self> {
        let folder = fresh_folder()?;
        let backend = artifacts::command("backend");
        let database = database_in(folder.path());
        let keys = Keys::seed(backend, &database)?;
        // Short links live at the gateway, so the backend has to know its address before the gateway can know the
        // backend's.
        let address = free_address()?;
        let backend = Backend::serve(backend, &database, Some(&format!("http://{address}")))?;

        let setup = Setup::new(Policy::deployed()?, Upstream::At(backend.address()))
            .keys_from(backend.directory())
            .workers(WORKERS)
            .listen(address);
        let gateway = match gateway {
            GatewayKind::HostSim => Gateway::HostSim(serve_with_host_sim(&setup, folder.path())?),
            GatewayKind::Envoy => {
                let envoy = Envoy::start(setup)?;
                wait_for_directory(&envoy);
                Gateway::Envoy(Box::new(envoy))
            }
        };
        Ok(Self { address, keys, _gateway: gateway, _backend: backend, _folder: folder })
    }

    /// Prints what a shell needs, and waits to be ended, so that what it has started ends with it.
    fn stay(&self) -> anyhow::Result<()> {
        println!("GATEWAY=http://{}", self.address);
        for (plan, key) in self.keys.iter() {
            println!("{}={key}", plan.to_ascii_uppercase());
        }
        println!("# Ctrl-C ends it");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate()).context("cannot wait for a signal")?;
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for an interrupt"),
                _ = terminate.recv() => Ok(()),
            }
        })
    }
}

/// A folder under `target/` for the database, gone with the world.
fn fresh_folder() -> anyhow::Result<TempDir> {
    let target = artifacts::root().join("target");
    tempfile::Builder::new()
        .prefix("demo-")
        .tempdir_in(&target)
        .with_context(|| format!("no folder in {}", target.display()))
}

fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?)
}

/// Starts it and waits until the directory has answered each of its VMs.
fn serve_with_host_sim(setup: &Setup, folder: &Path) -> anyhow::Result<Process> {
    let Upstream::At(upstream) = setup.upstream else { anyhow::bail!("host-sim needs an upstream") };
    let directory = setup.directory.as_ref().context("no directory")?;
    let config = folder.join("envoy.json");
    std::fs::write(&config, setup.bootstrap(folder)?.to_string())?;
    let process = Process::start(
        "host-sim",
        Command::new(artifacts::command("host-sim"))
            .args(["serve", "--wasm"])
            .arg(artifacts::filter_wasm())
            .arg("--config")
            .arg(config)
            .args(["--listen", &setup.listen.to_string()])
            .args(["--upstream", &format!("http://{upstream}")])
            .args([
                "--cluster",
                &format!("{}=http://{}", setup.policy.directory_cluster()?, directory.address),
            ])
            .args(["--workers", &setup.workers.to_string(), "--admin", "127.0.0.1:0"]),
    )?;
    process.wait_for(|line| line.starts_with("listening on ").then_some(()))?;
    let admin = process.wait_for(|line| line.strip_prefix("admin on http://")?.parse().ok())?;
    let admin = Client::to(admin)?;
    clock::eventually("the directory's answer to each VM", Duration::from_secs(30), || {
        let stats = admin.send(&get("/stats")).ok()?;
        let stats = String::from_utf8_lossy(stats.body()).into_owned();
        let updates =
            stats.lines().find_map(|line| line.strip_prefix("wasmcustom.weir.directory.updated: "))?;
        // The main VM asks as well.
        (updates.parse::<usize>().ok()? > setup.workers).then_some(())
    })?;
    Ok(process)
}
