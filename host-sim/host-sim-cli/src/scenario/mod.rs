//! Scenarios: requests, steps of the clock, faults, and what is expected of them, in a file.
//!
//! ```yaml
//! workers: 2
//! clock: 2026-01-01T00:00:00Z
//! steps:
//! - name: five requests pass
//!   request: {path: /links, headers: {authorization: Bearer k}}
//!   repeat: 5
//!   expect: {status: 200}
//! - name: the sixth is refused
//!   request: {path: /links, headers: {authorization: Bearer k}, worker: 1}
//!   expect: {status: 429, local_reply: true, headers: {retry-after: "60"}}
//! - advance: 60s
//! - name: a new minute
//!   request: {path: /links, headers: {authorization: Bearer k}}
//!   expect: {status: 200}
//! ```

mod answer;
mod check;
mod error;
mod expect;
mod file;
mod mask;
mod message;
mod report;
mod run;
mod seen;
mod simulator;

pub(crate) use self::{
    answer::Sequence,
    check::Check,
    mask::Masks,
    report::log_lines,
    run::{Taking, Target},
    seen::{Called, Fields, Message, Seen, lines_of_calls},
};
pub use self::{
    answer::{Answer, Answers},
    check::Miss,
    error::ScenarioError,
    expect::{Expect, ExpectedCall},
    file::{Call, FaultStep, Interleave, Lines, Link, Scenario, Step},
    report::{FRAMINGS, Report, StepReport},
    run::{Options, chain, run},
};
