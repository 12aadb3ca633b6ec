//! Compiled modules, kept in files from run to run.
//!
//! A file holds one module as its engine compiled it. It is written beside its place and moved there, so that a reader never
//! meets half of one, and it begins with a hash of the rest: a file that is damaged is not used, and is replaced. The code in
//! it is run as it is, so files are read and written only in a folder to which nobody else may write.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use wasmtime::Engine;

/// What a file begins with; the number goes up when its form changes.
const MAGIC: &[u8] = b"host-sim code 3\n";

/// The most files that a folder keeps, those that were used last.
const MAX_FILES: usize = 64;

/// A folder for compiled modules. Processes of one user may share it.
#[derive(Debug, Clone)]
pub struct CodeCache {
    folder: PathBuf,
}

/// What a cache has done for a module.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Kept {
    /// The module was there and was not compiled.
    pub reused: bool,
    /// Why the module is not kept, if it is not.
    pub error: Option<io::Error>,
}

impl CodeCache {
    /// A cache in this folder, which is made when something is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The user's cache, which the command `host-sim` and [`ModuleBuild`](crate::ModuleBuild) use: in the folder that the environment
    /// variable `HOST_SIM_CACHE` names, or `host-sim` in the user's folder for caches. None where the variable is empty, or there is
    /// no such folder.
    pub fn of_user() -> Option<Self> {
        let folder = |variable| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        if env::var_os("HOST_SIM_CACHE").is_some() {
            return folder("HOST_SIM_CACHE").map(Self::at);
        }
        let caches = if cfg!(windows) {
            folder("LOCALAPPDATA")
        } else if cfg!(target_os = "macos") {
            folder("HOME").map(|home| home.join("Library/Caches"))
        } else {
            folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
        };
        caches.filter(|caches| caches.is_absolute()).map(|caches| Self::at(caches.join("host-sim")))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file of this name that no other process has locked: it is waited for. It is free again when it is closed.
    pub(crate) fn lock(&self, name: &str) -> io::Result<fs::File> {
        self.make()?;
        let path = self.folder.join(name);
        let file = fs::File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock()?;
        Ok(file)
    }

    /// The compiled module of this digest: the one that is kept, or what `compile` gives, which is kept then.
    pub(super) fn module(
        &self,
        engine: &Engine,
        digest: &[u8],
        compile: impl FnOnce() -> wasmtime::Result<wasmtime::Module>,
    ) -> wasmtime::Result<(wasmtime::Module, Kept)> {
        if let Err(error) = self.make() {
            return Ok((compile()?, Kept { reused: false, error: Some(error) }));
        }
        let path = self.folder.join(file_name(engine, digest));
        if let Some(module) = fs::read(&path).ok().and_then(|file| load(engine, &file)) {
            return Ok((module, Kept { reused: true, error: touch(&path).err() }));
        }
        let module = compile()?;
        let kept = module.serialize().map_err(io::Error::other).and_then(|code| self.keep(&path, &code));
        Ok((module, Kept { reused: false, error: kept.err() }))
    }

    /// Makes the folder, for its owner alone, and checks that nobody else may put code into it.
    fn make(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&self.folder)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let folder = fs::metadata(&self.folder)?;
            if folder.uid() != rustix::process::geteuid().as_raw() || folder.mode() & 0o022 != 0 {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "other users may write to this folder, and code from it is run: make it yours alone (chmod 700)",
                ));
            }
        }
        Ok(())
    }

    fn keep(&self, path: &Path, code: &[u8]) -> io::Result<()> {
        let own = format!("{}-{:x}.new", std::process::id(), fastrand::u64(..));
        let beside = self.folder.join(own);
        let moved = fs::write(&beside, pack(code)).and_then(|()| fs::rename(&beside, path));
        if moved.is_err() {
            // A leftover file does no harm, and the first error is the one to report.
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

/// The module of a file that is whole and was compiled by this compiler with these settings.
#[expect(unsafe_code, reason = "wasmtime cannot know that code in a file is what it compiled")]
fn load(engine: &Engine, file: &[u8]) -> Option<wasmtime::Module> {
    let code = unpack(file)?;
    // SAFETY: the bytes are those that `Module::serialize` gave, as their hash tells, and `CodeCache::make` has seen that nobody
    // but the user who runs this process may write to the folder. wasmtime itself refuses code of another version of it, for
    // another processor and of other settings.
    unsafe { wasmtime::Module::deserialize(engine, code) }.ok()
}

/// A file was used. Where another process has just taken it away, there is nothing to mark.
#[expect(clippy::disallowed_methods, reason = "files have real times")]
fn touch(path: &Path) -> io::Result<()> {
    match fs::File::options().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.set_modified(SystemTime::now()),
    }
}

/// The name by module, and by the compiler's version and settings.
fn file_name(engine: &Engine, digest: &[u8]) -> String {
    let mut settings = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut settings);
    let module: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{module}-{:016x}", settings.finish())
}

/// A hash that tells damage, and takes no time worth mentioning in a program that is not optimised.
fn hash(code: &[u8]) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    hasher.write(code);
    hasher.finish().to_le_bytes()
}

fn pack(code: &[u8]) -> Vec<u8> {
    [MAGIC, &hash(code), code].concat()
}

/// The code in a file, if it is whole.
fn unpack(file: &[u8]) -> Option<&[u8]> {
    let (kept, code) = file.strip_prefix(MAGIC)?.split_first_chunk()?;
    (hash(code) == *kept).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_and_what_is_damaged_does_not() {
        let file = pack(b"code");
        assert_eq!(unpack(&file), Some(b"code".as_slice()));
        for at in [0, MAGIC.len(), MAGIC.len() + 8, file.len() - 1] {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(unpack(&damaged), None, "byte {at}");
            assert_eq!(unpack(&file[..at]), None, "{at} bytes");
        }
        assert_eq!(unpack(&pack(b"")), Some(b"".as_slice()));
    }
}
