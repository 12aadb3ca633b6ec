//! Callbacks: what they are given, and what their answers mean.

use wasmtime::{WasmParams, WasmResults};

use crate::trace::arguments::{Argument, Shown};

/// A callback's name, the names of its parameters, and what its answers mean by their numbers: nothing if it gives none.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) parameters: &'static [&'static str],
    pub(crate) answers: &'static [&'static str],
}

/// The parameters of a callback.
pub(crate) trait Parameters: WasmParams + Copy {
    /// They, in order.
    fn numbers(self) -> Vec<u32>;
}

impl Parameters for (u32,) {
    fn numbers(self) -> Vec<u32> {
        vec![self.0]
    }
}

impl Parameters for (u32, u32) {
    fn numbers(self) -> Vec<u32> {
        vec![self.0, self.1]
    }
}

impl Parameters for (u32, u32, u32) {
    fn numbers(self) -> Vec<u32> {
        vec![self.0, self.1, self.2]
    }
}

impl Parameters for (u32, u32, u32, u32, u32) {
    fn numbers(self) -> Vec<u32> {
        vec![self.0, self.1, self.2, self.3, self.4]
    }
}

/// What a callback answers.
pub(crate) trait Returned: WasmResults {
    /// The number, if it answers one.
    fn number(&self) -> Option<u32>;
}

impl Returned for () {
    fn number(&self) -> Option<u32> {
        None
    }
}

impl Returned for u32 {
    fn number(&self) -> Option<u32> {
        Some(*self)
    }
}

impl Shape {
    /// What the callback is given.
    pub(super) fn given(&self, numbers: &[u32]) -> Vec<Argument> {
        let value = |name, number| match (name, number) {
            ("end_of_stream", 0) => Shown::Word("false"),
            ("end_of_stream", _) => Shown::Word("true"),
            (_, number) => Shown::Number(number.into()),
        };
        let named = self.parameters.iter().zip(numbers);
        named.map(|(name, number)| Argument { name, value: value(*name, *number) }).collect()
    }

    /// What an answer of the callback means.
    pub(crate) fn returned(&self, number: u32) -> String {
        let word = usize::try_from(number).ok().and_then(|number| self.answers.get(number));
        word.map_or_else(|| number.to_string(), |word| (*word).to_owned())
    }
}
