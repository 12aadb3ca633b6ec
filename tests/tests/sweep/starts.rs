//! What a module may call while it initialises.

use tests::differential::VERSIONS;
use tests::sweep::loads;

use crate::table::words;

/// Calls of WASI with the types of their parameters, in groups that a module makes while it initialises.
const STARTS: [&str; 14] = [
    "fd_write:i32,i32,i32,i32 args_get:i32,i32 args_sizes_get:i32,i32 environ_get:i32,i32 environ_sizes_get:i32,i32 \
     clock_time_get:i32,i64,i32 random_get:i32,i32 fd_prestat_get:i32,i32 fd_prestat_dir_name:i32,i32,i32",
    "fd_fdstat_get:i32,i32",
    "fd_fdstat_set_flags:i32,i32",
    "poll_oneoff:i32,i32,i32,i32",
    "clock_res_get:i32,i32 fd_advise:i32,i64,i64,i32 fd_allocate:i32,i64,i64 fd_datasync:i32 fd_fdstat_set_rights:i32,i64,i64 \
     fd_filestat_get:i32,i32 fd_filestat_set_size:i32,i64 fd_filestat_set_times:i32,i64,i64,i32 fd_pread:i32,i32,i32,i64,i32 \
     fd_pwrite:i32,i32,i32,i64,i32 fd_readdir:i32,i32,i32,i64,i32 fd_renumber:i32,i32 fd_sync:i32 fd_tell:i32,i32 \
     path_create_directory:i32,i32,i32 path_filestat_get:i32,i32,i32,i32,i32 path_filestat_set_times:i32,i32,i32,i32,i64,i64,i32 \
     path_readlink:i32,i32,i32,i32,i32,i32 path_remove_directory:i32,i32,i32 \
     path_rename:i32,i32,i32,i32,i32,i32 path_unlink_file:i32,i32,i32 sock_accept:i32,i32,i32 \
     sock_recv:i32,i32,i32,i32,i32,i32 sock_send:i32,i32,i32,i32,i32 sock_shutdown:i32,i32",
    "fd_read:i32,i32,i32,i32",
    "fd_seek:i32,i64,i32,i32",
    "fd_close:i32",
    "path_open:i32,i32,i32,i32,i32,i64,i64,i32,i32",
    "sched_yield:",
    "path_link:i32,i32,i32,i32,i32,i32,i32",
    "path_symlink:i32,i32,i32,i32,i32",
    "proc_exit:i32",
    "",
];

/// A module that makes these calls while it initialises, each with zeros.
fn start(calls: &str) -> String {
    let (mut imports, mut made) = (String::new(), String::new());
    for (index, (name, types)) in words(calls).filter_map(|call| call.split_once(':')).enumerate() {
        let types: Vec<_> = types.split(',').filter(|kind| !kind.is_empty()).collect();
        let (result, drop) = if name == "proc_exit" { ("", "") } else { ("(result i32)", "drop") };
        let zeros: String = types.iter().map(|kind| format!("({kind}.const 0)")).collect();
        imports += &format!(
            "(import \"wasi_snapshot_preview1\" \"{name}\" (func $f{index} (param {}) {result}))",
            types.join(" ")
        );
        made += &format!("(call $f{index} {zeros}) {drop}\n");
    }
    format!(
        r#"(module {imports} (memory (export "memory") 1) (func (export "proxy_abi_version_0_2_1"))
        (func (export "malloc") (param i32) (result i32) (i32.const 1024)) (func (export "_initialize") {made}))"#
    )
}

#[test]
fn a_module_may_call_while_it_initialises_what_it_may_in_envoy() {
    for version in VERSIONS {
        let rows = STARTS.map(|calls| (loads(version, &start(calls)).expect("both gateways"), calls));
        let differ: Vec<_> = rows.iter().filter(|([here, there], _)| here != there).collect();
        assert!(differ.is_empty(), "the simulator loads it, Envoy {version} loads it: {differ:#?}");
    }
}
