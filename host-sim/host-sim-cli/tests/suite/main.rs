//! What a filter's author meets: the gateway, scenarios and the command.

#[path = "../../../host-sim/tests/guests/mod.rs"]
#[expect(dead_code, reason = "one of them is for random host calls alone")]
mod guests;

#[cfg(feature = "scenarios")]
mod against;
#[cfg(feature = "scenarios")]
mod authors;
#[cfg(feature = "scenarios")]
mod cases;
mod commands;
#[cfg(feature = "scenarios")]
mod framings;
mod gateway;
mod gateway_callouts;
mod http;
mod page;
mod recent;
#[cfg(feature = "scenarios")]
mod runs;
#[cfg(feature = "scenarios")]
mod scenario_page;
#[cfg(feature = "scenarios")]
mod scenarios;
mod serving;
