//! Why no host can run a module.

use std::{error::Error, fmt};

use crate::signature::{Import, Signature};

/// The ABI that a module names with one of its exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbiVersion {
    /// `proxy_abi_version_0_2_0`
    V0_2_0,
    /// `proxy_abi_version_0_2_1`
    V0_2_1,
}

impl fmt::Display for AbiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0_2_0 => "0.2.0",
            Self::V0_2_1 => "0.2.1",
        })
    }
}

/// What a library says that finds something wrong.
type Source = Box<dyn Error + Send + Sync>;

/// A module that no host can run. `Debug` says the same as `Display`, and then the sources.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// It is no WebAssembly at all.
    #[error("not a WebAssembly module: it does not begin with \\0asm")]
    NotWasm,
    /// It is no valid WebAssembly.
    #[error("not a valid WebAssembly module")]
    Invalid(#[source] Source),
    /// It exports no ABI version.
    #[error(
        "not a proxy-wasm module: it exports neither proxy_abi_version_0_2_0 nor proxy_abi_version_0_2_1"
    )]
    NoAbi,
    /// It was built for an ABI that is not supported here.
    #[error(
        "the module needs proxy-wasm ABI 0.1.0, which Envoy still loads and host-sim does not support: rebuild it with an SDK \
         of ABI 0.2.0 or 0.2.1"
    )]
    OldAbi,
    /// It exports no memory.
    #[error("the module exports no memory named \"memory\"")]
    NoMemory,
    /// It exports no allocator.
    #[error(
        "the module exports neither malloc nor proxy_on_memory_allocate, so the host cannot give it any value"
    )]
    NoAllocator,
    /// It imports a function that the host does not have, or has with another type.
    #[error("the module imports what this host does not offer")]
    Import(#[source] Source),
    /// It imports a function of `env` that `ngx_wasm_module` does not have; the message is that gateway's.
    #[error("failed importing \"env.{name}\": missing host function")]
    MissingFunction {
        /// The function's name.
        name: String,
    },
    /// It imports a function that `ngx_wasm_module` declares with another type; the message is that gateway's.
    #[error(
        "incompatible import type for `{}::{}`: expected {}, found {declared}",
        .import.module, .import.name, .import.signature
    )]
    IncompatibleImport {
        /// The function, with the type that the module gives it.
        import: Box<Import>,
        /// The type in the gateway's table.
        declared: Box<Signature>,
    },
    /// It lacks a callback without which `ngx_wasm_module` loads no module; the message is that gateway's.
    #[error(
        "filter missing one of: on_context_create, on_vm_start, on_plugin_start (incompatible SDK interface)"
    )]
    IncompatibleSdk {
        /// The exports that it lacks, as the ABI names them.
        missing: Vec<&'static str>,
    },
}

impl fmt::Debug for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
