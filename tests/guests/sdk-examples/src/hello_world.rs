//! A timer and a line in the log.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use proxy_wasm::traits::{Context, HttpContext};

thread_local! {
    static TICKS: Cell<u32> = const { Cell::new(0) };
}

/// Tells the time; true with the last time that it does.
pub(crate) fn tick(now: SystemTime) -> bool {
    let ticks = TICKS.get() + 1;
    TICKS.set(ticks);
    let years = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / (365 * 86_400));
    log::info!("tick {ticks}, {} years after 1970", if years > 50 { "more than fifty" } else { "few" });
    ticks >= 2
}

/// Does nothing with a request.
pub(crate) struct Hello;

impl Context for Hello {}
impl HttpContext for Hello {}
