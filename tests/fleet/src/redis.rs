//! A Redis of its own for each fleet.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use anyhow::Context as _;
use tempfile::TempDir;
use tests::process::Process;

/// Whether a Redis that was killed still knows its counters when it is back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// They are written to a file as they change, as a quota that must hold needs it.
    #[default]
    Durable,
    /// They are gone, as with Redis as a mere cache.
    Volatile,
}

/// A `redis-server` on a free loopback port, in a temporary folder, that ends with its owner.
#[derive(Debug)]
pub struct Redis {
    folder: TempDir,
    memory: Memory,
    address: SocketAddr,
    process: Option<Process>,
}

impl Redis {
    /// Starts one and waits until it takes connections.
    ///
    /// # Errors
    /// When there is no `redis-server`, or it does not start.
    pub fn start(memory: Memory) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        // Redis takes no port 0 for a free one; between here and there somebody else may take it, so a few are tried.
        let mut attempts = 0;
        loop {
            let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            match launch(&folder, memory, address) {
                Ok(process) => return Ok(Self { folder, memory, address, process: Some(process) }),
                Err(error) if attempts == 3 => return Err(error),
                Err(_) => attempts += 1,
            }
        }
    }

    /// Where it listens, also while it is down.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as clients take it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Its process, unless it is down.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Kills it, without a chance to say goodbye.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again where it was, if it is down.
    ///
    /// # Errors
    /// When it does not start, for instance because its port has been taken meanwhile.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        if self.process.is_none() {
            self.process = Some(launch(&self.folder, self.memory, self.address)?);
        }
        Ok(())
    }

    /// Runs a command, for a look at what a service has stored.
    ///
    /// # Errors
    /// When it is down, or its answer is of another type.
    pub fn ask<T: ::redis::FromRedisValue>(&self, command: &[&str]) -> anyhow::Result<T> {
        let mut connection = ::redis::Client::open(self.url())?.get_connection()?;
        let (name, arguments) = command.split_first().context("no command")?;
        Ok(::redis::cmd(name).arg(arguments).query(&mut connection)?)
    }
}

fn launch(folder: &TempDir, memory: Memory, address: SocketAddr) -> anyhow::Result<Process> {
    let append = match memory {
        Memory::Durable => "yes",
        Memory::Volatile => "no",
    };
    let process = Process::start(
        "redis-server",
        Command::new("redis-server")
            .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", append])
            .arg("--dir")
            .arg(folder.path()),
    )?;
    process.wait_for(|line| line.contains("Ready to accept connections").then_some(()))?;
    Ok(process)
}

/// A service's connection, which is made when it is needed and again when it has broken. Whoever asks meanwhile is told so and asks
/// again. To be called in a runtime.
pub(crate) fn connection(url: &str) -> anyhow::Result<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(Duration::from_secs(1)))
        .set_response_timeout(Some(Duration::from_secs(10)));
    Ok(ConnectionManager::new_lazy_with_config(::redis::Client::open(url)?, config)?)
}
