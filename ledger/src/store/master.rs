//! A connection to one master of the store.
//!
//! A connection leads to one process. What is learnt from it when it is made, the run id and the version, therefore holds as long
//! as it does, and a statement that goes over it can reach no other process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ledger_wire::Hex128;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, FromRedisValue, InfoDict, Pipeline, RedisError, Value, cmd,
};

use super::commands::{is_elsewhere, marker_key, trial};
use super::settings::Settings;
use super::topology::Topology;
use super::unusable::Unusable;
use crate::clock;

/// Time limit of an answer of the store. Less than a gateway's default time limit (250 ms), so that the gateway hears that the store
/// is away rather than nothing.
const ANSWER: Duration = Duration::from_millis(200);
/// Time limit of a new connection with its TLS handshake and login. No request waits for it.
const CONNECT: Duration = Duration::from_millis(500);

/// A master that answered. Several requests use it at once.
#[derive(Debug)]
pub(super) struct Master {
    pub(super) address: ConnectionAddr,
    connection: MultiplexedConnection,
    pub(super) run_id: String,
    has_failed: AtomicBool,
}

/// A key with a random value, which is made when it is not there. Whoever finds another value than before, or none, knows that the master
/// has lost what it had.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    pub(super) key: String,
    pub(super) value: String,
}

/// What a server says about itself and its cluster.
#[derive(Debug)]
pub(super) struct Look {
    /// Absent if the server has no slot, or if the marker's is being moved.
    pub(super) marker: Option<Marker>,
    /// The number of the cluster's last change, and the masters since then.
    pub(super) topology: (u64, Topology),
}

impl Master {
    /// Connects, and checks that the server can be used.
    pub(super) async fn connect(address: &ConnectionAddr, settings: &Settings) -> Result<Self, Unusable> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER));
        let failed = |source| Unusable::Failed { what: "cannot connect", source };
        let client = settings.client(address).map_err(Unusable::Options)?;
        let connection =
            client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let info: InfoDict = ask(&connection, "INFO", &[]).await?;
        check(&info, settings.is_cluster)?;
        let run_id = info.get("run_id").ok_or(Unusable::Kind("has no run id"))?;
        let policy = info.get("maxmemory_policy").unwrap_or_else(|| "noeviction".to_owned());
        if policy != "noeviction" {
            tracing::warn!(
                store = %address,
                policy,
                "maxmemory-policy is not noeviction: when its memory is full, the store deletes counters, and each of \
                 them lifts its limit until its window ends"
            );
        }
        Ok(Self { address: address.clone(), connection, run_id, has_failed: AtomicBool::default() })
    }

    /// Asks which masters there are, and tries to do at this one what statements do.
    pub(super) async fn look(&self, settings: &Settings) -> Result<Look, Unusable> {
        let topology = self.topology(settings).await?;
        // A tag of a slot of its own, in which each master of a cluster writes.
        let tag = topology.1.tag_of(&self.address);
        let tag = tag.map(|tag| format!("{}{{{tag}}}:", settings.prefix));
        let marked = Hex128(rand::random()).to_string();
        let commands = trial(tag.as_deref(), &marked, clock::now(), settings.is_cluster);
        let failed = |source| Unusable::Failed { what: "a trial", source };
        let answers = self.send(&commands).await.map_err(failed)?;
        for answer in &answers {
            if let Value::ServerError(error) = answer
                && !is_elsewhere(error)
            {
                return Err(Unusable::Refused(error.clone().into()));
            }
        }
        let value = answers.into_iter().next_back().and_then(|value| String::from_redis_value(value).ok());
        let marker = tag.zip(value).map(|(tag, value)| Marker { key: marker_key(&tag), value });
        Ok(Look { marker, topology })
    }

    async fn topology(&self, settings: &Settings) -> Result<(u64, Topology), Unusable> {
        if !settings.is_cluster {
            let info: InfoDict = ask(&self.connection, "INFO", &["replication"]).await?;
            let is_master = info.get("role").is_some_and(|role: String| role == "master");
            let topology = (0, Topology::single(self.address.clone()));
            let replica = Unusable::Kind("is a replica; name the master, or use a cluster");
            return if is_master { Ok(topology) } else { Err(replica) };
        }
        let info: InfoDict = ask(&self.connection, "CLUSTER", &["INFO"]).await?;
        let slots: Value = ask(&self.connection, "CLUSTER", &["SLOTS"]).await?;
        let topology = Topology::parse(&slots, &self.address, settings);
        let topology = info.get("cluster_current_epoch").zip(topology);
        topology.ok_or(Unusable::Kind("does not know its cluster"))
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
    words: &[&str],
) -> Result<T, Unusable> {
    let answer = cmd(command).arg(words).query_async(&mut connection.clone()).await;
    answer.map_err(|source| Unusable::Failed { what: command, source })
}

/// Whether a server of this kind and version can be used.
fn check(info: &InfoDict, is_cluster: bool) -> Result<(), Unusable> {
    // Valkey calls it so from 8 on.
    let mode: Option<String> = info.get("redis_mode").or_else(|| info.get("server_mode"));
    match (mode.as_deref(), is_cluster) {
        (Some("sentinel"), _) => {
            return Err(Unusable::Kind(
                "is a Sentinel, which is not supported; name the master, or use a cluster",
            ));
        }
        (Some("cluster"), false) => return Err(Unusable::Kind("belongs to a cluster; --cluster is missing")),
        (Some("standalone"), true) => {
            return Err(Unusable::Kind("belongs to no cluster; --cluster is wrong"));
        }
        _ => {}
    }
    // Valkey, too, says here with which version of Redis it agrees. Earlier ones than 7 do not answer INFO with several sections.
    let version: String = info.get("redis_version").unwrap_or_default();
    let major = version.split('.').next().and_then(|number| number.parse().ok());
    if major.is_some_and(|major: u64| major >= 7) { Ok(()) } else { Err(Unusable::Version(version)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_checked_by_what_it_says() {
        //  mode, version, whether --cluster is given, and a part of the refusal
        for (mode, version, is_cluster, refusal) in [
            ("redis_mode:standalone", "7.0.15", false, None),
            ("redis_mode:standalone", "7.2.4", false, None),
            ("redis_mode:cluster", "10.1.0", true, None),
            ("redis_mode:standalone", "6.2.14", false, Some("version 6.2.14 is too old")),
            ("redis_mode:sentinel", "7.0.15", false, Some("it is a Sentinel")),
            ("redis_mode:cluster", "7.0.15", false, Some("it belongs to a cluster")),
            ("redis_mode:standalone", "7.0.15", true, Some("it belongs to no cluster")),
            ("server_mode:standalone", "7.2.4", false, None),
            ("server_mode:cluster", "7.2.4", true, None),
            ("server_mode:sentinel", "7.2.4", false, Some("it is a Sentinel")),
            ("server_mode:cluster", "7.2.4", false, Some("it belongs to a cluster")),
            ("server_mode:standalone", "7.2.4", true, Some("it belongs to no cluster")),
        ] {
            let info = format!("# Server\r\nredis_version:{version}\r\n{mode}\r\n");
            let found = check(&InfoDict::new(&info), is_cluster).map_err(|refusal| refusal.to_string());
            let is_expected = match (&found, refusal) {
                (Ok(()), None) => true,
                (Err(found), Some(part)) => found.contains(part),
                _ => false,
            };
            assert!(is_expected, "{mode} {version}: {found:?}");
        }
    }
}
