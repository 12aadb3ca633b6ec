use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::config::digest;
use crate::count::counters::CounterHost;
use crate::count::shared_data::{Cas, SharedData, Swap, VmLocalData};
use crate::fleet::protocol::tests::{Received, receive};
use crate::request::header_pairs::serialize;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
/// The start of a minute.
const START: u64 = 1_700_000_040 * SECOND;
/// The fleet's default.
const TIMEOUT: u64 = 250 * MILLISECOND;
/// A stream whose client has gone away.
const GONE: u32 = u32::MAX;
/// Of those who waited, none was decided on.
const NOBODY: [u16; 0] = [];

/// A worker's host: shared data of its gateway, its clock, and the calls that it has made.
struct Worker {
    data: Rc<RefCell<VmLocalData>>,
    now: Rc<Cell<u64>>,
    /// Nanoseconds that this gateway's clock is ahead.
    ahead: i64,
    calls: Vec<(u32, Received)>,
    next_call: u32,
    sends: bool,
    tells_time: bool,
}

impl SharedData for Worker {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.data.borrow_mut().get(name)
    }
    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.data.borrow_mut().set(name, value, cas)
    }
}

impl CounterHost for Worker {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        match self.tells_time {
            true => Ok(Timestamp::from_nanos(self.now.get().saturating_add_signed(self.ahead))),
            false => Err(HostError { call: "proxy_get_current_time_nanoseconds", status: 10 }),
        }
    }
}

impl Host for Worker {
    fn property(&mut self, _: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
        Ok(None)
    }
    fn random(&mut self) -> Result<[u8; 16], HostError> {
        Ok([7; 16])
    }
    fn log(&mut self, _: LogLevel, _: fmt::Arguments<'_>) {}
}

impl FleetHost for Worker {
    fn call(&mut self, _: &FleetSettings, message: &[u8]) -> Result<u32, HostError> {
        if !self.sends {
            return Err(HostError { call: "proxy_http_call", status: 2 });
        }
        self.next_call += 1;
        self.calls.push((self.next_call, receive(message)));
        Ok(self.next_call)
    }
    fn lives(&mut self, stream: u32) -> bool {
        stream != GONE
    }
}

struct Vm {
    limiter: Limiter,
    fleet: Fleet,
    host: Worker,
}

/// envoyproxy/ratelimit's algorithm: it adds first, and then looks at the limit.
#[derive(Default)]
struct Service {
    counters: HashMap<(Vec<(String, String)>, u64), u64>,
    calls: u64,
}

impl Service {
    fn answer(&mut self, received: &Received, now: u64) -> Response {
        self.calls += 1;
        let (limit, unit) = received.limit.unwrap();
        let length = [0, 1, 60, 3600, 86_400][usize::try_from(unit).unwrap()];
        let seconds = now / SECOND;
        let used = self.counters.entry((received.entries.clone(), seconds / length)).or_default();
        *used += received.units;
        Response {
            over_limit: *used > limit,
            left: Some(u32::try_from(limit.saturating_sub(*used)).unwrap()),
            until_reset: Some(length - seconds % length),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrives,
    IsServed(u32),
    IsAnswered(u32),
    TimesOut(u32),
    Ticks,
}

/// What is under way between a worker and the service, by the worker's gateway and place and the call.
type InFlight = HashMap<((usize, usize), u32), (Received, Option<Response>)>;

/// When, in which order, at which gateway and worker, and what.
type Event = (u64, u64, (usize, usize), What);

/// Gateways of some workers each, one service, and what became of the requests of one key.
struct World {
    now: Rc<Cell<u64>>,
    gateways: Vec<Vec<Vm>>,
    service: Service,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    in_flight: InFlight,
    /// By the minute that it was at the gateway.
    admitted: BTreeMap<u64, u64>,
    /// By status.
    refused: BTreeMap<u16, u64>,
    /// Milliseconds from gateway to service, and as many back, drawn from this range.
    way: std::ops::Range<u64>,
    /// One of so many messages is lost.
    loses_one_of: Option<u64>,
    random: u64,
    waiting: usize,
    next_stream: u32,
}

fn config(fields: &str) -> Arc<Config> {
    let hash = digest(b"key").map(|byte| format!("{byte:02x}")).concat();
    let json = format!(
        r#"{{"plans": {{"pro": {{"standard": ["600/minute"]}}}}, "subscribers": [{{"id": "s", "plan": "pro", "keys": ["sha256:{hash}"]}}],
            "fleet": {{"cluster": "ratelimit"{fields}}}}}"#
    );
    Arc::new(Config::from_json(json.as_bytes()).unwrap())
}

impl World {
    fn new(gateways: usize, workers: usize, fields: &str) -> Self {
        let (now, config) = (Rc::new(Cell::new(START)), config(fields));
        let gateway = |_| {
            let data = Rc::new(RefCell::new(VmLocalData::default()));
            let worker = |_| Vm {
                limiter: Limiter::new(Arc::clone(&config)),
                fleet: Fleet::new(true),
                host: Worker {
                    data: Rc::clone(&data),
                    now: Rc::clone(&now),
                    ahead: 0,
                    calls: Vec::new(),
                    next_call: 0,
                    sends: true,
                    tells_time: true,
                },
            };
            (0..workers).map(worker).collect()
        };
        Self {
            gateways: (0..gateways).map(gateway).collect(),
            now,
            service: Service::default(),
            events: BinaryHeap::new(),
            order: 0,
            in_flight: HashMap::new(),
            admitted: BTreeMap::new(),
            refused: BTreeMap::new(),
            way: 1..2,
            loses_one_of: None,
            random: 0x9E37_79B9_7F4A_7C15,
            waiting: 0,
            next_stream: 0,
        }
    }

    /// A number below `bound`, by xorshift.
    fn random(&mut self, bound: u64) -> u64 {
        for (left, by) in [(true, 13), (false, 7), (true, 17)] {
            self.random ^= if left { self.random << by } else { self.random >> by };
        }
        self.random % bound
    }

    fn at(&mut self, when: u64, vm: (usize, usize), what: What) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, vm, what)));
    }

    /// Requests at a rate per second to a gateway, for some seconds from `start`, its workers in turn.
    fn offer(&mut self, gateway: usize, rate: u64, start: u64, seconds: u64) {
        let workers = u64::try_from(self.gateways[gateway].len()).unwrap();
        for place in 0..rate * seconds {
            let worker = usize::try_from(place % workers).unwrap();
            self.at(start + place * SECOND / rate, (gateway, worker), What::Arrives);
        }
    }

    /// Goes on until nothing happens any more.
    fn run(&mut self) {
        while let Some(Reverse((when, _, vm, what))) = self.events.pop() {
            self.now.set(when);
            let way = self.way.start + self.random(self.way.end - self.way.start);
            let is_lost = self.loses_one_of.is_some_and(|many| self.random(many) == 0);
            let Vm { limiter, fleet, host } = &mut self.gateways[vm.0][vm.1];
            match what {
                What::Arrives => self.arrive(vm, 0),
                What::IsServed(call) => {
                    // The gateway may have given up; the service does not know.
                    if let Some((received, response)) = self.in_flight.get_mut(&(vm, call)) {
                        *response = Some(self.service.answer(received, when));
                        if !is_lost {
                            self.at(when + way * MILLISECOND, vm, What::IsAnswered(call));
                        }
                    }
                }
                What::IsAnswered(call) => {
                    if let Some((_, response)) = self.in_flight.remove(&(vm, call)) {
                        fleet.answer(host, limiter, call, response.ok_or(Unusable::None));
                    }
                }
                What::TimesOut(call) => {
                    if self.in_flight.remove(&(vm, call)).is_some() {
                        fleet.answer(host, limiter, call, Err(Unusable::None));
                    }
                }
                What::Ticks => fleet.tick(host, limiter),
            }
            self.look_at(vm);
        }
        assert_eq!(self.waiting, 0, "nobody waits for ever");
    }

    /// A request on `stream`, or on the next one for 0.
    fn arrive(&mut self, vm: (usize, usize), stream: u32) {
        let Vm { limiter, fleet, host } = &mut self.gateways[vm.0][vm.1];
        let headers = serialize(&[(":method", b"GET"), (":path", b"/"), ("authorization", b"Bearer key")]);
        let mut verdict = limiter.decide(host, &headers);
        if let Some(wanted) = verdict.lease.take() {
            let waits = wanted.waits;
            self.next_stream += 1;
            let stream = if stream == 0 { self.next_stream } else { stream };
            fleet.want(host, limiter, *wanted, Some(Waiting { stream, is_grpc: false, has_origin: false }));
            if waits {
                self.waiting += usize::from(stream != GONE);
                return;
            }
        }
        self.count(vm.0, &verdict);
    }

    fn count(&mut self, gateway: usize, verdict: &Verdict) {
        let now = self.now.get().saturating_add_signed(self.gateways[gateway][0].host.ahead);
        match &verdict.reply {
            None => *self.admitted.entry(now / MINUTE).or_default() += 1,
            Some(reply) => *self.refused.entry(reply.status).or_default() += 1,
        }
    }

    /// Sees to what a worker has sent and decided.
    fn look_at(&mut self, vm: (usize, usize)) {
        let worker = &mut self.gateways[vm.0][vm.1];
        let calls = std::mem::take(&mut worker.host.calls);
        let parked = !worker.fleet.parked.is_empty();
        for (_, verdict) in worker.fleet.decided() {
            self.waiting -= 1;
            self.count(vm.0, &verdict);
        }
        for (call, received) in calls {
            self.in_flight.insert((vm, call), (received, None));
            let way = self.way.start + self.random(self.way.end - self.way.start);
            let is_lost = self.loses_one_of.is_some_and(|many| self.random(many) == 0);
            if !is_lost {
                self.at(self.now.get() + way * MILLISECOND, vm, What::IsServed(call));
            }
            self.at(self.now.get() + TIMEOUT, vm, What::TimesOut(call));
        }
        if parked {
            self.at(self.now.get() + TIMEOUT, vm, What::Ticks);
        }
    }

    fn most_admitted(&self) -> u64 {
        self.admitted.values().copied().max().unwrap_or(0)
    }
}

/// Minutes of demand for `times` the limit, over gateways that get parts of it in turn.
fn demand(world: &mut World, minutes: u64, times: u64, parts: [u64; 2]) {
    let gateways = world.gateways.len();
    let sum: u64 = (0..gateways).map(|gateway| parts[gateway % 2]).sum();
    for gateway in 0..gateways {
        let rate = (10 * times * parts[gateway % 2]).div_ceil(sum);
        world.offer(gateway, rate, START, minutes * 60);
    }
    world.run();
}

#[test]
fn a_fleet_admits_its_limit_and_no_more_with_few_calls() {
    println!("gateways workers shares demand  admitted of the limit  calls per 1,000");
    for (gateways, workers, calls_at_most) in
        [(1, 1, 12.0), (1, 2, 13.0), (2, 1, 19.0), (2, 2, 20.0), (4, 2, 33.0)]
    {
        let (mut calls, mut admitted, mut windows) = (0, 0, 0);
        for parts in [[1, 1], [2, 1], [10, 1]] {
            for times in [2, 10, 100] {
                let mut world = World::new(gateways, workers, "");
                demand(&mut world, 3, times, parts);
                assert!(
                    world.most_admitted() <= 600,
                    "{gateways} {workers} {parts:?} {times}: {:?}",
                    world.admitted
                );
                let sum: u64 = world.admitted.values().sum();
                println!(
                    "{gateways:8} {workers:7} {:>6} {times:5} x  {:20.1} %  {:15.1}",
                    format!("{}:{}", parts[0], parts[1]),
                    sum as f64 / 18.0,
                    world.service.calls as f64 * 1e3 / sum as f64
                );
                (calls, admitted, windows) = (calls + world.service.calls, admitted + sum, windows + 3);
            }
        }
        assert!(admitted as f64 >= 0.95 * 600.0 * f64::from(windows), "{gateways} gateways admit {admitted}");
        let calls = calls as f64 * 1e3 / admitted as f64;
        assert!(calls <= calls_at_most, "{gateways} gateways of {workers}: {calls} calls per 1,000");
    }
}

#[test]
fn a_slow_key_takes_little_more_than_it_uses() {
    // One request in ten seconds at each of ten gateways: far from the limit, nobody is refused.
    let mut world = World::new(10, 2, "");
    for gateway in 0..10 {
        for place in 0..18 {
            world.at(START + place * 10 * SECOND, (gateway, 0), What::Arrives);
        }
    }
    world.run();
    assert_eq!((world.admitted.values().sum::<u64>(), world.refused.len()), (180, 0));
    assert!(
        world.service.counters.values().all(|taken| *taken <= 120),
        "{:?}",
        world.service.counters.values()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_lost_late_or_out_of_order_no_window_admits_more_than_the_limit(
        gateways in 1_usize..6, workers in 1_usize..4, times in 1_u64..20, seed: u64, slowest in 2_u64..400,
        loses in prop::option::of(2_u64..50), ahead in prop::collection::vec(-900_i64..900, 6),
    ) {
        let mut world = World::new(gateways, workers, r#", "on_unavailable": "deny""#);
        (world.way, world.loses_one_of, world.random) = (1..slowest, loses, seed | 1);
        for (gateway, ahead) in world.gateways.iter_mut().zip(&ahead) {
            for worker in gateway {
                worker.host.ahead = ahead * 1_000_000;
            }
        }
        demand(&mut world, 3, times, [3, 1]);
        prop_assert!(world.most_admitted() <= 600, "{:?}", world.admitted);
    }
}

#[test]
fn while_the_service_does_not_answer_each_gateway_does_what_it_is_told_to() {
    let rows = [
        // admitted in the first minute, of 2,400; by two gateways of two workers
        (r#", "on_unavailable": "local", "local_percent": 10"#, 120, Some(429)),
        (r#", "on_unavailable": "local", "local_percent": 50"#, 600, Some(429)),
        (r#", "on_unavailable": "allow""#, 2400, None),
        (r#", "on_unavailable": "deny""#, 0, Some(503)),
    ];
    for (fields, admitted, refusal) in rows {
        // It is there and silent, or the host does not send anything.
        for sends in [true, false] {
            let mut world = World::new(2, 2, fields);
            world.loses_one_of = Some(1);
            for worker in world.gateways.iter_mut().flatten() {
                worker.host.sends = sends;
            }
            demand(&mut world, 1, 4, [1, 1]);
            let (first, _) =
                world.admitted.iter().next().map_or((START / MINUTE, 0), |(minute, count)| (*minute, *count));
            let of_first = world.admitted.get(&first).copied().unwrap_or(0);
            assert_eq!(of_first, admitted, "{fields} {sends}: {:?}", world.admitted);
            assert_eq!(
                world.refused.keys().copied().next(),
                refusal,
                "{fields} {sends}: {:?}",
                world.refused
            );
        }
    }
}

#[test]
fn a_service_that_does_not_answer_is_asked_ever_less_often_and_used_again_when_it_does() {
    let mut world = World::new(1, 1, r#", "on_unavailable": "deny""#);
    world.loses_one_of = Some(1);
    demand(&mut world, 1, 10, [1, 1]);
    let calls = world.gateways[0][0].host.next_call;
    assert!((5..=15).contains(&calls), "{calls} calls in a minute");
    world.loses_one_of = None;
    world.offer(0, 100, START + 2 * MINUTE, 60);
    world.run();
    assert_eq!(world.admitted.get(&(START / MINUTE + 2)), Some(&600));
}

/// One worker's request that finds nothing leased, and the call it makes.
fn ask_once(world: &mut World, stream: u32) -> (u32, Received) {
    world.arrive((0, 0), stream);
    let calls = std::mem::take(&mut world.gateways[0][0].host.calls);
    calls.into_iter().next().expect("a call")
}

fn granted(left: u32, until_reset: u64) -> Response {
    Response { over_limit: false, left: Some(left), until_reset: Some(until_reset) }
}

fn answer(world: &mut World, call: u32, response: Response) -> Vec<u16> {
    let Vm { limiter, fleet, host } = &mut world.gateways[0][0];
    fleet.answer(host, limiter, call, Ok(response));
    fleet
        .decided()
        .iter()
        .map(|(_, verdict)| verdict.reply.as_ref().map_or(0, |reply| reply.status))
        .collect()
}

#[test]
fn a_lease_is_kept_when_the_one_who_waited_for_it_has_gone() {
    let mut world = World::new(1, 1, "");
    let (call, received) = ask_once(&mut world, GONE);
    assert_eq!(received.units, 3);
    assert_eq!(answer(&mut world, call, granted(597, 60)), NOBODY);
    // All three units are there, for the one who went away has used none.
    for _ in 0..3 {
        world.arrive((0, 0), 0);
        assert_eq!(world.waiting, 0);
    }
    assert_eq!(world.admitted.values().sum::<u64>(), 3);
}

#[test]
fn those_who_wait_for_one_lease_are_all_decided_on_when_it_comes() {
    let mut world = World::new(1, 1, "");
    let (call, _) = ask_once(&mut world, 0);
    for _ in 0..4 {
        world.arrive((0, 0), 0);
    }
    assert!(world.gateways[0][0].host.calls.is_empty(), "one call for all of them");
    // Three units for five: the last two ask again, once.
    assert_eq!(answer(&mut world, call, granted(597, 60)), [0; 3]);
    let (again, received) = world.gateways[0][0].host.calls.pop().unwrap();
    assert!(received.units >= 2);
    assert_eq!(answer(&mut world, again, granted(500, 60)), [0; 2]);
}

#[test]
fn an_answer_for_another_window_grants_nothing() {
    let rows = [
        // asked and answered, in milliseconds; seconds until reset as the service sees it
        ("the window has ended", 59_900, 60_010, 1),
        ("the service is still in the window before", 10, 20, 1),
        ("the service is in the next window already", 59_900, 59_910, 60),
    ];
    for (what, asked, answered, until_reset) in rows {
        let mut world = World::new(1, 1, "");
        world.now.set(START + asked * MILLISECOND);
        let (call, _) = ask_once(&mut world, 0);
        world.now.set(START + answered * MILLISECOND);
        assert_eq!(answer(&mut world, call, granted(590, until_reset)), NOBODY, "{what}");
        let Vm { limiter, fleet, host } = &mut world.gateways[0][0];
        fleet.tick(host, limiter);
        assert_eq!(host.calls.len(), 1, "{what}: it is asked for again");
    }
}

#[test]
fn without_ticks_nobody_waits_for_a_clock() {
    //  on_unavailable  whether the request is admitted
    for (without, admitted) in [("allow", true), ("deny", false)] {
        let mut world = World::new(1, 1, &format!(r#", "on_unavailable": "{without}""#));
        world.gateways[0][0].fleet = Fleet::new(false);
        world.now.set(START + 10 * MILLISECOND);
        let (call, _) = ask_once(&mut world, 0);
        let statuses = answer(&mut world, call, granted(590, 1));
        assert_eq!(statuses.iter().map(|status| *status == 0).collect::<Vec<_>>(), [admitted], "{without}");
    }
}

#[test]
fn a_service_that_says_nothing_of_what_is_left_is_asked_for_ever_less_until_one_is_refused() {
    let mut world = World::new(1, 1, "");
    let silent = |over_limit| Response { over_limit, left: None, until_reset: None };
    let (mut call, received) = ask_once(&mut world, 0);
    let mut asked = vec![received.units];
    while answer(&mut world, call, silent(true)).is_empty() {
        let (next, received) = world.gateways[0][0].host.calls.pop().unwrap();
        call = next;
        asked.push(received.units);
    }
    assert!(asked.is_sorted_by(|before, after| before > after), "{asked:?}");
    assert_eq!(asked.last(), Some(&1));
}

#[test]
fn headers_tell_what_the_whole_fleet_has_left() {
    let mut world = World::new(1, 1, "");
    let (call, received) = ask_once(&mut world, 0);
    let Vm { limiter, fleet, host } = &mut world.gateways[0][0];
    // Others have taken 400.
    fleet.answer(host, limiter, call, Ok(granted(200 - u32::try_from(received.units).unwrap(), 60)));
    let (_, verdict) = fleet.decided().pop().unwrap();
    let x = verdict.report.unwrap().x_ratelimit(crate::config::LimitHeader::PerWindow).unwrap();
    assert_eq!((x.limit, x.remaining), (600, 199));
}

#[test]
fn a_host_that_does_not_tell_the_time_for_once_keeps_nobody_from_asking_again() {
    let mut world = World::new(1, 1, r#", "on_unavailable": "deny""#);
    let (call, _) = ask_once(&mut world, 0);
    let Vm { limiter, fleet, host } = &mut world.gateways[0][0];
    fleet.answer(host, limiter, call, Err(Unusable::None));
    assert_eq!(fleet.decided().len(), 1);
    // The one call that tries whether the service is back.
    world.now.set(world.now.get() + SECOND);
    let (call, _) = ask_once(&mut world, 0);
    world.gateways[0][0].host.tells_time = false;
    assert_eq!(answer(&mut world, call, granted(597, 59)), [503]);
    world.gateways[0][0].host.tells_time = true;
    world.now.set(world.now.get() + 10 * SECOND);
    let (call, _) = ask_once(&mut world, 0);
    assert_eq!(answer(&mut world, call, granted(597, 49)), [0]);
}
