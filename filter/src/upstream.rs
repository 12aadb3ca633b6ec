//! Whether the upstream sends rate-limit headers of its own, which the filter's replace.
//!
//! Replacing has the host look for every name, and Envoy makes a map of all headers of a response to do so: half as much again as
//! adding. Nearly no upstream sends such headers, so they are looked for in the first responses of a VM and then in one of some,
//! and are replaced from the first on that has any.

/// As many responses of a VM are all looked at.
const FIRST: u32 = 1024;
/// Of those afterwards one in so many.
const ONE_IN: u32 = 32;

/// What is known of the upstream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Upstream {
    responses: u32,
    sends_own: bool,
}

impl Upstream {
    /// Whether this response's headers are to be put in the place of the upstream's, rather than beside them. `has_own` looks whether
    /// it has any.
    pub fn replaces(&mut self, has_own: impl FnOnce() -> bool) -> bool {
        if !self.sends_own {
            let is_due = self.responses < FIRST || self.responses.is_multiple_of(ONE_IN);
            // Which of the later ones is all the same, so the count may wrap around.
            self.responses = self.responses.checked_add(1).unwrap_or(FIRST);
            self.sends_own = is_due && has_own();
        }
        self.sends_own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_known_by_its_first_response_with_headers_of_its_own() {
        for first_with_own in [0, 1, FIRST - 1, FIRST, FIRST + 1, 5000] {
            let mut upstream = Upstream::default();
            let replaced_from =
                (0..10_000).position(|response| upstream.replaces(|| response >= first_with_own));
            let late = replaced_from.unwrap() as u32 - first_with_own;
            assert!(late < if first_with_own < FIRST { 1 } else { ONE_IN }, "{first_with_own}: {late}");
            assert!(upstream.replaces(|| false), "known once and for all");
        }
    }

    #[test]
    fn an_upstream_without_any_is_seldom_asked() {
        let mut upstream = Upstream { responses: u32::MAX - 5, ..Upstream::default() };
        let asked = (0..32_000).filter(|_| {
            let mut asked = false;
            upstream.replaces(|| {
                asked = true;
                false
            });
            asked
        });
        assert_eq!(asked.count(), 1000);
    }
}
