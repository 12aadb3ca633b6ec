//! What the filter's start-up line says.

use host_sim::{Host, LogLevel};
use serde_json::json;
use tests::gateway::{module, plugin};
use tests::policy::Policy;

#[test]
fn the_start_up_line_says_when_counts_of_a_day_or_longer_are_lost_with_the_process() {
    const LOST: &str = "without a fleet, counts of a day or longer are lost when this process ends";
    let fleet = json!({"cluster": "ledger"});
    //  the quotas, the fleet, whether the line says so
    let rows = [
        (json!(["60/minute"]), None, false),
        (json!(["60/minute", "1000/month"]), None, true),
        (json!(["60/minute", "1000/month"]), Some(fleet), false),
    ];
    for (quotas, fleet, says_so) in rows {
        let plans = json!({"free": {"standard": quotas}});
        let policy = Policy::contract().unwrap().with("plans", plans).with("subscribers", json!([]));
        let policy = match &fleet {
            Some(fleet) => policy.with("fleet", fleet.clone()),
            None => policy,
        };
        let mut host = Host::builder().workers(1).log_level(LogLevel::Info).build();
        host.load(module(), plugin(&policy)).unwrap();
        let lines = host.logs().take().into_iter().map(|line| line.message);
        let lines: Vec<_> = lines.filter(|line| line.contains("plans, ")).collect();
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line.contains(LOST) == says_so),
            "{quotas} {fleet:?}: {lines:?}"
        );
    }
}
