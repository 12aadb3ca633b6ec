//! Every path has a rule or is ambiguous. Spellings that all upstreams read alike get the same result.
#![no_main]

use filter::request::path::below;
use filter::request::readings::{AmbiguousPath, EncodedSlash, MatrixParameters, Readings, UpstreamPaths};
use libfuzzer_sys::fuzz_target;

/// The rules of the contract.
fn select(readings: &Readings, path: &[u8]) -> Result<&'static str, AmbiguousPath> {
    readings.select(path, |reading| {
        assert_eq!(reading.first(), Some(&b'/'), "{}", reading.escape_ascii());
        assert!(reading == b"/" || !reading.ends_with(b"/"), "{}", reading.escape_ascii());
        match reading {
            b"/analytics" | b"/events" => "analytics",
            reading if below("/r", reading).is_some() => "exempt",
            _ => "standard",
        }
    })
}

fuzz_target!(|input: (u8, &[u8])| {
    let (declared, path) = input;
    let upstream = UpstreamPaths {
        merge_slashes: [None, Some(true), Some(false)][usize::from(declared) % 3],
        matrix_parameters: [None, Some(MatrixParameters::Drop), Some(MatrixParameters::Keep)]
            [usize::from(declared) / 3 % 3],
        encoded_slash: [None, Some(EncodedSlash::Decode), Some(EncodedSlash::Keep)]
            [usize::from(declared) / 9 % 3],
        ignore_case: declared >= 128,
    };
    let readings = Readings::new(upstream);
    let any = Readings::new(UpstreamPaths { ignore_case: upstream.ignore_case, ..UpstreamPaths::default() });
    let selected = select(&readings, path);
    // A declaration only removes readings.
    if let (Ok(by_all), Ok(by_some)) = (select(&any, path), selected) {
        assert_eq!(by_all, by_some, "{} with {upstream:?}", path.escape_ascii());
    }
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let (before, after) = path.split_at(end);
    for respelled in [[before, b"/", after], [before, b"///", after], [before, b"?", after]] {
        let other = respelled.concat();
        assert_eq!(select(&readings, &other), selected, "{}", other.escape_ascii());
    }
});
