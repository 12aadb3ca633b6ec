//! One customer sends the largest requests that are legal, as fast as they are answered, while another works as usual.
//!
//! The other customer's requests are all answered, and nothing that was acknowledged to it is lost. `make soak` also
//! judges how long they take, beside a time in which that customer is alone.

mod attack;
mod attackers;
mod customer;
#[cfg(target_os = "linux")]
mod slow_disk;

#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::time::Duration;

use self::attack::{Answers, Attack, Scale};
use self::attackers::{Attackers, Orders};
use self::customer::{Action, Customer, Work};
#[cfg(target_os = "linux")]
use self::slow_disk::{SYNC, SlowDisk};
#[cfg(target_os = "linux")]
use crate::database::OwnServer;
use crate::database::{Database, on_both_databases};
use crate::process::{Process, make_key};
use crate::soak::row;

on_both_databases! {
    another_customer_is_served_and_loses_nothing,
}

/// Most times that a request may take as long as without the hostile customer, at the 99th percentile.
const SLOWER: u32 = 20;
/// What a request may take in any case, at the 99th percentile.
const SHORT: Duration = Duration::from_millis(250);
/// One request in a thousand may take longer than this.
const LONG: Duration = Duration::from_secs(1);

/// The 99th percentile.
fn p99(took: &[Duration]) -> Duration {
    let mut took = took.to_vec();
    took.sort();
    took[took.len() * 99 / 100]
}

/// What the other customer's work took, alone and beside the hostile one.
struct Outcome {
    alone: Work,
    beside: Work,
    answers: Answers,
}

/// Lets one customer work alone, and then beside a hostile one, and looks for all that was acknowledged.
async fn run(
    database: Database,
    start: impl FnOnce(&str) -> Process,
    scale: Scale,
    attacks: &[Attack],
    time_alone: Duration,
    time_beside: Duration,
) -> Outcome {
    let usual_key = make_key(&database.url);
    let hostile_key = make_key(&database.url);
    let process = start(&database.url);
    let mut customer = Customer::new(&process, usual_key).await;
    attack::prepare(&process, hostile_key.clone(), &database, scale).await;

    // The preparation is not part of the attack.
    let orders = Orders { address: process.address(), key: hostile_key, attacks: attacks.to_vec(), scale };
    let mut attackers = Attackers::prepare(&orders);
    let (mut alone, mut beside) = (Work::default(), Work::default());
    customer.work(time_alone, &mut alone).await;
    attackers.begin();
    customer.work(time_beside, &mut beside).await;
    let answers = attackers.end();

    let mut all = Work { clicks: alone.clicks + beside.clicks, ..Work::default() };
    all.created = alone.created.union(&beside.created).cloned().collect();
    customer.assert_nothing_is_lost(&all).await;
    // Legal requests are answered, if only with a refusal; none is a failure of the service.
    let unexpected = answers.keys().filter(|status| ![200, 302, 404, 408, 503].contains(*status));
    assert_eq!(unexpected.collect::<Vec<_>>(), Vec::<&u16>::new(), "{answers:?}");
    Outcome { alone, beside, answers }
}

/// The short forms check answers, not times. Without optimisation and beside other tests, the other customer may send more than the
/// processors can answer, and then waits for itself.
const REQUEST_TIMEOUT: &str = "120";

fn patient(database: &str) -> Process {
    Process::start_with(database, &["--request-timeout", REQUEST_TIMEOUT])
}

async fn another_customer_is_served_and_loses_nothing(database: Database) {
    let scale = Scale { clicks: 2_000, connections: 1, idle: 50 };
    let (alone, beside) = (Duration::from_secs(1), Duration::from_secs(4));
    let outcome = run(database, patient, scale, &Attack::ALL, alone, beside).await;
    assert!(outcome.answers[&200] > 0 && outcome.answers[&302] > 0, "{:?}", outcome.answers);
}

#[cfg(target_os = "linux")]
async fn on_a_slow_disk(database: Database, start: impl FnOnce(&str) -> Process) {
    let scale = Scale { clicks: 2_000, connections: 1, idle: 50 };
    let (alone, beside) = (Duration::from_secs(1), Duration::from_secs(4));
    let outcome = run(database, start, scale, &Attack::ALL, alone, beside).await;
    assert!(outcome.answers[&200] > 0 && outcome.answers[&302] > 0, "{:?}", outcome.answers);
    let fastest = outcome.beside.took[&Action::Create].iter().min().unwrap();
    assert!(*fastest >= SYNC, "a link was created in {fastest:?}, before it was on the disk");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn another_customer_is_served_and_loses_nothing_on_a_slow_disk_on_sqlite() {
    let disk = SlowDisk::new();
    let start = |database: &str| {
        Process::start_prepared(database, |process| {
            disk.slow(process);
            process.env("WEIR_REQUEST_TIMEOUT", REQUEST_TIMEOUT);
        })
    };
    on_a_slow_disk(Database::sqlite(), start).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn another_customer_is_served_and_loses_nothing_on_a_slow_disk_on_postgresql() {
    let disk = Arc::new(SlowDisk::new());
    let of_server = Arc::clone(&disk);
    let (_server, database) = OwnServer::start_prepared(move |server| of_server.slow(server)).await;
    on_a_slow_disk(database, patient).await;
}

/// Writes a row with the times of `actions`, and judges them.
fn judge(what: &str, form: &str, outcome: &Outcome, actions: &[Action]) {
    let (mut figures, mut slow) = (Vec::new(), Vec::new());
    for action in actions {
        let (alone, beside) = (p99(&outcome.alone.took[action]), p99(&outcome.beside.took[action]));
        figures.push(format!("{action:?} {alone:.1?} became {beside:.1?}"));
        if beside > SHORT.max(SLOWER * alone) {
            slow.push(action);
        }
    }
    let took: Vec<Duration> =
        actions.iter().flat_map(|action| &outcome.beside.took[action]).copied().collect();
    let long = took.iter().filter(|took| **took > LONG).count();
    let figures = format!(
        "99th percentiles: {}; {long} of {} took longer than {LONG:?}, the longest {:.1?}; answers {:?}",
        figures.join(", "),
        took.len(),
        took.iter().max().unwrap(),
        outcome.answers
    );
    row(what, form, &figures);
    assert!(slow.is_empty(), "{slow:?} beside the hostile customer: {figures}");
    assert!(long * 1_000 <= took.len(), "{figures}");
}

async fn a_minute_of_the_largest_requests(name: &str, database: Database) {
    const TIME: Duration = Duration::from_secs(60);
    let scale = Scale { clicks: 200_000, connections: 4, idle: 500 };
    let outcome = run(database, Process::start, scale, &Attack::ALL, TIME, TIME).await;
    let form = format!("{name}, {} s alone and as long beside the other", TIME.as_secs());
    judge("a customer beside a hostile one", &form, &outcome, &Action::ALL);
    assert!(outcome.answers[&408] > 0, "no slow body was read until it took too long: {:?}", outcome.answers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
async fn another_customer_is_served_as_fast_on_sqlite() {
    a_minute_of_the_largest_requests("SQLite", Database::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
async fn another_customer_is_served_as_fast_on_postgresql() {
    a_minute_of_the_largest_requests("PostgreSQL", Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
async fn analytics_queries_and_a_deletion_stall_neither_authentication_nor_redirects() {
    const TIME: Duration = Duration::from_secs(30);
    let scale = Scale { clicks: 200_000, connections: 4, idle: 0 };
    let attacks = [Attack::Analytics, Attack::Events, Attack::Deletion];
    let outcome = run(Database::sqlite(), Process::start, scale, &attacks, TIME, TIME).await;
    let form = format!("{} clicks deleted, {} s alone and as long beside it", scale.clicks, TIME.as_secs());
    judge("analytics queries and a deletion", &form, &outcome, &[Action::Follow, Action::Read]);
}
