//! How Redis or Valkey is reached.

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::options::Options;
use crate::serve::ServeError;

/// How the store is reached.
#[derive(Debug)]
pub(super) struct Settings {
    /// The server, or some nodes of the cluster.
    pub(super) seeds: Vec<ConnectionAddr>,
    /// User, password and database.
    template: ConnectionInfo,
    pub(super) is_cluster: bool,
    /// The certificate, in PEM, of the authority that signs the store's.
    authority: Option<Vec<u8>>,
    /// The text before the name of each key.
    pub(super) prefix: String,
}

impl Settings {
    pub(super) fn new(options: &Options) -> Result<Self, ServeError> {
        // An error means that it is installed.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let infos = options.store.iter().map(|url| url.as_str().into_connection_info());
        let infos = infos.collect::<Result<Vec<_>, _>>().map_err(ServeError::Store)?;
        let seeds = infos.iter().map(|info| info.addr().clone()).collect();
        let template = infos.into_iter().next().ok_or(ServeError::Several)?;
        let template = template.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let authority = options.store_ca.as_ref().map(|path| {
            let unreadable = |source| ServeError::Authority { path: path.clone(), source };
            let pem = std::fs::read(path).map_err(unreadable)?;
            CertificateDer::from_pem_slice(&pem).map_err(|_none| ServeError::NoCertificate(path.clone()))?;
            Ok(pem)
        });
        let authority = authority.transpose()?;
        let (is_cluster, prefix) = (options.cluster, options.key_prefix.clone());
        let settings = Self { seeds, template, is_cluster, authority, prefix };
        for seed in &settings.seeds {
            settings.client(seed).map_err(ServeError::Store)?;
        }
        Ok(settings)
    }

    /// A client for one address.
    pub(super) fn client(&self, address: &ConnectionAddr) -> Result<Client, RedisError> {
        let info = self.template.clone().set_addr(address.clone());
        match &self.authority {
            None => Client::open(info),
            Some(pem) => Client::build_with_tls(
                info,
                TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) },
            ),
        }
    }

    /// The address of another node of the cluster, reached as the first is.
    pub(super) fn address(&self, host: &str, port: u16) -> ConnectionAddr {
        let host = host.to_owned();
        match self.template.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        }
    }
}
