//! Where a client stands, as response headers.
//!
//! `X-RateLimit-*` and `Retry-After` follow the contract: a count per hour, what is left of the window, and its end in UTC epoch
//! seconds; of a rate, what is there at once, and when all of it is. `RateLimit-Policy` and `RateLimit` follow draft-ietf-httpapi-ratelimit-headers-11 and list every enforced quota.

use super::counting::Charged;
use crate::config::{HeaderOptions, LimitHeader};
use crate::count::charge::Standing;
use crate::quota::{Mode, Quota, list};

/// The names that a browser's script may read only if `Access-Control-Expose-Headers` lists them.
pub const EXPOSED: &str =
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, RateLimit-Policy, RateLimit";

/// The quota that the `X-` headers speak of.
#[derive(Clone, Copy, Debug)]
pub struct Tightest<'c> {
    /// The quota.
    pub quota: &'c Quota,
    /// Where the client stands in it.
    pub standing: &'c Standing,
    /// When all of it is there again, in UTC epoch seconds: the end of its window.
    pub reset: u64,
}

impl Charged {
    /// Each quota, and where the client stands in it.
    pub fn standings(&self) -> impl Iterator<Item = (&Quota, &Standing)> {
        self.demand.quotas.quotas().iter().zip(&self.standings)
    }

    fn enforced(&self) -> impl Iterator<Item = (&Quota, &Standing)> {
        self.standings().filter(|(quota, _)| quota.mode == Mode::Enforced)
    }

    /// The quotas that refused, or would refuse were they enforced.
    pub fn exhausted(&self) -> impl Iterator<Item = &Quota> {
        self.enforced().filter_map(|(quota, standing)| standing.exhausted.then_some(quota))
    }

    /// Whether a quota has no room: of a request that was admitted, one in shadow mode.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.standings.iter().any(|standing| standing.exhausted)
    }

    /// The quota that the `X-` headers speak of: the one that refused, the last to have room again if several did; otherwise the one with the
    /// least share left, the first if several have. `None` if no quota is enforced. Of requests in flight they speak only if that refused.
    #[must_use]
    pub fn tightest(&self) -> Option<Tightest<'_>> {
        let (cost, at) = (self.demand.cost, self.at);
        let spoken_of =
            |(quota, standing): &(&Quota, &Standing)| standing.exhausted || !quota.window.is_in_flight();
        let tightest = self.enforced().filter(spoken_of).reduce(|tightest, other| {
            let ((one, at_one), (another, at_another)) = (tightest, other);
            let is_tighter = match (at_one.exhausted, at_another.exhausted) {
                (true, true) => {
                    at_another.seconds_until_room(another, cost, at)
                        >= at_one.seconds_until_room(one, cost, at)
                }
                (true, false) => false,
                (false, true) => true,
                (false, false) => {
                    // left / limit, without division.
                    let share = |left: u32, other: &Quota| u64::from(left) * u64::from(other.limit.get());
                    share(at_another.left(another), one) < share(at_one.left(one), another)
                }
            };
            if is_tighter { other } else { tightest }
        });
        tightest.map(|(quota, standing)| Tightest { quota, standing, reset: standing.reset(quota) })
    }

    /// Whether it was quotas of the caller's organisation that refused.
    #[must_use]
    pub fn is_refused_by_organisation(&self) -> bool {
        let (own, of_organisation) = (self.demand.quotas.own(), self.demand.quotas.shared());
        let standings = self.standings.get(own.len()..).unwrap_or_default();
        let mut standings = of_organisation.iter().zip(standings);
        standings.any(|(quota, standing)| standing.exhausted && quota.mode == Mode::Enforced)
    }

    /// `Retry-After` of a refusal: whole seconds until the last exhausted quota has room again, at least 1.
    #[must_use]
    pub fn retry_after(&self, tightest: Option<Tightest<'_>>) -> u64 {
        let wait = |Tightest { quota, standing, reset }: Tightest<'_>| match quota.window.is_shared() {
            true => self.at.seconds_until(reset),
            false => standing.seconds_until_room(quota, self.demand.cost, self.at),
        };
        tightest.map_or(0, wait).max(1)
    }

    /// Hands `set` the headers that `options` ask for, names in lower case; none if no quota is enforced.
    ///
    /// # Errors
    /// The first that `set` answers.
    pub fn write_headers<E>(
        &self,
        options: &HeaderOptions,
        mut set: impl FnMut(&'static str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        if options.x_ratelimit
            && let Some(Tightest { quota, standing, reset }) = self.tightest()
        {
            let limit = match options.x_ratelimit_limit {
                LimitHeader::PerHour => quota.per_hour(),
                LimitHeader::PerWindow => quota.limit.get().into(),
            };
            // Requests left in the window, and its end in UTC epoch seconds.
            let remaining = standing.left(quota) / self.demand.cost.max(1);
            let mut digits = itoa::Buffer::new();
            set("x-ratelimit-limit", digits.format(limit))?;
            set("x-ratelimit-remaining", digits.format(remaining))?;
            set("x-ratelimit-reset", digits.format(reset))?;
        }
        if options.ietf && self.enforced().next().is_some() {
            set("ratelimit-policy", &self.demand.quotas.policy(self.at))?;
            set("ratelimit", &self.ratelimit())?;
        }
        Ok(())
    }

    /// The value of `RateLimit`: `"standard";r=12;t=37`. Of a rate `t` is when there are more, and left out when all are there. Of
    /// requests in flight nobody knows it.
    pub(super) fn ratelimit(&self) -> String {
        list(self.standings().map(|(quota, standing)| {
            let left = standing.left(quota).into();
            let more = standing.seconds_until_more(quota, self.at);
            (quota, [("\";r=", Some(left)), (if more.is_some() { ";t=" } else { "" }, more)])
        }))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{AllowOrigin, UpstreamHeaders};
    use crate::count::counters::Counters;
    use crate::count::fingerprint::Who;
    use crate::count::levels::{Demand, Levels};
    use crate::count::rate::Flow;
    use crate::count::shared_data::VmLocalData;
    use crate::count::table::Capacity;
    use crate::quota::QuotaSet;
    use crate::time::Timestamp;

    /// A request of class 0 at 100.25 s: for each quota its rate, its mode, and the units used.
    fn report(quotas: &[(&str, Mode, u32)], cost: u32, exhausted: &[bool]) -> Charged {
        charged(quotas, cost, exhausted, Timestamp::from_nanos(100_250_000_000))
    }

    /// The same at another instant.
    pub(in crate::decide) fn charged(
        quotas: &[(&str, Mode, u32)],
        cost: u32,
        exhausted: &[bool],
        at: Timestamp,
    ) -> Charged {
        let quota = |(rate, mode, _): &(&str, Mode, u32)| {
            let rate: crate::config::quota::QuotaTerms = rate.parse().unwrap();
            let name = format!("q-{}", rate.window.name());
            Quota { name, limit: rate.limit.0, window: rate.window, mode: *mode, refundable: true }
        };
        let standing = |((rate, _, used), exhausted): (&(&str, Mode, u32), &bool)| Standing {
            used: *used,
            index: rate.parse::<crate::config::quota::QuotaTerms>().unwrap().window.at(at).index,
            generation: 0,
            exhausted: *exhausted,
            flow: Flow::default(),
        };
        let capacity = Capacity { known: 4, strangers: 4 };
        let counters = Counters::open(&mut VmLocalData::default(), [7; 16], "", capacity).unwrap();
        Charged {
            demand: Demand {
                quotas: Arc::new(QuotaSet::new(quotas.iter().map(quota).collect())),
                levels: Levels { own: counters.counter(Who::Subscriber("a"), "standard"), others: None },
                cost,
            },
            standings: quotas.iter().zip(exhausted).map(standing).collect(),
            at,
            class: 0,
            is_stranger: false,
            is_grpc: false,
            is_open: false,
            is_in_flight: false,
            meter: None,
        }
    }

    fn all(report: &Charged, limit: LimitHeader) -> String {
        let upstream = UpstreamHeaders::Replace;
        let options = HeaderOptions {
            x_ratelimit: true,
            x_ratelimit_limit: limit,
            ietf: true,
            expose_cors: false,
            upstream,
            in_shadow: false,
            allow_origin: AllowOrigin::None,
        };
        let mut all = String::new();
        let Ok(()) = report.write_headers(&options, |name, value| {
            all.push_str(&format!("{name}: {value}\n"));
            Ok::<_, std::convert::Infallible>(())
        });
        all
    }

    #[test]
    fn a_client_is_told_the_hourly_figure_what_is_left_and_when_it_ends() {
        insta::assert_snapshot!(
            all(&report(&[("60/minute", Mode::Enforced, 1)], 1, &[false]), LimitHeader::PerHour),
            @r#"
        x-ratelimit-limit: 3600
        x-ratelimit-remaining: 59
        x-ratelimit-reset: 120
        ratelimit-policy: "q-minute";q=60;w=60
        ratelimit: "q-minute";r=59;t=20
        "#
        );
    }

    #[test]
    fn the_windows_own_number_is_sent_on_request_and_a_month_has_its_actual_length() {
        insta::assert_snapshot!(
            all(&report(&[("2/second", Mode::Enforced, 0), ("9/month", Mode::Enforced, 8)], 1, &[false; 2]), LimitHeader::PerWindow),
            @r#"
        x-ratelimit-limit: 9
        x-ratelimit-remaining: 1
        x-ratelimit-reset: 2678400
        ratelimit-policy: "q-second";q=2;w=1, "q-month";q=9;w=2678400
        ratelimit: "q-second";r=2;t=1, "q-month";r=1;t=2678300
        "#
        );
    }

    #[test]
    fn the_x_headers_speak_of_the_quota_that_refused_and_otherwise_of_the_tightest() {
        use Mode::{Enforced, Shadow};
        let rows = [
            (
                vec![("10/second", Enforced, 5), ("100/minute", Enforced, 20)],
                vec![false, false],
                Some("q-second"),
            ),
            (
                vec![("10/second", Enforced, 1), ("100/minute", Enforced, 20)],
                vec![false, false],
                Some("q-minute"),
            ),
            (
                vec![("10/second", Enforced, 5), ("100/minute", Enforced, 50)],
                vec![false, false],
                Some("q-second"),
            ),
            (
                vec![("10/second", Enforced, 10), ("100/minute", Enforced, 100)],
                vec![true, false],
                Some("q-second"),
            ),
            (
                vec![("10/second", Enforced, 10), ("100/minute", Enforced, 100)],
                vec![true, true],
                Some("q-minute"),
            ),
            (
                vec![("10/second", Shadow, 99), ("100/minute", Enforced, 0)],
                vec![true, false],
                Some("q-minute"),
            ),
            (vec![("10/second", Shadow, 99)], vec![true], None),
        ];
        for (quotas, exhausted, tightest) in rows {
            let report = report(&quotas, 1, &exhausted);
            let found = report.tightest().map(|tightest| tightest.quota.name.as_str());
            assert_eq!(found, tightest, "{quotas:?} {exhausted:?}");
            assert_eq!(all(&report, LimitHeader::PerHour).is_empty(), tightest.is_none());
        }
    }

    #[test]
    fn remaining_counts_requests_and_a_lowered_limit_leaves_none() {
        for (used, cost, remaining) in [(0, 7, 8), (4, 7, 8), (5, 7, 7), (60, 7, 0), (75, 1, 0)] {
            let report = report(&[("60/minute", Mode::Enforced, used)], cost, &[false]);
            let headers = all(&report, LimitHeader::PerHour);
            let expected = format!("x-ratelimit-remaining: {remaining}\n");
            assert!(headers.contains(&expected), "{used} used at cost {cost}: {headers}");
        }
    }

    #[test]
    fn retry_after_is_whole_seconds_never_before_the_reset_and_at_least_one() {
        let seconds = |nanos: u64| {
            let mut charged =
                charged(&[("1/minute", Mode::Enforced, 1)], 1, &[true], Timestamp::from_nanos(nanos));
            charged.standings[0].index = 1;
            charged.retry_after(charged.tightest())
        };
        for (nanos, expected) in [
            (60_000_000_000, 60),
            (60_000_000_001, 60),
            (118_999_999_999, 2),
            (119_000_000_000, 1),
            (119_999_999_999, 1),
            (121_000_000_000, 1),
        ] {
            assert_eq!(seconds(nanos), expected, "at {nanos} ns");
        }
    }
}
