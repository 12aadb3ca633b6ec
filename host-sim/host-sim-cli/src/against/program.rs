//! The Envoy that a scenario is compared with.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use host_sim::EnvoyVersion;

use super::AgainstError;

/// An Envoy that is installed.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    release: String,
    version: EnvoyVersion,
}

impl Program {
    /// The Envoy of this path or, for a name without a slash, of this name on `PATH`.
    ///
    /// # Errors
    /// When there is none, or one that is older than [`EnvoyVersion::ALL`].
    pub fn find(named: impl Into<PathBuf>) -> Result<Self, AgainstError> {
        let path = named.into();
        let output = match Command::new(&path).arg("--version").output() {
            Ok(output) => output,
            Err(source) => return Err(AgainstError::Program { path, source }),
        };
        let printed = String::from_utf8_lossy(&output.stdout);
        let printed = printed.trim().lines().next().unwrap_or_default().to_owned();
        match release(&printed) {
            Some((release, version)) => Ok(Self { path, release, version }),
            None => Err(AgainstError::Version { path, printed }),
        }
    }

    /// Its file, or its name on `PATH`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its release, for example `1.40.0`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The version that the host behaves like: the newest one that is not newer than the release.
    pub fn version(&self) -> EnvoyVersion {
        self.version
    }
}

/// The release in what `envoy --version` prints: `envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
fn release(printed: &str) -> Option<(String, EnvoyVersion)> {
    let minor = |text: &str| {
        let mut parts = text.split('.').map(|part| part.split('-').next()?.parse::<u32>().ok());
        match (parts.next()??, parts.next()??, parts.next()??) {
            (1, minor, _) => Some(minor),
            _ => None,
        }
    };
    let (release, found) = printed.split('/').find_map(|part| Some((part, minor(part)?)))?;
    let known = EnvoyVersion::ALL.into_iter().rev();
    let version = known.into_iter().find(|version| {
        let minor = version.to_string().split('.').nth(1).and_then(|minor| minor.parse().ok());
        minor.is_some_and(|minor: u32| minor <= found)
    })?;
    Some((release.to_owned(), version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_what_envoy_prints() {
        let line = |release: &str| format!("envoy  version: dc2d3098/{release}/Clean/RELEASE/BoringSSL");
        let rows = [
            (line("1.40.0"), Some(("1.40.0", EnvoyVersion::V1_40))),
            (line("1.36.2"), Some(("1.36.2", EnvoyVersion::V1_36))),
            (line("1.41.0-dev"), Some(("1.41.0-dev", EnvoyVersion::V1_40))),
            (line("1.35.9"), None),
            ("GNU bash, version 5.2.15(1)".to_owned(), None),
            (String::new(), None),
        ];
        for (printed, expected) in rows {
            let found = release(&printed);
            let found = found.as_ref().map(|(release, version)| (release.as_str(), *version));
            assert_eq!(found, expected, "{printed}");
        }
    }
}
