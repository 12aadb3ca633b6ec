//! The boundary to the host, ABI 0.2.1: the calls the filter makes and the exports through which it is called.
//!
//! They are declared here rather than taken from the Rust SDK. The SDK's wrappers panic on a status they do not expect and on header
//! bytes that are no UTF-8, and a panic ends the VM; here every status comes back as a value. And the SDK exports every callback
//! there is, while a host skips those that are absent: entering the VM for nothing costs more than counting does.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::{null, null_mut};

use crate::arena::Arena;
use crate::config::FleetSettings;
use crate::count::counters::CounterHost;
use crate::count::shared_data::{Cas, HostError, SharedData, Swap};
use crate::decide::fleet::FleetHost;
use crate::decide::limiter::{Host, LogLevel};
use crate::decide::reply::Reply;
use crate::fleet::protocol;
use crate::request::header_pairs::serialize;
use crate::time::Timestamp;

mod abi {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(super) fn proxy_log(level: u32, message: *const u8, size: usize) -> u32;
        pub(super) fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
        pub(super) fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
        pub(super) fn proxy_set_effective_context(context: u32) -> u32;
        pub(super) fn proxy_continue_stream(stream_type: u32) -> u32;
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
        pub(super) fn proxy_http_call(
            cluster: *const u8,
            cluster_size: usize,
            headers: *const u8,
            headers_size: usize,
            body: *const u8,
            body_size: usize,
            trailers: *const u8,
            trailers_size: usize,
            timeout: u32,
            callout: *mut u32,
        ) -> u32;
        pub(super) fn proxy_define_metric(kind: u32, name: *const u8, size: usize, id: *mut u32) -> u32;
        pub(super) fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn random_get(buffer: *mut u8, size: usize) -> u32;
    }
}

/// What the host calls. Context ids are the host's: a root's is that of a configuration in this VM, a stream's that of a request.
pub(crate) trait Callbacks {
    /// `proxy_on_configure`: whether the configuration is taken.
    fn on_configure(&mut self, root: u32) -> bool;
    /// `proxy_on_tick`
    fn on_tick(&mut self, root: u32);
    /// `proxy_on_http_call_response`: `headers` is 0 if there was no answer.
    fn on_http_call_response(&mut self, root: u32, callout: Callout, headers: u32, body_size: usize);
    /// `proxy_on_request_headers`
    fn on_request_headers(&mut self, stream: u32) -> Action;
    /// `proxy_on_response_headers`: it never holds a response back.
    fn on_response_headers(&mut self, stream: u32);
}

/// A call to a cluster that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Callout(pub(crate) u32);

/// Whether a request goes on to the next filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It does.
    Continue,
    /// It does not.
    Stop,
}

/// Exports the callbacks of the type `$callbacks`, one value of which lives as long as the VM.
///
/// A callback never runs within another: the only function that a host calls while a callback makes a call is `malloc`.
macro_rules! export {
    ($callbacks:ty) => {
        #[expect(unsafe_code, reason = "exports have the names that the ABI fixes")]
        mod exports {
            use core::cell::RefCell;

            use super::*;
            use $crate::host::Action;

            thread_local! {
                static CALLBACKS: RefCell<$callbacks> = RefCell::default();
            }

            fn call<T>(otherwise: T, callback: impl FnOnce(&mut $callbacks) -> T) -> T {
                CALLBACKS.with(|callbacks| match callbacks.try_borrow_mut() {
                    Ok(mut callbacks) => callback(&mut callbacks),
                    Err(_) => otherwise,
                })
            }

            #[unsafe(no_mangle)]
            extern "C" fn proxy_abi_version_0_2_1() {}

            #[unsafe(no_mangle)]
            extern "C" fn _initialize() {
                std::panic::set_hook(Box::new(|panic| $crate::host::log_panic(panic)));
            }

            #[unsafe(no_mangle)]
            extern "C" fn malloc(size: usize) -> *mut u8 {
                $crate::host::allocate(size)
            }

            #[unsafe(no_mangle)]
            extern "C" fn proxy_on_configure(root: u32, _size: usize) -> u32 {
                call(false, |callbacks| callbacks.on_configure(root)).into()
            }

            #[unsafe(no_mangle)]
            extern "C" fn proxy_on_tick(root: u32) {
                call((), |callbacks| callbacks.on_tick(root));
            }

            #[unsafe(no_mangle)]
            extern "C" fn proxy_on_http_call_response(
                root: u32,
                callout: u32,
                headers: u32,
                body_size: usize,
                _trailers: u32,
            ) {
                let callout = $crate::host::Callout(callout);
                call((), |callbacks| callbacks.on_http_call_response(root, callout, headers, body_size));
            }

            #[unsafe(no_mangle)]
            extern "C" fn proxy_on_request_headers(stream: u32, _headers: u32, _end_of_stream: u32) -> u32 {
                match call(Action::Continue, |callbacks| callbacks.on_request_headers(stream)) {
                    Action::Continue => 0,
                    Action::Stop => 1,
                }
            }

            #[unsafe(no_mangle)]
            extern "C" fn proxy_on_response_headers(stream: u32, _headers: u32, _end_of_stream: u32) -> u32 {
                call((), |callbacks| callbacks.on_response_headers(stream));
                0
            }
        }
    };
}
pub(crate) use export;

thread_local! {
    static ARENA: Arena = const { Arena::new() };
}

/// Memory for a value that the host returns: a [`Returned`] takes it over. A host that asks for memory and then
/// returns no value keeps the arena from ever being free again, which costs allocations and nothing else.
pub(crate) fn allocate(size: usize) -> *mut u8 {
    ARENA
        .with(|arena| arena.allocate(size))
        .unwrap_or_else(|| ManuallyDrop::new(Vec::with_capacity(size)).as_mut_ptr())
}

/// A value that the host has written into memory which it got from [`allocate`].
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
        if !self.data.is_null() && !ARENA.with(|arena| arena.release(self.data)) {
            // SAFETY: a block that is not the arena's is a `Vec` of this capacity that `allocate` has given away.
            drop(unsafe { Vec::from_raw_parts(self.data, self.size, self.size) });
        }
    }
}

/// Tells the operator what ended the VM.
pub(crate) fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    Gateway.log(LogLevel::Error, format_args!("weir: {panic}"));
}

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const BAD_ARGUMENT: u32 = 2;
const SERIALIZATION_FAILURE: u32 = 3;
const CAS_MISMATCH: u32 = 8;

const REQUEST_HEADERS: u32 = 0;
const RESPONSE_HEADERS: u32 = 2;
const HTTP_CALL_RESPONSE_HEADERS: u32 = 6;
const HTTP_CALL_RESPONSE_TRAILERS: u32 = 7;
const HTTP_CALL_RESPONSE_BODY: u32 = 4;
const PLUGIN_CONFIGURATION: u32 = 7;
const COUNTER: u32 = 0;
const HTTP_REQUEST: u32 = 0;

fn check(call: &'static str, status: u32) -> Result<(), HostError> {
    if status == OK { Ok(()) } else { Err(HostError { call, status }) }
}

/// What a host call returned, and its status.
fn returned(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> (u32, Returned) {
    let mut value = Returned::default();
    let status = call(&raw mut value.data, &raw mut value.size);
    // On Ok the host passes on a block that it obtained from `allocate` for `size` bytes and filled. Of anything else nothing is
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
            LogLevel::Debug => 1,
            LogLevel::Info => 2,
            LogLevel::Warn => 3,
            LogLevel::Error => 4,
        };
        // Every host filters by its level. Asking it for that first (`proxy_get_log_level`) ends the VM in ngx_wasm_module.
        let message = message.to_string();
        // SAFETY: the pointer is to live memory of the given size. The status is of no use: there is nowhere to report it.
        unsafe { abi::proxy_log(level, message.as_ptr(), message.len()) };
    }
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

/// The header map that answered the current callout, serialized.
pub(crate) fn http_call_response_headers() -> Result<Returned, HostError> {
    header_map(HTTP_CALL_RESPONSE_HEADERS)
}

/// The trailers that answered the current callout, serialized; empty if there are none.
pub(crate) fn http_call_response_trailers() -> Result<Returned, HostError> {
    header_map(HTTP_CALL_RESPONSE_TRAILERS)
}

fn header_map(map: u32) -> Result<Returned, HostError> {
    let (status, bytes) = returned(|data, size| {
        // SAFETY: all pointers are to live memory of the given sizes.
        unsafe { abi::proxy_get_header_map_pairs(map, data, size) }
    });
    check("proxy_get_header_map_pairs", status)?;
    Ok(bytes)
}

/// A call to a cluster.
pub(crate) struct HttpCall<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a [u8])],
    pub(crate) body: &'a [u8],
    /// Milliseconds.
    pub(crate) timeout: u32,
}

impl HttpCall<'_> {
    /// Sends it: [`Callbacks::on_http_call_response`] brings the answer.
    pub(crate) fn send(&self) -> Result<Callout, HostError> {
        let headers = serialize(self.headers);
        let mut callout = 0;
        // SAFETY: all pointers are to live memory of the given sizes, or null with size 0.
        let status = unsafe {
            abi::proxy_http_call(
                self.cluster.as_ptr(),
                self.cluster.len(),
                headers.as_ptr(),
                headers.len(),
                self.body.as_ptr(),
                self.body.len(),
                null(),
                0,
                self.timeout,
                &raw mut callout,
            )
        };
        check("proxy_http_call", status)?;
        Ok(Callout(callout))
    }
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

/// Answers the request. `is_grpc`: its client reads the body as a message.
pub(crate) fn send(reply: &Reply, is_grpc: bool) -> Result<(), HostError> {
    let body = if is_grpc { &reply.message } else { &reply.body };
    let headers = reply.headers();
    // SAFETY: all pointers are to live memory of the given sizes.
    let status = unsafe {
        abi::proxy_send_local_response(
            reply.status.into(),
            reply.details.as_ptr(),
            reply.details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            i32::try_from(reply.grpc_status).unwrap_or(-1),
        )
    };
    check("proxy_send_local_response", status)
}

/// Within a callback of the context `current`: tells of other contexts whether they exist. A host that cannot tell has them all exist.
///
/// Only an existing context can be made the effective one, and that is the only question about contexts that the ABI has.
pub(crate) struct Contexts {
    current: u32,
}

impl Contexts {
    pub(crate) fn seen_from(current: u32) -> Self {
        Self { current }
    }

    pub(crate) fn exists(&self, context: u32) -> bool {
        enter(context)
    }
}

/// Lets the request of the stream in effect go on to the next filter.
pub(crate) fn continue_request() -> Result<(), HostError> {
    // SAFETY: no pointers.
    check("proxy_continue_stream", unsafe { abi::proxy_continue_stream(HTTP_REQUEST) })
}

impl FleetHost for Gateway {
    fn call(&mut self, fleet: &FleetSettings, message: &[u8]) -> Result<u32, HostError> {
        let headers: [(&str, &[u8]); 5] = [
            (":method", b"POST"),
            (":path", protocol::PATH.as_bytes()),
            (":authority", fleet.cluster.as_bytes()),
            ("content-type", b"application/grpc"),
            ("te", b"trailers"),
        ];
        let timeout = fleet.terms.timeout;
        let call = HttpCall { cluster: &fleet.cluster, headers: &headers, body: message, timeout };
        call.send().map(|Callout(callout)| callout)
    }

    /// Leaves the stream in effect; the next callback finds its own context in effect again.
    fn lives(&mut self, stream: u32) -> bool {
        enter(stream)
    }
}

/// Brings a context into effect for what is left of the callback; whether it exists.
pub(crate) fn enter(context: u32) -> bool {
    // SAFETY: no pointers.
    unsafe { abi::proxy_set_effective_context(context) != BAD_ARGUMENT }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // SAFETY: no pointers. The context of the callback exists, so there is nothing to report.
        unsafe { abi::proxy_set_effective_context(self.current) };
    }
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
