//! The domains that short links are followed on.
//!
//! A visit must not wait for the database, so the assigned domains are in memory and read again every second.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;

use crate::domain::host::Host;
use crate::http::error::ApiError;
use crate::store::Store;

/// Interval at which the assigned domains are read. A change by the command takes effect within it.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for the first reading.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// All domains that are or were assigned, and whether they are. Nothing is known before the first reading.
type Domains = Option<HashMap<String, bool>>;

/// The public domain and the assigned ones.
#[derive(Debug)]
pub(crate) struct KnownDomains {
    public: String,
    assigned: watch::Receiver<Domains>,
}

impl KnownDomains {
    /// Reads the assigned domains until `stop` is true. Requires a tokio runtime.
    pub(crate) fn new(public: &str, store: Store, stop: watch::Receiver<bool>) -> Self {
        let (sender, assigned) = watch::channel(None);
        tokio::spawn(read_again(store, sender, stop));
        Self { public: public.to_owned(), assigned }
    }

    /// The domain that a request with this `Host` means. None if the host is unknown.
    ///
    /// An address means the public domain. So does an unknown name until the first domain is assigned. Afterwards it might be a domain
    /// that a customer has or had, which must not serve the links of others.
    pub(crate) async fn domain_of<'a>(
        &'a self,
        host: Option<&'a str>,
    ) -> Result<Option<Cow<'a, str>>, ApiError> {
        let public = Cow::Borrowed(self.public.as_str());
        let Host::Name(name) = Host::parse(host) else { return Ok(Some(public)) };
        if name == self.public {
            return Ok(Some(public));
        }
        let mut assigned = self.assigned.clone();
        let known = tokio::time::timeout(MAX_WAIT, assigned.wait_for(Option::is_some));
        let known = known.await.map_err(|_elapsed| ApiError::unavailable())?;
        let known = known.map_err(|_ended| ApiError::unavailable())?;
        Ok(match known.as_ref() {
            Some(domains) if domains.get(name.as_ref()) == Some(&true) => Some(name),
            Some(domains) if domains.is_empty() => Some(public),
            Some(_) | None => None,
        })
    }
}

async fn read_again(store: Store, sender: watch::Sender<Domains>, mut stop: watch::Receiver<bool>) {
    loop {
        match store.known_domains().await {
            Ok(domains) => {
                sender.send_replace(Some(domains));
            }
            // The domains of before are as good as any while the database is away.
            Err(error) => tracing::debug!(%error, "could not read the assigned domains"),
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            // This branch is also taken when the sender is dropped.
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}
