use super::*;
use crate::decide::settlement::Moment;
use crate::event::Event::{
    self, CostRefunded as Refunded, CostUnknown as UnknownCost, CostUnsettled as Failed,
};

/// A class `chat` beside those of [`Filter`], whose requests reserve 10 units.
fn filter(class: &str) -> Filter {
    let key = digest(b"chat").map(|byte| format!("{byte:02x}")).concat();
    let json = format!(
        r#"{{"plans": {{"pro": {{"standard": ["3/minute"], "chat": ["100/minute", {{"limit": 1000, "window": "hour", "refundable": false}}]}}}},
            "classes": [{{"name": "chat", "match": [{{"path": "/chat"}}], {class}}}],
            "subscribers": [{{"id": "p", "plan": "pro", "keys": ["sha256:{key}"]}}]}}"#
    );
    Filter {
        limiter: Limiter::new(Arc::new(Config::from_json(json.as_bytes()).unwrap())),
        ..Filter::with("")
    }
}

const BY_HEADER: &str = r#""cost": {"reserve": 10, "actual": {"response_header": "X-Cost"}}"#;
const BY_METADATA: &str = r#""cost": {"reserve": 10, "actual": {"metadata": ["usage", "tokens"]}}"#;
const REFUNDS: &str = r#""refund": {"statuses": ["5xx", 408]}"#;

impl Filter {
    fn chat(&mut self) -> Sent {
        self.send("POST", "/chat", "Bearer chat")
    }

    /// Answers a request, if there is an answer, and ends its stream. What the response says of the units left.
    fn answer(&mut self, sent: Sent, headers: Option<&[(&str, &str)]>) -> String {
        let mut charged = sent.charged.unwrap();
        if let Some(headers) = headers {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            self.limiter.settle(&mut self.host, &mut charged, Moment::Headers(&serialize(&headers)));
        }
        let said = charged.ratelimit();
        if charged.is_open {
            self.limiter.settle(&mut self.host, &mut charged, Moment::End);
        }
        said
    }

    /// Units used of the minute and of the hour.
    fn used(&mut self) -> [u32; 2] {
        let charged = self.chat().charged.unwrap();
        let used = [0, 1].map(|quota| charged.standings[quota].used);
        // Without this request.
        if charged.exhausted().next().is_some() { used } else { used.map(|used| used - charged.cost()) }
    }

    fn events(&mut self) -> Vec<Event> {
        let sums = self.limiter.drain_events(&mut self.host);
        let counted = Event::ALL.into_iter().zip(sums).filter(|(_, sum)| *sum > 0);
        counted.map(|(event, _)| event).collect()
    }
}

/// What decides a settlement, the units used afterwards of the minute and of the hour, and what is counted.
type Row<T> = (T, [u32; 2], &'static [Event]);

#[test]
fn a_response_settles_its_request_by_its_status_and_its_cost() {
    let ok = (":status", "200");
    let rows: &[Row<&[(&str, &str)]>] = &[
        (&[ok, ("x-cost", "4")], [4, 4], &[]),
        (&[ok, ("x-cost", " 0 ")], [0, 0], &[]),
        (&[ok, ("x-cost", "10")], [10, 10], &[]),
        (&[ok, ("x-cost", "250")], [250, 250], &[]),
        (&[ok, ("x-cost", "99999999999999999999999")], [u32::MAX, u32::MAX], &[]),
        (&[(":status", "404"), ("x-cost", "4")], [4, 4], &[]),
        (&[(":status", "503")], [0, 10], &[Refunded]),
        (&[(":status", "408"), ("x-cost", "4")], [0, 10], &[Refunded]),
        (&[ok], [10, 10], &[UnknownCost]),
        (&[ok, ("x-cost", "")], [10, 10], &[UnknownCost]),
        (&[ok, ("x-cost", "4.5")], [10, 10], &[UnknownCost]),
        (&[ok, ("x-cost", "-4")], [10, 10], &[UnknownCost]),
        (&[ok, ("x-cost", "4,4")], [10, 10], &[UnknownCost]),
        (&[ok, ("x-cost", "4"), ("x-cost", "4")], [10, 10], &[UnknownCost]),
        (&[], [10, 10], &[UnknownCost]),
    ];
    for (headers, used, events) in rows {
        let mut filter = filter(&format!("{BY_HEADER}, {REFUNDS}"));
        let sent = filter.chat();
        let left = filter.answer(sent, Some(headers));
        let remaining = used.map(|used| used.min(1000));
        let expected = format!(
            "\"chat-minute\";r={};t=60, \"chat-hour\";r={};t=3540",
            100 - remaining[0].min(100),
            1000 - remaining[1]
        );
        assert_eq!(left, expected, "{headers:?}");
        assert_eq!((filter.used(), filter.events().as_slice()), (*used, *events), "{headers:?}");
    }
}

#[test]
fn without_a_response_the_reserve_stands() {
    for (class, events) in [(BY_HEADER, &[UnknownCost][..]), (BY_METADATA, &[UnknownCost]), (REFUNDS, &[])] {
        let mut filter = filter(class);
        let sent = filter.chat();
        let reserved = sent.charged.as_ref().unwrap().cost();
        filter.answer(sent, None);
        assert_eq!((filter.used(), filter.events().as_slice()), ([reserved; 2], events), "{class}");
    }
}

#[test]
fn metadata_has_the_cost_when_the_stream_ends() {
    let rows: &[Row<Option<&[u8]>>] = &[
        (Some(b"29"), [29, 29], &[]),
        (Some(b"12345678"), [12_345_678, 12_345_678], &[]),
        (Some(&29.0_f64.to_le_bytes()), [29, 29], &[]),
        (Some(&0.0_f64.to_le_bytes()), [0, 0], &[]),
        (Some(&1e300_f64.to_le_bytes()), [u32::MAX, u32::MAX], &[]),
        (Some(&29_u64.to_le_bytes()), [29, 29], &[]),
        (Some(&5_000_000_000_u64.to_le_bytes()), [u32::MAX, u32::MAX], &[]),
        (Some(&4.5_f64.to_le_bytes()), [10, 10], &[UnknownCost]),
        (Some(&(-4.0_f64).to_le_bytes()), [10, 10], &[UnknownCost]),
        (Some(&f64::NAN.to_le_bytes()), [10, 10], &[UnknownCost]),
        (Some(&f64::INFINITY.to_le_bytes()), [10, 10], &[UnknownCost]),
        (Some(b"many"), [10, 10], &[UnknownCost]),
        (None, [10, 10], &[UnknownCost]),
    ];
    for (tokens, used, events) in rows {
        let mut filter = filter(&format!("{BY_METADATA}, {REFUNDS}"));
        let sent = filter.chat();
        filter.host.tokens = tokens.map(<[u8]>::to_vec);
        let left = filter.answer(sent, Some(&[(":status", "200")]));
        assert_eq!(left, "\"chat-minute\";r=90;t=60, \"chat-hour\";r=990;t=3540", "{tokens:?}");
        assert_eq!((filter.used(), filter.events().as_slice()), (*used, *events), "{tokens:?}");
        // A refund is final: the metadata is not read.
        let sent = filter.chat();
        if sent.reply.is_none() {
            let before = filter.used();
            filter.answer(sent, Some(&[(":status", "500")]));
            // Looking has cost 10 units as well.
            assert_eq!(filter.used(), [before[0], before[1] + 10], "{tokens:?}");
        }
    }
}

#[test]
fn a_settlement_that_fails_leaves_the_charge_and_the_headers_of_the_admission() {
    let mut filter = filter(BY_HEADER);
    let sent = filter.chat();
    filter.host.fails = Some(10);
    // The VM remembers its own write, and another's in between is what makes it read.
    filter.limiter = {
        let config = Arc::clone(filter.limiter.config());
        Limiter::new(config)
    };
    let left = filter.answer(sent, Some(&[(":status", "200"), ("x-cost", "4")]));
    assert_eq!(left, "\"chat-minute\";r=90;t=60, \"chat-hour\";r=990;t=3540");
    filter.host.fails = None;
    assert_eq!((filter.used(), filter.events()), ([10, 10], vec![Failed]));
}

#[test]
fn only_an_admitted_request_of_a_known_key_is_settled() {
    let mut filter = filter(&format!("{BY_HEADER}, {REFUNDS}"));
    let admitted = [(); 11].map(|()| filter.chat());
    let settles: Vec<_> = admitted.iter().map(|sent| sent.charged.as_ref().unwrap().is_open).collect();
    assert_eq!(settles, [vec![true; 10], vec![false]].concat());
    for authorization in ["", "Bearer nobody"] {
        let stranger = filter.send("POST", "/chat", authorization);
        assert_eq!(stranger.charged.map(|charged| (charged.cost(), charged.is_open)), Some((1, false)));
    }
    assert!(!filter.send("GET", "/links", "Bearer chat").charged.unwrap().is_open, "another class");
}
