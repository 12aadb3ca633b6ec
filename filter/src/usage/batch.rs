//! A batch of CloudEvents 1.0 in JSON, as it is posted.

use std::rc::Rc;

use ledger_wire::Hex128;
use serde::Serialize;

use super::meter::Meter;
use super::rfc3339;
use super::threshold::Crossed;
use crate::time::Timestamp;

/// Most bytes of a batch.
pub const MAX_BYTES: usize = 256 << 10;

/// The type of a batch's content.
pub const CONTENT_TYPE: &str = "application/cloudevents-batch+json";

/// A batch that is complete.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// The JSON.
    pub body: Vec<u8>,
    /// The requests that are lost with it.
    pub requests: u64,
}

#[derive(Serialize)]
struct Event<'a, D> {
    specversion: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    source: &'a str,
    subject: &'a str,
    id: &'a str,
    time: &'a str,
    datacontenttype: &'static str,
    data: D,
}

/// What a caller has used. Strangers have a class alone.
#[derive(Serialize)]
struct Used<'a> {
    from: &'a str,
    to: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    organisation: Option<&'a str>,
    class: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    requests: u64,
    units: u64,
    refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tightest: Option<TightestQuota<'a>>,
}

#[derive(Serialize)]
struct TightestQuota<'a> {
    quota: &'a str,
    limit: u32,
    used: u32,
    to: String,
}

/// A share of a quota that is used.
#[derive(Serialize)]
struct Threshold<'a> {
    class: &'a str,
    quota: &'a str,
    share: u8,
    limit: u32,
    used: u32,
    from: String,
    to: String,
}

/// What the events of a batch have in common.
#[derive(Debug)]
pub struct Head {
    /// The gateway process.
    pub source: Hex128,
    /// The random number of the VM.
    pub vm: u64,
    /// The number of the batch.
    pub number: u64,
}

/// A share that is used, and the id under which it is told.
#[derive(Debug)]
pub struct News {
    /// Whose.
    pub meter: Rc<Meter>,
    /// The share.
    pub crossed: Crossed,
    /// The id.
    pub id: Hex128,
}

/// A batch that is being written.
#[derive(Debug)]
pub struct Writer {
    source: String,
    id: String,
    from: String,
    to: String,
    batch: Batch,
    events: u32,
}

impl Writer {
    /// A batch about what was used from one instant to another.
    #[must_use]
    pub fn new(Head { source, vm, number }: &Head, from: Timestamp, to: Timestamp) -> Self {
        Self {
            source: format!("{:032x}", source.0),
            id: format!("{vm:016x}-{number}-"),
            from: rfc3339::instant(from),
            to: rfc3339::instant(to),
            batch: Batch { body: vec![b'['], requests: 0 },
            events: 0,
        }
    }

    /// Whether it has no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Adds what a meter has counted. Returns whether it has room.
    #[must_use]
    pub fn push(&mut self, meter: &Meter) -> bool {
        let Meter { config, class, caller, .. } = meter;
        let (sums, caller) = (meter.sums.get(), caller.as_ref());
        let key = caller.map(|caller| crate::config::hex(caller.key));
        let quotas = caller.and_then(|caller| caller.quotas.as_ref());
        let tightest = meter.tightest.get().and_then(|tightest| {
            let quota = quotas?.quotas().get(tightest.place)?;
            let to = rfc3339::whole_second(tightest.to);
            Some(TightestQuota { quota: &quota.name, limit: quota.limit.get(), used: tightest.used, to })
        });
        let (kind, subject) = match caller {
            Some(caller) => ("weir.usage", caller.subject()),
            None => ("weir.usage.strangers", "strangers".to_owned()),
        };
        let (from, to) = (self.from.clone(), self.to.clone());
        let data = Used {
            from: &from,
            to: &to,
            key: key.as_deref().and_then(|key| key.get(..8)),
            organisation: caller.and_then(|caller| caller.organisation.as_deref()),
            class: config.class_name(*class),
            plan: caller.map(|caller| config.plan_name(caller.plan)),
            requests: sums.requests,
            units: sums.units,
            refused: sums.refused,
            tightest,
        };
        let id = format!("{}{}", self.id, self.events);
        let fits = self.write(kind, &subject, &id, data);
        self.batch.requests += if fits { sums.all() } else { 0 };
        fits
    }

    /// Adds a share that is used, under an id of its own. Returns whether it has room.
    #[must_use]
    pub fn push_crossed(&mut self, News { meter, crossed, id }: &News) -> bool {
        let caller = meter.caller.as_ref();
        let quotas = caller.and_then(|caller| caller.quotas.as_ref());
        let (Some(caller), Some(quota)) =
            (caller, quotas.and_then(|quotas| quotas.quotas().get(crossed.place)))
        else {
            return true;
        };
        let period = quota.window.period(crossed.standing.index);
        let data = Threshold {
            class: meter.config.class_name(meter.class),
            quota: &quota.name,
            share: crossed.share.0,
            limit: quota.limit.get(),
            used: crossed.standing.used,
            from: rfc3339::whole_second(period.start),
            to: rfc3339::whole_second(period.end),
        };
        self.write("weir.threshold", &caller.subject(), &format!("{:032x}", id.0), data)
    }

    fn write(&mut self, kind: &'static str, subject: &str, id: &str, data: impl Serialize) -> bool {
        let body = &mut self.batch.body;
        let before = body.len();
        if self.events > 0 {
            body.push(b',');
        }
        let event = Event {
            specversion: "1.0",
            kind,
            source: &self.source,
            subject,
            id,
            time: &self.to,
            datacontenttype: "application/json",
            data,
        };
        // Writing this into memory cannot fail. The last byte closes the list.
        let fits = serde_json::to_writer(&mut *body, &event).is_ok() && body.len() < MAX_BYTES;
        match fits {
            true => self.events += 1,
            false => body.truncate(before),
        }
        fits
    }

    /// The batch, if it has events.
    #[must_use]
    pub fn finish(mut self) -> Option<Batch> {
        self.batch.body.push(b']');
        (self.events > 0).then_some(self.batch)
    }
}
