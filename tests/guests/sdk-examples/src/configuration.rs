//! Adds a header whose value is the plugin's configuration.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

/// Whether the configuration can be a header's value.
pub(crate) fn accepts(configuration: &str) -> bool {
    let fits = !configuration.is_empty() && configuration.chars().all(|c| c.is_ascii_graphic());
    log::info!("configured with {configuration:?}: {}", if fits { "taken" } else { "refused" });
    fits
}

pub(crate) struct Configured(pub(crate) Rc<str>);

impl Context for Configured {}

impl HttpContext for Configured {
    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        self.add_http_response_header("x-configured", &self.0);
        Action::Continue
    }
}
