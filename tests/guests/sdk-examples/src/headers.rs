//! Tells all headers, and answers `/hello` itself.

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

pub(crate) struct Headers {
    pub(crate) id: u32,
}

impl Context for Headers {}

impl HttpContext for Headers {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        for (name, value) in &self.get_http_request_headers() {
            log::info!("#{} -> {name}: {value}", self.id);
        }
        match self.get_http_request_header(":path") {
            Some(path) if path == "/hello" => {
                self.send_http_response(
                    200,
                    vec![("Hello", "World"), ("X-Powered-By", "proxy-wasm")],
                    Some(b"Hello, world!\n"),
                );
                Action::Pause
            }
            _ => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        for (name, value) in &self.get_http_response_headers() {
            log::info!("#{} <- {name}: {value}", self.id);
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        log::info!("#{} completed", self.id);
    }
}
