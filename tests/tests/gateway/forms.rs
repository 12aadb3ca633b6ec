//! Two versions of the filter under one `vm_id`, which keep what they count in different forms, over an update, roll-backs and a drain.
//! Each form has counts of its own, so a limit may be admitted twice in all, however often the versions alternate.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use host_sim::{Host, Module, Request, Response};
use serde_json::json;
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Updates, Upstream};
use tests::exchange::get;
use tests::gateway::{module, plugin};
use tests::policy::Policy;
use tests::{artifacts, clock};

const LIMIT: usize = 1000;
const SWITCHES: usize = 10;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Longer than the switches and the requests between them take.
const ROOM: Duration = Duration::from_secs(60);

fn policy() -> Policy {
    let policy = Policy::contract().unwrap().with_at("/plans/pro/standard", json!([format!("{LIMIT}/day")]));
    policy.subscriber("acme", "pro", "key")
}

/// Sends requests over a connection. How many were admitted.
fn send(client: &Client, requests: usize) -> usize {
    let statuses = (0..requests).map(|_| client.send(&get("/links").key("key")).unwrap().status());
    let statuses: Vec<_> = statuses.collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    statuses.into_iter().filter(|status| *status == 200).count()
}

const ROUTES: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";

/// An Envoy that answers by itself, but for requests to `/hang`: these stay open.
struct Gateway {
    envoy: Envoy,
    hanging: Vec<TcpStream>,
    /// Where `/hang` leads: connections are made by the kernel, and nothing is ever read from them.
    _silent: TcpListener,
}

impl Gateway {
    fn start(setup: Setup) -> Self {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let setup = Setup { upstream: Upstream::At(silent.local_addr().unwrap()), ..setup };
        let envoy = Envoy::start_amended(setup, |bootstrap, _| {
            *bootstrap.pointer_mut(ROUTES).unwrap() = json!([
                {"match": {"prefix": "/hang"}, "route": {"cluster": "backend", "timeout": "0s"}},
                {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
            ]);
            Ok(())
        });
        clock::wait_for_room(DAY, ROOM);
        Self { envoy: envoy.unwrap(), hanging: Vec::new(), _silent: silent }
    }

    /// Leaves a stream open, which holds the VM of the form in force.
    fn hang(&mut self) {
        let mut stream = TcpStream::connect(self.envoy.address()).unwrap();
        stream.write_all(b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        self.hanging.push(stream);
    }
}

/// What each of [`SWITCHES`] switches admits, and what was admitted before, over new connections and those that are open since earlier.
fn over_ten_switches(updates: Updates, [of_new, of_old]: [usize; 2]) -> Vec<usize> {
    let forms = [artifacts::filter_wasm(), artifacts::next_form_wasm()];
    // Old connections stay open for as long as the test takes.
    let setup = Setup::new(policy(), Upstream::Elsewhere).updates(updates).drain(Duration::from_secs(600));
    let mut gateway = Gateway::start(setup);
    let mut open: Vec<Client> = Vec::new();
    let mut admitted = Vec::new();
    for stage in 0..=SWITCHES {
        if stage > 0 {
            let form: &Path = forms[stage % 2];
            assert!(gateway.envoy.update_module(form).unwrap(), "switch {stage}");
        }
        gateway.hang();
        let new = Client::to(gateway.envoy.address()).unwrap();
        let of_stage = send(&new, of_new) + open.iter().map(|client| send(client, of_old)).sum::<usize>();
        open.push(new);
        admitted.push(of_stage);
    }
    admitted
}

fn assert_at_most_one_more_limit(updates: Updates) {
    let admitted = over_ten_switches(updates, [250, 40]);
    let sum: usize = admitted.iter().sum();
    // Both forms were asked for more than the limit.
    assert_eq!(sum, 2 * LIMIT, "{admitted:?}");
    // And the last switches, to forms that are used up, admit nothing.
    assert_eq!(admitted[SWITCHES - 1..], [0, 0], "{admitted:?}");
}

#[test]
fn ten_switches_of_a_listener_with_old_connections_admit_at_most_one_more_limit() {
    assert_at_most_one_more_limit(Updates::Listener);
}

#[test]
fn ten_switches_of_the_extension_admit_at_most_one_more_limit() {
    assert_at_most_one_more_limit(Updates::Extension);
}

/// An Envoy with two forms of the filter, which differ in what is left of a key that both count.
struct TwoForms {
    gateway: Gateway,
    /// What the form in force has left of the key `probe`.
    left: u64,
}

impl TwoForms {
    fn start() -> Self {
        let policy = policy().subscriber("probe", "pro", "probe");
        let setup = Setup::new(policy, Upstream::Elsewhere).workers(1).live_updates();
        let mut forms = Self { gateway: Gateway::start(setup), left: LIMIT as u64 };
        // So much that the other form never has as much left.
        while forms.left > LIMIT as u64 / 2 {
            forms.left = forms.left_of("probe");
        }
        forms
    }

    fn left_of(&self, key: &str) -> u64 {
        let answer = self.gateway.envoy.send(&get("/links").key(key)).unwrap();
        answer.number("x-ratelimit-remaining").unwrap_or_else(|| panic!("{answer}"))
    }

    /// Puts another form into force.
    fn switch(&mut self, form: &Path) {
        self.gateway.hang();
        assert!(self.gateway.envoy.update_module(form).unwrap());
        // Workers take an update a moment later.
        loop {
            let before = self.left;
            self.left = self.left_of("probe");
            if self.left + 1 != before {
                return;
            }
        }
    }
}

#[test]
fn a_roll_back_finds_its_old_counts() {
    let mut forms = TwoForms::start();
    assert_eq!([forms.left_of("key"), forms.left_of("key")], [999, 998]);
    //  the form, and what is left after one more request
    let rows = [
        (artifacts::next_form_wasm(), 999),
        (artifacts::filter_wasm(), 997),
        (artifacts::next_form_wasm(), 998),
        (artifacts::filter_wasm(), 996),
    ];
    for (switch, (form, expected)) in rows.into_iter().enumerate() {
        forms.switch(form);
        assert_eq!(forms.left_of("key"), expected, "switch {}", switch + 1);
    }
}

fn simulated() -> Request {
    Request::get("/links").header("authorization", "Bearer key")
}

#[test]
fn in_the_simulator_ten_switches_with_open_streams_admit_exactly_one_more_limit() {
    const WORKERS: usize = 4;
    let next = artifacts::compiled(&std::fs::read(artifacts::next_form_wasm()).unwrap()).unwrap();
    let forms: [&Module; 2] = [module(), &next];
    let mut host = Host::builder().workers(WORKERS).build();
    host.load(forms[0], plugin(&policy())).unwrap();
    let mut open = Vec::new();
    let mut admitted = [0; SWITCHES + 1];
    let mut lefts = Vec::new();
    for (stage, admitted) in admitted.iter_mut().enumerate() {
        if stage > 0 {
            host.replace_chain([(forms[stage % 2], plugin(&policy()))]).unwrap();
        }
        let jobs = (0..300).map(|request| (request % WORKERS, simulated()));
        let outcomes = host.interleave(stage as u64, jobs, |_| Response::ok());
        *admitted = outcomes.iter().filter(|outcome| outcome.status() == 200).count();
        // It keeps the VM of its form.
        let stream = host.worker(stage % WORKERS).stream(&simulated(), true);
        *admitted += usize::from(stream.is_forwarded());
        open.push(stream);
        let left = outcomes
            .iter()
            .filter_map(|outcome| outcome.header("x-ratelimit-remaining")?.parse::<usize>().ok());
        lefts.push(left.min());
    }
    assert_eq!(admitted.iter().sum::<usize>(), 2 * LIMIT, "{admitted:?}");
    // Each form goes on where it was left.
    assert_eq!(lefts[..6], [700, 700, 399, 399, 98, 98].map(Some), "{admitted:?}");
    for mut stream in open.into_iter().filter(host_sim::Stream::is_forwarded) {
        stream.respond(Response::ok());
        assert!(stream.finish().header("x-ratelimit-remaining").is_some());
    }
}
