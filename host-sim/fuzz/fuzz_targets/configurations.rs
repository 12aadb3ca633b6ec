//! Whatever text is given as a configuration or a bootstrap, it is read or refused.
#![no_main]

use envoy_config::configuration;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // An error is as good as an answer; only a panic is neither.
    let _ = configuration::parse(bytes, None);
    let _ = configuration::parse(bytes, Some("plugin"));
});
