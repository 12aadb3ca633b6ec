//! A directory's page is taken whole or not at all, and one that is not taken changes nothing.
#![no_main]

use std::sync::LazyLock;

use filter::config::Config;
use filter::count::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData};
use filter::directory::{Directory, Keys, News, Readiness};
use filter::time::Timestamp;
use libfuzzer_sys::fuzz_target;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let json = r#"{"plans": {"free": {"standard": ["60/minute"]}, "pro": {"standard": ["600/minute"], "analytics": ["2/second"]}},
                   "classes": [{"name": "analytics", "match": [{"path": "/analytics"}]}],
                   "directory": {"cluster": "backend", "path": "/keys"}}"#;
    Config::from_json(json.as_bytes()).expect("a configuration")
});

const KNOWN: &str = r#"{"keys": [{"sha256": "0101010101010101010101010101010101010101010101010101010101010101", "subscriber": "s", "plan": "pro"}]}"#;

struct Host(VmLocalData);

impl SharedData for Host {
    type Value = Vec<u8>;
    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.0.get(name)
    }
    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.0.set(name, value, cas)
    }
}

/// Whether the page was taken.
fn answer(directory: &mut Directory, host: &mut Host, seconds: u64, body: &[u8]) -> bool {
    let now = Timestamp::from_seconds(seconds);
    directory.look(host, now).expect("a look");
    assert!(directory.poll(now).is_some());
    let mut failure = directory.answer(host, &CONFIG.catalog, Some((b"200", Some(b"\"1\""))), body, now);
    while directory.has_work() {
        failure = failure.or(directory.work(host, 4096, now));
    }
    !matches!(failure, Some(News::Failure(_)))
}

fuzz_target!(|body: &[u8]| {
    let settings = CONFIG.settings.directory.clone().expect("a directory");
    let mut host = Host(VmLocalData::default());
    let mut keys = Keys::new(&settings, "");
    let mut directory = Directory::new(settings, "", 1, [1; 16]);
    assert!(answer(&mut directory, &mut host, 100, KNOWN.as_bytes()));
    let is_taken = answer(&mut directory, &mut host, 200, body);
    keys.look(&mut host, Timestamp::from_seconds(200)).expect("a look");
    assert_eq!(keys.readiness(), Readiness::Complete);
    let [rows, ..] = directory.status().expect("a leader");
    let is_known = keys.find(&mut host, &CONFIG.catalog, &[1; 32]).expect("a host").known().is_some();
    match is_taken {
        false => assert!(rows == 1 && is_known),
        true => assert!(usize::try_from(rows).is_ok_and(|rows| rows * 64 <= body.len())),
    }
});
