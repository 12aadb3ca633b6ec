//! Long runs: nothing grows without bound.

use std::{fs, path::PathBuf, thread};

use host_sim::{CodeCache, Compiler, Host, Kept, Module, Plugin, Request};

use crate::{guests, host_of, ok};

#[test]
fn a_hundred_thousand_requests_leave_neither_contexts_nor_log_lines_beyond_the_bound() {
    let host = host_of("limiter", Host::builder().log_capacity(100), Plugin::default());
    let before = host.contexts();
    let request = Request::get("/k").header("authorization", "Bearer k").header("user-agent", "load");
    let admitted = (0..100_000).filter(|_| host.send(request.clone(), ok).status() == 200).count();
    assert_eq!((admitted, host.contexts()), (5, before));
    assert!(host.logs().lines().len() <= 100);
}

#[test]
fn a_module_that_was_compiled_before_is_not_compiled_again() {
    let folder = Folder::new();
    let (_, first) = folder.compile();
    let (module, second) = folder.compile();
    assert!(first.error.is_none() && second.error.is_none(), "{first:?}, {second:?}");
    assert_eq!((first.reused, second.reused), (false, true));
    assert_eq!(status(&module), 200);
}

#[test]
fn many_who_keep_one_module_at_once_all_get_it_whole() {
    let folder = Folder::new();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let (module, kept) = folder.compile();
                    assert!(kept.error.is_none(), "{kept:?}");
                    assert_eq!(status(&module), 200);
                    // The next to come compiles again, beside those who read.
                    drop(fs::remove_file(folder.only_file()));
                }
            });
        }
    });
}

#[test]
fn a_kept_module_that_is_damaged_or_cut_is_compiled_again_and_replaced() {
    let folder = Folder::new();
    let _ = folder.compile();
    let whole = fs::read(folder.only_file()).unwrap();
    let damages: [fn(&mut Vec<u8>); 3] = [|file| file.truncate(1000), |file| file[5000] ^= 1, Vec::clear];
    for damage in damages {
        let mut file = whole.clone();
        damage(&mut file);
        fs::write(folder.only_file(), file).unwrap();
        let (module, kept) = folder.compile();
        assert!(!kept.reused && kept.error.is_none(), "{kept:?}");
        assert_eq!(status(&module), 200);
        assert_eq!(fs::read(folder.only_file()).unwrap().len(), whole.len());
    }
}

#[cfg(unix)]
#[test]
fn code_is_neither_kept_nor_taken_where_others_may_write() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    for mode in [0o770, 0o702, 0o777] {
        let _ = folder.compile();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(mode)).unwrap();
        let (module, kept) = folder.compile();
        assert!(!kept.reused, "{mode:o}");
        assert_eq!(kept.error.unwrap().kind(), std::io::ErrorKind::PermissionDenied, "{mode:o}");
        assert_eq!(status(&module), 200);
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

/// A folder for compiled modules that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("host-sim-{}-{:x}", std::process::id(), fastrand::u64(..));
        Self(std::env::temp_dir().join(name))
    }

    fn compile(&self) -> (Module, Kept) {
        Module::compile_cached(guests::guest("limiter"), Compiler::Plain, &CodeCache::at(&self.0)).unwrap()
    }

    /// The module that is kept; a name that nothing has, when none is.
    fn only_file(&self) -> PathBuf {
        let files = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut kept = files.filter(|path| path.extension().is_none());
        kept.next().unwrap_or_else(|| self.0.join("none"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn status(module: &Module) -> u16 {
    let mut host = Host::builder().build();
    host.load(module, Plugin::default()).unwrap();
    host.send(Request::get("/k"), ok).status()
}
