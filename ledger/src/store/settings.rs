//! How Redis or Valkey is reached.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redis::io::tcp::TcpSettings;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::unusable::Unusable;
use crate::error::{Reason, ServeError};
use crate::lines::Lines;
use crate::options::Options;

/// What an address has to be.
const FORM: &str = "memory, file:<path> or redis[s]://[<user>:<password>@]<host>[:<port>][/<database>]";
/// What to do about characters that would end the part of an address that has the password.
const ENCODE: &str =
    "in a password, write / as %2F, ? as %3F, # as %23 and % as %25, or put it into --store-password-file";

/// How the store is reached, and what those who reach it share.
#[derive(Debug)]
pub(super) struct Settings {
    /// The server, or some nodes of the cluster.
    pub(super) seeds: Vec<ConnectionAddr>,
    /// User, password and database, and whether TLS is used.
    template: ConnectionInfo,
    files: Files,
    pub(super) is_cluster: bool,
    /// The text before the name of each key.
    pub(super) prefix: String,
    /// Asks for a round at once.
    pub(super) wake: Notify,
    /// Servers that are given slots, to be looked at until the cluster has changed.
    importing: Mutex<Vec<ConnectionAddr>>,
    lines: Lines,
}

/// Files that each new connection reads again, because they may be renewed.
#[derive(Clone, Debug)]
struct Files {
    password: Option<PathBuf>,
    authority: Option<PathBuf>,
    /// The certificate by which the ledger is known, and its key.
    identity: Option<(PathBuf, PathBuf)>,
}

impl Settings {
    pub(super) fn new(options: &Options) -> Result<Self, ServeError> {
        // An error means that it is installed.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let infos = addresses(&options.store).iter().map(|url| info(url)).collect::<Result<Vec<_>, _>>();
        let infos = infos.map_err(|error| ServeError::new("--store", error))?;
        let seeds = infos.iter().map(|info| info.addr().clone()).collect();
        let template =
            infos.into_iter().next().ok_or_else(|| ServeError::new("--store", "an address is missing"))?;
        let files = Files {
            password: options.store_password_file.clone(),
            authority: options.store_ca.clone(),
            identity: options.store_cert.clone().zip(options.store_key.clone()),
        };
        if files.password.is_some() && template.redis_settings().password().is_some() {
            return Err(ServeError::new(
                "--store",
                "the address has a password beside --store-password-file",
            ));
        }
        let settings = Self {
            seeds,
            template,
            files,
            is_cluster: options.cluster,
            prefix: options.key_prefix.clone(),
            wake: Notify::new(),
            importing: Mutex::default(),
            lines: Lines::default(),
        };
        // Whether the files can be used.
        for seed in &settings.seeds {
            settings.client(seed)?;
        }
        Ok(settings)
    }

    /// A client for one address.
    pub(super) fn client(&self, address: &ConnectionAddr) -> Result<Client, ServeError> {
        let mut info = self.template.clone().set_addr(address.clone());
        if let Some(path) = &self.files.password {
            let password = read("--store-password-file", path, |text| {
                let text = String::from_utf8(text).map_err(|_| "the file is no text in UTF-8")?;
                let password = text.trim_end_matches(['\r', '\n']).to_owned();
                if password.is_empty() { Err("the file is empty") } else { Ok(password) }
            })?;
            info = info.clone().set_redis_settings(info.redis_settings().clone().set_password(password));
        }
        let root_cert = self.files.authority.as_deref().map(|path| read("--store-ca", path, certificate));
        let root_cert = root_cert.transpose()?;
        let client_tls = self.files.identity.as_ref().map(|(cert, key)| {
            let client_cert = read("--store-cert", cert, certificate)?;
            Ok(ClientTlsConfig { client_cert, client_key: read("--store-key", key, private_key)? })
        });
        let client_tls = client_tls.transpose()?;
        let client = match root_cert.is_some() || client_tls.is_some() {
            true => Client::build_with_tls(info, TlsCertificates { client_tls, root_cert }),
            false => Client::open(info),
        };
        client.map_err(|error| ServeError::new("--store", error))
    }

    /// The address of another node of the cluster, reached as the first is.
    pub(super) fn address(&self, of_host: &str, of_port: u16) -> ConnectionAddr {
        let mut address = self.template.addr().clone();
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } = &mut address {
            (*host, *port) = (of_host.to_owned(), of_port);
        }
        address
    }

    /// Has a server looked at that is given slots.
    pub(super) fn look_at(&self, address: ConnectionAddr) {
        let mut importing = self.importing.lock().unwrap_or_else(PoisonError::into_inner);
        if !importing.contains(&address) {
            importing.push(address);
        }
        self.wake.notify_one();
    }

    /// The servers that are given slots, as far as is known.
    pub(super) fn importing(&self) -> Vec<ConnectionAddr> {
        self.importing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cluster has changed: who is given slots is to be found anew.
    pub(super) fn forget_importing(&self) {
        self.importing.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Logs why a server cannot be used, once in a minute for each cause.
    pub(super) fn complain(&self, address: &ConnectionAddr, unusable: &Unusable) {
        if self.lines.is_due(format!("{address} {}", unusable.cause()), Instant::now()) {
            tracing::warn!(store = %address, "{unusable}");
        }
    }
}

/// The addresses of a list. A comma that no scheme follows is a part of a password.
fn addresses(lists: &[String]) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for list in lists {
        for (place, part) in list.split(',').enumerate() {
            match addresses.last_mut() {
                Some(address) if place > 0 && !part.contains("://") => {
                    address.push(',');
                    address.push_str(part);
                }
                _ => addresses.push(part.to_owned()),
            }
        }
    }
    addresses
}

/// What an address says. No message repeats it, because it may have a password.
fn info(url: &str) -> Result<ConnectionInfo, Reason> {
    let after = url.split_once("://").map_or("", |(_, after)| after);
    if after.find(['/', '?', '#']).is_some_and(|end| after.get(end..).is_some_and(|rest| rest.contains('@')))
    {
        return Err(ENCODE.into());
    }
    let info = url.into_connection_info().map_err(|error: RedisError| format!("expected {FORM}: {error}"))?;
    // Otherwise the library says its name with CLIENT SETINFO, which users who may not would see in their ACL log.
    let login = info.redis_settings().clone().set_skip_set_lib_name();
    Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)).set_redis_settings(login))
}

/// What a file of an option has, once it was checked.
fn read<T>(
    option: &str,
    path: &Path,
    check: impl FnOnce(Vec<u8>) -> Result<T, &'static str>,
) -> Result<T, ServeError> {
    let bytes = std::fs::read(path).map_err(Reason::from);
    let checked = bytes.and_then(|bytes| check(bytes).map_err(Reason::from));
    checked.map_err(|error| ServeError::new(format!("{option} {}", path.display()), error))
}

fn certificate(pem: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    let is_one = CertificateDer::from_pem_slice(&pem).is_ok();
    if is_one { Ok(pem) } else { Err("the file has no certificate in PEM") }
}

fn private_key(pem: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    let is_one = PrivateKeyDer::from_pem_slice(&pem).is_ok();
    if is_one { Ok(pem) } else { Err("the file has no private key in PEM") }
}
