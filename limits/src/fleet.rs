//! What a service has to know of the configuration's field `fleet`.

use filter::config::Config;
use filter::fingerprint::Who;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// Whose limits the service goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limits {
    /// Each request carries its quota's.
    #[default]
    Sent,
    /// The service's own.
    Configured,
}

/// What a service has to know of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Fleet {
    /// The domain, or namespace, of the counters.
    #[serde(default = "default_domain")]
    pub(crate) domain: String,
    /// Whose limits the service goes by.
    #[serde(default)]
    pub(crate) limits: Limits,
    /// Whether descriptors carry the window's index.
    #[serde(default)]
    pub(crate) window_index: bool,
}

fn default_domain() -> String {
    "weir".to_owned()
}

/// Reads a filter's configuration.
pub(crate) fn read(json: &[u8]) -> Result<(Fleet, Config), Error> {
    let Ok(mut document) = serde_json::from_slice::<Value>(json) else {
        // The filter says best what is wrong with it.
        Config::from_json(json)?;
        return Err(Error::NoFleet);
    };
    let fleet = document.as_object_mut().and_then(|fields| fields.remove("fleet"));
    let config = Config::from_json(document.to_string().as_bytes())?;
    let fleet = fleet.ok_or(Error::NoFleet)?;
    let fleet = serde_json::from_value(fleet).map_err(|error| Error::Fleet(error.to_string()))?;
    Ok((fleet, config))
}

impl Fleet {
    /// Who is counted, as descriptors name it: 32 hexadecimal digits.
    pub(crate) fn id(&self, who: Who<'_>) -> String {
        let mut hash = Sha256::new();
        hash.update((self.domain.len() as u64).to_le_bytes());
        hash.update(self.domain.as_bytes());
        match who {
            Who::Key(digest) => {
                hash.update(b"key");
                hash.update(digest);
            }
            Who::Subscriber(id) => {
                hash.update(b"subscriber");
                hash.update(id.as_bytes());
            }
            // Addresses are counted by each gateway.
            Who::Address(_) => {}
        }
        let hash: [u8; 32] = hash.finalize().into();
        hash.first_chunk::<16>().map(hex::encode).unwrap_or_default()
    }
}
