//! A gateway behind a socket as the place where a scenario is run.

use std::time::Duration;

use bytes::Bytes;
use host_sim::{LogLevel, LogLine, VmName};
use tokio::time::Instant;

use super::{
    AgainstError, Contender,
    client::{self, Ending},
    upstream::fields,
    wait::{pass, until},
};
use crate::scenario::{
    Answers, Call, Called, Check, Masks, Message, ScenarioError, Seen, Step, StepReport, Taking, Target,
    lines_of_calls, log_lines,
};

/// How long both gateways may take to come to the same log, calls and counters.
const SETTLING: Duration = Duration::from_secs(5);

/// How long a client waits for an answer that is not expected to end.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// A gateway that takes the steps of a scenario.
pub(super) struct Running<'a> {
    contender: &'a mut dyn Contender,
    masks: &'a Masks<'a>,
    /// How long a client waits for an answer that is to end.
    patience: Duration,
    /// Requests that were sent.
    requests: usize,
    /// Calls to clusters in this step.
    calls: Vec<(Instant, Called)>,
    /// Lines of the log before this step.
    mark: usize,
    /// Those since the last request: what takes time by itself may have begun before its step.
    told: Vec<LogLine>,
}

impl<'a> Running<'a> {
    pub(super) fn new(contender: &'a mut dyn Contender, masks: &'a Masks<'a>, patience: Duration) -> Self {
        Self { contender, masks, patience, requests: 0, calls: Vec::new(), mark: 0, told: Vec::new() }
    }

    /// Takes in what clusters were asked since the last time.
    fn hear(&mut self) {
        for (name, server) in self.contender.clusters() {
            let calls = server.take().into_iter();
            let call = |(at, message)| (at, Called { cluster: name.clone(), message });
            self.calls.extend(calls.map(call));
        }
    }

    /// What was logged in this step.
    fn fresh(&self) -> Vec<LogLine> {
        let line = |message| LogLine { level: LogLevel::Info, vm: VmName::Main, by_host: false, message };
        self.contender.log().into_iter().skip(self.mark).map(line).collect()
    }

    fn made(&self) -> Vec<Called> {
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|(at, _)| *at);
        calls.into_iter().map(|(_, call)| call.clone()).collect()
    }

    /// The calls and the log of this step, to be compared.
    fn come_to(&mut self, in_order: bool) -> [Vec<String>; 2] {
        self.hear();
        let log = log_lines(&self.fresh(), in_order, self.masks);
        [lines_of_calls(&self.made(), self.masks), log]
    }
}

/// Waits until both have made the same calls and logged the same, and the second what is expected. A call may outlive the request that
/// it was made for; whether they come to agree is the question.
pub(super) fn settle(both: &mut [Running<'_>; 2], step: &Step, masks: &Masks<'_>) {
    let in_order = step.request.is_some();
    let _ = until("the same", SETTLING, || {
        let [here, there] = both.each_mut().map(|running| running.come_to(in_order));
        let mut check = Check::new(masks);
        let log = [both[1].told.clone(), both[1].fresh()].concat();
        check.log(&step.expect, &log.iter().map(|line| line.message.as_str()).collect::<Vec<_>>());
        (here == there && check.misses.is_empty()).then_some(())
    });
}

impl Target for Running<'_> {
    type Error = AgainstError;

    fn answer(&mut self, answers: Option<&Answers>) -> Result<(), AgainstError> {
        self.contender.upstream().answer(answers)
    }

    fn send(&mut self, _: usize, call: &Call, step: &Step) -> Result<Seen, AgainstError> {
        const FROM_UPSTREAM: &str = "via_upstream";
        self.requests += 1;
        let expect = &step.expect;
        let patience = if expect.ends.unwrap_or(true) { self.patience } else { IMPATIENCE };
        let reading = client::send(self.contender.address(), call, patience)?;
        let mut seen = Seen { ends: reading.end != Ending::Waiting, ..Seen::default() };
        match reading.head {
            Some((status, headers)) if reading.end != Ending::Broken => {
                seen.status = status.as_u16();
                let body = String::from_utf8_lossy(&reading.body).into_owned();
                seen.answer =
                    Message { headers: fields(&headers), body, trailers: fields(&reading.trailers) };
            }
            _ => seen.reset = seen.ends,
        }
        seen.forwarded = self.contender.upstream().take().pop().map(|(_, message)| message);
        if expect.details.is_some() || expect.local_reply.is_some() {
            seen.details = self.contender.details(self.requests)?;
            seen.local_reply = seen.details.as_ref().map(|details| details != FROM_UPSTREAM);
        }
        Ok(seen)
    }

    fn update(&mut self, configuration: Bytes) -> Result<Option<String>, AgainstError> {
        let taken = self.contender.update(&configuration)?;
        Ok((!taken).then(|| "refused".to_owned()))
    }

    fn advance(&mut self, by: Duration) -> Result<(), AgainstError> {
        pass(by)
    }

    fn control(&mut self, _: &Step, taking: &mut Taking<'_>) -> Result<String, AgainstError> {
        Err(ScenarioError::Step { step: taking.number }.into())
    }

    fn gather(&mut self, _: &mut StepReport, _: bool) {}

    fn settle(&mut self, step: &Step, taking: &mut Taking<'_>) -> Result<Vec<Called>, AgainstError> {
        taking.report.log = self.fresh();
        self.mark += taking.report.log.len();
        taking.before = std::mem::take(&mut self.told);
        if step.request.is_none() {
            self.told = [taking.before.clone(), taking.report.log.clone()].concat();
        }
        if step.expect.shared_data_entries_at_most.is_some() {
            let why = "shared_data_entries_at_most: Envoy does not show its shared data";
            taking.report.not_comparable.push(why.to_owned());
        }
        let made = self.made();
        self.calls.clear();
        Ok(made)
    }

    fn metric(&self, name: &str, expected: u64) -> String {
        // What is found at the end counts.
        let _ = until("a metric", SETTLING, || (self.contender.metric(name) == Some(expected)).then_some(()));
        self.contender.metric(name).map_or_else(|| "no such metric".to_owned(), |found| found.to_string())
    }

    fn failures(&self) -> Vec<String> {
        Vec::new()
    }

    fn keeps_all(&self) -> bool {
        true
    }
}
