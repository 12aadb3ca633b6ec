//! Random bytes for guests: from a seed, so that a run can be repeated, or from the system.

use crate::vm_name::VmName;

/// Where a VM's `random_get` takes its bytes from.
#[derive(Debug)]
pub(crate) enum Randomness {
    Seeded(fastrand::Rng),
    System,
}

impl Randomness {
    /// VMs of one seed draw different bytes, the same in every run.
    pub(crate) fn new(seed: Option<u64>, vm: VmName, generation: u64) -> Self {
        let Some(seed) = seed else { return Self::System };
        let offset = match vm {
            VmName::Base => 0,
            VmName::Canary => 1,
            VmName::Main => 2,
            VmName::Worker(index) => u64::try_from(index).unwrap_or(u64::MAX - 3) + 3,
        };
        let offset = offset.wrapping_add(generation << 32);
        Self::Seeded(fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(offset)))
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), getrandom::Error> {
        match self {
            Self::Seeded(rng) => rng.fill(bytes),
            Self::System => getrandom::fill(bytes)?,
        }
        Ok(())
    }
}
