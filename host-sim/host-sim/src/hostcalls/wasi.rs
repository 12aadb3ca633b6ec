//! WASI preview 1 as Envoy gives it to a filter: a log, clocks, random bytes, an environment, and no files.

use wasmtime::{Caller, Linker};

use crate::{
    abi::{LogLevel, Status, slice},
    hostcalls::{
        call,
        guest::{Guest, Refusal},
        traced,
    },
    parameter::{Parameter, Raw, define},
    rules::EnvoyVersion,
    signature::{Parameters, Signature, ValueType},
    state::VmState,
    trace::record::CallAnswer,
};

/// Both names under which a module may import WASI.
const MODULES: [&str; 2] = ["wasi_snapshot_preview1", "wasi_unstable"];

const SUCCESS: u32 = 0;
const BADF: u32 = 8;
const FAULT: u32 = 21;
const INVAL: u32 = 28;
const NOTSUP: u32 = 58;
const NOENT: u32 = 44;
const NOSYS: u32 = 52;
const NOTDIR: u32 = 20;
const NOTCAPABLE: u32 = 76;

/// More random bytes than this at once are refused.
const MAX_RANDOM: u32 = 64 * 1024;

/// The answer of a WASI call: an error number, or a trap.
type Errno = Result<u32, Refusal>;

fn run<'a>(
    mut caller: Caller<'a, VmState>,
    name: &'static str,
    arguments: impl FnOnce() -> Vec<Raw>,
    call: impl FnOnce(&mut Guest<'a>) -> Errno,
) -> wasmtime::Result<u32> {
    let traced = traced::begin(&mut caller, name, arguments);
    if call::restricted(&caller, name) {
        if traced {
            traced::end(&mut caller, CallAnswer::Errno(NOTCAPABLE), Some(call::RESTRICTED));
        }
        return Ok(NOTCAPABLE);
    }
    let (mut guest, fault) = call::open(caller, name, is_open_since_1_39)?;
    let answer = fault.map_or_else(|| call(&mut guest), |status| Ok(status.code()));
    let errno = match answer {
        Ok(errno) => errno,
        // The only status that a memory access gives.
        Err(Refusal::Status(_)) => FAULT,
        Err(Refusal::Trap(error)) => return Err(error),
    };
    if traced {
        traced::end(guest.caller(), CallAnswer::Errno(errno), fault.map(|_| call::PLANNED));
    }
    Ok(errno)
}

macro_rules! wasi_functions {
    ($( $set:ident as $link:ident { $( $name:ident ( $($arg:ident : $ty:ident),* ) => |$guest:pat_param| $body:expr; )* } )*) => {
        $(
            /// The WASI calls of this set.
            const $set: &[Parameters] = &[$( (stringify!($name), &[$( <$ty as Parameter>::TYPES ),*]), )*];

            fn $link(linker: &mut Linker<VmState>) -> wasmtime::Result<()> {
                for module in MODULES {
                    $( define!((linker, module, $name, run, |$guest| -> Errno { $body }) [] [] $($arg: $ty,)*)?; )*
                }
                Ok(())
            }
        )*
    };
}

wasi_functions! {
    ALWAYS as link_always {
        fd_write(fd: u32, iovs: u32, count: u32, out: u32) => |guest| fd_write(guest, fd, iovs, count, out);
        fd_read(fd: u32, iovs: u32, count: u32, out: u32) => |_| Ok(NOSYS);
        fd_seek(fd: u32, offset: i64, whence: u32, out: u32) => |_| Ok(SUCCESS);
        fd_close(fd: u32) => |_| Ok(SUCCESS);
        fd_fdstat_get(fd: u32, out: u32) => |guest| fd_fdstat_get(guest, fd, out);
        fd_fdstat_set_flags(fd: u32, flags: u32) => |_| Ok(NOSYS);
        environ_get(pointers: u32, text: u32) => |guest| environ_get(guest, pointers, text);
        environ_sizes_get(count: u32, size: u32) => |guest| environ_sizes_get(guest, count, size);
        args_get(pointers: u32, text: u32) => |_| Ok(SUCCESS);
        args_sizes_get(count: u32, size: u32) => |guest| {
            guest.write_u32(count, 0)?;
            guest.write_u32(size, 0)?;
            Ok(SUCCESS)
        };
        clock_time_get(id: u32, precision: u64, out: u32) => |guest| clock_time_get(guest, id, out);
        random_get(out: u32, size: u32) => |guest| random_get(guest, out, size);
        sched_yield() => |_| Ok(SUCCESS);
        path_open(
            fd: u32, dirflags: u32, path: u32, size: u32, oflags: u32, rights: u64, inheriting: u64, fdflags: u32,
            out: u32
        ) => |_| Ok(NOENT);
        fd_prestat_get(fd: u32, out: u32) => |_| Ok(BADF);
        fd_prestat_dir_name(fd: u32, path: u32, size: u32) => |_| Ok(NOSYS);
    }
    BEFORE_1_39 as link_before_1_39 {
        poll_oneoff(subscriptions: u32, events: u32, count: u32, out: u32) => |guest| {
            call::refuse_restricted(guest.state(), "poll_oneoff").map_err(Refusal::Trap)?;
            Ok(NOSYS)
        };
    }
    SINCE_1_39 as link_since_1_39 {
        // Returns at once, for the sake of Go's runtime.
        poll_oneoff(subscriptions: u32, events: u32, count: u32, out: u32) => |guest| {
            guest.write_u32(out, 0)?;
            Ok(SUCCESS)
        };
        clock_res_get(id: u32, out: u32) => |guest| clock_res_get(guest, id, out);
        fd_advise(fd: u32, offset: u64, len: u64, advice: u32) => |_| Ok(SUCCESS);
        fd_allocate(fd: u32, offset: u64, len: u64) => |_| Ok(of_log(fd));
        fd_datasync(fd: u32) => |_| Ok(of_log(fd));
        fd_fdstat_set_rights(fd: u32, base: u64, inheriting: u64) => |_| Ok(of_log(fd));
        fd_filestat_get(fd: u32, out: u32) => |_| Ok(BADF);
        fd_filestat_set_size(fd: u32, size: u64) => |_| Ok(of_log(fd));
        fd_filestat_set_times(fd: u32, access: u64, change: u64, flags: u32) => |_| Ok(of_log(fd));
        fd_pread(fd: u32, iovs: u32, count: u32, offset: u64, out: u32) => |_| Ok(NOSYS);
        fd_pwrite(fd: u32, iovs: u32, count: u32, offset: u64, out: u32) => |guest| fd_write(guest, fd, iovs, count, out);
        fd_readdir(fd: u32, buffer: u32, size: u32, cookie: u64, out: u32) => |_| Ok(NOTDIR);
        fd_renumber(from: u32, to: u32) => |_| Ok(if of_log(from) == SUCCESS { NOTSUP } else { BADF });
        fd_sync(fd: u32) => |_| Ok(of_log(fd));
        fd_tell(fd: u32, out: u32) => |guest| fd_tell(guest, fd, out);
        path_create_directory(fd: u32, path: u32, size: u32) => |_| Ok(NOTSUP);
        path_filestat_get(fd: u32, flags: u32, path: u32, size: u32, out: u32) => |_| Ok(NOTSUP);
        path_filestat_set_times(
            fd: u32, flags: u32, path: u32, size: u32, access: u64, change: u64, times: u32
        ) => |_| Ok(NOTSUP);
        path_link(
            fd: u32, flags: u32, path: u32, size: u32, to: u32, to_path: u32, to_size: u32
        ) => |_| Ok(NOTSUP);
        path_readlink(fd: u32, path: u32, size: u32, buffer: u32, buffer_size: u32, out: u32) => |_| Ok(NOTSUP);
        path_remove_directory(fd: u32, path: u32, size: u32) => |_| Ok(NOTSUP);
        path_rename(fd: u32, path: u32, size: u32, to: u32, to_path: u32, to_size: u32) => |_| Ok(NOTSUP);
        path_symlink(path: u32, size: u32, fd: u32, to_path: u32, to_size: u32) => |_| Ok(NOTSUP);
        path_unlink_file(fd: u32, path: u32, size: u32) => |_| Ok(NOTSUP);
        sock_accept(fd: u32, flags: u32, out: u32) => |_| Ok(NOTSUP);
        sock_recv(fd: u32, iovs: u32, count: u32, flags: u32, size: u32, out_flags: u32) => |_| Ok(NOTSUP);
        sock_send(fd: u32, iovs: u32, count: u32, flags: u32, out: u32) => |_| Ok(NOTSUP);
        sock_shutdown(fd: u32, how: u32) => |_| Ok(NOTSUP);
    }
}

pub(crate) fn is_host_function(name: &str) -> bool {
    let calls = [ALWAYS, BEFORE_1_39, SINCE_1_39].into_iter().flatten();
    name == "proc_exit" || calls.into_iter().any(|(known, _)| *known == name)
}

/// Whether Envoy has a call since 1.39, and opens it to modules that initialise.
fn is_open_since_1_39(name: &str) -> bool {
    !matches!(name, "path_link" | "path_symlink") && SINCE_1_39.iter().any(|(known, _)| *known == name)
}

/// The type that this version of Envoy declares for a call of WASI; nothing where it has none.
pub(crate) fn declared(version: EnvoyVersion, module: &str, name: &str) -> Option<Signature> {
    if !MODULES.contains(&module) {
        return None;
    }
    if name == "proc_exit" {
        return Some(Signature { parameters: vec![ValueType::I32], results: Vec::new() });
    }
    let of_version = if version < EnvoyVersion::V1_39 { BEFORE_1_39 } else { SINCE_1_39 };
    [ALWAYS, of_version].into_iter().find_map(|table| Signature::of(table, name))
}

pub(super) fn link(linker: &mut Linker<VmState>, version: EnvoyVersion) -> wasmtime::Result<()> {
    link_always(linker)?;
    for module in MODULES {
        linker.func_wrap(
            module,
            "proc_exit",
            |caller: Caller<'_, VmState>, code: u32| -> wasmtime::Result<()> {
                let state = caller.data();
                call::permit(state, "proc_exit", |_| false)?;
                // Envoy notes it and returns; what a compiler puts behind it traps.
                state.shared.logs.tell(LogLevel::Trace, state.name, format!("proc_exit({code})"));
                Ok(())
            },
        )?;
    }
    if version < EnvoyVersion::V1_39 { link_before_1_39(linker) } else { link_since_1_39(linker) }
}

/// Standard output and standard error are the log; there is no other file.
fn of_log(fd: u32) -> u32 {
    if matches!(fd, 1 | 2) { SUCCESS } else { BADF }
}

fn fd_write(guest: &mut Guest<'_>, fd: u32, iovs: u32, count: u32, out: u32) -> Errno {
    let level = match fd {
        1 => LogLevel::Info,
        2 => LogLevel::Error,
        _ => return Ok(BADF),
    };
    let mut text = Vec::new();
    for index in 0..count {
        let at = index
            .checked_mul(8)
            .and_then(|offset| iovs.checked_add(offset))
            .ok_or(Status::InvalidMemoryAccess)?;
        let (buffer, size) = (guest.read_u32(at)?, guest.read_u32(at.wrapping_add(4))?);
        let (memory, state) = guest.split();
        let piece = slice(memory, buffer, size)?;
        // Overlapping vectors could name the same bytes over and over.
        if text.len() + piece.len() > state.shared.memory_limit {
            return Ok(INVAL);
        }
        text.extend_from_slice(piece);
    }
    let written = u32::try_from(text.len()).unwrap_or(u32::MAX);
    if !text.is_empty() {
        let line = text.strip_suffix(b"\n").unwrap_or(&text);
        guest.state().write_log(level, line);
    }
    guest.write_u32(out, written)?;
    Ok(SUCCESS)
}

fn fd_fdstat_get(guest: &mut Guest<'_>, fd: u32, out: u32) -> Errno {
    const MAY_WRITE: u64 = 64;
    if of_log(fd) == BADF {
        return Ok(BADF);
    }
    let mut stat = [0; 24];
    stat[8..16].copy_from_slice(&MAY_WRITE.to_le_bytes());
    guest.write(out, &stat)?;
    Ok(SUCCESS)
}

fn fd_tell(guest: &mut Guest<'_>, fd: u32, out: u32) -> Errno {
    if of_log(fd) == SUCCESS {
        guest.write_u64(out, 0)?;
    }
    Ok(of_log(fd))
}

/// `NAME=value` and a zero byte each.
fn environment(guest: &mut Guest<'_>) -> Vec<Vec<u8>> {
    let state = &*guest.state();
    let variables = state.plugin.environment.iter();
    variables.map(|(name, value)| format!("{name}={value}\0").into_bytes()).collect()
}

fn environ_sizes_get(guest: &mut Guest<'_>, count: u32, size: u32) -> Errno {
    let environment = environment(guest);
    let bytes: usize = environment.iter().map(Vec::len).sum();
    guest.write_u32(count, u32::try_from(environment.len()).unwrap_or(u32::MAX))?;
    guest.write_u32(size, u32::try_from(bytes).unwrap_or(u32::MAX))?;
    Ok(SUCCESS)
}

fn environ_get(guest: &mut Guest<'_>, mut pointers: u32, mut text: u32) -> Errno {
    for variable in environment(guest) {
        guest.write_u32(pointers, text)?;
        guest.write(text, &variable)?;
        pointers = pointers.checked_add(4).ok_or(Status::InvalidMemoryAccess)?;
        let size = u32::try_from(variable.len()).map_err(|_| Status::InvalidMemoryAccess)?;
        text = text.checked_add(size).ok_or(Status::InvalidMemoryAccess)?;
    }
    Ok(SUCCESS)
}

fn clock_time_get(guest: &mut Guest<'_>, id: u32, out: u32) -> Errno {
    let state = guest.state();
    let clock = &state.shared.clock;
    let now = match id {
        0 => clock.wall_nanos(),
        1 => clock.monotonic_nanos(),
        _ => return Ok(NOTSUP),
    };
    guest.write_u64(out, now)?;
    Ok(SUCCESS)
}

fn clock_res_get(guest: &mut Guest<'_>, id: u32, out: u32) -> Errno {
    if id > 1 {
        return Ok(NOTSUP);
    }
    guest.write_u64(out, 1)?;
    Ok(SUCCESS)
}

fn random_get(guest: &mut Guest<'_>, out: u32, size: u32) -> Errno {
    if size > MAX_RANDOM {
        return Ok(INVAL);
    }
    let (memory, state) = guest.split();
    slice(memory, out, size)?;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    state.rng.fill(&mut bytes).map_err(|error| Refusal::Trap(error.into()))?;
    guest.write(out, &bytes)?;
    Ok(SUCCESS)
}
