//! Real Envoys, ledgers, and the store that these share.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Updates, Upstream};
use tests::exchange::get;
use tests::policy::{self, Policy};
use tests::process::Process;
use tests::way::Way;
use tests::{artifacts, clock};
use tokio::runtime::Runtime;

use crate::store::{Cluster, Engine, Redis};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long a gateway's connections drain after an update of its listener.
const DRAIN: Duration = Duration::from_secs(60);

/// Starts and stops servers.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// What ledgers keep shares in.
pub(crate) enum Store {
    /// A single ledger's memory.
    Memory,
    /// A single ledger's file, in this folder.
    File(TempDir),
    /// A Redis.
    Alone(Redis),
    /// Three masters with a replica each.
    Cluster(Cluster),
}

impl Store {
    pub(crate) fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    pub(crate) fn redis() -> Self {
        Self::Alone(RUNTIME.block_on(Redis::start()))
    }

    /// A Redis that writes each command to its disk.
    pub(crate) fn durable_redis() -> Self {
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        Self::Alone(RUNTIME.block_on(Redis::start_with(&options)))
    }

    pub(crate) fn cluster() -> Self {
        Self::Cluster(RUNTIME.block_on(Cluster::start(Engine::Redis)))
    }

    pub(crate) fn alone(&mut self) -> &mut Redis {
        match self {
            Self::Alone(redis) => redis,
            Self::Memory | Self::File(_) | Self::Cluster(_) => panic!("not a Redis alone"),
        }
    }

    /// Starts its Redis again.
    pub(crate) fn run(&mut self) {
        RUNTIME.block_on(self.alone().run());
    }

    /// Kills one of its masters, whose replica takes over.
    pub(crate) fn lose_a_master(&mut self) {
        let Self::Cluster(cluster) = self else { panic!("not a cluster") };
        let master = cluster.master_of("weir:any");
        cluster.nodes[master].kill();
    }

    /// Kills one of its masters and the replica that would take over.
    pub(crate) fn lose_a_shard(&mut self) {
        let Self::Cluster(cluster) = self else { panic!("not a cluster") };
        let lost = cluster.master_of("weir:any");
        let of_lost = format!("slave\n127.0.0.1\n{}\n", cluster.nodes[lost].port);
        let replica = cluster.nodes.iter().position(|node| node.cli("role").starts_with(&of_lost));
        for node in [replica.expect("a replica"), lost] {
            cluster.nodes[node].kill();
        }
    }

    fn options(&self) -> Vec<String> {
        match self {
            Self::Memory => vec!["memory".to_owned()],
            Self::File(folder) => vec![format!("file:{}", folder.path().join("ledger.db").display())],
            Self::Alone(redis) => vec![redis.url()],
            Self::Cluster(cluster) => vec![cluster.url(), "--cluster".to_owned()],
        }
    }
}

/// A running ledger.
pub(crate) struct Ledger {
    address: SocketAddr,
    process: Process,
}

impl Ledger {
    fn start(address: SocketAddr, store: &Store, clock: Option<&Clock>) -> Self {
        let mut command = Command::new(artifacts::command("weir-ledger"));
        command
            .args(["serve", "--listen", &address.to_string(), "--store"])
            .args(store.options())
            .env("RUST_LOG", "info")
            .envs(clock.map(Clock::variable));
        let process = Process::start("weir-ledger", &mut command).unwrap();
        process.wait_for(|line| line.contains("listening on").then_some(())).unwrap();
        Self { address, process }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn wait_until_ready(&self) {
        let client = Client::to(self.address).unwrap();
        let is_ready = || (client.send(&get("/readyz")).ok()?.status() == 200).then_some(());
        clock::eventually("the ledger is ready", PATIENCE, is_ready).unwrap();
    }

    fn signal(&self, signal: Signal) {
        send_signal(self.process.id(), signal);
    }

    /// Lets it answer nothing, as if the network were cut, until it is resumed.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// The sum of the values of a metric whose lines begin so.
    pub(crate) fn metric(&self, beginning: &str) -> f64 {
        // A connection that has been idle for a while is closed.
        let metrics = Client::to(self.address).unwrap().send(&get("/metrics")).unwrap();
        let metrics = String::from_utf8_lossy(metrics.body()).into_owned();
        let values = metrics.lines().filter(|line| line.starts_with(beginning));
        values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }
}

/// What a fleet is made of.
pub(crate) struct Shape {
    pub(crate) gateways: usize,
    pub(crate) ledgers: usize,
    pub(crate) store: Store,
    /// From a gateway to a ledger and back.
    pub(crate) round_trip: Duration,
    /// By how much the clock of each gateway is ahead of the others', in milliseconds; 0 for the others.
    pub(crate) clocks: &'static [i64],
    /// By how much the clocks of all gateways and ledgers are ahead, in milliseconds.
    pub(crate) ahead: i64,
    pub(crate) upstream: Upstream,
    /// Worker threads of each gateway.
    pub(crate) workers: usize,
    /// How gateways get another configuration.
    pub(crate) updates: Updates,
    /// Where gateways report what is used, if their policy has them do so.
    pub(crate) usage: Option<SocketAddr>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            gateways: 2,
            ledgers: 1,
            store: Store::Memory,
            round_trip: Duration::ZERO,
            clocks: &[],
            ahead: 0,
            upstream: Upstream::DirectResponse,
            workers: 2,
            updates: Updates::None,
            usage: None,
        }
    }
}

/// A running fleet, of which a test has one at a time. What a field needs follows it.
pub(crate) struct Fleet {
    pub(crate) gateways: Vec<Envoy>,
    pub(crate) ways: Vec<Way>,
    pub(crate) ledgers: Vec<Option<Ledger>>,
    pub(crate) store: Store,
    /// What all gateways have, but for their policies.
    setup: Setup,
    /// By how much all clocks are ahead, in milliseconds.
    ahead: i64,
    usage: Option<SocketAddr>,
}

impl Fleet {
    pub(crate) fn start(policy: &Policy, shape: Shape) -> Self {
        let Shape { gateways, ledgers, store, round_trip, clocks, ahead, upstream, workers, updates, usage } =
            shape;
        let clock = Clock::ahead(ahead);
        let start = |_| Ledger::start(free_address(), &store, clock.as_ref());
        let ledgers: Vec<_> = (0..ledgers).map(start).collect();
        ledgers.iter().for_each(Ledger::wait_until_ready);
        let ways: Vec<_> =
            ledgers.iter().map(|ledger| Way::to(ledger.address, round_trip).unwrap()).collect();
        let mut fleet = Self {
            gateways: Vec::new(),
            ways,
            ledgers: ledgers.into_iter().map(Some).collect(),
            store,
            // Streams that were open go on for longer than a test.
            setup: Setup::new(policy.clone(), upstream).workers(workers).updates(updates).drain(DRAIN),
            ahead,
            usage,
        };
        for gateway in 0..gateways {
            fleet.add_gateway(policy, clocks.get(gateway).copied().unwrap_or(0));
        }
        fleet
    }

    /// Starts another gateway. Unless the policy says otherwise, nothing passes without the ledger, which a machine as busy as this may not hear
    /// in time: a limit that is exceeded is then the fleet's fault. Its clock is ahead of the fleet's by `clock` milliseconds.
    pub(crate) fn add_gateway(&mut self, policy: &Policy, clock: i64) {
        let mut setup = Setup { policy: of_a_fleet(policy), ..self.setup.clone() };
        let clock = Clock::ahead(self.ahead + clock);
        setup.variables.extend(clock.as_ref().map(Clock::variable));
        let cluster = ledger_cluster(&self.ways.iter().map(Way::address).collect::<Vec<_>>());
        let usage = self.usage;
        let envoy = Envoy::start_amended(setup, |bootstrap, _| {
            if let Some(address) = usage {
                tests::envoy::set_cluster(bootstrap, tests::collector::CLUSTER, address)?;
            }
            let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
            clusters.unwrap().push(cluster);
            Ok(())
        });
        self.gateways.push(envoy.unwrap());
    }

    /// Ends the newest gateway by SIGTERM, and waits until it has ended.
    pub(crate) fn terminate_gateway(&mut self) {
        let gateway = self.gateways.pop().expect("a gateway");
        send_signal(gateway.id(), Signal::TERM);
        let has_ended = || TcpStream::connect(gateway.address()).is_err().then_some(());
        clock::eventually("the gateway ends", PATIENCE, has_ended).unwrap();
    }

    /// Gives a gateway another configuration.
    pub(crate) fn update(&mut self, gateway: usize, policy: &Policy) {
        assert!(self.gateways[gateway].update(of_a_fleet(policy)).unwrap());
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(Envoy::address).collect()
    }

    /// Ends a ledger.
    pub(crate) fn kill_ledger(&mut self, number: usize) -> SocketAddr {
        self.ledgers[number].take().expect("it runs").address
    }

    /// Starts a ledger that was ended, and does not wait until it is ready.
    pub(crate) fn return_ledger(&mut self, number: usize, address: SocketAddr) {
        let clock = Clock::ahead(self.ahead);
        self.ledgers[number] = Some(Ledger::start(address, &self.store, clock.as_ref()));
    }

    /// Statements that the ledgers have had so far.
    pub(crate) fn statements(&self) -> f64 {
        self.ledgers.iter().flatten().map(|ledger| ledger.metric("weir_ledger_statements_total")).sum()
    }
}

fn send_signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(process.expect("a process"), signal).unwrap();
}

/// The policy, with the default of this harness for a fleet.
fn of_a_fleet(policy: &Policy) -> Policy {
    match policy.as_value().get("fleet") {
        Some(_) => policy.clone(),
        None => policy.clone().with("fleet", json!({"cluster": "ledger", "on_unavailable": "deny"})),
    }
}

fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, crate::store::free_port()))
}

/// The ledger's cluster as `envoy/fleet/envoy.yaml` has it, but for the addresses.
fn ledger_cluster(addresses: &[SocketAddr]) -> Value {
    let mut bootstrap = policy::yaml("envoy/fleet/envoy.yaml").unwrap();
    let mut cluster = tests::envoy::cluster(&mut bootstrap, "ledger").unwrap().take();
    let endpoints = addresses.iter().map(|address| {
        json!({"endpoint": {"address": {"socket_address": {"address": address.ip(), "port_value": address.port()}}}})
    });
    cluster["load_assignment"]["endpoints"] = json!([{"lb_endpoints": endpoints.collect::<Vec<_>>()}]);
    cluster
}

/// A library that puts a program's clock ahead. It is read when a program starts.
struct Clock(TempDir);

impl Clock {
    /// Ahead by this number of milliseconds; `None` if it is not.
    fn ahead(milliseconds: i64) -> Option<Self> {
        if milliseconds == 0 {
            return None;
        }
        let clock = Self(tempfile::tempdir().unwrap());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fleet/clock_ahead.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", &format!("-DAHEAD_MS={milliseconds}LL"), "-o"])
            .args([clock.library(), source])
            .status();
        assert!(compiled.unwrap().success());
        Some(clock)
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("clock.so")
    }

    /// What a program's environment needs.
    fn variable(&self) -> (&'static str, String) {
        ("LD_PRELOAD", self.library().display().to_string())
    }
}
