//! A connection to one master of the store.
//!
//! A connection leads to one process. What is learnt from it when it is made, the run id and the version, therefore holds as long
//! as it does, and a statement that goes over it can reach no other process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ConnectionAddr, FromRedisValue, Pipeline, RedisError, Value, cmd};

use super::redis::load_scripts;
use super::settings::Settings;
use super::topology::Topology;

/// Time limit of an answer of the store. Less than a gateway's default time limit (250 ms), so that the gateway hears that the store
/// is away rather than nothing.
const ANSWER: Duration = Duration::from_millis(200);
/// Time limit of a new connection with its TLS handshake and login. No request waits for it.
const CONNECT: Duration = Duration::from_millis(500);
/// The oldest version that works. Earlier ones do not answer INFO with several sections.
const OLDEST: (u64, u64) = (7, 0);

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("{what}: {source}")]
    Failed { what: &'static str, source: RedisError },
    #[error("{0}: unknown answer")]
    Answer(&'static str),
    #[error("version {0} is too old; 7.0 or later is needed")]
    Version(String),
    #[error("it is a Sentinel, which is not supported; name the master, or use a cluster")]
    Sentinel,
    #[error("it belongs to a cluster; --cluster is missing")]
    IsCluster,
    #[error("it belongs to no cluster; --cluster is wrong")]
    IsNoCluster,
    #[error("it is a replica; name the master, or use a cluster")]
    Replica,
}

/// A master that answered. Several requests use it at once.
#[derive(Debug)]
pub(super) struct Master {
    pub(super) address: ConnectionAddr,
    connection: MultiplexedConnection,
    run_id: String,
    has_failed: AtomicBool,
}

/// What a server says about itself and its cluster.
#[derive(Debug)]
pub(super) struct Look {
    /// Changes when the data may have been lost: with the process, and with each FLUSHALL and FLUSHDB.
    pub(super) identity: String,
    pub(super) is_master: bool,
    /// Of a cluster, and the number of its last change.
    pub(super) topology: Option<(u64, Topology)>,
}

impl Master {
    /// Connects and checks what can be checked without knowing the epoch.
    pub(super) async fn connect(address: &ConnectionAddr, settings: &Settings) -> Result<Self, Unusable> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER));
        let failed = |source| Unusable::Failed { what: "cannot connect", source };
        let client = settings.client(address).map_err(failed)?;
        let connection =
            client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let info: String = ask(&connection, "INFO", &["server", "memory"]).await?;
        check(&info, settings.is_cluster)?;
        let run_id = field(&info, "run_id").ok_or(Unusable::Answer("INFO"))?.to_owned();
        let policy = field(&info, "maxmemory_policy").unwrap_or("noeviction");
        if policy != "noeviction" {
            tracing::warn!(
                store = %address,
                policy,
                "maxmemory-policy is not noeviction: when its memory is full, the store deletes counters, and each of \
                 them lifts its limit until its window ends"
            );
        }
        Ok(Self { address: address.clone(), connection, run_id, has_failed: AtomicBool::new(false) })
    }

    /// Asks who the server is now.
    pub(super) async fn look(&self, settings: &Settings) -> Result<Look, Unusable> {
        let info: String = ask(&self.connection, "INFO", &["replication", "commandstats"]).await?;
        let flushes =
            ["cmdstat_flushall", "cmdstat_flushdb"].map(|name| field(&info, name).map_or("0", calls));
        let identity = format!("{} {}", self.run_id, flushes.join(" "));
        let topology = if settings.is_cluster { Some(self.topology(settings).await?) } else { None };
        Ok(Look { identity, is_master: field(&info, "role") == Some("master"), topology })
    }

    async fn topology(&self, settings: &Settings) -> Result<(u64, Topology), Unusable> {
        let info: String = ask(&self.connection, "CLUSTER", &["INFO"]).await?;
        let slots: Value = ask(&self.connection, "CLUSTER", &["SLOTS"]).await?;
        let change = field(&info, "cluster_current_epoch").and_then(|number| number.parse().ok());
        let topology = Topology::parse(&slots, &self.address, settings);
        change.zip(topology).ok_or(Unusable::Answer("CLUSTER"))
    }

    /// Loads the scripts, and with a key tries one, which shows whether the user may do what the ledger does.
    pub(super) async fn load(&self, trial_key: Option<&str>) -> Result<(), Unusable> {
        let answers = self.send(&load_scripts(trial_key)).await;
        let answers = answers.and_then(|answers| answers.into_iter().map(Value::extract_error).collect());
        let answers: Result<Vec<_>, _> = answers;
        answers.map(drop).map_err(|source| Unusable::Failed { what: "scripts may not run", source })
    }

    /// Sends commands and answers what the server said to each.
    ///
    /// # Errors
    /// If the connection is broken or the server does not answer in time.
    pub(super) async fn send(&self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        self.connection.clone().req_packed_commands(commands, 0, commands.len()).await
    }

    /// Whether requests may use it.
    pub(super) fn is_up(&self) -> bool {
        !self.has_failed.load(Ordering::Relaxed)
    }

    /// Keeps further requests away from it until [`super::watch`] has replaced it.
    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

async fn ask<T: FromRedisValue>(
    connection: &MultiplexedConnection,
    command: &'static str,
    arguments: &[&str],
) -> Result<T, Unusable> {
    let answer = cmd(command).arg(arguments).query_async(&mut connection.clone()).await;
    answer.map_err(|source| Unusable::Failed { what: command, source })
}

/// Whether a server of this kind and version can be used.
fn check(info: &str, is_cluster: bool) -> Result<(), Unusable> {
    match (field(info, "redis_mode"), is_cluster) {
        (Some("sentinel"), _) => return Err(Unusable::Sentinel),
        (Some("cluster"), false) => return Err(Unusable::IsCluster),
        (Some("standalone"), true) => return Err(Unusable::IsNoCluster),
        _ => {}
    }
    // Valkey, too, says here with which version of Redis it agrees.
    let version = field(info, "redis_version").ok_or(Unusable::Answer("INFO"))?;
    let mut numbers = version.split('.').map(|number| number.parse::<u64>().unwrap_or_default());
    let number = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if number < OLDEST { Err(Unusable::Version(version.to_owned())) } else { Ok(()) }
}

/// The value of a line `name:value`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// The number of calls in `calls=2,usec=…`.
fn calls(statistics: &str) -> &str {
    statistics.split(',').find_map(|part| part.strip_prefix("calls=")).unwrap_or("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_checked_by_what_it_says() {
        //  mode, version, whether --cluster is given, and the start of the refusal
        for (mode, version, is_cluster, refusal) in [
            ("standalone", "7.0.15", false, None),
            ("standalone", "7.2.4", false, None),
            ("cluster", "10.1.0", true, None),
            ("standalone", "6.2.14", false, Some("version 6.2.14 is too old")),
            ("sentinel", "7.0.15", false, Some("it is a Sentinel")),
            ("cluster", "7.0.15", false, Some("it belongs to a cluster")),
            ("standalone", "7.0.15", true, Some("it belongs to no cluster")),
        ] {
            let info = format!("# Server\r\nredis_version:{version}\r\nredis_mode:{mode}\r\n");
            let found = check(&info, is_cluster).map_err(|refusal| refusal.to_string());
            let is_expected = match (&found, refusal) {
                (Ok(()), None) => true,
                (Err(found), Some(start)) => found.starts_with(start),
                _ => false,
            };
            assert!(is_expected, "{mode} {version}: {found:?}");
        }
    }

    #[test]
    fn the_calls_of_a_command_are_read_from_its_statistics() {
        let info = "# Commandstats\r\ncmdstat_flushall:calls=12,usec=3,usec_per_call=0.25\r\n";
        assert_eq!(field(info, "cmdstat_flushall").map(calls), Some("12"));
        assert_eq!(field(info, "cmdstat_flushdb").map(calls), None);
    }
}
