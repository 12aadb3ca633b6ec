//! Names of the metrics, in the form of Istio's custom metrics.
//!
//! A tag stands in the name as `<tag>=.=<value>;.;`. Istio's regular expression `(<tag>=\.=(.*?);\.;)`, which `envoy.yaml` carries as
//! well, takes it out of the name and makes it a label: `weir_requests_total{plan, class, outcome}` on `/stats/prometheus`. The names
//! that a configuration may give to plans and classes contain none of `.`, `;` and `=`, so no name ends its tag or starts another.

use super::outcome::Outcome;

/// Polls of the directory that brought a new document.
pub const DIRECTORY_UPDATED: &str = "weir.directory.updated_total";
/// Polls of the directory that brought no change.
pub const DIRECTORY_UNCHANGED: &str = "weir.directory.unchanged_total";
/// Polls of the directory without a good answer.
pub const DIRECTORY_FAILED: &str = "weir.directory.failed_total";
/// Rows of the directory that are malformed, repeat a key, or name a plan or class that is not configured.
pub const DIRECTORY_SKIPPED: &str = "weir.directory.skipped_total";
/// Rows of the directory that `counters.known` has no records for.
pub const DIRECTORY_OVER_CAPACITY: &str = "weir.directory.over_capacity_total";

/// `weir_cost_refunded_total`: requests whose response's status gave back what they were charged.
pub const COST_REFUNDED: &str = "weir.cost.refunded_total";
/// `weir_cost_unknown_total`: requests whose actual cost did not become known, so that their reserve stands.
pub const COST_UNKNOWN: &str = "weir.cost.unknown_total";
/// `weir_cost_unsettled_total`: requests whose settlement could not be stored, so that their charge stands.
pub const COST_UNSETTLED: &str = "weir.cost.unsettled_total";
/// `weir_organisation_given_back_total`: requests whose caller got its charge back, because its organisation did not admit them.
pub const ORGANISATION_GIVEN_BACK: &str = "weir.organisation.given_back_total";

/// Requests of a plan and class, by outcome.
#[must_use]
pub fn requests(plan: &str, class: &str, outcome: Outcome) -> String {
    format!("weir.plan=.={plan};.;class=.={class};.;outcome=.={outcome};.;requests_total")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Takes a tag out of a name as `(<tag>=\.=(.*?);\.;)` does.
    fn take(name: &str, tag: &str) -> (String, String) {
        let (before, rest) = name.split_once(&format!("{tag}=.=")).unwrap();
        let (value, after) = rest.split_once(";.;").unwrap();
        (format!("{before}{after}"), value.to_owned())
    }

    #[test]
    fn no_plan_or_class_that_can_be_configured_breaks_the_form() {
        let printable = (b' '..=b'~').map(char::from).chain(['\n', '\0', 'é']);
        let mut names: Vec<_> = printable.map(|c| format!("a{c}b")).collect();
        names.extend(
            ["plan", "class", "outcome", "requests_total", "tag", "cache", "-", "_"].map(str::to_owned),
        );
        names.extend(["class=.=x;.;", "x;.;", ";.", "", "none"].map(str::to_owned));
        let mut accepted = 0;
        for (plan, class) in names.iter().flat_map(|plan| names.iter().map(move |class| (plan, class))) {
            let json = serde_json::json!({"plans": {plan: {class: ["1/minute"]}}, "default_class": class});
            if Config::from_json(json.to_string().as_bytes()).is_err() {
                continue;
            }
            accepted += 1;
            let (name, outcome) = take(&requests(plan, class, Outcome::ShadowLimited), "outcome");
            let (name, found_class) = take(&name, "class");
            let (name, found_plan) = take(&name, "plan");
            let expected = ("weir.requests_total", plan, class, "shadow_limited");
            assert_eq!((name.as_str(), &found_plan, &found_class, outcome.as_str()), expected);
        }
        assert!(accepted > 1000, "{accepted}");
    }
}
