//! Every host call, with every map, buffer and property, in every callback: what the simulator answers is what Envoy answers.
//!
//! What differs on purpose is a table of host-sim's documentation, `support.md`: each row has to be found, and nothing else may be.

mod documented;
mod once;
mod raw;
mod starts;
mod table;

use std::fmt::Write as _;

use tests::differential::{VERSIONS, scenario};
use tests::sweep::{Difference, Swept, requests, sweep};

use documented::documented;
use table::{REQUESTS, UPSTREAM, table};

#[test]
fn the_simulator_answers_as_envoy_does() {
    let scenario = scenario(UPSTREAM).expect("a scenario");
    let requests = requests(REQUESTS).expect("requests");
    let known = documented();
    let mut wrong = String::new();
    for version in VERSIONS {
        let Swept { questions, differences } =
            sweep(version, &table(), &scenario, &requests).expect("both gateways");
        println!("Envoy {version}: {questions} questions, {} differences", differences.len());
        let known =
            known.iter().filter(|known| known.versions == "all" || known.versions == version.to_string());
        let known: Vec<_> = known.collect();
        for found in differences.iter().filter(|found| !known.iter().any(|known| known.is(found))) {
            let Difference { place, question, here, there } = found;
            let _ = writeln!(wrong, "Envoy {version} | {place} | {question} | {here} | {there}");
        }
        for known in known.into_iter().filter(|known| !differences.iter().any(|found| known.is(found))) {
            let _ = writeln!(wrong, "Envoy {version}: no longer differs: {known:?}");
        }
    }
    assert_eq!(wrong, "");
}
