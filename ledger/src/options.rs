//! The options of the service.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::tokens::Token;

/// The options of the service.
#[derive(Debug, Args)]
#[command(after_help = "\
A store that several processes share is Redis or Valkey, version 7.0 or later, and should serve nothing else.
Sentinel is not supported: use a cluster, or an address that always leads to the master.

Examples:
  weir-ledger serve
  weir-ledger serve --store file:/var/lib/weir/ledger.db
  weir-ledger serve --store redis://127.0.0.1:6379 --token-file /run/secrets/ledger --metrics-listen 127.0.0.1:9083
  weir-ledger serve --store rediss://weir:secret@redis.internal:6380 --store-ca /etc/weir/redis-ca.pem
  weir-ledger serve --store redis://10.0.0.1:6379,redis://10.0.0.2:6379 --cluster --key-prefix production:")]
pub struct Options {
    /// Address of the service. Port 0 selects a free port.
    #[arg(long, env = "WEIR_LEDGER_LISTEN", default_value = "127.0.0.1:8083")]
    pub(crate) listen: SocketAddr,
    /// Address of /metrics, and of /healthz and /readyz once more [default: the address of --listen].
    #[arg(long, env = "WEIR_LEDGER_METRICS_LISTEN")]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Where the shares are kept: memory or file:PATH, for a single process, or redis://USER:PASSWORD@HOST:PORT/DATABASE,
    /// or rediss:// for TLS. What is in memory is lost with the process. The file is made if there is none. With
    /// --cluster, a comma-separated list of some of its nodes. In a password, write / as %2F, ? as %3F, # as %23 and %
    /// as %25.
    #[arg(long, env = "WEIR_LEDGER_STORE", default_value = "memory", hide_env_values = true)]
    pub(crate) store: Vec<String>,
    /// The store is a cluster of Redis or Valkey.
    #[arg(long, env = "WEIR_LEDGER_CLUSTER")]
    pub(crate) cluster: bool,
    /// File with the password, as it is. Each new connection to the store reads it, so that it can be changed without a
    /// restart.
    #[arg(long, env = "WEIR_LEDGER_STORE_PASSWORD_FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// File with the certificate, in PEM, of the authority that signs the store's [default: those of the system].
    #[arg(long, env = "WEIR_LEDGER_STORE_CA")]
    pub(crate) store_ca: Option<PathBuf>,
    /// File with the certificate, in PEM, by which the store knows the ledger. Each new connection reads it, too.
    #[arg(long, env = "WEIR_LEDGER_STORE_CERT", requires = "store_key")]
    pub(crate) store_cert: Option<PathBuf>,
    /// File with the private key, in PEM, of that certificate.
    #[arg(long, env = "WEIR_LEDGER_STORE_KEY", requires = "store_cert")]
    pub(crate) store_key: Option<PathBuf>,
    /// Text before the name of each key in the store.
    #[arg(long, env = "WEIR_LEDGER_KEY_PREFIX", default_value = "weir:", value_parser = key_prefix)]
    pub(crate) key_prefix: String,
    /// Bearer token that gateways send. Repeatable; accepts a comma-separated list. Each of them is accepted.
    #[arg(long = "token", env = "WEIR_LEDGER_TOKEN", hide_env_values = true, value_delimiter = ',')]
    pub(crate) tokens: Vec<Token>,
    /// File with one token per line, each of which is accepted. It is read again every second, so that a token can be
    /// changed without a gap: add the new one, change the gateways, remove the old one.
    #[arg(long, env = "WEIR_LEDGER_TOKEN_FILE", conflicts_with = "tokens")]
    pub(crate) token_file: Option<PathBuf>,
}

/// A prefix has no `{`, which would decide in which part of a cluster a key is.
fn key_prefix(text: &str) -> Result<String, &'static str> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":._-".contains(&byte));
    if is_plain { Ok(text.to_owned()) } else { Err("expected letters, digits, and characters of :._-") }
}

#[cfg(test)]
impl Options {
    /// The options of a command line.
    pub(crate) fn of(arguments: &[&str]) -> Self {
        use clap::{ArgMatches, Command, FromArgMatches};

        let command = Self::augment_args(Command::new("serve").no_binary_name(true));
        let matches: ArgMatches = command.get_matches_from(arguments);
        Self::from_arg_matches(&matches).unwrap()
    }
}
