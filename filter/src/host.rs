//! Host calls of ABI 0.2.1 that return the raw status.
//!
//! The Rust SDK carries the life cycle and the callouts. Its other wrappers panic on a status that they do not expect and on header bytes
//! that are not UTF-8, and a panic ends the VM; here every status comes back as a value.

use core::cell::RefCell;
use core::fmt;
use core::ptr::null_mut;
use core::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType, MetricType};

use crate::count::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData};
use crate::count::swap::{CounterHost, LogLevel};
use crate::decide::host::Host;
use crate::decide::reply::Reply;
use crate::time::Timestamp;

// A function that takes no memory but what references lend it is safe.
#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, message: *const u8, size: usize) -> u32;
    safe fn proxy_get_current_time_nanoseconds(time: &mut u64) -> u32;
    safe fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    safe fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max_size: usize,
        data: &mut *mut u8,
        size: &mut usize,
    ) -> u32;
    safe fn proxy_get_header_map_pairs(map: u32, pairs: &mut *mut u8, size: &mut usize) -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, value: &mut *mut u8, size: &mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, size: usize) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        value: &mut *mut u8,
        size: &mut usize,
        cas: &mut u32,
    ) -> u32;
    fn proxy_set_shared_data(key: *const u8, key_size: usize, value: *const u8, size: usize, cas: u32)
    -> u32;
    fn proxy_add_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        size: usize,
    ) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        size: usize,
    ) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    safe fn proxy_continue_stream(stream: u32) -> u32;
    safe fn proxy_done() -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, size: usize, id: &mut u32) -> u32;
    safe fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    safe fn proxy_record_metric(id: u32, value: u64) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn random_get(buffer: *mut u8, size: usize) -> u32;
    safe fn environ_sizes_get(variables: &mut usize, size: &mut usize) -> u32;
    fn environ_get(variables: *mut *mut u8, buffer: *mut u8) -> u32;
}

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const SERIALIZATION_FAILURE: u32 = 3;
const CAS_MISMATCH: u32 = 8;

fn check(call: &'static str, status: u32) -> Result<(), HostError> {
    if status == OK { Ok(()) } else { Err(HostError { call, status }) }
}

/// The value that `get`, which is the host call `call`, returns; `None` if it answers one of `absent`.
fn returned(
    call: &'static str,
    absent: &[u32],
    get: impl FnOnce(&mut *mut u8, &mut usize) -> u32,
) -> Result<Option<Vec<u8>>, HostError> {
    let (mut data, mut size) = (null_mut(), 0);
    match get(&mut data, &mut size) {
        OK if data.is_null() => Ok(Some(Vec::new())),
        // SAFETY: on Ok the host passes on a block that it obtained from the SDK's `malloc` for `size` bytes and filled; `malloc` has given
        // away a `Vec` of this size and capacity. Of anything else nothing is known, so it is neither read nor freed.
        OK => Ok(Some(unsafe { Vec::from_raw_parts(data, size, size) })),
        status if absent.contains(&status) => Ok(None),
        status => Err(HostError { call, status }),
    }
}

thread_local! {
    /// What the VM keeps itself if the host has no shared data. It outlives configurations, as shared data does.
    static OF_VM: RefCell<Option<VmLocalData>> = const { RefCell::new(None) };
}

/// What the host's shared data has answered, or the VM's own if the host has none.
fn or_of_vm<T>(
    answered: Result<T, HostError>,
    of_vm: impl FnOnce(&mut VmLocalData) -> Result<T, HostError>,
) -> Result<T, HostError> {
    match answered {
        Err(error) if error.is_unimplemented() => {
            OF_VM.with_borrow_mut(|data| of_vm(data.get_or_insert_default()))
        }
        answered => answered,
    }
}

/// The request that the current callback is about, and what the VM has in common.
#[derive(Debug)]
pub(crate) struct Gateway;

impl SharedData for Gateway {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        let mut cas = 0;
        let value = returned("proxy_get_shared_data", &[NOT_FOUND], |value, size| {
            // SAFETY: the pointer is to live memory of the given size.
            unsafe { proxy_get_shared_data(name.as_ptr(), name.len(), value, size, &mut cas) }
        });
        or_of_vm(value.map(|value| value.map(|value| (value, Cas(cas)))), |data| data.get(name))
    }

    fn set(&mut self, name: &[u8], value: &[u8], Cas(cas): Cas) -> Result<Swap, HostError> {
        // SAFETY: both pointers are to live memory of the given sizes.
        match unsafe { proxy_set_shared_data(name.as_ptr(), name.len(), value.as_ptr(), value.len(), cas) } {
            CAS_MISMATCH => Ok(Swap::Conflict),
            status => {
                let stored = check("proxy_set_shared_data", status).map(|()| Swap::Stored);
                or_of_vm(stored, |data| data.set(name, value, Cas(cas)))
            }
        }
    }

    fn is_of_vm(&self) -> bool {
        OF_VM.with_borrow(Option::is_some)
    }
}

impl CounterHost for Gateway {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        let mut nanos = 0;
        check("proxy_get_current_time_nanoseconds", proxy_get_current_time_nanoseconds(&mut nanos))?;
        Ok(Timestamp::from_nanos(nanos))
    }

    fn log(&mut self, level: LogLevel, message: fmt::Arguments<'_>) {
        let message = message.to_string();
        // SAFETY: the pointer is to live memory of the given size. The status is of no use: there is no other place to report it.
        unsafe { proxy_log(level as u32, message.as_ptr(), message.len()) };
    }
}

impl Host for Gateway {
    fn property(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
        returned("proxy_get_property", &[NOT_FOUND, SERIALIZATION_FAILURE], |value, size| {
            // SAFETY: the pointer is to live memory of the given size.
            unsafe { proxy_get_property(path.as_ptr(), path.len(), value, size) }
        })
    }

    fn random(&mut self) -> Result<[u8; 16], HostError> {
        let mut bytes = [0; 16];
        // SAFETY: the pointer is to 16 live bytes.
        check("random_get", unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) })?;
        Ok(bytes)
    }
}

/// The value of a variable in the environment that the host gives the VM.
pub(crate) fn environment_variable(name: &str) -> Option<String> {
    let (mut count, mut size) = (0, 0);
    if environ_sizes_get(&mut count, &mut size) != OK {
        return None;
    }
    let (mut variables, mut buffer) = (vec![null_mut(); count], vec![0; size]);
    // SAFETY: the pointers are to as many live pointers and bytes as the host has asked for.
    if unsafe { environ_get(variables.as_mut_ptr(), buffer.as_mut_ptr()) } != OK {
        return None;
    }
    // Each variable is `name=value` and ends with a NUL.
    let variables = buffer.split(|byte| *byte == 0).filter_map(|variable| str::from_utf8(variable).ok());
    let mut values = variables.filter_map(|variable| variable.strip_prefix(name)?.strip_prefix('='));
    values.next().map(str::to_owned)
}

/// Sets a property of the current stream.
pub(crate) fn set_property(path: &[u8], value: &[u8]) -> Result<(), HostError> {
    // SAFETY: both pointers are to live memory of the given sizes.
    let status = unsafe { proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) };
    check("proxy_set_property", status)
}

/// The first `size` bytes of a buffer; empty if there is none, for Envoy has no buffer where there is nothing to read.
pub(crate) fn buffer(buffer: BufferType, size: usize) -> Result<Vec<u8>, HostError> {
    let bytes = returned("proxy_get_buffer_bytes", &[NOT_FOUND], |data, returned_size| {
        proxy_get_buffer_bytes(buffer as u32, 0, size, data, returned_size)
    });
    bytes.map(Option::unwrap_or_default)
}

/// The headers and the body of the answer to a call, within its callback; both empty if there is no answer.
///
/// # Errors
/// The first of the two host calls that fails.
pub(crate) fn call_answer(answered: bool, body_size: usize) -> Result<(Vec<u8>, Vec<u8>), HostError> {
    if !answered {
        return Ok(Default::default());
    }
    Ok((header_map(MapType::HttpCallResponseHeaders)?, buffer(BufferType::HttpCallResponseBody, body_size)?))
}

/// A header map, serialized.
pub(crate) fn header_map(map: MapType) -> Result<Vec<u8>, HostError> {
    let pairs = returned("proxy_get_header_map_pairs", &[], |pairs, size| {
        proxy_get_header_map_pairs(map as u32, pairs, size)
    });
    pairs.map(Option::unwrap_or_default)
}

/// Lets the request of the current stream go on.
pub(crate) fn resume() -> Result<(), HostError> {
    const REQUEST: u32 = 0;
    check("proxy_continue_stream", proxy_continue_stream(REQUEST))
}

/// The root context, whose end the host has been told to wait with, has ended.
pub(crate) fn done() -> Result<(), HostError> {
    check("proxy_done", proxy_done())
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

/// Sets a response header: in place of all of its name, or beside them.
pub(crate) fn set_response_header(name: &str, value: &str, replaces: bool) -> Result<(), HostError> {
    let map = MapType::HttpResponseHeaders as u32;
    let (name, name_size, value, size) = (name.as_ptr(), name.len(), value.as_ptr(), value.len());
    if replaces {
        // SAFETY: both pointers are to live memory of the given sizes.
        let status = unsafe { proxy_replace_header_map_value(map, name, name_size, value, size) };
        check("proxy_replace_header_map_value(response headers)", status)
    } else {
        // SAFETY: both pointers are to live memory of the given sizes.
        let status = unsafe { proxy_add_header_map_value(map, name, name_size, value, size) };
        check("proxy_add_header_map_value(response headers)", status)
    }
}

/// Answers the request.
pub(crate) fn send(reply: &Reply) -> Result<(), HostError> {
    // SAFETY: all pointers are to live memory of the given sizes.
    let status = unsafe {
        proxy_send_local_response(
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
    check("proxy_set_tick_period_milliseconds", proxy_set_tick_period_milliseconds(milliseconds))
}

/// A counter or a gauge that the gateway shows among its metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric(u32);

impl Metric {
    /// Defines a counter or gauge, or finds it.
    pub(crate) fn define(kind: MetricType, name: &str) -> Result<Self, HostError> {
        let mut id = 0;
        // SAFETY: the pointer is to live memory of the given size.
        let status = unsafe { proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &mut id) };
        check("proxy_define_metric", status)?;
        Ok(Self(id))
    }

    /// Adds `amount`, which is not 0.
    pub(crate) fn add(self, amount: u32) -> Result<(), HostError> {
        check("proxy_increment_metric", proxy_increment_metric(self.0, amount.into()))
    }

    /// Sets a gauge.
    pub(crate) fn set(self, value: u64) -> Result<(), HostError> {
        check("proxy_record_metric", proxy_record_metric(self.0, value))
    }
}
