//! `weir hash`

use std::io::{self, Read as _};

use clap::Args;
use filter::config::{digest, hex};
use host_sim_cli::failure::Failure;

use crate::output::print;

/// Prints the SHA-256 of a key, as configurations and directories have it
///
/// The key is read from standard input, never from an argument, which other users of the machine could see. One line break at
/// its end is left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir hash <key.txt
  openssl rand -base64 24 | (umask 077; tee key.txt) | weir hash")]
pub(crate) struct Hash {}

impl Hash {
    #[expect(clippy::unused_self, reason = "as every command")]
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut key = Vec::new();
        io::stdin().read_to_end(&mut key)?;
        let key = key.strip_suffix(b"\n").unwrap_or(&key);
        let key = key.strip_suffix(b"\r").unwrap_or(key);
        if key.is_empty() {
            return Err(Failure::Unusable("no key on standard input".to_owned()));
        }
        if key.contains(&b'\n') {
            return Err(Failure::Unusable("several lines on standard input: give one key".to_owned()));
        }
        print(format_args!("sha256:{}", hex(digest(key))))
    }
}
