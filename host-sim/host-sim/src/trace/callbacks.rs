//! Callbacks: what they are given, and what their answers mean.

use wasmtime::{WasmParams, WasmResults};

use crate::trace::arguments::{Argument, Shown};

/// The parameters of a callback.
pub(crate) trait Parameters: WasmParams + Copy {
    /// They, in order.
    fn numbers(self) -> Vec<u32>;
}

impl Parameters for u32 {
    fn numbers(self) -> Vec<u32> {
        vec![self]
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

fn names(callback: &str) -> &'static [&'static str] {
    match callback {
        "proxy_on_context_create" => &["context", "parent"],
        "proxy_on_vm_start" | "proxy_on_configure" => &["root", "size"],
        "proxy_on_tick" => &["root"],
        "proxy_on_queue_ready" => &["root", "token"],
        "proxy_on_http_call_response" => &["root", "token", "headers", "body_size", "trailers"],
        "proxy_on_grpc_receive_initial_metadata" | "proxy_on_grpc_receive_trailing_metadata" => {
            &["root", "token", "entries"]
        }
        "proxy_on_grpc_receive" => &["root", "token", "size"],
        "proxy_on_grpc_close" => &["root", "token", "status"],
        "proxy_on_request_headers" | "proxy_on_response_headers" => &["context", "headers", "end_of_stream"],
        "proxy_on_request_body" | "proxy_on_response_body" => &["context", "size", "end_of_stream"],
        "proxy_on_request_trailers" | "proxy_on_response_trailers" => &["context", "trailers"],
        _ => &["context"],
    }
}

/// What a callback is given.
pub(super) fn given(callback: &str, numbers: &[u32]) -> Vec<Argument> {
    let named = names(callback).iter().zip(numbers);
    let value = |name, number| match (name, number) {
        ("end_of_stream", 0) => Shown::Word("false"),
        ("end_of_stream", _) => Shown::Word("true"),
        (_, number) => Shown::Number(number.into()),
    };
    named.map(|(name, number)| Argument { name, value: value(*name, *number) }).collect()
}

/// What a callback's answer means.
pub(super) fn returned(callback: &str, number: u32) -> String {
    let words: &[&str] = match callback {
        "proxy_on_request_headers" | "proxy_on_response_headers" => &[
            "Continue",
            "StopIteration",
            "ContinueAndEndStream",
            "StopAllIterationAndBuffer",
            "StopAllIterationAndWatermark",
        ],
        "proxy_on_request_body" | "proxy_on_response_body" => {
            &["Continue", "StopIterationAndBuffer", "StopIterationAndWatermark", "StopIterationNoBuffer"]
        }
        "proxy_on_request_trailers" | "proxy_on_response_trailers" => &["Continue", "StopIteration"],
        "proxy_on_vm_start" | "proxy_on_configure" | "proxy_on_done" => &["false", "true"],
        _ => &[],
    };
    let word = usize::try_from(number).ok().and_then(|number| words.get(number));
    word.map_or_else(|| number.to_string(), |word| (*word).to_owned())
}
