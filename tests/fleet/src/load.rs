//! Requests of many keys, offered to all gateways of a fleet, and what came of them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tests::client::Connection;
use tests::clock;
use tests::exchange::get;
use tests::policy::hash;
use tokio::task::JoinSet;

use crate::Fleet;

/// Time that a measurement leaves at the end of its window, for the last answers and for clocks that are read one after the other.
const MARGIN: Duration = Duration::from_secs(1);

/// The key with this number.
#[must_use]
pub fn key(number: usize) -> String {
    format!("key-{number}")
}

/// That many subscribers with a key each, for the filter's configuration.
#[must_use]
pub fn subscribers(keys: usize, plan: &str) -> Value {
    (0..keys)
        .map(|number| json!({"id": format!("subscriber-{number}"), "plan": plan, "keys": [hash(&key(number))]}))
        .collect()
}

/// A configuration with one plan of one quota for that many subscribers, with the field `fleet` unless it is null.
#[must_use]
pub fn configuration(keys: usize, quota: &str, fleet: &Value) -> Value {
    let mut configuration = json!({
        "plans": {"pro": {"standard": [quota]}},
        "subscribers": subscribers(keys, "pro"),
    });
    if !fleet.is_null() {
        configuration["fleet"] = fleet.clone();
    }
    configuration
}

/// How fast requests are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So many a second, to all gateways together. A connection whose turn comes while it waits for an answer sends late.
    PerSecond(u32),
    /// The next as soon as the last is answered, on each connection.
    Unbounded,
}

/// What to offer.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Keys, which take turns; each comes to all gateways alike.
    pub keys: usize,
    /// How fast.
    pub pace: Pace,
    /// For how long. At most a window without its last second, or several windows from the start of one.
    pub lasting: Duration,
    /// Connections to each gateway.
    pub connections: usize,
    /// The window of the quota, by which answers are counted.
    pub window: Duration,
}

impl Load {
    /// By the minute, over eight connections to each gateway.
    #[must_use]
    pub fn new(keys: usize, pace: Pace, lasting: Duration) -> Self {
        Self { keys, pace, lasting, connections: 8, window: Duration::from_secs(60) }
    }

    /// Waits until enough of the window is left, offers it to `fleet`, and tells what came of it.
    ///
    /// # Errors
    /// When a gateway leaves a request without an answer.
    pub fn offer(self, fleet: &Fleet) -> anyhow::Result<Seen> {
        let gateways: Vec<_> = fleet.gateways.iter().map(tests::envoy::Envoy::address).collect();
        clock::wait_for_room(self.window, (self.lasting + MARGIN).min(self.window));
        let before = fleet.service.calls();
        let mut seen = self.offer_to(&gateways)?;
        seen.calls = fleet.service.calls() - before;
        Ok(seen)
    }

    /// Offers it now, to anything that speaks HTTP.
    ///
    /// # Errors
    /// When a request stays without an answer.
    pub fn offer_to(self, gateways: &[SocketAddr]) -> anyhow::Result<Seen> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let started = clock::now();
            let mut senders = JoinSet::new();
            for (place, gateway) in gateways.iter().enumerate() {
                let turns = Arc::new(AtomicU64::new(0));
                let schedule = Schedule { load: self, started, gateways: gateways.len(), place };
                for _ in 0..self.connections {
                    senders.spawn(schedule.send(*gateway, Arc::clone(&turns)));
                }
            }
            let mut all = Seen::default();
            while let Some(seen) = senders.join_next().await {
                all.add(seen.context("a sender panicked")??);
            }
            all.took = clock::now().saturating_sub(started);
            Ok(all)
        })
    }
}

/// Which request goes to a gateway when.
#[derive(Clone, Copy)]
struct Schedule {
    load: Load,
    started: Duration,
    gateways: usize,
    place: usize,
}

impl Schedule {
    /// When a gateway's turn is due, since the epoch.
    fn due(&self, turn: u64) -> Duration {
        match self.load.pace {
            Pace::Unbounded => self.started,
            Pace::PerSecond(rate) => {
                let among_all = turn as f64 * self.gateways as f64 + self.place as f64;
                self.started + Duration::from_secs_f64(among_all / f64::from(rate.max(1)))
            }
        }
    }

    /// One connection's part of the turns.
    async fn send(self, gateway: SocketAddr, turns: Arc<AtomicU64>) -> anyhow::Result<Seen> {
        let requests: Vec<_> = (0..self.load.keys).map(|number| get("/links").key(&key(number))).collect();
        let end = self.started + self.load.lasting;
        let window =
            |at: Duration| u64::try_from(at.as_nanos() / self.load.window.as_nanos()).unwrap_or(u64::MAX);
        let mut connection = Connection::to(gateway);
        let mut seen = Seen::default();
        loop {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            let now = clock::now();
            let due = self.due(turn);
            if due.max(now) >= end {
                return Ok(seen);
            }
            if due > now {
                tokio::time::sleep(due - now).await;
            }
            let number = usize::try_from(turn % requests.len() as u64)?;
            let request = requests.get(number).context("no keys")?;
            let sent = clock::now();
            let status = connection.send(request).await?.status();
            let answered = clock::now();
            let latency = answered.saturating_sub(sent);
            if window(sent) == window(answered) {
                seen.count((window(sent), number), status);
            } else {
                seen.astride += 1;
            }
            seen.latencies.entry(status).or_default().push(latency);
        }
    }
}

/// Answers by what they said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// 200
    pub admitted: u64,
    /// 429
    pub refused: u64,
    /// Anything else.
    pub other: u64,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By the number of the window since the epoch, and the number of the key.
    pub answers: BTreeMap<(u64, usize), Answers>,
    /// Requests that were sent in one window and answered in the next; they are in no count above.
    pub astride: u64,
    /// By status, in no order.
    pub latencies: BTreeMap<u16, Vec<Duration>>,
    /// Calls that the service got meanwhile.
    pub calls: u64,
    /// From the first request to the last answer.
    pub took: Duration,
}

impl Seen {
    fn count(&mut self, of: (u64, usize), status: u16) {
        let answers = self.answers.entry(of).or_default();
        match status {
            200 => answers.admitted += 1,
            429 => answers.refused += 1,
            _ => answers.other += 1,
        }
    }

    fn add(&mut self, other: Self) {
        for (of, more) in other.answers {
            let answers = self.answers.entry(of).or_default();
            answers.admitted += more.admitted;
            answers.refused += more.refused;
            answers.other += more.other;
        }
        self.astride += other.astride;
        for (status, more) in other.latencies {
            self.latencies.entry(status).or_default().extend(more);
        }
    }

    /// All answers together.
    #[must_use]
    pub fn total(&self) -> Answers {
        self.answers.values().fold(Answers::default(), |sum, answers| Answers {
            admitted: sum.admitted + answers.admitted,
            refused: sum.refused + answers.refused,
            other: sum.other + answers.other,
        })
    }

    /// What was admitted of each key in each window.
    pub fn admitted(&self) -> impl Iterator<Item = u64> {
        self.answers.values().map(|answers| answers.admitted)
    }

    /// Calls for each thousand requests that were admitted.
    #[must_use]
    pub fn calls_per_thousand(&self) -> f64 {
        self.calls as f64 * 1000.0 / self.total().admitted.max(1) as f64
    }

    /// The time that a part (0 to 1) of the answers with this status stayed below; `None` if there was none.
    #[must_use]
    pub fn latency(&self, status: u16, part: f64) -> Option<Duration> {
        let mut latencies = self.latencies.get(&status)?.clone();
        latencies.sort_unstable();
        let place = (latencies.len() as f64 * part) as usize;
        latencies.get(place.min(latencies.len().checked_sub(1)?)).copied()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answers { admitted, refused, other } = self.total();
        let least = self.admitted().min().unwrap_or(0);
        let most = self.admitted().max().unwrap_or(0);
        write!(
            f,
            "admitted {admitted} ({least} to {most} of a key in a window), refused {refused}, other {other}, astride {}; ",
            self.astride
        )?;
        write!(f, "calls {} ({:.1} per 1000 admitted)", self.calls, self.calls_per_thousand())?;
        for status in self.latencies.keys() {
            let [median, p99] = [0.5, 0.99].map(|part| self.latency(*status, part).unwrap_or_default());
            write!(f, "; {status}: median {median:.2?}, p99 {p99:.2?}")?;
        }
        write!(f, "; {:.1?}", self.took)
    }
}
