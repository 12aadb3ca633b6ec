//! Real Envoys that share quotas through a ledger, with a real Redis.

mod alike;
mod basics;
mod bursts;
mod clients;
mod costs;
mod edges;
mod fleet;
mod floods;
mod modes;
mod outages;
mod recovery;
mod refusals;
mod sizing;
#[path = "../../../ledger/tests/suite/store.rs"]
#[expect(dead_code, reason = "the ledger's own tests use the rest")]
mod store;
mod stub;
mod stubbed;
