//! A filter whose host is a clock, shared data and what a test sets.

use core::fmt;

use super::*;
use crate::count::shared_data::{Cas, SharedData, Swap, VmLocalData};
use crate::count::swap::CounterHost;
use crate::decide::counting::Charged;
use crate::decide::host::LogLevel;
use crate::directory::tests::{load, row};
use crate::request::header_pairs::serialize;

pub(super) struct TestHost {
    pub(super) data: VmLocalData,
    /// The status with which reading shared data fails.
    pub(super) fails: Option<u32>,
    pub(super) foreign: bool,
    pub(super) address: &'static str,
    pub(super) subject: Option<&'static str>,
    pub(super) plan: Option<&'static str>,
    /// The metadata that has the cost of a request.
    pub(super) tokens: Option<Vec<u8>>,
    pub(super) seconds: u64,
    pub(super) logged: Vec<String>,
    /// Values that were read.
    pub(super) reads: usize,
}

impl SharedData for TestHost {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.reads += 1;
        if let Some(status) = self.fails.filter(|_| !self.is_of_vm()) {
            Err(HostError { call: "proxy_get_shared_data", status })
        } else if self.foreign {
            Ok(Some((b"foreign".to_vec(), Cas(1))))
        } else {
            self.data.get(name)
        }
    }
    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.data.set(name, value, cas)
    }

    fn is_of_vm(&self) -> bool {
        self.fails == Some(12)
    }
}

impl CounterHost for TestHost {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        Ok(Timestamp::from_seconds(self.seconds))
    }

    fn log(&mut self, _: LogLevel, message: fmt::Arguments<'_>) {
        self.logged.push(message.to_string());
    }
}

impl Host for TestHost {
    fn property(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
        Ok(match path {
            b"source\0address" => Some(self.address.as_bytes().to_vec()),
            b"metadata\0jwt\0sub" => self.subject.map(|subject| subject.as_bytes().to_vec()),
            b"metadata\0jwt\0plan" => self.plan.map(|plan| plan.as_bytes().to_vec()),
            b"metadata\0usage\0tokens" => self.tokens.clone(),
            _ => None,
        })
    }
    fn random(&mut self) -> Result<[u8; 16], HostError> {
        Ok([7; 16])
    }
}

/// A decision, with the reply written.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) plan: Option<usize>,
    pub(super) class: usize,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) charged: Option<Charged>,
    pub(super) reply: Option<Reply>,
    pub(super) is_refused: bool,
}

/// A filter of two plans, two classes and three keys, and one host for all its requests.
pub(super) struct Filter {
    pub(super) limiter: Limiter,
    pub(super) host: TestHost,
}

impl Filter {
    pub(super) fn with(fields: &str) -> Self {
        let key = |key: &str| digest(key.as_bytes()).map(|byte| format!("{byte:02x}")).concat();
        let json = format!(
            r#"{{"plans": {{"free": {{"standard": ["2/minute"]}}, "pro": {{"standard": ["3/minute"], "analytics": ["1/second"]}}}},
                "classes": [{{"name": "analytics", "match": [{{"methods": ["GET"], "path": "/analytics"}}]}}],
                "exempt": [{{"methods": ["OPTIONS"]}}, {{"path_prefix": "/r"}}],
                "subscribers": [{{"id": "f", "plan": "free", "keys": ["sha256:{}", "sha256:{}"]}},
                                {{"id": "p", "plan": "pro", "keys": ["sha256:{}"]}}]{}{fields}}}"#,
            key("free-1"),
            key("free-2"),
            key("pro"),
            if fields.is_empty() { "" } else { "," }
        );
        let config = Config::from_json(json.as_bytes()).unwrap();
        let host = TestHost {
            data: VmLocalData::default(),
            fails: None,
            foreign: false,
            address: "192.0.2.1:80",
            subject: None,
            plan: None,
            tokens: None,
            seconds: 60,
            logged: Vec::new(),
            reads: 0,
        };
        Self { limiter: Limiter::new(Arc::new(config)), host }
    }

    pub(super) fn decide(&mut self, headers: &[u8]) -> Sent {
        let mut decided = Decided::default();
        self.limiter.decide(&mut self.host, headers, &mut decided);
        let answer = decided.answer.as_ref();
        let reply = answer.map(|answer| Reply::new(self.limiter.config(), &decided, answer, None));
        let Decided { plan, class, outcomes, charged, is_refused, .. } = decided;
        Sent { plan, class, outcomes: outcomes.iter().collect(), charged, reply, is_refused }
    }

    /// Has the directory answer with these keys and their plans, each key of a subscriber of its name.
    pub(super) fn load(&mut self, keys: &[(&str, &str)]) {
        let rows = keys.iter().map(|(key, plan)| row(&digest(key.as_bytes()), key, plan));
        let rows: Vec<_> = rows.collect();
        load(&mut self.host, &Arc::clone(self.limiter.config()), &rows);
        self.limiter.look_at_directory(&mut self.host).unwrap();
    }

    /// `GET` with these headers.
    pub(super) fn send_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Sent {
        let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        let pseudo: [(&str, &[u8]); 2] = [(":method", b"GET"), (":path", path.as_bytes())];
        self.decide(&serialize(&pseudo.into_iter().chain(headers).collect::<Vec<_>>()))
    }

    pub(super) fn send(&mut self, method: &str, path: &str, authorization: &str) -> Sent {
        let mut headers: Vec<(&str, &[u8])> =
            vec![(":method", method.as_bytes()), (":path", path.as_bytes())];
        if !authorization.is_empty() {
            headers.push(("authorization", authorization.as_bytes()));
        }
        self.decide(&serialize(&headers))
    }
}

pub(super) fn status(sent: &Sent) -> u16 {
    sent.reply.as_ref().map_or(0, |reply| reply.status)
}
