//! The script in a real Redis is the machine of [`crate::share`]: the same answers to the same statements.

use ledger_wire::{EXACT, Hex128, Says, Statement};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use self::server::{Redis as Server, until};
use super::memory::Memory;
use super::{Call, Store};
use crate::clock;
use crate::options::Options;
use crate::share::Terms;

#[path = "../../tests/suite/store.rs"]
#[expect(dead_code, reason = "most of it serves other tests")]
mod server;

const MOST: u32 = u32::MAX;
/// Statements of each row.
const STATEMENTS: usize = 20_000;

/// What statements are drawn from.
struct Row {
    what: &'static str,
    counters: u128,
    gateways: u128,
    units: &'static [u32],
    /// Without any, limits are units, too.
    limits: &'static [u32],
    numbers: &'static [u32],
    resets: &'static [u64],
}

const ROWS: [Row; 6] = [
    Row {
        what: "small",
        counters: 40,
        gateways: 4,
        units: &[0, 1, 2, 3, 5, 8],
        limits: &[],
        numbers: &[1, 2, 3, 4, 5, 6, 7],
        resets: &[0],
    },
    Row {
        what: "limits that are used up",
        counters: 4,
        gateways: 9,
        units: &[0, 1, 2, 3, 5, 9],
        limits: &[60, 80, 100, 120, 140, 160],
        numbers: &[],
        resets: &[0],
    },
    Row {
        what: "resets",
        counters: 8,
        gateways: 3,
        units: &[0, 1, 3, 20],
        limits: &[],
        numbers: &[],
        resets: &[0, 0, 0, 1, 2, 3],
    },
    Row {
        what: "resets by time",
        counters: 300,
        gateways: 3,
        units: &[1, 3, 20],
        limits: &[],
        numbers: &[],
        resets: &[0, 1_764_081_234_567, 1_764_081_234_568, EXACT - 2, EXACT - 1],
    },
    Row {
        what: "the largest",
        counters: 4,
        gateways: 5,
        units: &[0, 1, MOST / 2, MOST - 1, MOST],
        limits: &[],
        numbers: &[1, 2, MOST - 1, MOST],
        resets: &[0, 1],
    },
    Row {
        what: "many holders",
        counters: 2,
        gateways: 3_000,
        units: &[0, 1, 7, 100_000, MOST],
        limits: &[],
        numbers: &[],
        resets: &[0],
    },
];

impl Row {
    /// A statement about one of the counters from `first` on.
    fn statement(&self, rnd: &mut StdRng, first: u128, index: usize, now: u64) -> Call {
        let units = |rnd: &mut StdRng| *self.units.choose(rnd).unwrap();
        let says = match rnd.random_ratio(1, 3) {
            true => Says::Return { keep: units(rnd) },
            false => Says::Ask { need: units(rnd), cost: units(rnd), hold: units(rnd) },
        };
        // Without numbers to draw from they grow, and some are repeated or overtaken.
        let seq = self
            .numbers
            .choose(rnd)
            .copied()
            .unwrap_or(1 + index as u32 - rnd.random_range(0..=index.min(9)) as u32);
        let statement = Statement {
            counter: Hex128(first + rnd.random_range(0..self.counters)),
            window: 1,
            begins: now / 1_000 - 60,
            ends: now / 1_000 + 60,
            limit: self.limits.choose(rnd).copied().unwrap_or_else(|| units(rnd)),
            generation: rnd.random_range(1..3),
            seq,
            used: units(rnd),
            reset: *self.resets.choose(rnd).unwrap(),
            says,
        };
        let terms =
            Terms { settling: rnd.random_ratio(1, 8), gateways: *[1, 2, 3, 8, MOST].choose(rnd).unwrap() };
        let gateway = Hex128(rnd.random_range(1..=self.gateways));
        Call::new(gateway, statement, terms, now)
    }
}

#[tokio::test]
async fn the_script_answers_what_the_machine_answers() {
    let server = Server::start().await;
    let options = Options::of(&["--store", &server.url(), "--key-prefix", "test:"]);
    let store = Store::open(&options).await.unwrap();
    let driven = async {
        until("the store is found", async || store.view().is_ok()).await;
        for (seed, row) in ROWS.iter().enumerate() {
            let (mut memory, mut rnd) = (Memory::default(), StdRng::seed_from_u64(seed as u64));
            let now = clock::now();
            let first = seed as u128 * 1_000;
            let statement = |index| row.statement(&mut rnd, first, index, now);
            let calls: Vec<Call> = (0..STATEMENTS).map(statement).collect();
            for calls in calls.chunks(200) {
                let view = store.view().unwrap();
                let answers =
                    view.call(&calls.iter().cloned().map(Ok).collect::<Vec<_>>(), now).await.unwrap();
                for (call, answer) in calls.iter().zip(answers) {
                    assert_eq!(answer, memory.call(call, now), "{}: {call:?}", row.what);
                }
            }
        }
        let lives = server.cli(&format!("ttl test:{}:1", Hex128(0)));
        assert!((200..=240).contains(&lives.parse::<u32>().unwrap()), "{lives}");
    };
    tokio::select! {
        () = driven => {}
        () = store.watch() => panic!("the watch ends"),
    }
}
