//! The protocol in many worlds: nothing is violated with all of its rules, and something without any of them.
//!
//! A seed that fails is run alone with `WEIR_FLEET_SEED=<seed> cargo test -p fleet-tests nothing`.

use std::ops::Range;

use fleet_tests::{MISSED_BY, run, search, trace};

#[path = "../../src/soak.rs"]
pub mod soak;

const QUICK: u64 = 100_000;
const LONG: u64 = 1_000_000;

/// Fails with the first seed whose world violates something, and what happened in it.
fn nothing_is_violated(seeds: Range<u64>) {
    let found = search(seeds, |seed| run(seed, None).into_iter().next());
    if let Some((seed, violation)) = found {
        let what = trace(seed, None, violation.key);
        panic!("{violation:?}; alone with WEIR_FLEET_SEED={seed}\n{what}");
    }
}

#[test]
fn nothing_is_violated_in_a_hundred_thousand_worlds() {
    let alone = std::env::var("WEIR_FLEET_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    nothing_is_violated(alone.map_or(0..QUICK, |seed| seed..seed + 1));
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn nothing_is_violated_in_a_million_worlds() {
    nothing_is_violated(0..LONG);
    soak::row("a fleet's quotas in simulated worlds", format_args!("{LONG} seeds"), "nothing was violated");
}

#[test]
fn each_rule_is_missed() {
    for (rule, check) in MISSED_BY {
        let of = |seed| run(seed, Some(rule)).into_iter().find(|violation| violation.check == check);
        let (seed, violation) = search(0..QUICK, of).unwrap_or_else(|| panic!("{rule:?} is not missed"));
        println!("{rule:?}: {violation:?} in seed {seed}");
    }
}
