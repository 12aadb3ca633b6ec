//! What a command runs a filter with: the module of a file, the environment, and what a configuration says of the gateway.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use host_sim::{
    Builder, CodeCache, Compiler, Module, ModuleError, Plugin, Surrounding, Value, XdsValue, surroundings,
};
use http::Uri;
use serde_json::Value as Json;

/// A filter that lets all pass: a memory, `proxy_abi_version_0_2_1`, and a `malloc` that gives the same place each time.
pub const EMPTY: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x09\x02\x60\0\0\x60\x01\x7f\x01\x7f\
    \x03\x03\x02\0\x01\
    \x05\x03\x01\0\x01\
    \x07\x2d\x03\x06memory\x02\0\x17proxy_abi_version_0_2_1\0\0\x06malloc\0\x01\
    \x0a\x0a\x02\x02\0\x0b\x05\0\x41\xc0\0\x0b";

/// A module that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The file cannot be read.
    #[error("{}: {source} (build the filter first, or give its path with --wasm)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It holds no module that the host takes.
    #[error("{}", path.display())]
    Module {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: ModuleError,
    },
}

/// Compiles the module of a file, or takes it from the user's cache of compiled modules. Calls `warn` if the cache cannot keep it.
///
/// # Errors
/// When the file cannot be read, or holds no module that the host takes.
pub fn module(path: &Path, compiler: Compiler, warn: impl FnOnce(String)) -> Result<Module, SetupError> {
    let wasm = fs::read(path).map_err(|source| SetupError::Read { path: path.to_owned(), source })?;
    let failed = |source| SetupError::Module { path: path.to_owned(), source };
    let Some(cache) = CodeCache::of_user() else {
        return Module::compile_with(wasm, compiler).map_err(failed);
    };
    let (module, kept) = Module::compile_cached(wasm, compiler, &cache).map_err(failed)?;
    if let Some(error) = kept.error {
        warn(format!("warning: the compiled module is not kept in {}: {error}", cache.folder().display()));
    }
    Ok(module)
}

/// Reads a property of every request and its value from an argument `NAME=VALUE`: JSON, else a text.
///
/// # Errors
/// With what was expected.
pub fn property(text: &str) -> Result<(Vec<String>, Json), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, as in xds.cluster_name=backend")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Json::String(value.to_owned()));
    Ok((host_sim::property_path(name), value))
}

/// Reads a cluster and where it is from an argument `NAME=URL`.
///
/// # Errors
/// With what was expected.
pub fn cluster(text: &str) -> Result<(String, Uri), String> {
    let (name, url) = text.split_once('=').ok_or("expected NAME=URL, as in backend=http://127.0.0.1:3001")?;
    let url = url.parse().map_err(|error| format!("{url}: {error}"))?;
    Ok((name.to_owned(), url))
}

/// Gives a plugin the variables of this process's environment that it takes from its host.
pub fn pass_environment(plugin: &mut Plugin) {
    for name in &plugin.host_environment {
        if let Ok(value) = std::env::var(name) {
            plugin.environment.entry(name.clone()).or_insert(value);
        }
    }
}

/// A host that knows what a configuration says of its gateway. One that cannot be read says nothing.
pub fn in_surroundings(builder: Builder, configuration: &[u8]) -> Builder {
    surroundings(configuration).into_iter().fold(builder, |builder, surrounding| match surrounding {
        Surrounding::BufferLimit(bytes) => builder.buffer_limit(bytes),
        Surrounding::Node(node) => builder.property(["xds", "node"], node),
        Surrounding::Xds { name, value } => xds(builder, name, value),
        _ => builder,
    })
}

/// A host that gives a property as a configuration has it.
fn xds(builder: Builder, name: &'static str, value: XdsValue) -> Builder {
    let value = match value {
        XdsValue::Number(number) => number.into(),
        XdsValue::Text(text) => text.into(),
        XdsValue::Metadata { message, filters } => {
            Value::Message(message, BTreeMap::from([("filter_metadata".into(), filters.into())]))
        }
        _ => return builder.undecided(name),
    };
    builder.property(["xds", name], value)
}
