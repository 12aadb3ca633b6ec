//! Whether a filter tells apart the pieces in which bodies reach it.

use std::num::NonZeroUsize;

use host_sim::Framing;

use super::{check::Miss, report::Report};

/// 16 KiB: what Envoy reads at once from many connections.
const CHUNK: NonZeroUsize = NonZeroUsize::new(16 * 1024).expect("it is not zero");

/// The framings that a filter must not tell apart.
pub const FRAMINGS: [Framing; 4] =
    [Framing::Http1, Framing::Http2, Framing::Pieces(NonZeroUsize::MIN), Framing::Pieces(CHUNK)];

impl Report {
    /// Adds as misses what clients and upstreams have seen otherwise in `other`, a run of the same scenario with another
    /// framing.
    pub fn compare(&mut self, other: Self, framing: Framing) {
        for (step, other) in self.steps.iter_mut().zip(other.steps) {
            let mut differs = false;
            for (index, (expected, found)) in step.outcomes.iter().zip(&other.outcomes).enumerate() {
                if expected != found {
                    differs = true;
                    let what = format!("request {} with framing {framing}", index + 1);
                    step.misses.push(Miss { what, expected: expected.clone(), found: found.clone() });
                }
            }
            if differs && step.causes.is_empty() {
                (step.log, step.trace) = (other.log, other.trace);
                step.causes = host_sim::causes(&step.trace);
            }
        }
    }
}
