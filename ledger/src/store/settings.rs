//! How Redis or Valkey is reached.

use std::path::Path;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::error::{Reason, ServeError};
use crate::options::Options;

/// How the store is reached.
#[derive(Debug)]
pub(super) struct Settings {
    /// The server, or some nodes of the cluster.
    pub(super) seeds: Vec<ConnectionAddr>,
    /// User, password and database, and whether and how TLS is used.
    template: ConnectionInfo,
    pub(super) is_cluster: bool,
    /// The text before the name of each key.
    pub(super) prefix: String,
}

impl Settings {
    pub(super) fn new(options: &Options) -> Result<Self, ServeError> {
        // An error means that it is installed.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let authority = options.store_ca.as_deref().map(authority).transpose()?;
        let infos = options.store.iter().map(|url| {
            let info = url.as_str().into_connection_info()?;
            // Otherwise the library says its name with CLIENT SETINFO, which users who may not would see in their ACL log.
            let login = info.redis_settings().clone().set_skip_set_lib_name();
            let info =
                info.set_tcp_settings(TcpSettings::default().set_nodelay(true)).set_redis_settings(login);
            let client = match &authority {
                None => Client::open(info),
                Some(pem) => Client::build_with_tls(
                    info,
                    TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) },
                ),
            };
            Ok(client?.get_connection_info().clone())
        });
        let infos = infos.collect::<Result<Vec<_>, RedisError>>().map_err(|error| {
            let form = "redis[s]://[<user>:<password>@]<host>[:<port>][/<database>]";
            ServeError::new("--store", format!("expected memory or {form}: {error}"))
        })?;
        let seeds = infos.iter().map(|info| info.addr().clone()).collect();
        let template =
            infos.into_iter().next().ok_or_else(|| ServeError::new("--store", "an address is missing"))?;
        Ok(Self { seeds, template, is_cluster: options.cluster, prefix: options.key_prefix.clone() })
    }

    /// A client for one address.
    pub(super) fn client(&self, address: &ConnectionAddr) -> Result<Client, RedisError> {
        Client::open(self.template.clone().set_addr(address.clone()))
    }

    /// The address of another node of the cluster, reached as the first is.
    pub(super) fn address(&self, of_host: &str, of_port: u16) -> ConnectionAddr {
        let mut address = self.template.addr().clone();
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } = &mut address {
            (*host, *port) = (of_host.to_owned(), of_port);
        }
        address
    }
}

/// The certificate of an authority, in PEM.
fn authority(path: &Path) -> Result<Vec<u8>, ServeError> {
    let failed = |reason: Reason| ServeError::new(format!("--store-ca {}", path.display()), reason);
    let pem = std::fs::read(path).map_err(|error| failed(error.into()))?;
    let is_certificate = CertificateDer::from_pem_slice(&pem).is_ok();
    if is_certificate { Ok(pem) } else { Err(failed("the file has no certificate in PEM".into())) }
}
