//! The page "How large a fleet": its tables are what the formula and the simulation print, and these agree.
//!
//! A row that is not on the page is printed as it should be there.

use std::fmt::Write as _;

use fleet_tests::{Cost, Fleet, GATEWAY, Key, LEDGER, Rates, STORE, expected, simulated};

#[path = "../../src/soak.rs"]
pub mod soak;

const PAGE: &str = include_str!("../../../docs/src/how-large.md");
/// What a simulated cost may differ from the formula, as a part of the larger one.
const TOLERANCE: f64 = 0.2;
/// Fleets with more keys, and more gateways of a key, are simulated in the long form.
const SMALL: (u32, usize) = (10_000, 32);
/// Seeds of a key's row.
const SEEDS: u64 = 10;

const MINUTE: u32 = 60;
const HOUR: u32 = 60 * MINUTE;
const DAY: u32 = 24 * HOUR;

fn fleets() -> Vec<Fleet> {
    use Rates::{Uniform, Zipf};
    let fleet = |gateways, keys, rates, per_second, (limit, window)| Fleet {
        gateways,
        keys,
        rates,
        per_second,
        limit,
        window,
    };
    vec![
        fleet(2, 1_000, Zipf, 1_000.0, (600, MINUTE)),
        fleet(2, 1_000, Uniform, 5_000.0, (600, MINUTE)),
        fleet(8, 10_000, Zipf, 10_000.0, (600, MINUTE)),
        fleet(8, 10_000, Zipf, 10_000.0, (20, 1)),
        fleet(8, 10_000, Zipf, 10_000.0, (36_000, HOUR)),
        fleet(8, 10_000, Zipf, 10_000.0, (500, DAY)),
        fleet(8, 10_000, Uniform, 10_000.0, (600, MINUTE)),
        fleet(32, 100_000, Zipf, 30_000.0, (600, MINUTE)),
        fleet(100, 100_000, Zipf, 100_000.0, (600, MINUTE)),
        fleet(100, 1_000_000, Uniform, 100_000.0, (100_000, DAY)),
        fleet(1_000, 1_000_000, Zipf, 100_000.0, (600, MINUTE)),
        fleet(1_000, 1_000_000, Zipf, 100_000.0, (100_000, DAY)),
        fleet(1_000, 1_000_000, Uniform, 200_000.0, (600, MINUTE)),
    ]
}

/// A number of two digits and zeros, with commas.
fn round(number: f64) -> String {
    if number < 9.95 {
        return format!("{number:.1}");
    }
    let unit = 10_f64.powi(number.log10().floor() as i32 - 1);
    grouped(((number / unit).round() * unit).round())
}

fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The limit of a window, and its length in seconds.
type Quota = (u32, u32);

fn name((limit, window): Quota) -> String {
    let unit = match window {
        1 => "second",
        MINUTE => "minute",
        HOUR => "hour",
        _ => "day",
    };
    format!("{}/{unit}", grouped(limit.into()))
}

/// The row of a fleet, by the formula.
fn row_of_fleet(fleet: &Fleet) -> String {
    let Fleet { gateways, keys, rates, per_second, limit, window } = *fleet;
    let cost = fleet.cost(expected);
    let cores = |micros: f64| cost.statements * micros / 1e6;
    let replicas = 1.0 + cores(LEDGER).ceil();
    let [gateways, keys, per_second] = [gateways as f64, keys.into(), per_second].map(grouped);
    let mut row = format!(
        "| {gateways} | {keys} | {} | {per_second} | {} |",
        format!("{rates:?}").to_lowercase(),
        name((limit, window))
    );
    let cells = [
        round(cost.statements),
        round(cores(GATEWAY)),
        round(cores(LEDGER)),
        grouped(replicas),
        round(cores(STORE)),
        round(cost.bytes / 1e6),
    ];
    cells.iter().for_each(|cell| write!(row, " {cell} |").unwrap());
    row
}

fn are_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= TOLERANCE * one.max(other)
}

/// Compares the simulation of a fleet with the formula.
fn check(fleet: &Fleet) -> String {
    let (simulated, expected) = (fleet.cost(|key| simulated(key, 1)), fleet.cost(expected));
    let figures = |cost: &Cost| [cost.statements, cost.admitted, cost.bytes];
    let (ours, formula) = (figures(&simulated), figures(&expected));
    assert!(
        ours.into_iter().zip(formula).all(|(one, other)| are_near(one, other)),
        "{fleet:?}: {ours:?}, {formula:?}"
    );
    let [statements, _, bytes] = ours;
    format!(
        "{statements:.0} statements a second and {:.1} MB, {:.2} of the formula",
        bytes / 1e6,
        statements / expected.statements
    )
}

/// A key that sends a multiple of its limit, in one window.
fn key(gateways: usize, (limit, window): Quota, times: f64, burst: u32) -> Key {
    Key {
        gateways,
        per_second: times * f64::from(limit) / f64::from(window),
        burst,
        limit,
        window,
        seconds: window,
    }
}

fn costs(key: Key) -> Vec<Cost> {
    (0..SEEDS).map(|seed| simulated(&key, seed)).collect()
}

/// The row of a busy key. Its statements are by the formula, which the simulation of five windows has to fit; the rest is simulated.
fn row_of_key(gateways: usize, quota: Quota) -> String {
    let mut row = format!("| {} | {} |", name(quota), grouped(gateways as f64));
    let mean = |costs: &[Cost], of: fn(&Cost) -> f64| costs.iter().map(of).sum::<f64>() / costs.len() as f64;
    for times in [0.5, 1.5] {
        let key = Key { seconds: 5 * quota.1, ..key(gateways, quota, times, 1) };
        let (simulated, formula) = (simulated(&key, 1), expected(&key));
        assert!(are_near(simulated.statements, formula.statements), "{key:?}: {simulated:?}, {formula:?}");
        write!(row, " {} |", round(1e3 * formula.statements / formula.admitted)).unwrap();
    }
    // A key that sends what it may has used half of its limit then.
    let half = Key { seconds: quota.1 / 2, ..key(gateways, quota, 1.0, 1) };
    write!(row, " {:.0} % |", 100.0 * mean(&costs(half), |cost| cost.held)).unwrap();
    for burst in [1, 40] {
        let costs = costs(key(gateways, quota, 2.0, burst));
        let mut first: Vec<_> = costs.iter().filter_map(|cost| cost.first_429).collect();
        first.sort_by(f64::total_cmp);
        let [earliest, median] = [first[0], first[first.len() / 2]].map(|part| (100.0 * part).floor());
        write!(row, " {median} % ({earliest} %) |").unwrap();
    }
    row
}

/// The page has this row.
fn on_the_page(row: &str, missing: &mut String) {
    if !PAGE.lines().any(|line| line == row) {
        writeln!(missing, "{row}").unwrap();
    }
}

fn keys() -> impl Iterator<Item = (usize, Quota)> {
    let quotas = [(600, MINUTE), (6_000, MINUTE)];
    quotas.into_iter().flat_map(|quota| [2, 4, 8, 32, 100, 1_000].map(|gateways| (gateways, quota)))
}

#[test]
fn the_page_shows_what_the_formula_and_the_simulation_say() {
    let mut missing = String::new();
    for fleet in fleets() {
        on_the_page(&row_of_fleet(&fleet), &mut missing);
        if fleet.keys <= SMALL.0 {
            println!("{fleet:?}: {}", check(&fleet));
        }
    }
    for (gateways, quota) in keys().filter(|(gateways, _)| *gateways <= SMALL.1) {
        on_the_page(&row_of_key(gateways, quota), &mut missing);
    }
    assert!(missing.is_empty(), "not on the page:\n{missing}");
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn the_formula_fits_simulated_fleets_of_a_thousand_gateways_and_a_million_keys() {
    let mut missing = String::new();
    for fleet in fleets() {
        let Fleet { gateways, keys, rates, per_second, .. } = fleet;
        let quota = name((fleet.limit, fleet.window));
        let form =
            format!("{gateways} gateways, {keys} keys, {rates:?}, {per_second} requests a second, {quota}");
        soak::row("a simulated fleet", form, check(&fleet));
    }
    keys().for_each(|(gateways, quota)| on_the_page(&row_of_key(gateways, quota), &mut missing));
    assert!(missing.is_empty(), "not on the page:\n{missing}");
}
