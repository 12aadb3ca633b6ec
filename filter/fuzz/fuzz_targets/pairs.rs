//! The header maps that hosts hand over: any bytes are read, and what is written is read back.
#![no_main]

use filter::request::header_pairs::{HeaderPairs, serialize};
use filter::request::line::LineReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(pairs) = HeaderPairs::parse(bytes) else { return };
    let read: Vec<_> = pairs.iter().collect();
    assert!(read.len() <= bytes.len() / 8);
    assert!(LineReader::new(&[]).read(bytes).is_some());
    for (name, value) in &read {
        if let Ok(name) = std::str::from_utf8(name) {
            assert!(pairs.get_all(name).any(|found| found == *value));
        }
    }
    let texts: Option<Vec<_>> =
        read.iter().map(|(name, value)| Some((std::str::from_utf8(name).ok()?, *value))).collect();
    if let Some(texts) = texts.filter(|texts| !texts.is_empty()) {
        let written = serialize(&texts);
        let again: Vec<_> = HeaderPairs::parse(&written).expect("what was written").iter().collect();
        assert_eq!(again, read);
    }
});
