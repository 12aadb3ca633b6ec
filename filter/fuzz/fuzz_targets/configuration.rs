//! A configuration is taken or refused with one line; one that is taken decides on requests.
#![no_main]

use std::sync::Arc;

use filter::config::Config;
use filter::decide::decision::Decided;
use filter::decide::limiter::Limiter;
use filter::request::header_pairs::serialize;
use filter_fuzz::MemoryHost;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    match Config::from_json(json) {
        Ok(config) => {
            let mut limiter = Limiter::new(Arc::new(config));
            let mut host = MemoryHost::default();
            for path in ["/analytics?api_key=k", "/", "/quota"] {
                let headers: [(&str, &[u8]); 3] =
                    [(":method", b"GET"), (":path", path.as_bytes()), ("authorization", b"Bearer key")];
                let mut decided = Decided::default();
                limiter.decide(&mut host, &serialize(&headers), &mut decided);
                assert!(decided.class < limiter.config().catalog.classes.len());
            }
        }
        Err(refused) => assert!(!refused.to_string().contains('\n'), "{refused}"),
    }
});
