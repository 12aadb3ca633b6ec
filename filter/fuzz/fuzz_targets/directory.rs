//! A directory's document is taken whole, row by row, or not at all; and one that is not taken changes nothing.
#![no_main]

use std::sync::{Arc, LazyLock};

use filter::config::{Config, CountBy, Subscribers};
use filter::directory::{Directory, Update, entitled};
use filter::time::Timestamp;
use libfuzzer_sys::fuzz_target;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let json = r#"{"plans": {"free": {"standard": ["60/minute"]}, "pro": {"standard": ["600/minute"], "analytics": ["2/second"]}},
                   "classes": [{"name": "analytics", "match": [{"path": "/analytics"}]}],
                   "directory": {"cluster": "backend", "path": "/keys"}}"#;
    Config::from_json(json.as_bytes()).expect("a configuration")
});

const KNOWN: &str = r#"{"keys": [{"sha256": "0101010101010101010101010101010101010101010101010101010101010101", "subscriber": "s", "plan": "pro"}]}"#;

fn answer(directory: &mut Directory, body: &[u8]) -> Option<Update> {
    let head = Some((&b"200"[..], Some(&b"\"1\""[..])));
    directory.answer(head, body, Timestamp::from_seconds(100)).ok()
}

fuzz_target!(|body: &[u8]| {
    let settings = CONFIG.settings.directory.clone().expect("a directory");
    let mut directory = Directory::new(settings, 0);
    assert_eq!(answer(&mut directory, KNOWN.as_bytes()), Some(Update::Replaced { skipped: 0 }));
    let taken = answer(&mut directory, body);
    let roster = directory.roster().expect("a roster");
    match taken {
        None => assert!(roster.len() == 1 && roster.find(&[1; 32]).is_some()),
        Some(_) => {
            for (place, known) in roster.iter().enumerate() {
                assert_eq!(roster.find(known.digest), Some(place));
                assert!(!known.subscriber.is_empty() && known.terms < roster.terms().len());
            }
        }
    }
    let (mut subscribers, left_out) = entitled(Arc::clone(roster), &CONFIG);
    let known =
        |subscribers: &Subscribers| roster.iter().filter(|key| subscribers.get(key.digest).is_some()).count();
    let entitled = known(&subscribers);
    assert_eq!(entitled + left_out.without_agreement + left_out.over_capacity, roster.len());
    assert!(subscribers.records(CountBy::Subscriber) <= subscribers.records(CountBy::Key));
    let left_out = subscribers.limit(2, CountBy::Key);
    assert_eq!(known(&subscribers) + left_out, entitled);
    assert!(subscribers.records(CountBy::Key) <= 2);
});
