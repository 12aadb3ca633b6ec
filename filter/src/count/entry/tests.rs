use core::num::NonZeroU32;

use super::*;
use crate::count::table::{EntryName, Table};
use crate::quota::Mode;

fn quotas(windows: &[&str]) -> Vec<Quota> {
    let quota = |window: &&str| Quota {
        name: (*window).to_owned(),
        limit: NonZeroU32::MIN,
        window: window.parse().unwrap(),
        mode: Mode::Enforced,
        refundable: true,
    };
    windows.iter().map(quota).collect()
}

fn counter(in_fleet: bool) -> Counter {
    let (fingerprint, entry) = (Fingerprint::from_number(1), EntryName::default());
    Counter { table: Table::Known, fingerprint, entry, in_fleet }
}

/// Opens the record, does something to it, and stores it. Returns the windows of its counts.
fn write(
    entry: &mut Vec<u8>,
    in_fleet: bool,
    windows: &[&str],
    seconds: u64,
    step: impl FnOnce(&mut Record),
) -> Vec<String> {
    let (mut record, now) = (Record::default(), Timestamp::from_seconds(seconds));
    assert_eq!(record.open(entry, &counter(in_fleet), &quotas(windows), now), Ok(Ok(())));
    step(&mut record);
    record.encode(entry);
    record.counts().map(|count| count.window.name().into_owned()).collect()
}

fn is_alone(entry: &[u8], windows: &[&str], seconds: u64) -> bool {
    let (counter, mut record) = (counter(true), Record::default());
    record.begin(&counter, Timestamp::from_seconds(seconds));
    record.is_alone(entry, &counter, &quotas(windows))
}

#[test]
fn what_a_gateway_holds_survives_configurations_without_a_fleet() {
    let held = Held { limit: 9, share: 7, seq: 3, epoch: 5, ..Held::default() };
    // The quotas of a configuration without a fleet, and the windows that the record has then.
    let rows: [(&[&str], &[&str]); 4] = [
        (&["minute", "hour"], &["minute", "hour"]),
        (&["hour"], &["hour", "minute"]),
        (&["day", "minute"], &["day", "minute", "hour"]),
        (&[], &["minute", "hour"]),
    ];
    for (windows, expected) in rows {
        let mut entry = Vec::new();
        let before = write(&mut entry, true, &["minute", "hour"], 0, |record| {
            record.name = Some(42);
            record.counts().for_each(|count| (count.used, count.held) = (2, held));
        });
        assert_eq!(before, ["minute", "hour"]);
        let found = write(&mut entry, false, windows, 1, |record| {
            assert_eq!(record.name, Some(42), "{windows:?}");
            record.counts().for_each(|count| count.used += 1);
        });
        assert_eq!(found, expected, "{windows:?}");
        write(&mut entry, true, &["minute", "hour"], 2, |record| {
            assert_eq!(record.name, Some(42), "{windows:?}");
            for window in quotas(&["minute", "hour"]).iter().map(|quota| quota.window) {
                let count = record.count(window).unwrap();
                assert_eq!((count.used, count.held), (3, held), "{windows:?}");
            }
        });
    }
}

#[test]
fn a_record_of_no_fleet_gets_a_name_and_place_for_what_is_held_from_the_first_configuration_with_one() {
    let mut entry = Vec::new();
    write(&mut entry, false, &["minute"], 0, |record| {
        assert_eq!(record.name, None);
        record.counts().for_each(|count| count.used = 2);
    });
    let alone = entry.len();
    write(&mut entry, true, &["minute"], 1, |record| {
        assert_eq!(record.name, Some(0), "not known yet");
        assert!(record.counts().all(|count| (count.used, count.held) == (2, Held::default())));
    });
    assert_eq!(entry.len(), alone + NAME + holding::BYTES);
    assert_eq!(shared(&entry), [Fingerprint::from_number(1)]);
}

#[test]
fn a_records_windows_keep_the_quotas_order_and_its_short_way_when_one_has_ended_or_another_came() {
    const QUOTAS: [&str; 3] = ["second", "minute", "hour"];
    // The windows of the configuration that wrote first, and when the present one writes.
    let rows: [(&[&str], u64); 6] = [
        (&QUOTAS, 0),
        (&QUOTAS, 1),
        (&QUOTAS, 60),
        (&QUOTAS, 3_600),
        (&["hour", "second"], 1),
        (&["hour", "minute", "second"], 0),
    ];
    for (first, seconds) in rows {
        let mut entry = Vec::new();
        write(&mut entry, true, first, 0, |_| ());
        let order = write(&mut entry, true, &QUOTAS, seconds, |_| ());
        assert_eq!(order, QUOTAS, "{first:?} {seconds}");
        assert!(is_alone(&entry, &QUOTAS, seconds), "{first:?} {seconds}");
        assert!(!is_alone(&entry, &QUOTAS, seconds + 1), "the second has ended");
    }
    // A window of another configuration that still lasts comes last, and takes the short way from the record.
    let mut entry = Vec::new();
    write(&mut entry, true, &["day", "hour"], 0, |_| ());
    assert_eq!(write(&mut entry, true, &QUOTAS, 0, |_| ()), ["second", "minute", "hour", "day"]);
    assert!(!is_alone(&entry, &QUOTAS, 0));
}
