//! The ledger of a fleet of gateways.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::backend::fresh_token;
use crate::client::Client;
use crate::clock;
use crate::exchange::get;
use crate::process::Process;

/// The cluster that the filter's configuration names.
pub const CLUSTER: &str = "ledger";

/// A running `weir-ledger serve`, which keeps its shares in memory.
#[derive(Debug)]
pub struct Ledger {
    address: SocketAddr,
    token: String,
    process: Process,
}

impl Ledger {
    /// Starts it on a free loopback port, and waits until it is ready: until then it grants nothing.
    ///
    /// # Errors
    /// When it does not start.
    pub fn serve(ledger: &Path) -> anyhow::Result<Self> {
        let token = fresh_token()?;
        let mut command = Command::new(ledger);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory"])
            .env("WEIR_LEDGER_TOKEN", &token);
        let process = Process::start("weir-ledger", &mut command)?;
        let address = process.wait_for(|line| line.strip_prefix("listening on http://")?.parse().ok())?;
        let client = Client::to(address)?;
        clock::eventually("the ledger", Duration::from_secs(10), || {
            let ready = client.send(&get("/readyz")).ok()?;
            (ready.status() == 200).then_some(())
        })?;
        Ok(Self { address, token, process })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The field `fleet` of the filter's configuration.
    #[must_use]
    pub fn fleet(&self) -> Value {
        json!({"cluster": CLUSTER, "bearer": self.token})
    }
}
