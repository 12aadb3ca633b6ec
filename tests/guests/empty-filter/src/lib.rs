//! A filter that does nothing: what the Rust SDK itself costs, as `make bench` compares it.
#![cfg(target_arch = "wasm32")]
#![expect(missing_docs, reason = "the exports are the SDK's macro's")]

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Root));
}}

struct Root;

impl Context for Root {}

impl RootContext for Root {
    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream))
    }
}

struct Stream;

impl Context for Stream {}
impl HttpContext for Stream {}
