//! The root context: one configuration in this VM.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{BufferType, ContextType};
use siphasher::sip::SipHasher24;

use super::state::Active;
use super::stream::Stream;
use crate::config::Config;
use crate::count::shared_data::is_strict;
use crate::count::table::DirectoryNames;
use crate::decide::host::{CounterHost as _, LogLevel};
use crate::host::{self, Gateway};

const FLEET_IN_NGINX: &str = "fleet: this host is nginx with ngx_wasm_module, whose workers end, or never answer again, when requests wait for calls; \
     leave fleet out, or run the gateways of the fleet on Envoy";

/// A root context, and its configuration once it is in force.
#[derive(Default)]
pub(super) struct Root {
    active: Option<Rc<Active>>,
}

impl Context for Root {
    fn on_http_call_response(&mut self, call: u32, headers: usize, body_size: usize, _trailers: usize) {
        if let Some(active) = &self.active {
            active.with(|state| state.answer(call, headers > 0, body_size));
        }
    }

    fn on_done(&mut self) -> bool {
        // The host keeps the root context until it is told that all was reported.
        let has_left = self.active.as_ref().and_then(|active| active.with(super::state::State::done));
        !has_left.unwrap_or(false)
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let config = host::buffer(BufferType::PluginConfiguration, usize::MAX)
            .map_err(|error| error.to_string())
            .and_then(|json| {
                let config = Config::from_json(json.as_ref());
                let config = config.and_then(|config| config.with_environment(host::environment_variable));
                let config = config.map_err(|error| error.to_string())?;
                let names = DirectoryNames::new(&config.settings.namespace);
                // The kind of host is the same for all VMs, so all of them decide alike. A host without shared data is none of this kind.
                if config.fleet.is_some()
                    && is_strict(&mut Gateway, names.probe().as_bytes()).unwrap_or(false)
                {
                    return Err(FLEET_IN_NGINX.to_owned());
                }
                Ok((config, SipHasher24::new().hash(json.as_ref())))
            });
        match config {
            Ok((config, identity)) => {
                self.active = Some(Active::new(config, identity));
                true
            }
            Err(error) => {
                Gateway.log(LogLevel::Error, format_args!("weir: configuration refused: {error}"));
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(active) = &self.active {
            active.with(super::state::State::tick);
        }
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream::new(self.active.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
