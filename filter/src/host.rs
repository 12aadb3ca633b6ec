//! Host calls of ABI 0.2.1 that return the raw status.
//!
//! The Rust SDK carries the life cycle and the callouts. Its other wrappers panic on a status that they do not expect and on header bytes
//! that are not UTF-8, and a panic ends the VM; here every status comes back as a value.

use core::fmt;
use core::ptr::null_mut;
use core::time::Duration;

use proxy_wasm::hostcalls;

use crate::count::shared_data::{Cas, HostError, SharedData, Swap};
use crate::count::swap::CounterHost;
use crate::decide::host::{Host, LogLevel};
use crate::decide::reply::Reply;
use crate::time::Timestamp;

mod abi {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(super) fn proxy_log(level: u32, message: *const u8, size: usize) -> u32;
        pub(super) fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
        pub(super) fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
        pub(super) fn proxy_get_buffer_bytes(
            buffer: u32,
            start: usize,
            max_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_get_property(
            path: *const u8,
            path_size: usize,
            value: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_set_property(
            path: *const u8,
            path_size: usize,
            value: *const u8,
            size: usize,
        ) -> u32;
        pub(super) fn proxy_get_shared_data(
            key: *const u8,
            key_size: usize,
            value: *mut *mut u8,
            size: *mut usize,
            cas: *mut u32,
        ) -> u32;
        pub(super) fn proxy_set_shared_data(
            key: *const u8,
            key_size: usize,
            value: *const u8,
            size: usize,
            cas: u32,
        ) -> u32;
        pub(super) fn proxy_get_header_map_pairs(map: u32, pairs: *mut *mut u8, size: *mut usize) -> u32;
        pub(super) fn proxy_add_header_map_value(
            map: u32,
            name: *const u8,
            name_size: usize,
            value: *const u8,
            size: usize,
        ) -> u32;
        pub(super) fn proxy_replace_header_map_value(
            map: u32,
            name: *const u8,
            name_size: usize,
            value: *const u8,
            size: usize,
        ) -> u32;
        pub(super) fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_size: usize,
            body: *const u8,
            body_size: usize,
            headers: *const u8,
            headers_size: usize,
            grpc_status: i32,
        ) -> u32;
        pub(super) fn proxy_define_metric(kind: u32, name: *const u8, size: usize, id: *mut u32) -> u32;
        pub(super) fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn random_get(buffer: *mut u8, size: usize) -> u32;
        pub(super) fn environ_sizes_get(variables: *mut usize, size: *mut usize) -> u32;
        pub(super) fn environ_get(variables: *mut *mut u8, buffer: *mut u8) -> u32;
    }
}

/// A value that the host has written into memory that it got from `malloc`, which the SDK exports.
#[derive(Debug)]
pub(crate) struct Returned {
    data: *mut u8,
    size: usize,
}

impl Default for Returned {
    fn default() -> Self {
        Self { data: null_mut(), size: 0 }
    }
}

impl AsRef<[u8]> for Returned {
    fn as_ref(&self) -> &[u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: see `returned`: these bytes are filled, and nobody else refers to them until this value is dropped.
        unsafe { core::slice::from_raw_parts(self.data, self.size) }
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        if !self.data.is_null() {
            // SAFETY: the SDK's `malloc` has given away a `Vec` of this size and capacity.
            drop(unsafe { Vec::from_raw_parts(self.data, self.size, self.size) });
        }
    }
}

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const SERIALIZATION_FAILURE: u32 = 3;
const CAS_MISMATCH: u32 = 8;

const REQUEST_HEADERS: u32 = 0;
const RESPONSE_HEADERS: u32 = 2;
const RESPONSE_TRAILERS: u32 = 3;
const HTTP_CALL_RESPONSE_HEADERS: u32 = 6;
const HTTP_CALL_RESPONSE_BODY: u32 = 4;
const PLUGIN_CONFIGURATION: u32 = 7;
const COUNTER: u32 = 0;

fn check(call: &'static str, status: u32) -> Result<(), HostError> {
    if status == OK { Ok(()) } else { Err(HostError { call, status }) }
}

/// What a host call returned, and its status.
fn returned(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> (u32, Returned) {
    let mut value = Returned::default();
    let status = call(&raw mut value.data, &raw mut value.size);
    // On Ok the host passes on a block that it obtained from `malloc` for `size` bytes and filled. Of anything else nothing is
    // known, so it is neither read nor freed.
    if status != OK {
        value.data = null_mut();
    }
    (status, value)
}

/// The request that the current callback is about, and what the VM has in common.
#[derive(Debug)]
pub(crate) struct Gateway;

impl SharedData for Gateway {
    type Value = Returned;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Returned, Cas)>, HostError> {
        let mut cas = 0;
        let (status, value) = returned(|data, size| {
            // SAFETY: all pointers are to live memory of the given sizes.
            unsafe { abi::proxy_get_shared_data(name.as_ptr(), name.len(), data, size, &raw mut cas) }
        });
        match status {
            OK => Ok(Some((value, Cas(cas)))),
            NOT_FOUND => Ok(None),
            status => Err(HostError { call: "proxy_get_shared_data", status }),
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8], Cas(cas): Cas) -> Result<Swap, HostError> {
        // SAFETY: all pointers are to live memory of the given sizes.
        let status = unsafe {
            abi::proxy_set_shared_data(name.as_ptr(), name.len(), value.as_ptr(), value.len(), cas)
        };
        match status {
            OK => Ok(Swap::Stored),
            CAS_MISMATCH => Ok(Swap::Conflict),
            status => Err(HostError { call: "proxy_set_shared_data", status }),
        }
    }
}

impl CounterHost for Gateway {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        let mut nanos = 0;
        // SAFETY: the pointer is to a live u64.
        let status = unsafe { abi::proxy_get_current_time_nanoseconds(&raw mut nanos) };
        check("proxy_get_current_time_nanoseconds", status)?;
        Ok(Timestamp::from_nanos(nanos))
    }
}

impl Host for Gateway {
    fn property(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
        let (status, value) = returned(|data, size| {
            // SAFETY: all pointers are to live memory of the given sizes.
            unsafe { abi::proxy_get_property(path.as_ptr(), path.len(), data, size) }
        });
        match status {
            OK => Ok(Some(value.as_ref().to_vec())),
            NOT_FOUND | SERIALIZATION_FAILURE => Ok(None),
            status => Err(HostError { call: "proxy_get_property", status }),
        }
    }

    fn random(&mut self) -> Result<[u8; 16], HostError> {
        let mut bytes = [0; 16];
        // SAFETY: the pointer is to 16 live bytes.
        check("random_get", unsafe { abi::random_get(bytes.as_mut_ptr(), bytes.len()) })?;
        Ok(bytes)
    }

    fn log(&mut self, level: LogLevel, message: fmt::Arguments<'_>) {
        let level = match level {
            LogLevel::Debug => log::Level::Debug,
            LogLevel::Info => log::Level::Info,
            LogLevel::Warn => log::Level::Warn,
            LogLevel::Error => log::Level::Error,
        };
        log::log!(level, "{message}");
    }
}

/// Hands log lines to `proxy_log`. The SDK's logger ends the VM on a status other than Ok.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        // Every host filters by its level.
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let level = match record.level() {
            log::Level::Trace => 0,
            log::Level::Debug => 1,
            log::Level::Info => 2,
            log::Level::Warn => 3,
            log::Level::Error => 4,
        };
        let message = record.args().to_string();
        // SAFETY: the pointer is to live memory of the given size. The status is of no use: there is no other place to report it.
        unsafe { abi::proxy_log(level, message.as_ptr(), message.len()) };
    }

    fn flush(&self) {}
}

/// Makes log lines, and what ends the VM if it panics, known to the host.
pub(crate) fn start_log() {
    // `_initialize` runs once, so no other logger is set.
    let _ = log::set_logger(&Logger);
    log::set_max_level(log::LevelFilter::Trace);
    std::panic::set_hook(Box::new(|panic| log::error!("weir: {panic}")));
}

/// The value of a variable in the environment that the host gives the VM.
pub(crate) fn environment_variable(name: &str) -> Option<String> {
    let (mut count, mut size) = (0, 0);
    // SAFETY: both pointers are to live numbers.
    let status = unsafe { abi::environ_sizes_get(&raw mut count, &raw mut size) };
    if status != OK {
        return None;
    }
    let (mut variables, mut buffer) = (vec![null_mut(); count], vec![0; size]);
    // SAFETY: the pointers are to as many live pointers and bytes as the host has asked for.
    let status = unsafe { abi::environ_get(variables.as_mut_ptr(), buffer.as_mut_ptr()) };
    if status != OK {
        return None;
    }
    // Each variable is `name=value` and ends with a NUL.
    let mut variables = buffer.split(|byte| *byte == 0).filter_map(|variable| str::from_utf8(variable).ok());
    variables
        .find_map(|variable| variable.split_once('=').filter(|(found, _)| *found == name))
        .map(|(_, value)| value.to_owned())
}

/// Sets a property of the current stream.
pub(crate) fn set_property(path: &[u8], value: &[u8]) -> Result<(), HostError> {
    // SAFETY: all pointers are to live memory of the given sizes.
    let status = unsafe { abi::proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) };
    check("proxy_set_property", status)
}

/// The plugin's configuration; empty if there is none.
pub(crate) fn configuration() -> Result<Returned, HostError> {
    buffer(PLUGIN_CONFIGURATION, usize::MAX)
}

/// The body that answered the current callout.
pub(crate) fn http_call_response_body(size: usize) -> Result<Returned, HostError> {
    buffer(HTTP_CALL_RESPONSE_BODY, size)
}

fn buffer(buffer: u32, size: usize) -> Result<Returned, HostError> {
    let (status, bytes) = returned(|data, returned_size| {
        // SAFETY: all pointers are to live memory of the given sizes.
        unsafe { abi::proxy_get_buffer_bytes(buffer, 0, size, data, returned_size) }
    });
    match status {
        // Envoy has no buffer where there is nothing to read.
        OK | NOT_FOUND => Ok(bytes),
        status => Err(HostError { call: "proxy_get_buffer_bytes", status }),
    }
}

/// The request's header map, serialized; empty if there is none.
pub(crate) fn request_headers() -> Result<Returned, HostError> {
    header_map(REQUEST_HEADERS)
}

/// The response's header map, serialized.
pub(crate) fn response_headers() -> Result<Returned, HostError> {
    header_map(RESPONSE_HEADERS)
}

/// The response's trailers, serialized.
pub(crate) fn response_trailers() -> Result<Returned, HostError> {
    header_map(RESPONSE_TRAILERS)
}

/// The header map that answered the current callout, serialized.
pub(crate) fn http_call_response_headers() -> Result<Returned, HostError> {
    header_map(HTTP_CALL_RESPONSE_HEADERS)
}

fn header_map(map: u32) -> Result<Returned, HostError> {
    let (status, bytes) = returned(|data, size| {
        // SAFETY: all pointers are to live memory of the given sizes.
        unsafe { abi::proxy_get_header_map_pairs(map, data, size) }
    });
    check("proxy_get_header_map_pairs", status)?;
    Ok(bytes)
}

/// Calls a cluster. The SDK hands the answer to the context that is active now, if that still exists. There is none after `timeout`
/// milliseconds. Returns the number that identifies the answer.
pub(crate) fn http_call(
    cluster: &str,
    headers: Vec<(&str, &str)>,
    body: Option<&[u8]>,
    timeout: u32,
) -> Result<u32, HostError> {
    let timeout = Duration::from_millis(timeout.into());
    // The ABI names BadArgument and InternalFailure for this call. The SDK ends the VM on any other failure.
    hostcalls::dispatch_http_call(cluster, headers, body, Vec::new(), timeout)
        .map_err(|status| HostError { call: "proxy_http_call", status: status as u32 })
}

/// Sets a response header in place of all of its name.
pub(crate) fn replace_response_header(name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: all pointers are to live memory of the given sizes.
    let status = unsafe {
        abi::proxy_replace_header_map_value(
            RESPONSE_HEADERS,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    };
    check("proxy_replace_header_map_value(response headers)", status)
}

/// Adds a response header beside those of its name.
pub(crate) fn add_response_header(name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: all pointers are to live memory of the given sizes.
    let status = unsafe {
        abi::proxy_add_header_map_value(
            RESPONSE_HEADERS,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    };
    check("proxy_add_header_map_value(response headers)", status)
}

/// Answers the request.
pub(crate) fn send(reply: &Reply) -> Result<(), HostError> {
    // SAFETY: all pointers are to live memory of the given sizes.
    let status = unsafe {
        abi::proxy_send_local_response(
            reply.status.into(),
            reply.details.as_ptr(),
            reply.details.len(),
            reply.body.as_ptr(),
            reply.body.len(),
            reply.headers.as_ptr(),
            reply.headers.len(),
            reply.grpc_status,
        )
    };
    check("proxy_send_local_response", status)
}

/// Asks for a tick every `milliseconds`.
pub(crate) fn set_tick_period(milliseconds: u32) -> Result<(), HostError> {
    // SAFETY: no pointers.
    check("proxy_set_tick_period_milliseconds", unsafe {
        abi::proxy_set_tick_period_milliseconds(milliseconds)
    })
}

/// A counter that the gateway shows among its metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric(u32);

impl Metric {
    /// Defines the counter `name`, or finds it.
    pub(crate) fn counter(name: &str) -> Result<Self, HostError> {
        let mut id = 0;
        // SAFETY: all pointers are to live memory of the given sizes.
        let status = unsafe { abi::proxy_define_metric(COUNTER, name.as_ptr(), name.len(), &raw mut id) };
        check("proxy_define_metric", status)?;
        Ok(Self(id))
    }

    /// Adds `amount`, which is not 0.
    pub(crate) fn add(self, amount: u32) -> Result<(), HostError> {
        // SAFETY: no pointers.
        check("proxy_increment_metric", unsafe { abi::proxy_increment_metric(self.0, amount.into()) })
    }
}
