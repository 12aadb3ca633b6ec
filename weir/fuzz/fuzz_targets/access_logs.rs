//! Whatever stands in a line of an access log, it is read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::replay::Fields;

fuzz_target!(|bytes: &[u8]| {
    // An error is as good as an answer; only a panic is neither.
    let _ = Fields::default().header("authorization", "key").read(bytes);
});
