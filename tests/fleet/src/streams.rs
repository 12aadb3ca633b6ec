//! Streams: requests, looks and resets, from when they come until they are decided or leave.

use filter::count::charge::{Admission, By, Standings};
use filter::count::counters::Counted;
use filter::count::entry::Count;
use filter::count::levels::{Demand, Outcome};
use filter::count::settle::Due;
use filter::fleet::Waiting;
use filter::fleet::client::{Heard, Looked, Next};
use filter::fleet::messages::AnswerError;
use ledger_wire::Response;

use crate::calls::Caller;
use crate::events::Event;
use crate::gateway::{Gateway, Place, Version, counter, name};
use crate::run::Run;
use crate::world::{Fault, MILLI, Time, pick};

/// How often a client asks where it stands: sooner than a tick may give back what the count holds.
const LOOKS: Time = 300 * MILLI;
/// Part of the asks after which a worker is stuck, in worlds in which workers are.
const STUCK: f64 = 0.05;

/// A request that is to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) gateway: usize,
    pub(crate) worker: usize,
    pub(crate) caller: usize,
    pub(crate) cost: u32,
}

/// Who may have to wait for the ledger.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) place: Place,
    pub(crate) since: Time,
    pub(crate) caller: usize,
    /// What a request needs, and where its client stands; `None` of one who looks or resets.
    pub(crate) request: Option<(Demand, Standings)>,
    waiting: Option<Waiting>,
    /// The call that it waits for, and how many it has made and have failed.
    call: u32,
    pub(crate) calls: usize,
    pub(crate) failed: usize,
    /// How often it has asked.
    pub(crate) asks: u32,
}

/// A change of what a request was charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settlement {
    pub(crate) stream: u32,
    due: u32,
}

impl Run {
    /// A stream that begins at a worker: in its newest configuration, or in one that drains.
    fn begin_stream(&mut self, gateway: usize, worker: usize, caller: usize, may_be_old: bool) -> u32 {
        let now = self.now;
        let versions = self.gateways[gateway].workers[worker].versions.iter().rev();
        let serving = versions
            .filter(|version| version.drains.is_none_or(|(until, _)| may_be_old && now < until))
            .map(|version| version.number);
        let serving: Vec<_> = serving.collect();
        let version = pick(&mut self.rng, &serving);
        let place = Place { gateway, worker, version };
        if let Some((version, _)) = self.version(place) {
            version.streams += 1;
        }
        self.streams.push(Stream {
            place,
            since: now,
            caller,
            request: None,
            waiting: None,
            call: 0,
            calls: 0,
            failed: 0,
            asks: 0,
        });
        self.streams.len() as u32 - 1
    }

    /// A stream has ended, and perhaps the configuration that it was the last one of.
    fn end_stream(&mut self, stream: u32) {
        let place = self.streams[stream as usize].place;
        if let Some((version, _)) = self.version(place) {
            version.streams -= 1;
            self.let_go(place);
        }
    }

    pub(crate) fn arrive(&mut self, request: u32) {
        let Arrival { gateway, worker, caller, cost } = self.arrivals[request as usize];
        let stream = self.begin_stream(gateway, worker, caller, true);
        let place = self.streams[stream as usize].place;
        self.touch(gateway, caller);
        let versions = &self.gateways[gateway].workers[worker].versions;
        let Some(version) = versions.iter().find(|other| other.number == place.version) else { return };
        let demand = self.gateways[gateway].demand(&self.world, version, caller, cost);
        let mut standings = Standings::new();
        let Some((Version { client, counters, .. }, mut host)) = self.version(place) else { return };
        let next = match client.sharing().in_shadow {
            false => client.charge(counters, &mut host, &demand, &mut standings),
            true => counters
                .charge_levels(&mut host, &demand, None, &mut standings)
                .map(|Outcome { counted, .. }| Next::Counted(counted)),
        };
        self.streams[stream as usize].request = Some((demand, standings));
        self.follow(stream, next.expect("a request is counted"));
    }

    fn follow(&mut self, stream: u32, next: Next) {
        match next {
            Next::Waits(waiting) => self.wait(stream, waiting),
            Next::Counted(counted) => self.decided(stream, counted),
        }
    }

    /// A stream waits for the answer to a call.
    fn wait(&mut self, stream: u32, mut waiting: Waiting) {
        let call = waiting.take_call().expect("who waits has a call to make");
        let of = &mut self.streams[stream as usize];
        let Place { gateway, worker, .. } = of.place;
        (of.waiting, of.calls) = (Some(waiting), of.calls + 1);
        let (place, replica) = (of.place, of.calls + stream as usize);
        // One who asks again and again, and never stays, would keep what is held from being given back.
        let may_leave = of.calls == 1 && of.request.is_some();
        if self.chance(self.world.die) {
            return self.worker_dies(gateway, worker);
        }
        self.streams[stream as usize].call = self.call(place, Caller::Stream(stream), call, replica);
        if self.world.has(Fault::WorkerStuck) && self.chance(STUCK) {
            self.worker_is_stuck(gateway, worker);
        }
        if may_leave && self.chance(self.world.leave) {
            let after = self.within(2 * self.world.distance);
            self.after(after, Event::Leave(stream));
        }
    }

    pub(crate) fn client_leaves(&mut self, stream: u32) {
        let Stream { place, waiting, call, .. } = &mut self.streams[stream as usize];
        let (place, call) = (*place, *call);
        let Some(waiting) = waiting.take() else { return };
        let Some((Version { client, counters, .. }, mut host)) = self.version(place) else { return };
        client.ended(counters, &mut host, &waiting);
        self.calls[call as usize].is_open = false;
        self.end_stream(stream);
    }

    /// The call of a stream has ended.
    pub(crate) fn hears(&mut self, stream: u32, response: Result<Response, AnswerError>) {
        let is_answered = response.is_ok();
        let of = &mut self.streams[stream as usize];
        let (place, caller) = (of.place, of.caller);
        of.failed += usize::from(!is_answered);
        of.asks += u32::from(is_answered);
        let (Some(waiting), request) = (of.waiting.take(), of.request.take()) else { return };
        let Some((Version { client, counters, .. }, mut host)) = self.version(place) else { return };
        let Some((demand, mut standings)) = request else {
            let heard = client.heard(counters, &mut host, waiting, response).expect("the clock goes");
            return match heard.0 {
                Heard::Again(waiting) => self.wait(stream, waiting),
                Heard::Answers(_) | Heard::Nothing => self.end_stream(stream),
            };
        };
        let next = client.answered(counters, &mut host, (&demand, &mut standings), waiting, response);
        let next = next.expect("a request is counted");
        self.touch(place.gateway, caller);
        self.streams[stream as usize].request = Some((demand, standings));
        if is_answered && matches!(next, Next::Waits(_)) {
            self.check_free(stream);
        }
        self.follow(stream, next);
    }

    fn decided(&mut self, stream: u32, counted: Counted) {
        self.check_decision(stream, counted);
        if counted.admission != Admission::Admitted {
            return self.end_stream(stream);
        }
        let Stream { place: Place { gateway, .. }, caller, ref request, .. } = self.streams[stream as usize];
        let Some((demand, standings)) = request else { return };
        let (cost, standings) = (demand.cost, standings.clone());
        let is_excepted = counted.by == By::Beyond
            || demand.levels.others.as_ref().is_some_and(|others| others.names.is_none());
        let subjects: Vec<_> = self.world.subjects_of(caller).collect();
        for (subject, standing) in subjects.into_iter().zip(standings) {
            let Some(count) = self.count(gateway, subject) else { continue };
            let excepted =
                if is_excepted { count.used.saturating_sub(count.held.share).min(cost) } else { 0 };
            let key = (subject, standing.index);
            self.uses(key, &count, cost.into(), excepted.into());
            self.note(key, gateway, || {
                format!("admits {cost} {:?}, {excepted} of them excepted: {count:?}", counted.by)
            });
        }
        if !self.chance(self.world.settle) {
            return self.end_stream(stream);
        }
        let due = cost.saturating_add_signed(self.rng.i32(-(cost as i32)..=3));
        self.settlements.push(Settlement { stream, due });
        let after = self.within(300 * MILLI);
        self.after(after, Event::Settle(self.settlements.len() as u32 - 1));
    }

    /// Units of a count are used, or were used and are not any more.
    fn uses(&mut self, key: (usize, u32), count: &Count, used: i64, excepted: i64) {
        self.facts.used(key, count.held.reset, used, excepted);
        if excepted > 0 {
            // What was free may be so no longer.
            self.facts.taken(key, self.now, 0, 0);
        }
    }

    /// A request turns out to cost more or less.
    pub(crate) fn settle(&mut self, settlement: u32) {
        let Settlement { stream, due } = self.settlements[settlement as usize];
        let Stream { place, caller, ref mut request, .. } = self.streams[stream as usize];
        let Some((demand, mut standings)) = request.take().filter(|(demand, _)| demand.cost != due) else {
            return self.end_stream(stream);
        };
        let subjects: Vec<_> = self.world.subjects_of(caller).collect();
        let before: Vec<_> = subjects.iter().map(|subject| self.count(place.gateway, *subject)).collect();
        let Some((Version { client, counters, .. }, mut host)) = self.version(place) else { return };
        client.settled(&demand);
        let settled = counters.settle_levels(&mut host, &demand, (Due::Units(due), false), &mut standings);
        settled.expect("a charge is settled");
        self.touch(place.gateway, caller);
        for (subject, before) in subjects.into_iter().zip(before) {
            let Some((before, after)) = before.zip(self.count(place.gateway, subject)) else { continue };
            if (before.index, before.generation) == (after.index, after.generation) {
                let debt = |count: &Count| i64::from(count.used.saturating_sub(count.held.share));
                let excepted = (debt(&after) - debt(&before)).max(0);
                let used = i64::from(after.used) - i64::from(before.used);
                let key = (subject, after.index);
                self.uses(key, &after, used, excepted);
                self.note(key, place.gateway, || {
                    format!("settles by {used}, {excepted} of them excepted: {after:?}")
                });
            }
        }
        self.end_stream(stream);
    }

    /// A client asks where it stands, of all quotas, and again soon.
    pub(crate) fn look(&mut self, gateway: usize, worker: usize) {
        self.after(LOOKS, Event::Look(gateway, worker));
        let stream = self.begin_stream(gateway, worker, 0, true);
        let place = self.streams[stream as usize].place;
        let (quotas, callers) = (self.gateways[gateway].quotas(), self.world.callers);
        let Some((Version { client, counters, .. }, mut host)) = self.version(place) else { return };
        let records = [(0, quotas.own()), (callers, quotas.shared())];
        let of = records
            .map(|(record, quotas)| (counter(callers, counters, record), name(callers, record), quotas));
        let of: Vec<_> = of.into_iter().filter(|(.., quotas)| !quotas.is_empty()).collect();
        if client.sharing().in_shadow {
            return self.end_stream(stream);
        }
        match client.look(counters, &mut host, &of).expect("what is asked is noted") {
            Looked::Waits(waiting) => self.wait(stream, waiting),
            Looked::Known | Looked::Away | Looked::Full => self.end_stream(stream),
        }
    }

    /// An operator resets a subject, and waits until the ledger knows.
    pub(crate) fn reset(&mut self, gateway: usize, worker: usize, subject: usize) {
        let subject = self.world.subjects[subject];
        let stream = self.begin_stream(gateway, worker, 0, false);
        let place = self.streams[stream as usize].place;
        let (quotas, callers) = (self.gateways[gateway].quotas(), self.world.callers);
        let of = &quotas.quotas()[subject.place..=subject.place];
        let Some((Version { client, counters, .. }, mut host)) = self.version(place) else { return };
        let counter = counter(callers, counters, subject.record);
        let shared = (!client.sharing().in_shadow).then(|| (name(callers, subject.record), client.sharing()));
        let is_shared = shared.is_some();
        let (_, statements) = counters.reset(&mut host, &counter, of, shared).expect("a quota is reset");
        let waiting = is_shared
            .then(|| client.reset(counters, &mut host, counter, statements).expect("the clock goes"));
        // Of a reset, all gateways hear with their next statement.
        for gateway in &mut self.gateways {
            gateway.touched[subject.record] = self.now;
        }
        match waiting {
            Some(waiting) => self.wait(stream, waiting),
            None => self.end_stream(stream),
        }
    }

    /// A request or an operator touches the records of a caller at a gateway.
    fn touch(&mut self, gateway: usize, caller: usize) {
        let Gateway { touched, .. } = &mut self.gateways[gateway];
        (touched[caller], touched[self.world.callers]) = (self.now, self.now);
    }
}
