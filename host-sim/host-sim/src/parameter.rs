//! The parameters of host calls: numbers, what the guest gives, and where it wants what it gets.

use crate::{
    abi::{Status, slice},
    signature::ValueType,
};

/// Bytes that the guest gives: two numbers, their address and their length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) at: u32,
    pub(crate) length: u32,
}

impl Slice {
    /// No bytes.
    pub(crate) const NONE: Self = Self { at: 0, length: 0 };

    /// The bytes. Nothing at 0 is fine; anything outside the memory is not.
    pub(crate) fn of(self, memory: &[u8]) -> Result<&[u8], Status> {
        slice(memory, self.at, self.length)
    }
}

/// Where the guest wants the address and the length of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceOut {
    pub(crate) at: u32,
    pub(crate) length: u32,
}

/// Where the guest wants a number of 32 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out32(pub(crate) u32);

/// Where the guest wants a number of 64 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out64(pub(crate) u32);

/// An argument with the name of its parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) name: &'static str,
    pub(crate) given: Given,
}

/// An argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given {
    Number(i128),
    Slice(Slice),
    SliceOut(SliceOut),
    Out32(Out32),
    Out64(Out64),
}

/// The type of a parameter.
pub(crate) trait Parameter {
    /// The numbers that WebAssembly takes for it.
    const TYPES: &'static [ValueType];

    fn given(self) -> Given;
}

macro_rules! parameters {
    ($( $type:ty: $types:expr, $given:expr; )*) => {
        $(
            impl Parameter for $type {
                const TYPES: &'static [ValueType] = &$types;

                fn given(self) -> Given {
                    $given(self.into())
                }
            }
        )*
    };
}

parameters! {
    u32: [ValueType::I32], Given::Number;
    i32: [ValueType::I32], Given::Number;
    u64: [ValueType::I64], Given::Number;
    i64: [ValueType::I64], Given::Number;
    Slice: [ValueType::I32, ValueType::I32], Given::Slice;
    SliceOut: [ValueType::I32, ValueType::I32], Given::SliceOut;
    Out32: [ValueType::I32], Given::Out32;
    Out64: [ValueType::I32], Given::Out64;
}

/// Defines a host call by its parameters: `define!((linker, module, name, run, |guest| body) [] [] parameters)`, each parameter a
/// name and a type with a comma behind it. `run` is given the arguments of a trace, and calls the body.
macro_rules! define {
    ($call:tt [$($numbers:tt)*] [$($arguments:tt)*] $name:ident: Slice, $($rest:tt)*) => {
        $crate::parameter::define!(
            $call [$($numbers)* at: u32, length: u32,] [$($arguments)* $name: Slice { at, length },] $($rest)*
        )
    };
    ($call:tt [$($numbers:tt)*] [$($arguments:tt)*] $name:ident: SliceOut, $($rest:tt)*) => {
        $crate::parameter::define!(
            $call [$($numbers)* at: u32, length: u32,] [$($arguments)* $name: SliceOut { at, length },] $($rest)*
        )
    };
    ($call:tt [$($numbers:tt)*] [$($arguments:tt)*] $name:ident: Out32, $($rest:tt)*) => {
        $crate::parameter::define!($call [$($numbers)* at: u32,] [$($arguments)* $name: Out32(at),] $($rest)*)
    };
    ($call:tt [$($numbers:tt)*] [$($arguments:tt)*] $name:ident: Out64, $($rest:tt)*) => {
        $crate::parameter::define!($call [$($numbers)* at: u32,] [$($arguments)* $name: Out64(at),] $($rest)*)
    };
    ($call:tt [$($numbers:tt)*] [$($arguments:tt)*] $name:ident: $number:ident, $($rest:tt)*) => {
        $crate::parameter::define!($call [$($numbers)* at: $number,] [$($arguments)* $name: at,] $($rest)*)
    };
    (
        ($linker:expr, $module:expr, $call:ident, $run:path, $body:expr)
        [$($number:ident: $type:ty,)*] [$($name:ident: $argument:expr,)*]
    ) => {
        $linker.func_wrap($module, stringify!($call), |caller: wasmtime::Caller<'_, VmState>, $($number: $type),*| {
            $( let $name = $argument; )*
            let raw = || vec![$( Raw { name: stringify!($name), given: $name.given() } ),*];
            $run(caller, stringify!($call), raw, $body)
        })
    };
}
pub(crate) use define;
