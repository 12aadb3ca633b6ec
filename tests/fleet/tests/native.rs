//! Envoy's own ratelimit filter on the same harness: it proves the service right, and is what leases are measured against.

use std::time::Duration;

use fleet::gateways::Service;
use fleet::load::{Load, Pace};
use fleet::native::Native;
use fleet::{Limiter, Setup};
use tests::soak;

fn tree(requests_per_minute: u32) -> Service {
    Service::Envoyproxy(format!(
        r"
domain: weir
descriptors:
  - key: class
    value: standard
    descriptors:
      - key: window
        value: minute
        descriptors:
          - key: who
            rate_limit: {{ unit: minute, requests_per_unit: {requests_per_minute} }}
"
    ))
}

#[test]
fn two_envoys_with_the_native_filter_admit_exactly_the_limit_between_them() {
    const LIMIT: u32 = 50;
    let rows = [
        // the service's configuration, what the filter sends, what is admitted of each key
        (tree(LIMIT), Native::of_domain("weir"), Some(LIMIT)),
        (tree(7), Native::of_domain("weir").sending(LIMIT), Some(LIMIT)), // an override wins
        (
            Service::Envoyproxy("domain: weir".to_owned()),
            Native::of_domain("weir").sending(LIMIT),
            Some(LIMIT),
        ),
        (Service::Envoyproxy("domain: weir".to_owned()), Native::of_domain("weir"), None), // no limit
        (Service::Envoyproxy("domain: other".to_owned()), Native::of_domain("weir").sending(LIMIT), None),
    ];
    for (place, (service, native, expected)) in rows.into_iter().enumerate() {
        let fleet = Setup::new(Limiter::Native(native)).service(service).start().unwrap();
        let load = Load::new(4, Pace::PerSecond(300), Duration::from_secs(2));
        let seen = load.offer(&fleet).unwrap();
        let total = seen.total();
        assert_eq!((total.other, seen.astride), (0, 0), "row {place}: {seen}");
        assert!(total.admitted + total.refused > 4 * u64::from(LIMIT) * 2, "row {place}: {seen}");
        assert_eq!(
            seen.calls,
            total.admitted + total.refused,
            "row {place}: a call for each request: {seen}"
        );
        match expected {
            Some(limit) => {
                assert_eq!(seen.admitted().collect::<Vec<_>>(), [u64::from(limit); 4], "row {place}: {seen}");
            }
            None => assert_eq!(total.refused, 0, "row {place}: {seen}"),
        }
    }
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn what_a_call_for_each_request_costs() {
    for limit in [600, 3000] {
        let native = Native::of_domain("weir").sending(limit);
        let fleet = Setup::new(Limiter::Native(native)).start().unwrap();
        let load = Load::new(20, Pace::PerSecond(1500), Duration::from_secs(10));
        let seen = load.offer(&fleet).unwrap();
        assert_eq!(seen.total().other, 0, "{seen}");
        soak::row("native ratelimit filter", format!("2 Envoys, 20 keys, {limit}/minute"), seen);
    }
}
