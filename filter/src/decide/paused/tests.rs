use proptest::prelude::*;

use super::world::{MILLISECOND, MINUTE, SECOND, START, Vm, World};
use super::*;

/// Minutes of demand for `times` the limit of 600, over gateways that get parts of it in turn.
fn demand(world: &mut World, minutes: u64, times: u64, parts: [u64; 2]) {
    let gateways = world.gateways.len();
    let sum: u64 = (0..gateways).map(|gateway| parts[gateway % 2]).sum();
    for gateway in 0..gateways {
        let rate = (10 * times * parts[gateway % 2]).div_ceil(sum);
        world.offer(gateway, rate, START, minutes * 60);
    }
    world.run();
}

fn most_in_a_minute(world: &World) -> usize {
    world.admitted_in(MINUTE).into_values().max().unwrap_or(0)
}

#[test]
fn a_fleet_admits_its_limit_and_no_more_with_few_calls() {
    println!("gateways workers shares demand  admitted of the limit  calls per 1,000");
    for (gateways, workers, calls_at_most) in
        [(1, 1, 22.0), (1, 2, 22.0), (2, 1, 30.0), (2, 2, 30.0), (4, 2, 40.0), (20, 1, 120.0)]
    {
        let (mut calls, mut admitted, mut windows) = (0, 0, 0);
        for parts in [[1, 1], [2, 1], [10, 1]] {
            for times in [2, 10, 100] {
                let mut world = World::new(gateways, workers, "600/minute", "");
                demand(&mut world, 3, times, parts);
                assert!(most_in_a_minute(&world) <= 600, "{gateways} {workers} {parts:?} {times}");
                let sum = world.admitted();
                println!(
                    "{gateways:8} {workers:7} {:>6} {times:5} x  {:20.1} %  {:15.1}",
                    format!("{}:{}", parts[0], parts[1]),
                    sum as f64 / 18.0,
                    world.service.calls as f64 * 1e3 / sum as f64
                );
                (calls, admitted, windows) = (calls + world.service.calls, admitted + sum, windows + 3);
            }
        }
        assert!(admitted as f64 >= 0.95 * 600.0 * f64::from(windows), "{gateways} gateways admit {admitted}");
        let calls = calls as f64 * 1e3 / admitted as f64;
        assert!(calls <= calls_at_most, "{gateways} gateways of {workers}: {calls} calls per 1,000");
    }
}

#[test]
fn two_gateways_under_an_even_load_make_few_calls() {
    for (quota, rate, calls_at_most) in [("600/minute", 10, 20.0), ("3000/minute", 50, 10.0)] {
        for workers in [1, 2] {
            let mut world = World::new(2, workers, quota, "");
            for gateway in 0..2 {
                world.offer(gateway, rate, START, 180);
            }
            world.run();
            let calls = world.service.calls as f64 * 1e3 / world.admitted() as f64;
            assert!(calls <= calls_at_most, "{quota}, {workers} workers: {calls} calls per 1,000");
        }
    }
}

#[test]
fn bursts_are_admitted_while_the_service_has_quota_however_far_it_is() {
    for round_trip in [0, 2, 10, 40] {
        for workers in [1, 2] {
            let mut world = World::new(1, workers, "60/minute", "");
            world.way = round_trip / 2..round_trip / 2 + 1;
            world.burst(0, 40, START + SECOND);
            world.run();
            assert_eq!(world.admitted(), 40, "{round_trip} ms, {workers} workers");
            world.burst(0, 40, START + 2 * SECOND);
            world.run();
            assert_eq!(
                (world.admitted(), world.with_status(429)),
                (60, 20),
                "{round_trip} ms, {workers} workers"
            );
            assert!(world.longest_wait() <= round_trip + 2, "{}", world.longest_wait());
        }
    }
}

#[test]
fn bursts_at_two_gateways_use_up_the_limit_and_no_more() {
    for round_trip in [0, 2, 10, 40] {
        for workers in [1, 2] {
            for (quota, limit) in [("60/minute", 60), ("600/minute", 600)] {
                let mut world = World::new(2, workers, quota, "");
                world.way = round_trip / 2..round_trip / 2 + 1;
                for round in 0..limit / 20 {
                    let when = START + (1 + u64::try_from(round).unwrap()) * SECOND;
                    world.burst(0, 40, when);
                    world.burst(1, 40, when);
                }
                world.run();
                let admitted = world.admitted();
                assert!(
                    (limit * 95 / 100..=limit).contains(&admitted),
                    "{admitted} of {quota}, {round_trip} ms, {workers} workers"
                );
            }
        }
    }
}

#[test]
fn bursts_one_after_the_other_use_up_nearly_all_of_the_limit_and_no_more() {
    for (gateways, limit, round_trip, workers) in [1, 2]
        .into_iter()
        .flat_map(|gateways| [60, 600, 6000].map(|limit| (gateways, limit)))
        .flat_map(|(gateways, limit)| {
            [(0, 1), (2, 2), (10, 1), (40, 1), (40, 2)]
                .map(|(round_trip, workers)| (gateways, limit, round_trip, workers))
        })
    {
        for (seed, apart) in (0..8).flat_map(|seed| [20, 100, 400].map(|apart| (seed, apart))) {
            let mut world = World::new(gateways, workers, &format!("{limit}/minute"), "");
            world.way = round_trip / 2..round_trip / 2 + 2;
            world.random ^= seed << 20;
            world.now.set(START + SECOND);
            let mut before = usize::MAX;
            while world.admitted() != before {
                before = world.admitted();
                world.burst_until_decided(40, apart);
            }
            assert!(
                (limit * 95 / 100..=limit).contains(&world.admitted()),
                "{} of {limit}, {gateways} gateways of {workers}, {round_trip} ms, seed {seed}, {apart} µs apart",
                world.admitted()
            );
        }
    }
}

#[test]
fn a_quota_of_a_second_is_requested_by_each_request_and_calls_do_not_queue() {
    let mut world = World::new(1, 1, "8/second", "");
    world.way = 20..21;
    world.burst(0, 8, START + 100 * MILLISECOND);
    world.run();
    assert_eq!(world.admitted(), 8);
    let mut world = World::new(1, 2, "1000/second", "");
    world.way = 2..4;
    world.offer(0, 900, START, 5);
    world.run();
    assert!(world.admitted() >= 4500 * 99 / 100, "{} of 4,500", world.admitted());
}

#[test]
fn two_thousand_requests_at_once_are_all_answered() {
    for (workers, quota, admitted) in [(1, "600/minute", 600), (2, "3000/minute", 2000)] {
        let mut world = World::new(1, workers, quota, "");
        world.way = 5..6;
        world.burst(0, 2000, START + SECOND);
        world.run();
        assert_eq!(world.decided.len(), 2000);
        if workers == 2 {
            assert_eq!(world.admitted(), admitted);
        }
        assert!(world.longest_wait() <= 250 + 63, "{} ms", world.longest_wait());
    }
}

#[test]
fn a_slow_key_takes_little_more_than_it_uses() {
    // One request in ten seconds at each of ten gateways: far from the limit, no request is refused.
    let mut world = World::new(10, 2, "600/minute", "");
    for gateway in 0..10 {
        for place in 0..18 {
            world.burst(gateway, 1, START + place * 10 * SECOND);
        }
    }
    world.run();
    assert_eq!(world.admitted(), 180);
    assert!(world.service.counters.values().all(|taken| *taken <= 120), "{:?}", world.service.counters);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_lost_late_or_out_of_order_no_window_admits_more_than_the_limit(
        gateways in 1_usize..6, workers in 1_usize..4, times in 1_u64..20, seed: u64, slowest in 2_u64..400,
        loses in prop::option::of(2_u64..50), ahead in prop::collection::vec(-900_i64..900, 6), upstream in 0_u64..300,
    ) {
        let mut world = World::new(gateways, workers, "600/minute", r#", "on_unavailable": "deny""#);
        (world.way, world.loses_one_of, world.random, world.upstream) = (1..slowest, loses, seed | 1, upstream);
        for (gateway, ahead) in world.gateways.iter_mut().zip(&ahead) {
            for worker in gateway {
                worker.host.ahead = ahead * 1_000_000;
            }
        }
        demand(&mut world, 3, times, [3, 1]);
        prop_assert!(most_in_a_minute(&world) <= 600, "{:?}", world.admitted_in(MINUTE));
    }

    #[test]
    fn by_default_too_as_long_as_the_service_answers_in_time(
        gateways in 1_usize..5, workers in 1_usize..4, seed: u64, slowest in 1_u64..60, burst in 1_usize..200, upstream in 0_u64..100,
        quota in prop::sample::select(vec![("60/minute", 60), ("600/minute", 600), ("7/minute", 7)]),
    ) {
        let (quota, limit) = quota;
        let mut world = World::new(gateways, workers, quota, "");
        (world.way, world.random, world.upstream) = (0..slowest, seed | 1, upstream);
        for round in 0..20 {
            for gateway in 0..gateways {
                world.burst(gateway, burst, START + SECOND + round * 300 * MILLISECOND);
            }
        }
        world.run();
        let (admitted, offered) = (world.admitted(), 20 * burst * gateways);
        prop_assert!(admitted <= limit, "{} of {}", admitted, quota);
        prop_assert!(world.longest_wait() <= 250 + 63, "{} ms", world.longest_wait());
        if offered >= 4 * limit && gateways <= 2 {
            // Each message takes its own time here, so that calls overtake each other.
            prop_assert!(admitted * 100 >= limit * 92 - 100, "{} of {}", admitted, quota);
        }
    }
}

#[test]
fn while_the_service_does_not_answer_each_gateway_does_what_it_is_configured_to() {
    let rows = [
        // admitted in the first minute, of 2,400; by two gateways of two workers
        (r#", "on_unavailable": "local", "local_percent": 10"#, 120, 429),
        (r#", "on_unavailable": "local", "local_percent": 50"#, 600, 429),
        (r#", "on_unavailable": "allow""#, 2400, 0),
        (r#", "on_unavailable": "deny""#, 0, 503),
    ];
    for (fields, admitted, refusal) in rows {
        // It is there and silent, the host knows no such cluster, or its circuit breaker is full.
        for status in [0, 2, 10] {
            let mut world = World::new(2, 2, "600/minute", fields);
            world.loses_one_of = Some(1);
            for worker in world.gateways.iter_mut().flatten() {
                worker.host.status = status;
            }
            demand(&mut world, 1, 4, [1, 1]);
            // What arrives in the last `timeout` is decided in the next minute.
            let late = world.admitted_in(MINUTE).get(&(START / MINUTE + 1)).copied().unwrap_or(0);
            assert!(late <= 20, "{fields} {status}");
            assert_eq!(
                world.admitted() - late,
                admitted - if admitted == 2400 { late } else { 0 },
                "{fields} {status}"
            );
            assert_eq!(world.admitted() + world.with_status(refusal), if refusal == 0 { 4800 } else { 2400 });
        }
    }
}

#[test]
fn a_service_that_does_not_answer_is_asked_ever_less_often_and_used_again_when_it_does() {
    let mut world = World::new(1, 1, "600/minute", r#", "on_unavailable": "deny""#);
    world.loses_one_of = Some(1);
    demand(&mut world, 1, 10, [1, 1]);
    let calls = world.gateways[0][0].host.next_call;
    assert!(calls <= 64 + 100, "{calls} calls in a minute");
    world.loses_one_of = None;
    world.offer(0, 100, START + 2 * MINUTE, 60);
    world.run();
    assert_eq!(world.admitted_in(MINUTE).get(&(START / MINUTE + 2)), Some(&600));
}

fn answer(world: &mut World, call: u32, response: Response) {
    let vm = &mut world.gateways[0][0];
    vm.fleet.answer(&mut vm.host, &mut vm.limiter, call, Ok(response));
    vm.host.calls.clear();
    world.look_at((0, 0));
}

fn statuses(world: &World) -> Vec<u16> {
    world.decided.iter().map(|(_, status, _)| *status).collect()
}

fn units(left: u32, until_reset: u64) -> Response {
    Response { grant: Grant::Units { left: Some(left) }, until_reset: Some(until_reset) }
}

/// Two requests of one worker, each with its call.
fn two_calls(fields: &str) -> (World, [u32; 2]) {
    let mut world = World::new(1, 1, "600/minute", fields);
    let calls = [(); 2].map(|()| world.arrive((0, 0)).unwrap());
    world.gateways[0][0].host.calls.clear();
    (world, calls)
}

#[test]
fn an_answer_is_for_the_stream_that_asked() {
    let (mut world, [first, second]) = two_calls("");
    answer(&mut world, second, units(598, 60));
    assert_eq!((statuses(&world), world.is_waiting(1)), (vec![0], true));
    answer(&mut world, first, units(597, 60));
    assert_eq!(statuses(&world), [0, 0]);
}

#[test]
fn a_refusal_that_overtakes_a_grant_refuses_nobody_whom_the_grant_serves() {
    for seed in 0..40 {
        let mut world = World::new(1, 1, "60/hour", "");
        (world.way, world.random) = (1..20, world.random ^ (seed << 20));
        world.gateways[0][0].host.max_requests = 8;
        for (admitted, what) in [(40..=40, "the first burst"), (57..=60, "the second")] {
            world.burst_until_decided(40, 0);
            assert!(admitted.contains(&world.admitted()), "{what}, seed {seed}: {}", world.admitted());
        }
    }
}

#[test]
fn a_call_whose_stream_ended_is_made_again_for_those_who_shared_it() {
    let mut world = World::new(1, 1, "600/minute", "");
    let calls: Vec<_> = (0..=MAX_CALLS).map(|_| world.arrive((0, 0))).collect();
    assert_eq!(calls.iter().filter(|call| call.is_none()).count(), 1, "the last request shares a call");
    let Vm { limiter, fleet, host, .. } = &mut world.gateways[0][0];
    host.gone = Some(1);
    host.calls.clear();
    fleet.abandon(host, limiter, calls[0].unwrap());
    fleet.tick(host, limiter);
    assert_eq!(host.calls.len(), 1);
}

#[test]
fn an_answer_about_another_window_grants_nothing() {
    let rows = [
        // asked and answered, in milliseconds; seconds until reset as the service sees it
        ("the window has ended", 59_900, 60_010, 0),
        ("the service is still in the window before", 10, 20, 1),
        ("the service is in the next window already", 59_900, 59_910, 60),
    ];
    for (what, asked, answered, until_reset) in rows {
        let mut world = World::new(1, 1, "600/minute", "");
        world.now.set(START + asked * MILLISECOND);
        let call = world.arrive((0, 0)).unwrap();
        world.gateways[0][0].host.calls.clear();
        world.now.set(START + answered * MILLISECOND);
        let vm = &mut world.gateways[0][0];
        vm.fleet.answer(&mut vm.host, &mut vm.limiter, call, Ok(units(590, until_reset)));
        assert!(vm.fleet.pop_decided().is_none() && vm.host.calls.is_empty(), "{what}");
        vm.fleet.tick(&mut vm.host, &mut vm.limiter);
        assert_eq!(vm.host.calls.len(), 1, "{what}: it is asked for again");
        assert_eq!(vm.fleet.drain()[Event::Dropped as usize], 1, "{what}");
    }
}

#[test]
fn a_full_circuit_breaker_is_not_an_outage() {
    let mut world = World::new(1, 1, "600/minute", r#", "on_unavailable": "deny""#);
    world.gateways[0][0].host.status = 10;
    assert_eq!(world.arrive((0, 0)), None);
    let vm = &mut world.gateways[0][0];
    assert!(vm.fleet.pop_decided().is_none());
    vm.host.status = 0;
    world.look_at((0, 0));
    world.run();
    assert_eq!(statuses(&world), [0]);
    assert_eq!(world.gateways[0][0].fleet.drain()[Event::Failed as usize], 0);
}

#[test]
fn a_limit_that_the_service_does_not_have_is_on_unavailables_and_reported_once() {
    for (fields, admitted) in
        [("", 60), (r#", "on_unavailable": "allow""#, 100), (r#", "on_unavailable": "deny""#, 0)]
    {
        let mut world = World::new(1, 1, "600/minute", fields);
        world.service.grants = Some(Grant::Unconfigured);
        for second in 0..10 {
            world.burst(0, 10, START + second * SECOND);
        }
        world.run();
        assert_eq!(world.admitted(), admitted, "{fields}");
        let Vm { fleet, host, .. } = &mut world.gateways[0][0];
        assert!(fleet.drain()[Event::Unconfigured as usize] > 0);
        let lines: Vec<_> = host.logged.iter().filter(|line| line.contains("no limit for class")).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}

#[test]
fn an_unlimited_descriptor_admits_every_request() {
    let mut world = World::new(1, 1, "60/minute", "");
    world.service.grants = Some(Grant::Unlimited);
    for second in 0..10 {
        world.burst(0, 6, START + second * SECOND);
    }
    world.run();
    assert_eq!(world.admitted(), 60);
}

#[test]
fn a_service_that_does_not_report_what_is_left_is_asked_for_ever_less_until_it_refuses() {
    let mut world = World::new(1, 1, "600/minute", "");
    let over = Response { grant: Grant::OverLimit { left: None }, until_reset: None };
    let call = world.arrive((0, 0)).unwrap();
    answer(&mut world, call, over);
    assert_eq!(statuses(&world), [429]);
}

#[test]
fn in_shadow_mode_no_request_waits() {
    let mut world = World::new(1, 1, "60/minute", r#"}, "enforcement": "shadow", "headers": {"ietf": true"#);
    for second in 0..20 {
        world.burst(0, 10, START + second * SECOND);
    }
    world.run();
    assert_eq!((world.admitted(), world.longest_wait()), (200, 0));
    assert!(world.service.counters.values().all(|taken| *taken >= 60), "{:?}", world.service.counters);
}

#[test]
fn headers_state_what_the_whole_fleet_has_left() {
    let mut world = World::new(1, 1, "600/minute", "");
    let call = world.arrive((0, 0)).unwrap();
    let vm = &mut world.gateways[0][0];
    // Others have taken 400.
    vm.fleet.answer(&mut vm.host, &mut vm.limiter, call, Ok(units(199, 60)));
    let (_, verdict) = vm.fleet.pop_decided().unwrap();
    let x = verdict.report.unwrap().x_ratelimit(crate::config::LimitHeader::PerWindow).unwrap();
    assert_eq!((x.limit, x.remaining), (600, 199));
}

#[test]
fn without_ticks_or_a_clock_no_request_waits() {
    for (without, status) in [("allow", 0), ("deny", 503)] {
        let fields = format!(r#", "on_unavailable": "{without}""#);
        let mut world = World::new(1, 1, "600/minute", &fields);
        world.gateways[0][0].fleet = PausedStreams::new(false);
        assert_eq!(world.arrive((0, 0)), None);
        assert_eq!(statuses(&world), [status], "{without}");
    }
}
