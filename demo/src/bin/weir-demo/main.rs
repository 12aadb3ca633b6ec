//! The command behind `make demo`, `make up`, `make up-fleet` and `make envoy`: the backend and gateways with the filter in front of it,
//! all on free loopback ports and on a new database under `target/`.

mod story;
mod variables;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use demo::artifacts;
use demo::backend::{Backend, Keys, database_in};
use demo::envoy::{Setup, Upstream};
use demo::ledger::Ledger;
use demo::policy::Policy;
use demo::served::{Gateway, Served};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::variables::Variables;

/// The API behind a gateway with plan quotas
#[derive(Debug, Parser)]
#[command(name = "weir-demo", version)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Plays a client that uses up its quota, and prints each request and answer
    Story,
    /// Runs until it is interrupted; prints its address and keys as shell variables, and writes them to target/up.env
    Up {
        /// The gateway
        #[arg(long, value_enum, default_value = "host-sim")]
        gateway: GatewayKind,
    },
    /// The same with two gateways that share every quota through a ledger; the file is target/up-fleet.env
    UpFleet,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GatewayKind {
    /// The simulator
    HostSim,
    /// A real Envoy
    Envoy,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Story => World::start(GatewayKind::HostSim).and_then(|world| story::play(&world)),
        Task::Up { gateway } => World::start(gateway).and_then(|world| world.stay("up.env")),
        Task::UpFleet => World::start_fleet().and_then(|world| world.stay("up-fleet.env")),
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

/// Workers of a gateway: more than one, so that counters are shared.
const WORKERS: usize = 2;

/// The backend and what is in front of it, which end with it.
#[derive(Debug)]
struct World {
    /// Where the first gateway is.
    address: SocketAddr,
    keys: Keys,
    gateways: Vec<Served>,
    ledger: Option<Ledger>,
    backend: Backend,
    _folder: TempDir,
}

impl World {
    fn start(gateway: GatewayKind) -> anyhow::Result<Self> {
        Self::with(gateway, None)
    }

    fn start_fleet() -> anyhow::Result<Self> {
        Self::with(GatewayKind::HostSim, Some(Ledger::serve(&sibling("weir-ledger")?)?))
    }

    /// With one gateway, or with two that share quotas through a ledger.
    fn with(gateway: GatewayKind, ledger: Option<Ledger>) -> anyhow::Result<Self> {
        let folder = fresh_folder()?;
        let backend = &sibling("backend")?;
        let database = database_in(folder.path());
        let keys = Keys::seed(backend, &database)?;
        // Short links live at the gateway, so the backend has to know its address before the gateway can know the
        // backend's.
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
        let address = held.local_addr()?;
        let backend = Backend::serve(backend, &database, Some(&format!("http://{address}")))?;

        let setup = Setup::new(Policy::deployed()?, Upstream::At(backend.address()))
            .keys_from(backend.directory())
            .workers(WORKERS);
        let setups = match &ledger {
            None => vec![setup.listen(address)],
            Some(ledger) => {
                let setup = setup.sharing_through(ledger);
                vec![setup.clone().listen(address), setup]
            }
        };
        let gateway = match gateway {
            GatewayKind::HostSim => Gateway::HostSim(sibling("host-sim")?),
            GatewayKind::Envoy => Gateway::Envoy,
        };
        // Until now the system could give the port to nobody else.
        drop(held);
        let gateways =
            setups.into_iter().map(|setup| Served::start(&gateway, setup)).collect::<Result<_, _>>()?;
        Ok(Self { address, keys, gateways, ledger, backend, _folder: folder })
    }

    /// Prints the variables and writes them to a file of this name under `target/`, then waits for a signal.
    fn stay(&self, file: &str) -> anyhow::Result<()> {
        let variables = Variables::write(&artifacts::root().join("target").join(file), &self.variables())?;
        println!("{variables}");
        println!("# Ctrl-C stops the API and its gateway, and removes the file.");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate()).context("cannot wait for a signal")?;
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for an interrupt"),
                _ = terminate.recv() => Ok(()),
            }
        })
    }

    /// The addresses and the keys, as a shell reads them.
    fn variables(&self) -> String {
        let names = ["GATEWAY", "SECOND_GATEWAY"].into_iter();
        let gateways =
            names.zip(&self.gateways).map(|(name, gateway)| format!("{name}=http://{}\n", gateway.address()));
        let ledger = self.ledger.iter().map(|ledger| format!("LEDGER=http://{}\n", ledger.address()));
        let usage = format!("USAGE=http://{}/usage\n", self.backend.directory().address);
        let keys = self.keys.iter().map(|(plan, key)| format!("{}={key}\n", plan.to_ascii_uppercase()));
        gateways.chain(ledger).chain([usage]).chain(keys).collect()
    }
}

/// A command that was built together with this one, which is beside it.
fn sibling(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("this command has no path")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "{} does not exist: the Makefile builds it", path.display());
    Ok(path)
}

/// A folder under `target/` for the database, gone with the world.
fn fresh_folder() -> anyhow::Result<TempDir> {
    let target = artifacts::root().join("target");
    tempfile::Builder::new()
        .prefix("demo-")
        .tempdir_in(&target)
        .with_context(|| format!("no folder in {}", target.display()))
}
