//! A path's normal form is one, and spelling a path otherwise does not change it.
#![no_main]

use filter::request::path::{below, normalize};
use libfuzzer_sys::fuzz_target;

fn assert_is_normal(path: &[u8]) {
    assert_eq!(path.first(), Some(&b'/'));
    if path != b"/" {
        for segment in path[1..].split(|byte| *byte == b'/') {
            assert!(!matches!(segment, b"" | b"." | b".."), "{}", path.escape_ascii());
        }
    }
    assert!(!path.iter().any(|byte| matches!(byte, b'?' | b'#' | b';')), "{}", path.escape_ascii());
}

fuzz_target!(|path: &[u8]| {
    let normal = normalize(path);
    assert_is_normal(&normal);
    assert_eq!(below("", &normal), Some(&*normal));
    // What no upstream tells apart is not told apart here.
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let (before, after) = path.split_at(end);
    let doubled: Vec<u8> =
        before.iter().flat_map(|byte| [*byte].repeat(1 + usize::from(*byte == b'/'))).collect();
    let slash: &[u8] = if before.first() == Some(&b'/') { b"" } else { b"/" };
    let respelled: [&[&[u8]]; 5] = [
        &[&doubled, after],
        &[b"/x/..", slash, path],
        &[before, b"/", after],
        &[before, b";a=b", after],
        &[before, b"/.", after],
    ];
    for parts in respelled {
        let other = parts.concat();
        assert_eq!(
            normalize(&other).escape_ascii().to_string(),
            normal.escape_ascii().to_string(),
            "{} and {}",
            other.escape_ascii(),
            path.escape_ascii()
        );
    }
});
