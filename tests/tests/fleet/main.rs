//! Real Envoys that share quotas through a ledger, with a real Redis.

mod alike;
/// What takes the whole machine, or measures time, and so runs by itself.
mod alone {
    mod bursts;
    mod costs;
    mod edges;
    mod floods;
    mod outages;
    mod recovery;
    mod stubbed;
}
mod basics;
mod clients;
mod costs;
mod durable;
mod fleet;
mod modes;
mod outages;
mod periods;
mod refusals;
mod sizing;
#[path = "../../../ledger/tests/suite/store.rs"]
#[expect(dead_code, reason = "the ledger's own tests use the rest")]
mod store;
mod stub;
mod stubbed;
mod usage;
