//! VMs of a process that keep one list, of a service that changes, fails and lies, in a simulation that a seed drives.

mod process;

use std::collections::BTreeSet;

use self::process::{Fault, Form, MILLI, Process, Service};
use super::page::tests::config;
use super::*;
use crate::config::hex;
use crate::count::fingerprint::KeyDigest;
use crate::count::swap::CounterHost;
use crate::event::Event::{
    DirectoryBrokenOff, DirectoryBytes, DirectoryChanged, DirectoryFailed, DirectoryLed, DirectoryMalformed,
    DirectoryUnchanged,
};

/// A row of a page.
pub(crate) fn row(key: &KeyDigest, subscriber: &str, plan: &str) -> String {
    format!(r#"{{"sha256": "{}", "subscriber": "{subscriber}", "plan": "{plan}"}}"#, hex(key))
}

/// Has a leader of a configuration's directory load these rows.
pub(crate) fn load(host: &mut impl CounterHost, config: &Config, rows: &[String]) {
    let settings = config.settings.directory.clone().unwrap();
    let mut directory = Directory::new(settings, &config.settings.namespace, 1, [9; 16]);
    let now = host.now().unwrap();
    directory.look(host, now).unwrap();
    assert!(directory.poll(now).is_some());
    let body = format!(r#"{{"keys": [{}]}}"#, rows.join(","));
    let news = directory.answer(host, &config.catalog, Some((b"200", None)), body.as_bytes(), now);
    assert!(matches!(news, None | Some(News::Skipped(..))), "{news:?}");
    while directory.has_work() {
        assert_eq!(directory.work(host, 1000, now), None);
    }
    directory.give_up(host).unwrap();
}

const FORMS: [Form; 4] = [Form::Pages(7), Form::Pages(1000), Form::Document, Form::Plain];

#[test]
fn whatever_the_form_of_the_service_one_vm_polls_and_all_know_its_keys() {
    for form in FORMS {
        let mut process = Process::new(form, 3, "");
        for key in 0..60 {
            process.service.set(key, Some(["free", "pro"][usize::from(key % 2)]));
        }
        assert_eq!(process.plan(0, 1).as_deref(), Some(""), "not known yet");
        process.rounds(10);
        process.assert_agreed(&format!("{form:?}, the first list"));
        assert_eq!(process.leaders(), [0]);
        process.sums([]);
        process.service.set(3, None);
        process.service.set(4, Some("pro"));
        process.service.set(100, Some("free"));
        process.service.set(101, Some("free"));
        process.service.set(101, None);
        process.rounds(15);
        process.assert_agreed(&format!("{form:?}, after changes"));
        let sums = process.sums([DirectoryChanged, DirectoryFailed, DirectoryMalformed]);
        assert_eq!(sums, [1, 0, 0], "{form:?}");
        process.rounds(30);
        let [changed, unchanged] = process.sums([DirectoryChanged, DirectoryUnchanged]);
        assert!(changed == 0 && unchanged >= 2, "{form:?}: {changed}, {unchanged}");
    }
}

#[test]
fn a_key_is_revoked_by_changes_whose_keys_are_null_or_left_out() {
    for keys in [r#""keys": null, "#, ""] {
        let mut process = Process::new(Form::Pages(1000), 2, "");
        (0..10).for_each(|key| process.service.set(key, Some("pro")));
        process.rounds(15);
        process.service.empty_keys = keys;
        process.service.set(7, None);
        process.rounds(15);
        process.assert_agreed(keys);
        assert_eq!(process.sums([DirectoryMalformed]), [0], "{keys}");
    }
}

#[test]
fn a_list_whose_keys_are_null_is_empty_and_an_answer_that_names_no_list_changes_nothing() {
    let mut process = Process::new(Form::Document, 2, "");
    (0..10).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(15);
    process.service.document = Some(r#"{"error": "later"}"#);
    process.rounds(15);
    process.assert_agreed("after an error that is JSON");
    assert!(process.sums([DirectoryMalformed]) > [0]);
    process.service.document = Some(r#"{"keys": null}"#);
    process.service.keys.clear();
    process.rounds(30);
    process.assert_agreed("after the last key");
}

#[test]
fn a_document_that_is_too_long_for_a_page_changes_nothing_and_is_told_once() {
    let long = r#"{"keys": [{}"#.to_owned() + &", {}".repeat(20_000) + "]}";
    let mut process = Process::new(Form::Plain, 1, "");
    (0..10).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(15);
    process.service.document = Some(long.leak());
    process.rounds(30);
    process.assert_agreed("after a long document");
    let [News::Failure(line)] = &process.logged[..] else { panic!("{:?}", process.logged) };
    assert!(
        line.contains("docs/src/directory-service.md#pages") && line.ends_with("; its last keys stay known"),
        "{line}"
    );
    assert!(process.sums([DirectoryMalformed]) >= [3]);
}

#[test]
fn a_change_moves_few_bytes_and_a_remembered_row_is_read_again_only_then() {
    let mut process = Process::new(Form::Pages(1000), 2, "");
    (0..500).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(15);
    process.sums([]);
    let before = process.vms[1].keys.view();
    process.rounds(20);
    assert_eq!(process.vms[1].keys.view(), before, "polls without news are none");
    process.service.set(7, None);
    process.rounds(15);
    assert_ne!(process.vms[1].keys.view(), before);
    let [bytes] = process.sums([DirectoryBytes]);
    assert!(bytes < 1000, "{bytes}");
}

#[test]
fn a_bad_answer_changes_nothing_and_is_told_once() {
    let malformed = "answered a malformed document: 21 bytes arrived, and it is wrong at line 1, column 21";
    for (fault, text) in
        [(Fault::Away, "answered status 503"), (Fault::Malformed, malformed), (Fault::BrokenOff, "no answer")]
    {
        for form in FORMS {
            let mut process = Process::new(form, 2, "");
            (0..40).for_each(|key| process.service.set(key, Some("pro")));
            process.service.fault = fault;
            process.rounds(10);
            assert_eq!(process.plan(1, 1).as_deref(), Some(""), "{fault:?}: not known yet");
            process.service.fault = Fault::None;
            process.rounds(40);
            process.assert_agreed(&format!("{fault:?}, {form:?}"));
            process.logged.clear();
            process.sums([]);
            process.service.fault = fault;
            process.service.set(1, None);
            process.rounds(60);
            assert_eq!(process.plan(1, 1).as_deref(), Some("pro"), "{fault:?}: as it was");
            let [News::Failure(line)] = &process.logged[..] else { panic!("{:?}", process.logged) };
            assert!(line.starts_with(text) && line.ends_with("; its last keys stay known"), "{line}");
            let events = [DirectoryFailed, DirectoryMalformed, DirectoryBrokenOff, DirectoryChanged];
            let sums = process.sums(events);
            let of_fault = sums[[Fault::Away, Fault::Malformed, Fault::BrokenOff]
                .iter()
                .position(|one| *one == fault)
                .unwrap()];
            assert!(of_fault >= 3 && sums.iter().sum::<u32>() == of_fault, "{fault:?}: {sums:?}");
            process.service.fault = Fault::None;
            process.rounds(40);
            process.assert_agreed(&format!("{fault:?}, {form:?}, later"));
            assert_eq!(process.logged.last(), Some(&News::AnswersAgain));
        }
    }
}

#[test]
fn a_page_that_fails_leaves_those_before_it_and_the_load_begins_again() {
    let mut process = Process::new(Form::Pages(10), 1, "");
    (0..40).for_each(|key| process.service.set(key, Some("pro")));
    process.host.now += 100 * MILLI;
    process.tick(0);
    process.work(0, 4096);
    // The first page is taken, and the second is broken off.
    process.hear(0);
    process.work(0, 4096);
    process.service.fault = Fault::BrokenOff;
    process.vms[0].answer = Some((None, String::new()));
    process.hear(0);
    process.tick(0);
    let known = (0..40).filter(|key| process.plan(0, *key).as_deref() == Some("pro")).count();
    assert_eq!(known, 10);
    assert_eq!(process.plan(0, 39).as_deref(), Some(""), "not known yet");
    process.service.fault = Fault::None;
    process.service.set(1, None);
    process.rounds(20);
    process.assert_agreed("after the second load");
}

#[test]
fn a_reload_makes_no_key_unknown_and_removes_at_its_end() {
    for form in [Form::Pages(5), Form::Document] {
        let mut process = Process::new(form, 2, "");
        (0..40).for_each(|key| process.service.set(key, Some("free")));
        process.rounds(10);
        // More changes than the service remembers.
        (0..40).for_each(|key| process.service.set(key, Some("pro")));
        process.service.set(0, None);
        for _ in 0..20_000 {
            process.host.now += MILLI / 4;
            process.tick(0);
            process.hear(0);
            process.work(0, 16);
            if process.host.now.is_multiple_of(8 * MILLI) {
                process.tick(1);
            }
            for key in [1, 20, 39] {
                assert!(process.plan(1, key).is_some_and(|plan| !plan.is_empty()), "{form:?}: key {key}");
            }
        }
        process.rounds(20);
        process.assert_agreed(&format!("{form:?}"));
    }
}

#[test]
fn rows_beyond_the_capacity_are_refused_until_there_is_a_place() {
    for form in FORMS {
        let mut process = Process::new(form, 1, r#", "capacity": 10"#);
        (0..13).for_each(|key| process.service.set(key, Some("pro")));
        process.rounds(15);
        let status = process.vms[0].directory.status().unwrap();
        assert_eq!(status[..2], [10, 3], "{form:?}");
        let known = (0..13).filter(|key| process.plan(0, *key).is_some()).count();
        assert_eq!(known, 10, "{form:?}");
        // Two that had a place go: a revocation holds, and others take their places.
        for key in [0, 1] {
            process.service.set(key, None);
        }
        process.rounds(50);
        let status = process.vms[0].directory.status().unwrap();
        assert_eq!(status[..2], [10, 1], "{form:?}");
        assert_eq!([process.plan(0, 0), process.plan(0, 1)], [None, None]);
        process.service.set(2, None);
        process.rounds(50);
        process.assert_agreed(&format!("{form:?}, all have a place"));
    }
}

#[test]
fn a_list_is_believed_until_it_is_too_stale_and_again_when_the_service_answers() {
    let mut process = Process::new(Form::Pages(10), 2, r#", "max_stale": "5s""#);
    (0..20).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(10);
    process.service.fault = Fault::Away;
    process.rounds(40);
    assert_eq!(process.plan(1, 1).as_deref(), Some("pro"));
    process.rounds(40);
    assert_eq!(process.vms[1].keys.readiness(), Readiness::Stale);
    assert_eq!(process.plan(1, 1).as_deref(), Some(""));
    process.service.fault = Fault::None;
    process.rounds(70);
    process.assert_agreed("after the service is back");
}

#[test]
fn when_the_leader_dies_polls_go_on_within_a_second_and_a_half() {
    let mut process = Process::new(Form::Pages(10), 3, "");
    (0..20).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(10);
    process.vms[0].is_alive = false;
    process.service.set(3, None);
    process.rounds(15);
    assert_eq!(process.leaders(), [1]);
    process.assert_agreed("after the leader's death");
}

#[test]
fn a_leader_that_dies_within_a_load_leaves_no_row_behind() {
    for units in [1, 5, 20, 100, 1000, 10_000, 16_000] {
        let mut process = Process::new(Form::Pages(10), 2, "");
        (0..40).for_each(|key| process.service.set(key, Some("pro")));
        process.host.now += 100 * MILLI;
        process.tick(0);
        let mut done = 0;
        while done < units {
            process.hear(0);
            process.work(0, 1);
            done += 1;
        }
        process.vms[0].is_alive = false;
        (0..39).for_each(|key| process.service.set(key, None));
        process.rounds(30);
        process.assert_agreed(&format!("after {units} units"));
    }
}

#[test]
fn a_newer_configuration_takes_over_at_once_and_the_list_stays() {
    let mut process = Process::new(Form::Pages(10), 2, "");
    (0..20).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(10);
    process.service.fault = Fault::Away;
    for place in 0..2 {
        process.vms[place].directory.retire();
    }
    (0..2).for_each(|_| process.add(2, true));
    process.rounds(2);
    assert_eq!(process.leaders(), [2]);
    // All keys are known although the service is away.
    for key in 0..20 {
        assert_eq!(process.plan(3, key).as_deref(), Some("pro"));
    }
    process.service.fault = Fault::None;
    process.rounds(40);
    assert_eq!(process.leaders(), [2]);
    process.assert_agreed("under the new configuration");
}

#[test]
fn a_wrong_token_in_the_newest_configuration_does_not_end_the_polls() {
    let mut process = Process::new(Form::Pages(10), 1, "");
    (0..20).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(10);
    process.vms[0].directory.retire();
    (0..2).for_each(|_| process.add(2, false));
    process.service.set(1, None);
    // Three polls of the new configuration fail, at most 2.5 s apart; then the old one polls.
    process.rounds(90);
    assert_eq!(process.leaders(), [0]);
    process.assert_agreed("by the old configuration");
    process.rounds(50);
    assert_eq!(process.leaders(), [0]);
    assert!(process.sums([DirectoryLed]) <= [3]);
}

#[test]
fn a_roll_back_that_configures_nothing_is_followed_by_polls() {
    let mut process = Process::new(Form::Pages(10), 2, "");
    (0..20).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(10);
    (0..2).for_each(|place| process.vms[place].directory.retire());
    (0..2).for_each(|_| process.add(2, true));
    process.rounds(10);
    for place in 2..4 {
        process.vms[place].is_alive = false;
        let Process { vms, host, .. } = &mut process;
        vms[place].directory.give_up(host).unwrap();
    }
    process.service.set(1, None);
    process.rounds(25);
    assert_eq!(process.leaders(), [0]);
    process.assert_agreed("after the roll-back");
}

#[test]
fn another_directory_has_a_list_of_its_own() {
    let mut process = Process::new(Form::Pages(10), 1, "");
    (0..20).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(10);
    process.vms[0].directory.retire();
    process.config = config(r#", "interval": "1s", "authority": "other""#);
    process.add(2, true);
    // Other keys of other plans.
    process.service = Service::new(Form::Pages(10));
    (10..15).for_each(|key| process.service.set(key, Some("free")));
    let mut seen = BTreeSet::new();
    for _ in 0..400 {
        process.host.now += MILLI;
        process.tick(1);
        process.hear(1);
        process.work(1, 256);
        seen.insert(process.plan(1, 10).unwrap());
    }
    assert_eq!(seen, ["", "free"].map(str::to_owned).into(), "never the other directory's row");
    process.vms[0].is_alive = false;
    process.rounds(20);
    process.assert_agreed("of the other directory");
    process.vms[0].is_alive = true;
    process.tick(0);
    assert_eq!(process.vms[0].keys.readiness(), Readiness::Foreign);
}

#[test]
fn another_directory_that_does_not_answer_takes_no_list_away() {
    let mut process = Process::new(Form::Pages(10), 1, "");
    (0..20).for_each(|key| process.service.set(key, Some("pro")));
    process.rounds(10);
    process.vms[0].directory.retire();
    let configured =
        core::mem::replace(&mut process.config, config(r#", "interval": "1s", "authority": "typo""#));
    process.add(2, false);
    process.config = configured;
    process.service.set(1, None);
    process.rounds(90);
    assert_eq!((process.leaders(), process.vms[1].keys.readiness()), (vec![0], Readiness::Foreign));
    process.vms[1].is_alive = false;
    process.assert_agreed("by the configuration whose directory answers");
    assert_eq!(process.plan(1, 2).as_deref(), Some(""), "and in the other one nobody can tell");
}

/// Anything happens in any order: VMs die, come, are held up in the middle of a slice and write late; configurations come and go, some with a
/// wrong token; the clock steps; the service changes and fails.
#[test]
fn whatever_happens_a_key_that_stays_is_never_unknown_and_in_the_end_all_agree() {
    for seed in 1..=60 {
        let form = FORMS[seed as usize % FORMS.len()];
        let mut process = Process::new(form, 2, "");
        process.seed = u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15) | 1;
        let what = format!("seed {seed}, {form:?}");
        // These are never revoked.
        (0..20).for_each(|key| process.service.set(key, Some("free")));
        (20..40).for_each(|key| process.service.set(key, Some("pro")));
        process.rounds(10);
        process.assert_agreed(&what);
        let mut configuration = 1;
        for _ in 0..250 {
            let vms = process.vms.len() as u64;
            let place = process.random(vms) as usize;
            match process.random(20) {
                0..=3 => process.round(),
                4..=6 => {
                    let key = 20 + process.random(100) as u16;
                    let plan = [Some("free"), Some("pro"), None][process.random(3) as usize];
                    process.service.set(key, plan);
                }
                // A slice that was held up goes on, whichever VM leads by now.
                7..=11 if process.vms[place].is_alive => {
                    process.hear(place);
                    let units = process.random(200) as usize;
                    process.work(place, units);
                }
                12 if process.vms[place].is_alive => process.tick(place),
                13 => process.host.now += process.random(1500) * MILLI,
                14 => {
                    let faults = [Fault::None, Fault::None, Fault::Away, Fault::Malformed, Fault::BrokenOff];
                    process.service.fault = faults[process.random(5) as usize];
                }
                15 if vms < 12 => {
                    configuration += process.random(2);
                    for vm in &mut process.vms {
                        if vm.configuration < configuration {
                            vm.directory.retire();
                        }
                    }
                    let is_right = process.random(4) > 0;
                    // A token is part of its configuration.
                    let same = process.vms.iter().find(|vm| vm.configuration == configuration);
                    let may_poll = same.map_or(is_right, |vm| vm.may_poll);
                    process.add(configuration, may_poll);
                }
                16 if process.vms.iter().filter(|vm| vm.is_alive && vm.may_poll).count() > 1 => {
                    process.vms[place].is_alive = false;
                    if process.random(2) == 0 {
                        let Process { vms, host, .. } = &mut process;
                        vms[place].directory.give_up(host).unwrap();
                    }
                }
                17 => process.host.now -= process.random(3) * 700 * MILLI,
                _ => {}
            }
            for key in [0, 7, 19] {
                let place = process.random(process.vms.len() as u64) as usize;
                if process.vms[place].is_alive {
                    process.look(place);
                    let plan = process.plan(place, key);
                    assert!(plan.is_some_and(|plan| plan == "free"), "{what}: key {key} in VM {place}");
                }
            }
        }
        process.service.fault = Fault::None;
        // Wrong tokens give way to right ones, at the latest after three polls of each configuration.
        process.rounds(300);
        assert_eq!(process.leaders().len(), 1, "{what}");
        process.assert_agreed(&what);
    }
}
