//! Timers and clocks.

use std::time::Duration;

use host_sim::{Clock, Host, Plugin};

use crate::{host_of, lines};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_timer_fires_on_the_main_vm_and_on_every_worker() {
    let host = host_of("timers", Host::builder().workers(3), Plugin::default());
    host.tick();
    assert_eq!(host.metrics().counter("ticks"), 0, "none is due yet");
    host.clock().advance(SECOND);
    host.tick();
    host.tick();
    assert_eq!(host.metrics().counter("ticks"), 4, "each fired once");
}

#[test]
fn advancing_fires_each_timer_whenever_it_is_due() {
    let builder = Host::builder().clock(Clock::at_unix(Duration::from_secs(100)));
    let host = host_of("timers", builder, Plugin::default());
    host.advance(Duration::from_millis(2500));
    assert_eq!(lines(&host), ["second 101", "second 101", "second 102", "second 102"]);
    assert_eq!(host.clock().wall(), Duration::from_millis(102_500));
}

#[test]
fn a_wall_that_steps_back_does_not_hold_timers_up() {
    let builder = Host::builder().clock(Clock::at_unix(Duration::from_secs(1000)));
    let host = host_of("timers", builder, Plugin::default());
    host.clock().step_wall_back(Duration::from_secs(500));
    host.advance(SECOND);
    assert_eq!(lines(&host), ["second 501", "second 501"]);
}
