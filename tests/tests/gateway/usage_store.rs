//! What the backend keeps of two gateways' usage is what they admitted, whatever becomes of the backend meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::backend::{CreatedKey, Directory, Service};
use tests::client::Client;
use tests::collector::{CLUSTER, Usage, Used};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{get, post};
use tests::gateway::wait_for_directory;
use tests::receiver::Receiver;
use tests::way::Way;
use tests::{clock, flood, soak};

use crate::usage::{policy, send, sum, upstream};

const PATIENCE: Duration = Duration::from_secs(120);
/// Longer to the backend and back than a gateway waits for its answer, and shorter to the backend alone.
const TOO_LONG: Duration = Duration::from_millis(1200);
/// Requests of a gateway after the last disturbance, of all subscribers and kinds.
const LAST: usize = 2_400;

/// How long a check takes.
struct Form {
    /// For so long at least, the backend is killed and started again, again and again.
    kills: Duration,
    /// For so long it is away at last.
    away: Duration,
}

/// The month of the quotas and of the export.
fn month() -> String {
    let now = Timestamp::from_second(clock::now().as_secs().try_into().unwrap()).unwrap();
    now.strftime("%Y-%m").to_string()
}

/// What the backend has, by subscriber and class.
fn exported(service: &Service, months: &BTreeSet<String>) -> Usage {
    let mut usage = Usage::new();
    for month in months {
        let rows = service.exported_usage(month).unwrap();
        for row in rows.as_array().unwrap() {
            let text = |field: &str| row[field].as_str().unwrap().to_owned();
            let number = |field: &str| row[field].as_u64().unwrap();
            let used =
                Used { requests: number("requests"), units: number("units"), refused: number("refused") };
            usage = sum(usage, Usage::from([((text("subscriber"), text("class")), used)]));
        }
    }
    usage
}

/// Two gateways before a backend, and the way to its internal listener.
struct World {
    service: Service,
    /// Whose key is the backend's. All others are subscribers of the configuration.
    customer: CreatedKey,
    way: Way,
    gateways: [Envoy; 2],
    months: BTreeSet<String>,
}

impl World {
    fn start(api: SocketAddr) -> Self {
        let service = Service::start().unwrap();
        let customer = service.create_key("pro").unwrap();
        let way = Way::to(service.directory().address, Duration::ZERO).unwrap();
        let directory = Directory { address: way.address(), ..service.directory() };
        let to = |path: &str| json!({"cluster": CLUSTER, "path": path, "interval": "1s", "bearer": directory.token});
        let policy = policy().with("directory", to("/internal/keys")).with("usage", to("/internal/usage"));
        let gateways = [(); 2].map(|()| {
            let setup = Setup::new(policy.clone(), Upstream::At(api)).keys_from(directory.clone());
            Envoy::start(setup.workers(4)).unwrap()
        });
        gateways.iter().for_each(|gateway| wait_for_directory(gateway));
        Self { service, customer, way, gateways, months: BTreeSet::from([month()]) }
    }

    fn exported(&self) -> Usage {
        exported(&self.service, &self.months)
    }

    /// Waits until the backend has more than it had.
    fn wait_for_more(&self) {
        let before = self.exported();
        clock::eventually("more usage", PATIENCE, || (self.exported() != before).then_some(())).unwrap();
    }

    fn kill(&mut self) {
        self.service.backend.stop();
    }

    fn restart(&mut self) {
        let id = self.service.backend.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        kill_process(id.unwrap(), Signal::TERM).unwrap();
        self.service.backend.wait().unwrap();
        self.service.backend.start_again().unwrap();
    }

    /// Lets happen to the backend what may. Returns how often it was killed.
    fn disturb(&mut self, form: &Form) -> usize {
        let (mut kills, started) = (0, clock::now());
        loop {
            self.wait_for_more();
            self.kill();
            kills += 1;
            self.service.backend.start_again().unwrap();
            self.wait_for_more();
            self.restart();
            if clock::now() - started >= form.kills {
                break;
            }
        }
        // It takes batches, but no gateway waits for the answers, so they come again.
        self.way.take(TOO_LONG);
        self.way.reset();
        self.wait_for_more();
        self.way.take(Duration::ZERO);
        self.way.reset();
        self.wait_for_more();
        self.kill();
        clock::pass(form.away);
        self.service.backend.start_again().unwrap();
        self.wait_for_more();
        kills + 1
    }
}

/// Ends floods, also when the test fails while they go on.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A caller's requests of the class standard, more than it may send. Returns what is to be reported of them.
fn reach_the_limit(gateway: SocketAddr, caller: &CreatedKey) -> Usage {
    let requests = [(); 10].map(|()| ((), get("/links").key(&caller.key)));
    let answers = flood::send(gateway, 2, requests).unwrap();
    assert_eq!(answers, BTreeMap::from([(((), 200), 8), (((), 429), 2)]));
    let used = Used { requests: 8, units: 8, refused: 2 };
    Usage::from([((caller.id.clone(), "standard".to_owned()), used)])
}

fn assert_kept(what: &str, form: &Form) {
    let upstream = upstream();
    let mut world = World::start(upstream.address());
    let receiver = Receiver::start().unwrap();
    let webhook = json!({"name": "warnings", "url": receiver.url(), "triggers": ["usage.threshold_reached"]});
    let made = Client::to(world.service.address()).unwrap();
    let made = made.send(&post("/webhooks").json(&webhook).key(&world.customer.key)).unwrap();
    assert_eq!(made.status(), 201, "{made}");
    let secret = made.json().unwrap()["secret"].as_str().unwrap().to_owned();
    let addresses = [0, 1].map(|gateway| world.gateways[gateway].address());
    let (mut admitted, kills) = std::thread::scope(|scope| {
        let ends = Ends(Arc::default());
        let floods = addresses.map(|address| {
            let ends = Arc::clone(&ends.0);
            scope.spawn(move || send(address, (0..).take_while(move |_| !ends.load(Ordering::SeqCst))))
        });
        let limited = addresses.map(|address| reach_the_limit(address, &world.customer));
        let kills = world.disturb(form);
        drop(ends);
        let flooded = floods.into_iter().map(|flood| flood.join().unwrap());
        (limited.into_iter().chain(flooded).fold(Usage::new(), sum), kills)
    });
    // Each worker has a batch taken before it sends the next, so once these are reported, nothing is left that might come again.
    for address in addresses {
        admitted = sum(admitted, send(address, 0..LAST));
    }
    world.months.insert(month());
    let agrees = || (world.exported() == admitted).then_some(());
    if let Err(error) = clock::eventually("the usage", PATIENCE, agrees) {
        let exported = world.exported();
        let different = admitted.iter().filter(|(of, used)| exported.get(*of) != Some(*used));
        let different: Vec<_> = different.map(|(of, used)| (of, used, exported.get(of))).collect();
        panic!("{error:#}: of {}, admitted and exported {different:?}", admitted.len());
    }
    for gateway in &world.gateways {
        assert_eq!(gateway.stat("wasmcustom.weir.usage.lost_total").unwrap(), 0);
    }

    // A delivery may be heard again after a kill, under the same id.
    let told = || {
        let deliveries = receiver.wait_for(0, Duration::ZERO).unwrap();
        let events = deliveries.iter().map(|delivery| delivery.verify(&secret).unwrap());
        events.map(|event| (event["id"].to_string(), event)).collect::<BTreeMap<String, Value>>()
    };
    clock::eventually("the warnings", PATIENCE, || (told().len() >= 2).then_some(())).unwrap();
    let mut shares: Vec<_> = told().values().map(|event| event["data"]["share"].as_u64().unwrap()).collect();
    shares.sort_unstable();
    assert_eq!(shares, [80, 100], "{:?}", told());

    let requests: u64 = admitted.values().map(|used| used.requests).sum();
    soak::row(
        "usage that the backend has of two gateways with four workers each, killed and restarted again and again, and away",
        what,
        format!("{requests} requests admitted and exported, {kills} kills"),
    );
}

#[test]
fn the_export_is_what_gateways_admitted_while_the_backend_is_killed_restarted_and_away() {
    assert_kept("short", &Form { kills: Duration::ZERO, away: Duration::from_secs(3) });
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn the_export_is_what_gateways_admitted_in_a_minute() {
    let form = Form { kills: Duration::from_secs(40), away: Duration::from_secs(20) };
    assert_kept("a minute of load, and 20 s without the backend", &form);
}
