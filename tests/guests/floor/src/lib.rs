//! The floor: a filter that makes the host calls of Weir for a plain request, with as many bytes, and decides nothing. What it adds to a
//! request is what the ABI costs, and `make bench` compares Weir with it.
//!
//! A plain request has one quota, and its response gets the three `X-RateLimit-*` headers. The tests compare the calls of both, so this guest
//! follows whenever Weir's calls change.
#![cfg(target_arch = "wasm32")]
#![expect(missing_docs, reason = "the exports are the SDK's macro's")]
#![expect(unsafe_code, reason = "Weir makes these calls without the SDK's wrappers as well")]

use core::cell::Cell;
use core::ptr::null_mut;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, MapType, MetricType};

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    safe fn proxy_get_current_time_nanoseconds(time: &mut u64) -> u32;
    safe fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    safe fn proxy_get_header_map_pairs(map: u32, pairs: &mut *mut u8, size: &mut usize) -> u32;
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
    fn proxy_define_metric(kind: u32, name: *const u8, size: usize, id: &mut u32) -> u32;
    safe fn proxy_increment_metric(id: u32, offset: i64) -> u32;
}

const OK: u32 = 0;

/// As many bytes as the name of an entry of Weir's counters.
const NAME: &[u8; 11] = b"floor000000";
/// As many as such an entry with one record of one window.
const VALUE: [u8; 30] = [0; 30];
/// As many as in Weir's headers for a quota of 4,000,000,000 a minute: its limit by the hour, what is left, and when its window ends.
const HEADERS: [(&str, &str); 3] = [
    ("x-ratelimit-limit", "240000000000"),
    ("x-ratelimit-remaining", "3999999999"),
    ("x-ratelimit-reset", "1800000060"),
];
const TICK_MILLISECONDS: u32 = 250;

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Root::default()));
}}

/// What the streams of a VM have in common.
#[derive(Default)]
struct Shared {
    /// The number that the host gave the last write of the entry, if no other value of the process was written since.
    number: Cell<u32>,
    requests: Cell<u32>,
    metric: Cell<u32>,
}

#[derive(Default)]
struct Root(Rc<Shared>);

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let (name, mut metric) = ("floor.requests_total", 0);
        // SAFETY: the pointer is to live memory of the given size.
        let status = unsafe {
            proxy_define_metric(MetricType::Counter as u32, name.as_ptr(), name.len(), &mut metric)
        };
        self.0.metric.set(metric);
        status == OK && proxy_set_tick_period_milliseconds(TICK_MILLISECONDS) == OK
    }

    fn on_tick(&mut self) {
        if let requests @ 1.. = self.0.requests.take() {
            proxy_increment_metric(self.0.metric.get(), requests.into());
        }
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream(Rc::clone(&self.0))))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream(Rc<Shared>);

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        let (mut pairs, mut size) = (null_mut(), 0);
        let status = proxy_get_header_map_pairs(MapType::HttpRequestHeaders as u32, &mut pairs, &mut size);
        free(status, pairs, size);
        proxy_get_current_time_nanoseconds(&mut 0);
        self.0.write();
        self.0.requests.set(self.0.requests.get() + 1);
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        for (name, value) in HEADERS {
            let map = MapType::HttpResponseHeaders as u32;
            // SAFETY: both pointers are to live memory of the given sizes.
            unsafe {
                proxy_add_header_map_value(map, name.as_ptr(), name.len(), value.as_ptr(), value.len())
            };
        }
        Action::Continue
    }
}

impl Shared {
    /// Swaps the entry. Like Weir, it predicts the number of its last write, and reads only if another write of the process came between.
    fn write(&self) {
        if self.number.get() == 0 || !self.swap() {
            self.read();
            self.swap();
        }
        self.number.set(self.number.get() + 1);
    }

    fn read(&self) {
        let (mut value, mut size, mut number) = (null_mut(), 0, 0);
        // SAFETY: the pointer is to live memory of the given size.
        let status =
            unsafe { proxy_get_shared_data(NAME.as_ptr(), NAME.len(), &mut value, &mut size, &mut number) };
        free(status, value, size);
        self.number.set(number);
    }

    fn swap(&self) -> bool {
        let number = self.number.get();
        // SAFETY: both pointers are to live memory of the given sizes.
        let status =
            unsafe { proxy_set_shared_data(NAME.as_ptr(), NAME.len(), VALUE.as_ptr(), VALUE.len(), number) };
        status == OK
    }
}

/// Frees what a call returned.
fn free(status: u32, data: *mut u8, size: usize) {
    if status == OK && !data.is_null() {
        // SAFETY: on Ok the host passes on a block of this size that it obtained from the SDK's `malloc`, which gives away a `Vec`.
        drop(unsafe { Vec::from_raw_parts(data, size, size) });
    }
}
