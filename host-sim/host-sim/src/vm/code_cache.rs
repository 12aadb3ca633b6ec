//! Compiled code, kept in files from run to run.
//!
//! The compiler asks for the code of each function by a hash of all that the code depends on, its own version and settings among
//! it. A file holds the code of one module. It is written beside its place and moved there, so that a reader never meets half
//! of one, and it begins with a hash of the rest: a file that is damaged is not used, and is replaced.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use sha2::{Digest as _, Sha256};
use wasmtime::{CacheStore, Engine};

/// What a file begins with; the number goes up when its form changes.
const MAGIC: &[u8] = b"host-sim code 1\n";

const DIGEST: usize = 32;

/// The most files that a folder keeps, those that were used last.
const MAX_FILES: usize = 64;

/// A folder for compiled code. Processes may share it.
#[derive(Debug, Clone)]
pub struct CodeCache {
    folder: PathBuf,
}

/// The code of the module that is being compiled. One is compiled at a time.
static STORE: LazyLock<Arc<Store>> = LazyLock::new(Arc::default);
static COMPILING: Mutex<()> = Mutex::new(());

/// Code by the compiler's keys, while a module is compiled.
#[derive(Debug, Default)]
struct Store(Mutex<Code>);

#[derive(Debug, Default)]
struct Code {
    functions: HashMap<Vec<u8>, Vec<u8>>,
    /// Keys of what the compiler has asked for and got.
    reused: HashSet<Vec<u8>>,
    /// Keys of what it has compiled.
    compiled: HashSet<Vec<u8>>,
}

/// What a cache has done for a module.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Kept {
    /// Functions whose code was there.
    pub reused: usize,
    /// Functions that were compiled.
    pub compiled: usize,
    /// Why the code is not kept, if it is not.
    pub error: Option<io::Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Code {
    /// The compiler's keys of some functions differ from run to run, so what this run had no use for may be of use to the next.
    /// It is dropped when it is more than what was used.
    fn worth_keeping(mut self) -> HashMap<Vec<u8>, Vec<u8>> {
        let is_used = |key: &Vec<u8>| self.reused.contains(key) || self.compiled.contains(key);
        let (mut used, mut unused) = (0, 0);
        for (key, code) in &self.functions {
            *(if is_used(key) { &mut used } else { &mut unused }) += code.len();
        }
        if unused > used {
            self.functions.retain(|key, _| is_used(key));
        }
        self.functions
    }
}

impl CacheStore for Store {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut code = lock(&self.0);
        let found = code.functions.get(key).cloned()?;
        code.reused.insert(key.to_vec());
        Some(Cow::Owned(found))
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        let mut code = lock(&self.0);
        code.compiled.insert(key.to_vec());
        code.functions.insert(key.to_vec(), value);
        true
    }
}

/// Where an engine that keeps code keeps it.
pub(super) fn store() -> Arc<dyn CacheStore> {
    STORE.clone()
}

impl CodeCache {
    /// A cache in this folder, which is made when something is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Has `compile` compile a module with the code that is kept of it, and keeps what is new.
    pub(super) fn around<T>(&self, engine: &Engine, wasm: &[u8], compile: impl FnOnce() -> T) -> (T, Kept) {
        let _alone = lock(&COMPILING);
        let path = self.folder.join(file_name(engine, wasm));
        // A file that cannot be read is as one that is not there.
        let functions = fs::read(&path).ok().and_then(|file| unpack(&file)).unwrap_or_default();
        *lock(&STORE.0) = Code { functions, ..Code::default() };
        let module = compile();
        let code = std::mem::take(&mut *lock(&STORE.0));
        let (reused, compiled) = (code.reused.len(), code.compiled.len());
        let kept = if compiled > 0 { self.keep(&path, &code.worth_keeping()) } else { touch(&path) };
        (module, Kept { reused, compiled, error: kept.err() })
    }

    fn keep(&self, path: &Path, functions: &HashMap<Vec<u8>, Vec<u8>>) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let own = format!("{}-{:x}.new", std::process::id(), fastrand::u64(..));
        let beside = self.folder.join(own);
        let moved = fs::write(&beside, pack(functions)).and_then(|()| fs::rename(&beside, path));
        if moved.is_err() {
            // What is left of it is in nobody's way, and the error that is told is the first.
            let _ = fs::remove_file(&beside);
        }
        moved.and_then(|()| self.forget_oldest())
    }

    fn forget_oldest(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Another process may have taken it away meanwhile.
            if let Ok(used) = entry.metadata().and_then(|metadata| metadata.modified()) {
                files.push((used, entry.path()));
            }
        }
        files.sort_unstable_by(|one, other| other.cmp(one));
        for (_, path) in files.into_iter().skip(MAX_FILES) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A file was used.
#[expect(clippy::disallowed_methods, reason = "files have real times")]
fn touch(path: &Path) -> io::Result<()> {
    fs::File::options().append(true).open(path)?.set_modified(SystemTime::now())
}

/// The name by module, and by the compiler's version and settings.
fn file_name(engine: &Engine, wasm: &[u8]) -> String {
    let mut settings = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut settings);
    let digest = Sha256::digest(wasm);
    let module: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{module}-{:016x}", settings.finish())
}

fn pack(functions: &HashMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let mut content = Vec::new();
    for bytes in functions.iter().flat_map(|(key, code)| [key, code]) {
        content.extend(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        content.extend(bytes);
    }
    [MAGIC, Sha256::digest(&content).as_slice(), content.as_slice()].concat()
}

/// The code of a file, if it is whole.
fn unpack(file: &[u8]) -> Option<HashMap<Vec<u8>, Vec<u8>>> {
    let (digest, mut content) = file.strip_prefix(MAGIC)?.split_at_checked(DIGEST)?;
    if Sha256::digest(content).as_slice() != digest {
        return None;
    }
    let mut next = || -> Option<Vec<u8>> {
        let (length, rest) = content.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (bytes, rest) = rest.split_at_checked(length)?;
        content = rest;
        Some(bytes.to_vec())
    };
    let mut functions = HashMap::new();
    while let Some(key) = next() {
        functions.insert(key, next()?);
    }
    Some(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_no_run_uses_is_dropped_when_it_is_more_than_what_is_used() {
        let key = |name: &str| name.as_bytes().to_vec();
        for (unused, kept) in [(100, 3), (101, 2)] {
            let functions = [("reused", 40), ("compiled", 60), ("unused", unused)];
            let code = Code {
                functions: functions.map(|(name, size)| (key(name), vec![0; size])).into(),
                reused: [key("reused")].into(),
                compiled: [key("compiled")].into(),
            };
            assert_eq!(code.worth_keeping().len(), kept, "{unused}");
        }
    }

    #[test]
    fn what_was_kept_comes_back_and_what_is_damaged_does_not() {
        let functions = HashMap::from([(b"a".to_vec(), b"code".to_vec()), (Vec::new(), vec![0; 1000])]);
        let file = pack(&functions);
        assert_eq!(unpack(&file), Some(functions));
        for at in [0, MAGIC.len(), MAGIC.len() + DIGEST, file.len() - 1] {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(unpack(&damaged), None, "byte {at}");
            assert_eq!(unpack(&file[..at]), None, "{at} bytes");
        }
        assert_eq!(unpack(&pack(&HashMap::new())), Some(HashMap::new()));
    }
}
