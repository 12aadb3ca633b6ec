//! Reads a whole response body, and replaces one that tells a secret.

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

pub(crate) struct Body;

impl Context for Body {}

impl HttpContext for Body {
    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        // The length may become another.
        self.set_http_response_header("content-length", None);
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if !end_of_stream {
            // More of it comes: the host keeps what there is.
            return Action::Pause;
        }
        if let Some(body) = self.get_http_response_body(0, size) {
            log::info!("a body of {} bytes", body.len());
            if String::from_utf8_lossy(&body).contains("secret") {
                self.set_http_response_body(0, size, format!("{size} bytes redacted\n").as_bytes());
            }
        }
        Action::Continue
    }
}
