//! End-to-end suites and the demo: the built filter in front of the real backend, in the simulator and in a real Envoy.

pub mod artifacts;
