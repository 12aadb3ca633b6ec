//! End-to-end suites and the demo.
