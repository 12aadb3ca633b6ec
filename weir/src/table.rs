//! Plans and classes as a table.

use filter::config::{Config, Entitlement};
use filter::quota::{Mode, Quota};
use filter::window::Window;
use weir::replay::aligned;

/// A line for each plan and a column for each class.
pub(crate) fn plans(config: &Config) -> String {
    let classes = config.catalog.classes.iter().map(|class| class.name.to_string());
    let mut rows = vec![std::iter::once(String::new()).chain(classes).collect::<Vec<_>>()];
    for (plan, entitlements) in &config.catalog.plans {
        rows.push(std::iter::once(plan.clone()).chain(entitlements.iter().map(entitlement)).collect());
    }
    let is_left = vec![true; rows.first().map_or(0, Vec::len)];
    aligned(&rows, &is_left).into_iter().map(|line| line + "\n").collect()
}

fn entitlement(entitlement: &Entitlement) -> String {
    match entitlement {
        Entitlement::NotInPlan => "-".to_owned(),
        Entitlement::Unlimited => "unlimited".to_owned(),
        Entitlement::Quotas(set) => set.quotas().iter().map(quota).collect::<Vec<_>>().join(", "),
    }
}

fn quota(quota: &Quota) -> String {
    let shadow = if quota.mode == Mode::Shadow { " (shadow)" } else { "" };
    if quota.window.is_in_flight() {
        return format!("{} in flight{shadow}", quota.limit);
    }
    if let Some((units, _, time)) = quota.window.rate() {
        return format!("{units}/{time} burst {}{shadow}", quota.limit);
    }
    format!("{}/{}{shadow}", quota.limit, window(quota.window))
}

/// A window as a configuration has it.
fn window(window: Window) -> String {
    const UNITS: [(u32, &str, &str); 4] =
        [(86_400, "day", "d"), (3_600, "hour", "h"), (60, "minute", "m"), (1, "second", "s")];
    let Some(seconds) = window.seconds() else { return window.name().into_owned() };
    let seconds = seconds.get();
    let unit = UNITS.into_iter().find(|(length, ..)| seconds.is_multiple_of(*length));
    unit.map_or_else(String::new, |(length, name, short)| match seconds / length {
        1 => name.to_owned(),
        times => format!("{times}{short}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_quotas_of_each_kind() {
        let json = br#"{"plans": {"pro": {"standard": [
            "60/minute",
            {"limit": 9, "window": "90s", "mode": "shadow"},
            {"rate": "10/second", "burst": 20},
            {"in_flight": 3},
            "5/billing_month"
        ]}}}"#;
        let table = plans(&Config::from_json(json).unwrap());
        let quotas = "60/minute, 9/90s (shadow), 10/second burst 20, 3 in flight, 5/billing_month";
        assert_eq!(table.lines().nth(1), Some(&*format!("pro  {quotas}")), "{table}");
    }
}
