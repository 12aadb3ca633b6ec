//! The types of host functions, which a module and a host have to agree on.

use std::fmt;

/// The type of a parameter or a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueType {
    /// A 32-bit integer: a number, a length or an address.
    I32,
    /// A 64-bit integer.
    I64,
    /// A 32-bit float. No host function has one.
    F32,
    /// A 64-bit float. No host function has one.
    F64,
    /// A type of a later WebAssembly, such as a vector. No host function has one.
    Other,
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Other => "other",
        })
    }
}

/// The type of a function, written as WebAssembly's text writes it: `(func (param i32 i32) (result i32))`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// What the function takes.
    pub parameters: Vec<ValueType>,
    /// What the function gives.
    pub results: Vec<ValueType>,
}

/// A host call's name with the types of its parameters, each of which is one number or several.
pub(crate) type Parameters = (&'static str, &'static [&'static [ValueType]]);

impl Signature {
    /// The type of a call that a table has.
    pub(crate) fn of(table: &[Parameters], name: &str) -> Option<Self> {
        let (_, parameters) = table.iter().find(|(known, _)| *known == name)?;
        Some(Self::with_status(&parameters.concat()))
    }

    /// Of a host function: nearly all give one i32, a status.
    pub(crate) fn with_status(parameters: &[ValueType]) -> Self {
        Self { parameters: parameters.to_vec(), results: vec![ValueType::I32] }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(func")?;
        for (word, types) in [("param", &self.parameters), ("result", &self.results)] {
            if !types.is_empty() {
                write!(f, " ({word}")?;
                types.iter().try_for_each(|kind| write!(f, " {kind}"))?;
                f.write_str(")")?;
            }
        }
        f.write_str(")")
    }
}

impl From<&wasmtime::ValType> for ValueType {
    fn from(kind: &wasmtime::ValType) -> Self {
        match kind {
            wasmtime::ValType::I32 => Self::I32,
            wasmtime::ValType::I64 => Self::I64,
            wasmtime::ValType::F32 => Self::F32,
            wasmtime::ValType::F64 => Self::F64,
            wasmtime::ValType::V128 | wasmtime::ValType::Ref(_) => Self::Other,
        }
    }
}

impl From<&wasmtime::FuncType> for Signature {
    fn from(kind: &wasmtime::FuncType) -> Self {
        Self {
            parameters: kind.params().map(|kind| (&kind).into()).collect(),
            results: kind.results().map(|kind| (&kind).into()).collect(),
        }
    }
}

/// A function that a module imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The module that has the function: `env`, or a name of WASI.
    pub module: String,
    /// The function's name.
    pub name: String,
    /// The type that the importing module gives the function.
    pub signature: Signature,
}
