//! A ledger that answers what a test says, at a distance.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::policy::Policy;
use tests::server::{Response, Server};
use tests::way::Way;

/// Answers each statement by itself, and counts calls.
pub(crate) struct Stub {
    /// To it, which takes no time at first.
    pub(crate) way: Way,
    _server: Server,
    calls: Arc<AtomicUsize>,
    told: Arc<Mutex<Told>>,
}

/// What the store of an epoch was told.
#[derive(Default)]
struct Told {
    epoch: u128,
    counters: HashSet<String>,
}

impl Stub {
    /// Starts it. `answer` gets a statement.
    pub(crate) fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let told = Arc::new(Mutex::new(Told { epoch: 1, ..Told::default() }));
        let tells = Arc::clone(&told);
        let answer_all = move |request: http::Request<Bytes>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let call: Value = serde_json::from_slice(request.body()).unwrap_or_default();
            let statements = call["items"].as_array().into_iter().flatten();
            let now = u64::try_from(clock::now().as_millis()).unwrap_or_default();
            let mut told = tells.lock().unwrap();
            let counters = statements.clone().filter_map(|statement| statement["counter"].as_str());
            told.counters.extend(counters.map(str::to_owned));
            let answers: Vec<_> = statements.map(&answer).collect();
            let body = json!({"epoch": format!("{:032x}", told.epoch), "now": now, "items": answers});
            Response::new(body.to_string().into())
        };
        let server = Server::start(answer_all).unwrap();
        Self { way: Way::to(server.address(), Duration::ZERO).unwrap(), _server: server, calls, told }
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// From here on its store has another epoch, and was told nothing.
    pub(crate) fn begin_epoch(&self) {
        let mut told = self.told.lock().unwrap();
        *told = Told { epoch: told.epoch + 1, ..Told::default() };
    }

    /// How many counters the store was told of since its epoch began.
    pub(crate) fn told(&self) -> usize {
        self.told.lock().unwrap().counters.len()
    }

    /// A gateway that calls it.
    pub(crate) fn gateway(&self, policy: &Policy, workers: usize) -> Envoy {
        let setup = Setup::new(policy.clone(), Upstream::DirectResponse).workers(workers);
        Envoy::start(Setup { ledger: Some(self.way.address()), ..setup }).unwrap()
    }
}

/// The answer of a ledger that grants all that is asked for.
pub(crate) fn granted(statement: &Value) -> Value {
    let number = |field: &str| statement[field].as_u64().unwrap_or(0);
    let share = number("used") + number("need").max(number("hold")).max(number("keep"));
    json!({"share": share, "others": 0, "reset": 0})
}
