//! A compiled module, checked before it runs: its ABI, its imports, its allocator.

use sha2::{Digest as _, Sha256};
use wasmtime::{Engine, InstancePre};

use crate::{
    module_error::{AbiVersion, ModuleError},
    rules::Flavour,
    signature::Import,
    state::VmState,
    vm::{
        code_cache::{CodeCache, Kept},
        engine::Compiler,
    },
};

/// A compiled module. Clones share the code.
#[derive(Debug, Clone)]
pub struct Module {
    inner: wasmtime::Module,
    compiler: Compiler,
    abi: AbiVersion,
    /// SHA-256 of the code, which distinguishes VMs.
    digest: [u8; 32],
}

impl Module {
    /// Compiles `wasm` and checks that it is a proxy-wasm module whose every import exists in the newest Envoy.
    ///
    /// # Errors
    /// When `wasm` is no module, no proxy-wasm module, or imports what no host offers.
    pub fn compile(wasm: impl AsRef<[u8]>) -> Result<Self, ModuleError> {
        Self::compile_with(wasm, Compiler::Plain)
    }

    /// As [`compile`](Self::compile), as `compiler` does.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_with(wasm: impl AsRef<[u8]>, compiler: Compiler) -> Result<Self, ModuleError> {
        Self::of(wasm.as_ref(), compiler, |engine, wasm, _| wasmtime::Module::from_binary(engine, wasm))
    }

    /// As [`compile_with`](Self::compile_with), or the module as `cache` has kept it. Beside the module it gives what the cache
    /// has done for it.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_cached(
        wasm: impl AsRef<[u8]>,
        compiler: Compiler,
        cache: &CodeCache,
    ) -> Result<(Self, Kept), ModuleError> {
        let mut kept = Kept::default();
        let module = Self::of(wasm.as_ref(), compiler, |engine, wasm, digest| {
            let (module, whether) =
                cache.module(engine, digest, || wasmtime::Module::from_binary(engine, wasm))?;
            kept = whether;
            Ok(module)
        });
        module.map(|module| (module, kept))
    }

    fn of(
        wasm: &[u8],
        compiler: Compiler,
        compile: impl FnOnce(&Engine, &[u8], &[u8]) -> wasmtime::Result<wasmtime::Module>,
    ) -> Result<Self, ModuleError> {
        if !wasm.starts_with(b"\0asm") {
            return Err(ModuleError::NotWasm);
        }
        let digest: [u8; 32] = Sha256::digest(wasm).into();
        let inner = compile(&compiler.machine().engine, wasm, &digest)
            .map_err(|error| ModuleError::Invalid(error.into()))?;
        let exports = |name: &str| inner.get_export(name).is_some();
        let abi = if exports("proxy_abi_version_0_2_1") {
            AbiVersion::V0_2_1
        } else if exports("proxy_abi_version_0_2_0") {
            AbiVersion::V0_2_0
        } else if exports("proxy_abi_version_0_1_0") {
            return Err(ModuleError::OldAbi);
        } else {
            return Err(ModuleError::NoAbi);
        };
        if inner.get_export("memory").is_none_or(|memory| memory.memory().is_none()) {
            return Err(ModuleError::NoMemory);
        }
        if !exports("malloc") && !exports("proxy_on_memory_allocate") {
            return Err(ModuleError::NoAllocator);
        }
        let module = Self { inner, compiler, abi, digest };
        module.link(Flavour::default())?;
        Ok(module)
    }

    /// Whether both are compiled from the same bytes.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// How it was compiled.
    pub fn compiler(&self) -> Compiler {
        self.compiler
    }

    /// The ABI that the module was built for.
    pub fn abi(&self) -> AbiVersion {
        self.abi
    }

    /// What the module imports, as `module.name`, sorted.
    pub fn imports(&self) -> Vec<String> {
        let mut imports: Vec<_> =
            self.inner.imports().map(|import| format!("{}.{}", import.module(), import.name())).collect();
        imports.sort_unstable();
        imports.dedup();
        imports
    }

    /// What the module exports, sorted.
    pub fn exports(&self) -> Vec<String> {
        let mut exports: Vec<_> = self.inner.exports().map(|export| export.name().to_owned()).collect();
        exports.sort_unstable();
        exports
    }

    /// The functions that the module imports, with the types that it gives them, in its order.
    pub fn imported_functions(&self) -> impl Iterator<Item = Import> {
        self.inner.imports().filter_map(|import| {
            let signature = import.ty().func()?.into();
            Some(Import { module: import.module().to_owned(), name: import.name().to_owned(), signature })
        })
    }

    /// Whether the gateway loads the module, as far as the module alone tells.
    ///
    /// # Errors
    /// With the reason why it does not.
    pub fn taken_by(&self, flavour: Flavour) -> Result<(), ModuleError> {
        self.link(flavour).map(|_| ())
    }

    pub(crate) fn link(&self, flavour: Flavour) -> Result<InstancePre<VmState>, ModuleError> {
        let required = flavour.required_exports().iter().copied();
        let missing: Vec<_> = required.filter(|name| self.inner.get_export(name).is_none()).collect();
        if !missing.is_empty() {
            return Err(ModuleError::IncompatibleSdk { missing });
        }
        if flavour.compares_imports() {
            self.imported_functions().try_for_each(|import| check_import(flavour, import))?;
        }
        let linker = self.compiler.machine().linker(flavour.version());
        // `get_log_level` belongs to 0.2.1; a 0.2.0 module that imports it does not load in Envoy.
        let get_log_level = |import: wasmtime::ImportType<'_>| import.name() == "proxy_get_log_level";
        if self.abi == AbiVersion::V0_2_0 && self.inner.imports().any(get_log_level) {
            return Err(ModuleError::Import("proxy_get_log_level needs ABI 0.2.1".into()));
        }
        linker.instantiate_pre(&self.inner).map_err(|error| ModuleError::Import(error.into()))
    }
}

/// Whether the gateway has a function that a module imports, with the same type.
fn check_import(flavour: Flavour, import: Import) -> Result<(), ModuleError> {
    match flavour.declares(&import.module, &import.name) {
        None if import.module == "env" => Err(ModuleError::MissingFunction { name: import.name }),
        None => {
            let message =
                format!("unknown import: `{}::{}` has not been defined", import.module, import.name);
            Err(ModuleError::Import(message.into()))
        }
        Some(declared) if declared != import.signature => {
            Err(ModuleError::IncompatibleImport { import: Box::new(import), declared: Box::new(declared) })
        }
        Some(_) => Ok(()),
    }
}
