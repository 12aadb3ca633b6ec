//! A process with VMs that keep one list, and a service that changes, fails and lies. Time goes on when a test says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use super::*;
use crate::config::hex;
use crate::count::shared_data::{Cas, Swap, VmLocalData};

/// A host whose clock a test sets.
pub(super) struct Host {
    pub(super) data: VmLocalData,
    pub(super) now: u64,
}

impl SharedData for Host {
    type Value = Vec<u8>;
    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.data.get(name)
    }
    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.data.set(name, value, cas)
    }
}

/// How the service answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Pages of this many rows, and changes.
    Pages(usize),
    /// One document, with an ETag.
    Document,
    /// One document, without one.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    Away,
    Malformed,
    BrokenOff,
}

/// Keys and their plans, each of the last changes, and the number of the last.
pub(super) struct Service {
    pub(super) form: Form,
    pub(super) fault: Fault,
    pub(super) keys: BTreeMap<u16, &'static str>,
    pub(super) changes: VecDeque<u16>,
    pub(super) version: usize,
    /// How changes without a key say so.
    pub(super) empty_keys: &'static str,
    /// What it answers in place of its document.
    pub(super) document: Option<&'static str>,
}

pub(super) fn digest(key: u16) -> KeyDigest {
    crate::config::digest(&key.to_le_bytes())
}

pub(super) type Answer = (Option<(&'static str, Option<String>)>, String);

impl Service {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            fault: Fault::None,
            keys: BTreeMap::new(),
            changes: VecDeque::new(),
            version: 0,
            empty_keys: r#""keys": [], "#,
            document: None,
        }
    }

    pub(super) fn set(&mut self, key: u16, plan: Option<&'static str>) {
        match plan {
            Some(plan) => drop(self.keys.insert(key, plan)),
            None => drop(self.keys.remove(&key)),
        }
        self.version += 1;
        self.changes.push_back(key);
        if self.changes.len() > 30 {
            self.changes.pop_front();
        }
    }

    pub(super) fn rows(&self, keys: impl Iterator<Item = u16>) -> String {
        let rows = keys.filter_map(|key| Some(row(&digest(key), "s", self.keys.get(&key)?)));
        rows.collect::<Vec<_>>().join(",")
    }

    pub(super) fn answer(&self, poll: &Poll<'_>) -> Answer {
        let etag = format!("\"{}\"", self.version);
        let good = Some(("200", (self.form != Form::Plain).then_some(etag.clone())));
        match self.fault {
            Fault::None => {}
            Fault::Away => return (Some(("503", None)), String::new()),
            Fault::BrokenOff => return (None, String::new()),
            Fault::Malformed => return (good, r#"{"keys": [{"sha256": "#.to_owned()),
        }
        if let Some(document) = self.document {
            return (Some(("200", None)), document.to_owned());
        }
        if poll.if_none_match.as_ref() == Some(&etag) && self.form != Form::Plain {
            return (Some(("304", Some(etag))), String::new());
        }
        let Form::Pages(limit) = self.form else {
            return (good, format!(r#"{{"keys": [{}]}}"#, self.rows(self.keys.keys().copied())));
        };
        let number = |name: &str| {
            let (_, value) = poll.path.split_once(&format!("{name}="))?;
            value.parse::<usize>().ok()
        };
        let version = self.version;
        if let Some(since) = number("since")
            && self.version - since <= self.changes.len()
        {
            let changed: BTreeSet<_> =
                self.changes.iter().rev().take(self.version - since).copied().collect();
            let removed = changed.iter().filter(|key| !self.keys.contains_key(key));
            let removed: Vec<_> = removed.map(|key| format!("{:?}", hex(digest(*key)))).collect();
            let keys = match self.rows(changed.iter().copied()) {
                rows if rows.is_empty() => self.empty_keys.to_owned(),
                rows => format!(r#""keys": [{rows}], "#),
            };
            let removed = removed.join(",");
            let body =
                format!(r#"{{"version": "{version}", "since": "{since}", {keys}"removed": [{removed}]}}"#);
            return (good, body);
        }
        let after = number("cursor").unwrap_or(0);
        let from = self.keys.range(u16::try_from(after).unwrap()..).map(|(key, _)| *key);
        let page: Vec<_> = from.clone().take(limit).collect();
        let mut body = format!(r#"{{"version": "{version}", "keys": [{}]"#, self.rows(page.into_iter()));
        if let Some(next) = from.clone().nth(limit) {
            write!(body, r#", "next": "{next}""#).unwrap();
        }
        (good, body + "}")
    }
}

pub(super) struct Vm {
    pub(super) directory: Directory,
    pub(super) keys: Keys,
    pub(super) answer: Option<Answer>,
    pub(super) is_alive: bool,
    pub(super) may_poll: bool,
    pub(super) configuration: u64,
}

pub(super) struct Process {
    pub(super) host: Host,
    pub(super) service: Service,
    pub(super) config: Config,
    pub(super) vms: Vec<Vm>,
    pub(super) seed: u64,
    pub(super) logged: Vec<News>,
}

pub(super) const MILLI: u64 = 1_000_000;

impl Process {
    pub(super) fn new(form: Form, vms: usize, more: &str) -> Self {
        let host = Host { data: VmLocalData::default(), now: 1_000_000_000 * 1000 };
        let mut process = Self {
            host,
            service: Service::new(form),
            config: config(&format!(r#", "interval": "1s"{more}"#)),
            vms: Vec::new(),
            seed: 1,
            logged: Vec::new(),
        };
        (0..vms).for_each(|_| process.add(1, true));
        process
    }

    pub(super) fn add(&mut self, configuration: u64, may_poll: bool) {
        let settings = self.config.settings.directory.clone().unwrap();
        let mut random = [0; 16];
        random[0] = u8::try_from(self.vms.len() + 1).unwrap();
        let keys = Keys::new(&settings, "");
        let directory = Directory::new(settings, "", configuration, random);
        self.vms.push(Vm { directory, keys, answer: None, is_alive: true, may_poll, configuration });
    }

    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.host.now)
    }

    /// Hands a VM the answer to its poll, if there is one.
    pub(super) fn hear(&mut self, place: usize) {
        let now = self.now();
        let Self { vms, host, config, logged, .. } = self;
        let vm = &mut vms[place];
        let Some((head, body)) = vm.answer.take() else { return };
        let etag = head.as_ref().and_then(|(_, etag)| etag.as_deref()).map(str::as_bytes);
        let head = head.as_ref().map(|(status, _)| (status.as_bytes(), etag));
        logged.extend(vm.directory.answer(host, &config.catalog, head, body.as_bytes(), now));
    }

    /// A VM does some of its work, and polls.
    pub(super) fn work(&mut self, place: usize, at_once: usize) {
        let now = self.now();
        let Self { vms, host, service, logged, .. } = self;
        let vm = &mut vms[place];
        logged.extend(vm.directory.work(host, at_once, now));
        if vm.answer.is_none()
            && let Some(poll) = vm.directory.poll(now)
        {
            vm.answer = Some(match vm.may_poll {
                true => service.answer(&poll),
                false => (Some(("401", None)), String::new()),
            });
        }
    }

    pub(super) fn tick(&mut self, place: usize) {
        let now = self.now();
        let Self { vms, host, .. } = self;
        vms[place].directory.look(host, now).unwrap();
        self.look(place);
    }

    /// A VM sees what the list is, and does nothing else.
    pub(super) fn look(&mut self, place: usize) {
        let now = self.now();
        let Self { vms, host, .. } = self;
        let vm = &mut vms[place];
        vm.keys.look(host, now).unwrap();
    }

    /// All VMs that live tick once, 100 ms later.
    pub(super) fn round(&mut self) {
        self.host.now += 100 * MILLI;
        for place in 0..self.vms.len() {
            if self.vms[place].is_alive {
                self.tick(place);
                self.hear(place);
                for _ in 0..8 {
                    self.work(place, 4096);
                    self.hear(place);
                }
            }
        }
    }

    pub(super) fn rounds(&mut self, rounds: usize) {
        (0..rounds).for_each(|_| self.round());
    }

    /// The plan of a key: `None` if it is unknown, and empty if that cannot be told yet.
    pub(super) fn plan(&mut self, place: usize, key: u16) -> Option<String> {
        let Self { vms, host, config, .. } = self;
        let keys = &vms[place].keys;
        let listed = keys.find(host, &config.catalog, &digest(key)).unwrap();
        match (listed.known(), keys.readiness()) {
            (Some((_, agreement)), _) => Some(config.plan_name(agreement.plan).to_owned()),
            (None, Readiness::Complete) => None,
            (None, _) => Some(String::new()),
        }
    }

    pub(super) fn leaders(&self) -> Vec<usize> {
        let leads = |vm: &Vm| vm.is_alive && vm.directory.status().is_some();
        (0..self.vms.len()).filter(|place| leads(&self.vms[*place])).collect()
    }

    /// Every VM that lives knows the keys of the service, and no others.
    pub(super) fn assert_agreed(&mut self, what: &str) {
        let alive: Vec<_> = (0..self.vms.len()).filter(|place| self.vms[*place].is_alive).collect();
        for place in alive {
            for key in 0..120 {
                let expected = self.service.keys.get(&key).copied();
                let found = self.plan(place, key);
                assert_eq!(found.as_deref(), expected, "{what}: key {key} in VM {place}");
            }
        }
        let rows = self.leaders().first().and_then(|leader| self.vms[*leader].directory.status());
        if let Some(status) = rows {
            assert_eq!(status[0], self.service.keys.len() as u64, "{what}: {status:?}");
        }
    }

    /// The sum of each of these events since the last time. The sums of others are forgotten.
    pub(super) fn sums<const N: usize>(&mut self, events: [Event; N]) -> [u32; N] {
        let drained: Vec<_> = self.vms.iter_mut().map(|vm| vm.directory.drain_events()).collect();
        events.map(|event| drained.iter().map(|sums| sums[event as usize]).sum())
    }
}
