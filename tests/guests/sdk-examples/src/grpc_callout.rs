//! Asks a service over gRPC for a greeting, and adds it to the request.

use std::time::Duration;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

pub(crate) struct Greeting;

impl Context for Greeting {
    fn on_grpc_call_response(&mut self, _: u32, status: u32, size: usize) {
        if status == 0 {
            let greeting = self.get_grpc_call_response_body(0, size).unwrap_or_default();
            log::info!("greeted: {}", String::from_utf8_lossy(&greeting));
            self.set_http_request_header("x-greeting", Some(&String::from_utf8_lossy(&greeting)));
            self.resume_http_request();
        } else {
            log::info!("not greeted: {status}");
            self.send_http_response(502, vec![], Some(b"no greeting\n"));
        }
    }
}

impl HttpContext for Greeting {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let called = self.dispatch_grpc_call(
            "greeter",
            "greet.Greeter",
            "Hello",
            vec![("x-caller", b"example")],
            Some(b"Ada"),
            Duration::from_secs(5),
        );
        if let Err(status) = called {
            log::warn!("cannot call: {status:?}");
            return Action::Continue;
        }
        Action::Pause
    }
}
