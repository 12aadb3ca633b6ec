//! Asks a service over HTTP whether a request may go on.

use std::time::Duration;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

pub(crate) struct Auth;

impl Context for Auth {
    fn on_http_call_response(&mut self, _: u32, _: usize, size: usize, _: usize) {
        let status = self.get_http_call_response_header(":status");
        let body = self.get_http_call_response_body(0, size).unwrap_or_default();
        log::info!("asked: {status:?} {:?}", String::from_utf8_lossy(&body));
        if body.starts_with(b"yes") {
            self.resume_http_request();
        } else {
            self.send_http_response(403, vec![("x-refused-by", "auth")], Some(b"Access forbidden.\n"));
        }
    }
}

impl HttpContext for Auth {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let path = self.get_http_request_header(":path").unwrap_or_default();
        let cluster = if path == "/nobody" { "nobody" } else { "auth" };
        let asked = self.dispatch_http_call(
            cluster,
            vec![(":method", "GET"), (":path", "/allowed"), (":authority", "auth.test")],
            None,
            vec![],
            Duration::from_secs(5),
        );
        match asked {
            Ok(_) => Action::Pause,
            Err(status) => {
                log::warn!("cannot ask: {status:?}");
                self.send_http_response(503, vec![], None);
                Action::Pause
            }
        }
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        self.set_http_response_header("x-asked", Some("yes"));
        Action::Continue
    }
}
