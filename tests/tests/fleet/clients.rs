//! Customers who send bursts of requests through any of the gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use http::Method;
use tests::client::Connection;
use tests::exchange::{Request, get};
use tests::{clock, flood};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::fleet::PATIENCE;

/// What a customer sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    /// Requests at once, to one gateway.
    pub(crate) burst: usize,
    /// Requests a second, in bursts at random instants.
    pub(crate) per_second: f64,
    /// How long it sends at most.
    pub(crate) most: Duration,
    /// After this number of admitted requests it goes on for a moment, and ends.
    pub(crate) enough: usize,
}

/// How long a customer goes on who has had enough: what comes then must be refused.
const MOMENT: Duration = Duration::from_secs(3);

/// What a customer has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Admitted requests by the end of their window, in seconds since 1970, and by gateway.
    pub(crate) admitted: BTreeMap<(u64, usize), usize>,
    /// Ends of the windows in which requests were refused.
    pub(crate) refused: BTreeSet<u64>,
    /// Requests that had been admitted when the first 429 came.
    pub(crate) before_a_429: Option<usize>,
    /// Answers that are neither 200 nor 429, by status.
    pub(crate) others: BTreeMap<u16, usize>,
    /// How long each answer took.
    pub(crate) times: Vec<Duration>,
}

impl Seen {
    /// All admitted requests.
    pub(crate) fn passed(&self) -> usize {
        self.admitted.values().sum()
    }

    /// Admitted requests of a gateway.
    pub(crate) fn passed_at(&self, gateway: usize) -> usize {
        self.admitted.iter().filter(|((_, at), _)| *at == gateway).map(|(_, admitted)| admitted).sum()
    }

    /// Admitted requests by the end of their window.
    pub(crate) fn by_window(&self) -> BTreeMap<u64, usize> {
        let mut windows = BTreeMap::new();
        for ((ends, _), admitted) in &self.admitted {
            *windows.entry(*ends).or_insert(0) += admitted;
        }
        windows
    }

    fn note(&mut self, status: u16, ends: u64, gateway: usize) {
        match status {
            200 => *self.admitted.entry((ends, gateway)).or_insert(0) += 1,
            429 => {
                self.refused.insert(ends);
                self.before_a_429 = self.before_a_429.or_else(|| Some(self.passed()));
            }
            _ => *self.others.entry(status).or_insert(0) += 1,
        }
    }
}

/// Sends the traffic of each key, all of them at once.
pub(crate) fn send(gateways: &[SocketAddr], traffic: &[(String, Traffic)]) -> Vec<Seen> {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let mut customers = Vec::new();
        for (key, traffic) in traffic {
            let mut connections = Vec::new();
            for gateway in gateways {
                let opening: JoinSet<_> = (0..traffic.burst).map(|_| opened(*gateway)).collect();
                connections.push(opening.join_all().await);
            }
            customers.push((connections, key.clone(), *traffic));
        }
        let customers: Vec<_> = customers
            .into_iter()
            .map(|(connections, key, traffic)| tokio::spawn(send_of(connections, key, traffic)))
            .collect();
        let mut seen = Vec::new();
        for customer in customers {
            seen.push(customer.await.unwrap());
        }
        seen
    })
}

/// A connection to a gateway, opened by a request that is not counted: to open thousands takes a gateway longer than it waits for a ledger.
pub(crate) async fn opened(gateway: SocketAddr) -> Connection {
    let mut connection = Connection::to(gateway);
    connection.send(&Request::new(Method::OPTIONS, "/links")).await.unwrap();
    connection
}

/// Sends a key's traffic over connections to each gateway.
async fn send_of(mut connections: Vec<Vec<Connection>>, key: String, traffic: Traffic) -> Seen {
    let (mut seen, began) = (Seen::default(), Instant::now());
    let (mut next, mut ends) = (began, began + traffic.most);
    let mut is_enough = false;
    // Once it has had enough, one burst more comes at least.
    let mut after = 0;
    while Instant::now().max(next) < ends || is_enough && after == 0 {
        sleep_until(next).await;
        after += usize::from(is_enough);
        let gateway = rand::random_range(0..connections.len());
        let mut burst = JoinSet::new();
        for mut connection in connections[gateway].drain(..) {
            let request = get("/links").key(&key);
            burst.spawn(async move {
                let sent = Instant::now();
                let answer = connection.send(&request).await.unwrap();
                (connection, answer, sent.elapsed())
            });
        }
        while let Some(answered) = burst.join_next().await {
            let (connection, answer, took) = answered.unwrap();
            connections[gateway].push(connection);
            seen.note(answer.status(), answer.number("x-ratelimit-reset").unwrap_or(0), gateway);
            seen.times.push(took);
        }
        if !is_enough && seen.passed() >= traffic.enough {
            (is_enough, ends) = (true, ends.min(Instant::now() + MOMENT));
        }
        let mean = traffic.burst as f64 / traffic.per_second;
        next += Duration::from_secs_f64(-mean * (1.0 - rand::random::<f64>()).ln());
    }
    seen
}

/// Sends `requests` requests of a key to each gateway at each of these instants, which are since 1970.
pub(crate) fn send_at(gateways: &[SocketAddr], key: &str, requests: usize, instants: &[Duration]) -> Seen {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let mut senders = JoinSet::new();
        for (gateway, address) in gateways.iter().enumerate() {
            for _ in 0..requests {
                let (address, key, instants) = (*address, key.to_owned(), instants.to_vec());
                senders.spawn(async move {
                    let mut connection = opened(address).await;
                    let mut answers = Vec::new();
                    for instant in instants {
                        sleep(instant.saturating_sub(clock::now())).await;
                        let sent = Instant::now();
                        let answer = connection.send(&get("/links").key(&key)).await.unwrap();
                        answers.push((answer, sent.elapsed()));
                    }
                    (gateway, answers)
                });
            }
        }
        let mut seen = Seen::default();
        while let Some(sent) = senders.join_next().await {
            let (gateway, answers) = sent.unwrap();
            for (answer, took) in answers {
                seen.note(answer.status(), answer.number("x-ratelimit-reset").unwrap_or(0), gateway);
                seen.times.push(took);
            }
        }
        seen
    })
}

/// Sends `requests` requests of a key at once, of which `leave` wait for no longer than `patience`. Returns how many were admitted.
pub(crate) fn send_and_leave(
    gateway: SocketAddr,
    key: &str,
    requests: usize,
    leave: usize,
    patience: Duration,
) -> usize {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (mut senders, at) = (JoinSet::new(), clock::now() + Duration::from_secs(1));
        for number in 0..requests {
            let key = key.to_owned();
            senders.spawn(async move {
                let mut connection = opened(gateway).await;
                sleep(at.saturating_sub(clock::now())).await;
                let request = get("/links").key(&key);
                let answer = connection.send(&request);
                match number < leave {
                    true => {
                        timeout(patience, answer).await.is_ok_and(|answer| answer.unwrap().status() == 200)
                    }
                    false => answer.await.unwrap().status() == 200,
                }
            });
        }
        senders.join_all().await.into_iter().filter(|is_admitted| *is_admitted).count()
    })
}

/// Sends requests of a key to all of these gateways until all are refused, and returns how many were admitted. What is neither is sent again.
pub(crate) fn until_used_up(gateways: &[SocketAddr], key: &str) -> usize {
    const AT_ONCE: usize = 8;
    const BATCH: usize = 40;
    let mut passed = 0;
    let sent = || {
        let mut all_refused = true;
        for gateway in gateways {
            let requests: Vec<_> = (0..BATCH).map(|_| ((), get("/links").key(key))).collect();
            for ((_, status), count) in flood::send(*gateway, AT_ONCE, requests).unwrap() {
                passed += if status == 200 { count } else { 0 };
                all_refused &= status == 429;
            }
        }
        all_refused.then_some(())
    };
    let used_up = clock::eventually("the quota is used up", PATIENCE, sent);
    used_up.unwrap_or_else(|error| panic!("{key}, {passed} admitted: {error}"));
    passed
}

/// Whether a client leaves who waits for an answer no longer than this.
pub(crate) fn leaves(gateway: SocketAddr, key: &str, patience: Duration) -> bool {
    Runtime::new().unwrap().block_on(async {
        let mut connection = opened(gateway).await;
        timeout(patience, connection.send(&get("/links").key(key))).await.is_err()
    })
}

/// In the place of a status: the client has left.
pub(crate) const LEFT: u16 = 0;

/// Clients some of whom do not wait for long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Impatience {
    /// One request in this number is left.
    pub(crate) one_in: usize,
    /// After this time without an answer.
    pub(crate) after: Duration,
}

/// What such clients have seen: answers by the tenth of a second, since 1970, in which they came, and by status.
pub(crate) type SeenByTime = BTreeMap<(u64, u16), usize>;

/// Clients that send one request after the other to each gateway, over some connections and with each of the keys in turn, until this is dropped.
pub(crate) struct Load {
    goes_on: Arc<()>,
    sender: JoinHandle<SeenByTime>,
}

impl Load {
    pub(crate) fn start(gateways: Vec<SocketAddr>, keys: Vec<String>, impatience: Impatience) -> Self {
        let goes_on = Arc::new(());
        let until = Arc::downgrade(&goes_on);
        let sender = std::thread::spawn(move || {
            Runtime::new().unwrap().block_on(send_impatiently(gateways, keys.into(), impatience, until))
        });
        Self { goes_on, sender }
    }

    /// Ends them. Returns what they have seen.
    pub(crate) fn end(self) -> SeenByTime {
        drop(self.goes_on);
        self.sender.join().unwrap()
    }
}

async fn send_impatiently(
    gateways: Vec<SocketAddr>,
    keys: Arc<[String]>,
    impatience: Impatience,
    goes_on: Weak<()>,
) -> SeenByTime {
    const CONNECTIONS: usize = 4;
    const PAUSE: Duration = Duration::from_millis(20);
    let number = Arc::new(AtomicUsize::new(0));
    let senders = gateways.into_iter().flat_map(|gateway| [gateway; CONNECTIONS]).map(|gateway| {
        let (keys, number, goes_on) = (Arc::clone(&keys), Arc::clone(&number), Weak::clone(&goes_on));
        async move {
            let mut seen = SeenByTime::new();
            let mut connection = opened(gateway).await;
            while goes_on.strong_count() > 0 {
                let number = number.fetch_add(1, Ordering::SeqCst);
                let request = get("/links").key(&keys[number % keys.len()]);
                let status = send_or_leave(&mut connection, &request, number, impatience).await;
                if status == LEFT {
                    connection = opened(gateway).await;
                }
                *seen.entry((tenths(clock::now()), status)).or_insert(0) += 1;
                sleep(PAUSE).await;
            }
            seen
        }
    });
    let mut all = SeenByTime::new();
    for (what, count) in senders.collect::<JoinSet<_>>().join_all().await.into_iter().flatten() {
        *all.entry(what).or_insert(0) += count;
    }
    all
}

async fn send_or_leave(
    connection: &mut Connection,
    request: &Request,
    number: usize,
    Impatience { one_in, after }: Impatience,
) -> u16 {
    let patience = if number.is_multiple_of(one_in) { after } else { PATIENCE };
    match timeout(patience, connection.send(request)).await {
        Ok(answer) => answer.unwrap().status(),
        Err(_) => LEFT,
    }
}

/// An instant since 1970, in tenths of a second.
pub(crate) fn tenths(instant: Duration) -> u64 {
    u64::try_from(instant.as_millis() / 100).unwrap_or(u64::MAX)
}
