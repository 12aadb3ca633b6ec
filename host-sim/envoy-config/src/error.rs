//! Why a text holds no plugin's configuration.

use std::{io, path::PathBuf};

use crate::syntax;

/// What Envoy names the configuration of its Wasm filter.
pub(crate) const WASM_FILTER: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

/// A text that holds no plugin's configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is neither JSON nor YAML from this line and column on. The parser's message is left out, because it quotes the text, and the
    /// text may hold keys and tokens.
    #[error("neither JSON nor YAML: line {line}, column {column}{}", cause.map(|cause| format!(": {cause}")).unwrap_or_default())]
    Syntax {
        /// The line, from 1; 0 if the text as a whole cannot be read.
        line: u64,
        /// The column, from 1; 0 if the text as a whole cannot be read.
        column: u64,
        /// What people do wrong there, if it is known.
        cause: Option<&'static str>,
    },
    /// Its encoding is none that a gateway takes.
    #[error("{0}")]
    Encoding(&'static str),
    /// It configures an Envoy that has no Wasm filter.
    #[error("an Envoy configuration without a {WASM_FILTER} filter")]
    NoFilter,
    /// It configures several Wasm filters.
    #[error("several Wasm filters ({}): choose one with --plugin, by its name or number", names.join(", "))]
    SeveralFilters {
        /// Their numbers and names.
        names: Vec<String>,
    },
    /// It has no Wasm filter of this name.
    #[error("no Wasm filter is named {name:?}: there is {}", names.join(", "))]
    UnknownFilter {
        /// The name as asked for.
        name: String,
        /// The numbers and names of those that there are.
        names: Vec<String>,
    },
    /// It is a manifest of Kubernetes of a kind that configures no filter.
    #[error(
        "a manifest of kind {kind:?}, which configures no Wasm filter: WasmPlugin, TrafficExtension, \
         EnvoyExtensionPolicy and EnvoyFilter may"
    )]
    Manifest {
        /// Its kind.
        kind: String,
    },
    /// The filter's configuration is a message of a type that is not known here.
    #[error(
        "{field}: host-sim has no protocol-buffers form of {type_url}: it knows google.protobuf's StringValue, BytesValue, \
         Struct, Value, ListValue, Empty and wrappers of numbers, and TypedStruct"
    )]
    MessageType {
        /// The field.
        field: &'static str,
        /// The message's type.
        type_url: String,
    },
    /// The filter's configuration is a message whose value is none of its type.
    #[error("{field}: the value is no {type_url}")]
    Value {
        /// The field.
        field: &'static str,
        /// The message's type.
        type_url: String,
    },
    /// A field has a value of the wrong kind.
    #[error("{field}: expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it takes.
        expected: &'static str,
    },
}

impl ConfigurationError {
    /// Of a text that serde-saphyr cannot read.
    pub(crate) fn syntax(text: &[u8], error: &serde_saphyr::Error) -> Self {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        Self::Syntax { line, column, cause: syntax::cause(text, (line, column)) }
    }
}
