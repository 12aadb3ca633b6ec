//! Calls of the masters of the store.

use std::sync::Arc;

use futures_util::future::join_all;
use ledger_wire::{Answer, ItemError, Says};
use redis::{Pipeline, RedisError, ServerError, ServerErrorKind, Value};

use super::Call;
use super::commands::{add, read, store_error};
use super::master::{Marker, Master};
use super::settings::Settings;
use super::topology::Topology;
use super::unusable::Unusable;

/// The masters of the store, as the latest round of [`super::watch`] found them.
#[derive(Debug)]
pub(super) struct Masters {
    pub(super) topology: Topology,
    /// By the index of the topology.
    pub(super) masters: Vec<Result<Found, Arc<Unusable>>>,
    /// Servers to which slots are being moved, and which have none yet.
    pub(super) importing: Vec<Found>,
    pub(super) settings: Arc<Settings>,
}

/// A server that can be used.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) master: Arc<Master>,
    pub(super) marker: Option<Marker>,
}

/// A call, its key, and its place among the calls of a request.
type Asked<'a> = (usize, &'a Call, String);

impl Masters {
    /// A master, if it can be used.
    fn master(&self, index: usize) -> Result<&Found, Arc<Unusable>> {
        match self.masters.get(index) {
            Some(Ok(found)) if found.master.is_up() => Ok(found),
            Some(Err(unusable)) => Err(Arc::clone(unusable)),
            _ => Err(Arc::new(Unusable::Silent)),
        }
    }

    /// For each master why it cannot be used, if so.
    pub(super) fn unusable(&self) -> impl Iterator<Item = Option<Arc<Unusable>>> {
        (0..self.masters.len()).map(|index| self.master(index).err())
    }

    /// Sends each call to the master that has its counter, all calls of a master at once, and answers in the order of the calls.
    pub(super) async fn call(&self, calls: &[Result<Call, ItemError>]) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(calls.len());
        let mut batches = vec![Vec::new(); self.masters.len()];
        for (place, call) in calls.iter().enumerate() {
            let call = match call {
                Ok(call) => call,
                Err(error) => {
                    answers.push(Answer::Refused(error.clone()));
                    continue;
                }
            };
            let key = format!("{}{}", self.settings.prefix, call.name);
            let index = self.topology.master_of(&key).unwrap_or(usize::MAX);
            // Until it is answered.
            let unusable = self.master(index).err();
            answers.push(store_error(unusable.as_deref().unwrap_or(&Unusable::Silent).to_string()));
            if let Some(batch) = batches.get_mut(index) {
                batch.push((place, call, key));
            }
        }
        let sent = batches.iter().enumerate().filter(|(_, asked)| !asked.is_empty());
        let sent = sent.map(async |(index, asked)| Some(self.send(self.master(index).ok()?, asked).await));
        for (place, answer) in join_all(sent).await.into_iter().flatten().flatten() {
            if let Some(unanswered) = answers.get_mut(place) {
                *unanswered = answer;
            }
        }
        answers
    }

    /// The answers of a master, and of those to which it is moving slots.
    async fn send(&self, found: &Found, asked: &[Asked<'_>]) -> Vec<(usize, Answer)> {
        let mut answers = Vec::with_capacity(asked.len());
        let mut moved: Vec<(&Found, Vec<Asked<'_>>)> = Vec::new();
        let (values, has_lost) = self.exchange(found, asked, false).await;
        for ((place, call, key), value) in asked.iter().zip(values) {
            match self.importing(&value) {
                None => answers.push((*place, read(call, value, has_lost))),
                Some(target) => {
                    let known =
                        moved.iter().position(|(known, _)| known.master.address == target.master.address);
                    let asked = (*place, *call, key.clone());
                    match known.and_then(|known| moved.get_mut(known)) {
                        Some((_, batch)) => batch.push(asked),
                        None => moved.push((target, vec![asked])),
                    }
                }
            }
        }
        for (target, asked) in moved {
            let (values, has_lost) = self.exchange(target, &asked, true).await;
            let read = |((place, call, _), value): (&Asked<'_>, Value)| (*place, read(call, value, has_lost));
            answers.extend(asked.iter().zip(values).map(read));
        }
        answers
    }

    /// The server to which an answer redirects, because it is given the slot. One that is not known yet is from the next round on.
    fn importing(&self, value: &Value) -> Option<&Found> {
        let Value::ServerError(error) = value else { return None };
        if error.kind() != Some(ServerErrorKind::Ask) {
            return None;
        }
        let error = RedisError::from(error.clone());
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let address = self.settings.address(host, port.parse().ok()?);
        let known = self.masters.iter().flatten().chain(&self.importing);
        let found = known.into_iter().find(|found| found.master.address == address && found.master.is_up());
        if found.is_none() {
            self.settings.look_at(address);
        }
        found
    }

    /// What a master answers to calls, and whether it has lost what it had before it answered. `asking` is for slots that it is given.
    async fn exchange(&self, found: &Found, asked: &[Asked<'_>], asking: bool) -> (Vec<Value>, bool) {
        let Some(values) = self.ask(found, asked, (asking, false)).await else { return (Vec::new(), false) };
        let has_lost = found.marker.as_ref().is_some_and(|marker| match values.get(asked.len()) {
            Some(Value::BulkString(value)) => value != marker.value.as_bytes(),
            other => matches!(other, Some(Value::Nil)),
        });
        if !has_lost {
            return (values, false);
        }
        // It has granted without knowing what others have: each holder keeps what it has used.
        self.settings.wake.notify_one();
        (self.ask(found, asked, (asking, true)).await.unwrap_or_default(), true)
    }

    /// What a master says to calls, or to their holders' returns of all that they have not used, and at last of its marker.
    async fn ask(
        &self,
        found: &Found,
        asked: &[Asked<'_>],
        (asking, returning): (bool, bool),
    ) -> Option<Vec<Value>> {
        let Found { master, marker } = found;
        let mut commands = Pipeline::new();
        for (_, call, key) in asked {
            if asking {
                commands.cmd("ASKING");
            }
            let says = if returning { Says::Return { keep: 0 } } else { call.statement.says };
            add(&mut commands, key, call, says);
        }
        if let Some(marker) = marker {
            commands.cmd("GET").arg(&marker.key);
        }
        let failed = |error: &RedisError| {
            tracing::debug!(store = %master.address, %error, "the store does not answer");
            master.fail();
            self.settings.wake.notify_one();
        };
        let mut values = master.send(&commands).await.inspect_err(failed).ok()?;
        if asking {
            let mut place = 0;
            values.retain(|_| {
                place += 1;
                place % 2 == 0 || place > 2 * asked.len()
            });
        }
        for value in &values {
            if let Value::ServerError(error) = value {
                self.note(master, error);
            }
        }
        Some(values)
    }

    /// Notes an error, after which the masters are looked at.
    fn note(&self, master: &Master, error: &ServerError) {
        use ServerErrorKind::{Ask, ClusterDown, MasterDown, Moved, NoScript, ReadOnly};
        match error.kind() {
            Some(Ask) => return,
            // It is a master no more.
            Some(ReadOnly) => master.fail(),
            // A look loads the script, or finds who has the key.
            Some(NoScript | Moved | ClusterDown | MasterDown) => {}
            _ => self.settings.complain(&master.address, &Unusable::Refused(error.clone().into())),
        }
        self.settings.wake.notify_one();
    }
}
