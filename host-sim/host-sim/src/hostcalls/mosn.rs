//! What MOSN loads. Its proxy-wasm-go-host (25a9e133) knows two ABIs, each with host functions of its own.

use crate::vm::module::{AbiVersion, ModuleError};

/// The functions of module `env` for modules of ABI 0.2.0 (`internal/imports/v2/imports.go:34`): a draft's, most of which
/// have other names than the ABI's.
const OF_0_2_0: [&str; 14] = [
    "proxy_log",
    "proxy_set_effective_context",
    "proxy_close_stream",
    "proxy_get_buffer_bytes",
    "proxy_get_header_map_pairs",
    "proxy_get_header_map_value",
    "proxy_replace_header_map_value",
    "proxy_http_call",
    "proxy_send_http_response",
    "proxy_resume_stream",
    "proxy_set_buffer",
    "proxy_create_timer",
    "proxy_dispatch_http_call",
    "proxy_call_custom_function",
];

/// Whether it loads a module of this ABI with these imports.
pub(crate) fn check(abi: AbiVersion, imports: &[String]) -> Result<(), ModuleError> {
    if abi == AbiVersion::V0_2_1 {
        let reason = "this one is of 0.2.1, for which there are no host functions".to_owned();
        return Err(ModuleError::Mosn { reason });
    }
    let of_env = imports.iter().filter_map(|import| import.strip_prefix("env."));
    let missing: Vec<_> = of_env.filter(|name| !OF_0_2_0.contains(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(ModuleError::Mosn { reason: format!("there is no {}", missing.join(", ")) })
}
