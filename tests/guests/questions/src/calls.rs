//! The host calls by name.

use std::fmt::Write as _;

use crate::text;

/// What a call gave back.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) numbers: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
    has_bytes: bool,
}

impl Answer {
    /// The answer for the log; of one that varies, its status and size alone.
    pub(crate) fn shown(&self, status: u32, varies: bool) -> String {
        let mut shown = status.to_string();
        if status != 0 {
            return shown;
        }
        if varies {
            if self.has_bytes {
                let _ = write!(shown, " {} bytes", self.bytes.len());
            }
            return shown;
        }
        for number in &self.numbers {
            let _ = write!(shown, " {number}");
        }
        if self.has_bytes {
            let _ = write!(shown, " {}", text::shown(&self.bytes));
        }
        shown
    }
}

/// Makes the table of calls. Of each, the letters of its parameters: `n` a number, `t` a text, `p` pairs; and in capitals where its results
/// go: `N` and `L` numbers of four and eight bytes, `B` an address and a size.
macro_rules! calls {
    ($($name:ident ($($type:ty),*) $kinds:literal;)*) => {
        #[link(wasm_import_module = "env")]
        unsafe extern "C" {
            $(fn $name($(_: $type),*) -> u32;)*
        }

        /// The letters of a call's parameters.
        pub(crate) fn kinds(name: &str) -> Option<&'static str> {
            match name {
                $(stringify!($name) => Some($kinds),)*
                _ => None,
            }
        }

        /// Makes a call with the arguments before those that say where results go; none where they are too few.
        fn make(name: &str, arguments: &[u64]) -> Option<u32> {
            let mut arguments = arguments.iter().copied();
            match name {
                $(stringify!($name) => {
                    // SAFETY: the host checks each address, and what it writes to are the results of `call`.
                    Some(unsafe { $name($(arguments.next()? as $type),*) })
                })*
                _ => None,
            }
        }
    };
}

calls! {
    proxy_log(u32, u32, u32) "nt";
    proxy_get_log_level(u32) "N";
    proxy_get_current_time_nanoseconds(u32) "L";
    proxy_set_tick_period_milliseconds(u32) "n";
    proxy_set_effective_context(u32) "n";
    proxy_done() "";
    proxy_get_status(u32, u32, u32) "NB";
    proxy_get_property(u32, u32, u32, u32) "tB";
    proxy_set_property(u32, u32, u32, u32) "tt";
    proxy_get_shared_data(u32, u32, u32, u32, u32) "tBN";
    proxy_set_shared_data(u32, u32, u32, u32, u32) "ttn";
    proxy_register_shared_queue(u32, u32, u32) "tN";
    proxy_resolve_shared_queue(u32, u32, u32, u32, u32) "ttN";
    proxy_dequeue_shared_queue(u32, u32, u32) "nB";
    proxy_enqueue_shared_queue(u32, u32, u32) "nt";
    proxy_get_header_map_value(u32, u32, u32, u32, u32) "ntB";
    proxy_add_header_map_value(u32, u32, u32, u32, u32) "ntt";
    proxy_replace_header_map_value(u32, u32, u32, u32, u32) "ntt";
    proxy_remove_header_map_value(u32, u32, u32) "nt";
    proxy_get_header_map_pairs(u32, u32, u32) "nB";
    proxy_set_header_map_pairs(u32, u32, u32) "np";
    proxy_get_header_map_size(u32, u32) "nN";
    proxy_get_buffer_bytes(u32, u32, u32, u32, u32) "nnnB";
    proxy_get_buffer_status(u32, u32, u32) "nNN";
    proxy_set_buffer_bytes(u32, u32, u32, u32, u32) "nnnt";
    proxy_continue_stream(u32) "n";
    proxy_close_stream(u32) "n";
    proxy_send_local_response(u32, u32, u32, u32, u32, u32, u32, u32) "nttpn";
    proxy_http_call(u32, u32, u32, u32, u32, u32, u32, u32, u32, u32) "tptpnN";
    proxy_grpc_call(u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32) "tttptnN";
    proxy_grpc_stream(u32, u32, u32, u32, u32, u32, u32, u32, u32) "tttpN";
    proxy_grpc_send(u32, u32, u32, u32) "ntn";
    proxy_grpc_cancel(u32) "n";
    proxy_grpc_close(u32) "n";
    proxy_call_foreign_function(u32, u32, u32, u32, u32, u32) "ttB";
    proxy_define_metric(u32, u32, u32, u32) "ntN";
    proxy_increment_metric(u32, u64) "nn";
    proxy_record_metric(u32, u64) "nn";
    proxy_get_metric(u32, u32) "nL";
}

/// Makes a call, and takes up what it gives back.
pub(crate) fn call(name: &str, arguments: &[u64]) -> Option<(u32, Answer)> {
    let kinds = kinds(name)?;
    let mut slots = [0_u64; 3];
    let base = slots.as_mut_ptr() as u64;
    let mut all = arguments.to_vec();
    for (index, _) in kinds.chars().filter(|kind| kind.is_uppercase()).enumerate() {
        let slot = base + 8 * index as u64;
        all.push(slot);
        if kinds.chars().filter(|kind| kind.is_uppercase()).nth(index) == Some('B') {
            all.push(slot + 4);
        }
    }
    let status = make(name, &all)?;
    let mut answer = Answer::default();
    for (kind, slot) in kinds.chars().filter(|kind| kind.is_uppercase()).zip(core::hint::black_box(slots)) {
        if kind == 'B' {
            answer.has_bytes = true;
            answer.bytes = text::taken(slot as u32, (slot >> 32) as u32);
        } else {
            answer.numbers.push(slot);
        }
    }
    Some((status, answer))
}

/// Writes a line to the log.
pub(crate) fn log(line: &str) {
    const INFO: u64 = 2;
    make("proxy_log", &[INFO, line.as_ptr() as u64, line.len() as u64]);
}
