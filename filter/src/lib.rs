//! Plan-aware API quotas as a proxy-wasm filter.
#[cfg(target_arch = "wasm32")]
mod plugin;
