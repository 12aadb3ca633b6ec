//! What one writes first with the Rust SDK, one filter of each kind: the plugin's `root_id` says which is meant. Each is
//! written as an author would write it, with the SDK's own wrappers.
#![cfg(target_arch = "wasm32")]
#![expect(missing_docs, reason = "the exports are the SDK's macro's")]

mod body;
mod callout_auth;
mod configuration;
mod grpc_callout;
mod headers;
mod hello_world;

use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Trace);
    proxy_wasm::set_root_context(|_| Box::new(Example::default()));
}}

/// The root context of all of them.
#[derive(Default)]
struct Example {
    name: String,
    configuration: Rc<str>,
}

impl Context for Example {}

impl RootContext for Example {
    fn on_configure(&mut self, _: usize) -> bool {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        self.name = self.get_property(vec!["plugin_root_id"]).map(text).unwrap_or_default();
        self.configuration = self.get_plugin_configuration().map(text).unwrap_or_default().into();
        match self.name.as_str() {
            "hello_world" => {
                log::info!("Hello, world");
                self.set_tick_period(Duration::from_millis(50));
                true
            }
            "configuration" => configuration::accepts(&self.configuration),
            "headers" | "body" | "callout_auth" | "grpc_callout" => true,
            other => {
                log::error!("no example is named {other:?}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if hello_world::tick(self.get_current_time()) {
            self.set_tick_period(Duration::ZERO);
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(match self.name.as_str() {
            "headers" => Box::new(headers::Headers { id }),
            "body" => Box::new(body::Body),
            "callout_auth" => Box::new(callout_auth::Auth),
            "configuration" => Box::new(configuration::Configured(Rc::clone(&self.configuration))),
            "grpc_callout" => Box::new(grpc_callout::Greeting),
            _ => Box::new(hello_world::Hello),
        })
    }
}
