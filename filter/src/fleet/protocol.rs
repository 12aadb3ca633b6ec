//! The messages of Envoy's rate-limit service protocol, `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`, as far as leases
//! need them, and their gRPC frame.
//!
//! They are written by hand: one message out and one in, of few fields each, take 6.5 KB of the module. The fleet suites exchange the same
//! bytes with services that use the protocol's generated types.

use core::fmt::Write as _;

use crate::fleet::protobuf::{Fields, Value, push_bytes, push_number};
use crate::request::header_pairs::HeaderPairs;
use crate::time::Timestamp;
use crate::window::Window;

/// `:path` of the call.
pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Who is counted, as every gateway of a fleet names it: the first 16 bytes of SHA-256 of domain and bearer.
pub type FleetId = [u8; 16];

/// One descriptor and the units that are asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The domain that the service's counters belong to.
    pub domain: &'a str,
    /// The class.
    pub class: &'a str,
    /// The window of the quota: a second, minute, hour or day.
    pub window: Window,
    /// The plan, if the service has limits of its own for each.
    pub plan: Option<&'a str>,
    /// The window's place in time, if the service does not align windows.
    pub index: Option<u32>,
    /// Whose quota.
    pub who: &'a FleetId,
    /// The limit, if the service has none of its own.
    pub limit: Option<u32>,
    /// `hits_addend`
    pub units: u32,
}

/// The service's answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// What the service granted.
    pub grant: Grant,
    /// Whole seconds of `duration_until_reset`, which Limitador does not send.
    pub until_reset: Option<u64>,
}

/// What the service granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The units that were asked for.
    Units {
        /// `limit_remaining`, which Limitador does not send.
        left: Option<u32>,
    },
    /// No units: more was asked for than was left. envoyproxy/ratelimit adds first, so that what was left is used up.
    OverLimit {
        /// `limit_remaining`, which Limitador does not send.
        left: Option<u32>,
    },
    /// Any number of units: OK without `current_limit`, and with 2³²−1 remaining.
    Unlimited,
    /// Nothing: OK without `current_limit`. The service has no limit for the descriptor.
    Unconfigured,
}

impl Response {
    /// The place in time of the window that the answer, which arrived at `now`, is about. `None` if the answer does not name a window,
    /// or names one by whole seconds that is itself a second long.
    #[must_use]
    pub fn window_index(self, window: Window, now: Timestamp) -> Option<u32> {
        let Window::Seconds(length) = window else { return None };
        let length = u64::from(length.get());
        let end = now.seconds().checked_add(self.until_reset.filter(|_| length > 1)?)?;
        // The answer took its time, and the clocks differ: the window ends at the nearest boundary.
        let boundary = end.checked_add(length / 2)? / length;
        u32::try_from(boundary.checked_sub(1)?).ok()
    }
}

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// None in time, or no connection.
    #[error("the rate-limit service did not answer")]
    None,
    /// The gateway did not send the call: its circuit breaker for the cluster is full. Envoy answers such a call itself.
    #[error("the circuit breaker of the rate-limit service's cluster is full")]
    Overloaded,
    /// A status other than 200.
    #[error("the rate-limit service answered HTTP status {0}")]
    Http(String),
    /// A gRPC status other than 0.
    #[error("the rate-limit service answered gRPC status {0}")]
    Grpc(String),
    /// A body that is not a message of the protocol.
    #[error("the rate-limit service sent a malformed RateLimitResponse")]
    Malformed,
    /// Neither OK nor OVER_LIMIT.
    #[error("the rate-limit service answered with code {0}")]
    Code(u64),
}

/// Bytes before a message: a flag for compression, and its length.
const FRAME: usize = 5;

impl Request<'_> {
    /// The body of the call: a `RateLimitRequest` in its gRPC frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut who = String::with_capacity(32);
        for byte in self.who {
            // Writing to a String cannot fail.
            let _ = write!(who, "{byte:02x}");
        }
        let mut index = itoa::Buffer::new();
        let entries = [
            Some(("class", self.class)),
            Some(("window", unit_name(self.window))),
            self.plan.map(|plan| ("plan", plan)),
            self.index.map(|place| ("index", index.format(place))),
            Some(("who", who.as_str())),
        ];
        let mut descriptor = Vec::with_capacity(160);
        for (name, value) in entries.into_iter().flatten() {
            let mut entry = Vec::with_capacity(64);
            push_bytes(&mut entry, 1, name.as_bytes());
            push_bytes(&mut entry, 2, value.as_bytes());
            push_bytes(&mut descriptor, 1, &entry);
        }
        if let Some(limit) = self.limit {
            let mut allowance = Vec::with_capacity(8);
            push_number(&mut allowance, 1, limit.into());
            push_number(&mut allowance, 2, unit(self.window));
            push_bytes(&mut descriptor, 2, &allowance);
        }
        let mut message = vec![0; FRAME];
        push_bytes(&mut message, 1, self.domain.as_bytes());
        push_bytes(&mut message, 2, &descriptor);
        push_number(&mut message, 3, self.units.into());
        let length = u32::try_from(message.len().saturating_sub(FRAME)).unwrap_or(u32::MAX);
        if let Some([_, rest @ ..]) = message.first_chunk_mut::<FRAME>() {
            *rest = length.to_be_bytes();
        }
        message
    }
}

/// `envoy.type.v3.RateLimitUnit`; 0 for a window that the protocol has no unit for.
fn unit(window: Window) -> u64 {
    match window {
        Window::SECOND => 1,
        Window::MINUTE => 2,
        Window::HOUR => 3,
        Window::DAY => 4,
        Window::Seconds(_) | Window::CalendarMonth => 0,
    }
}

fn unit_name(window: Window) -> &'static str {
    match window {
        Window::SECOND => "second",
        Window::MINUTE => "minute",
        Window::HOUR => "hour",
        Window::DAY => "day",
        Window::Seconds(_) | Window::CalendarMonth => "",
    }
}

impl Response {
    /// Reads the answer of a call: its headers, its body and its trailers.
    ///
    /// # Errors
    /// If it is none of use.
    pub fn read(headers: &[u8], body: &[u8], trailers: &[u8]) -> Result<Self, Unusable> {
        let headers = HeaderPairs::parse(headers).ok_or(Unusable::None)?;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        // Envoy answers a gRPC call that it does not send with status 200 and a `grpc-status`.
        let overflow = |message: &[u8]| message.ends_with(b"overflow");
        if headers.get("x-envoy-overloaded").is_some() || headers.get("grpc-message").is_some_and(overflow) {
            return Err(Unusable::Overloaded);
        }
        match headers.get(":status") {
            None => return Err(Unusable::None),
            Some(b"200") => {}
            Some(status) => return Err(Unusable::Http(text(status))),
        }
        let trailers = HeaderPairs::parse(trailers);
        let status = trailers.and_then(|trailers| trailers.get("grpc-status"));
        match status.or_else(|| headers.get("grpc-status")) {
            Some(b"0") => {}
            Some(status) => return Err(Unusable::Grpc(text(status))),
            None => return Err(Unusable::Malformed),
        }
        let ([0, length @ ..], message) = body.split_first_chunk::<FRAME>().ok_or(Unusable::Malformed)?
        else {
            return Err(Unusable::Malformed);
        };
        if usize::try_from(u32::from_be_bytes(*length)) != Ok(message.len()) {
            return Err(Unusable::Malformed);
        }
        Self::decode(message)
    }

    fn decode(message: &[u8]) -> Result<Self, Unusable> {
        let (mut code, mut status) = (0, None);
        for field in Fields(message) {
            match field.ok_or(Unusable::Malformed)? {
                (1, Value::Number(number)) => code = number,
                // One descriptor is asked for, so its status is the first.
                (2, Value::Bytes(bytes)) if status.is_none() => status = Some(bytes),
                _ => {}
            }
        }
        let (mut left, mut until_reset, mut has_limit) = (None, None, false);
        if let Some(status) = status {
            // In this message a number that is absent is 0.
            left = Some(0);
            for field in Fields(status) {
                match field.ok_or(Unusable::Malformed)? {
                    (2, Value::Bytes(_)) => has_limit = true,
                    (3, Value::Number(number)) => left = Some(u32::try_from(number).unwrap_or(u32::MAX)),
                    (4, Value::Bytes(duration)) => until_reset = Some(seconds(duration)?),
                    _ => {}
                }
            }
        }
        let grant = match (code, left) {
            (1, Some(u32::MAX)) if !has_limit => Grant::Unlimited,
            (1, Some(_)) if !has_limit => Grant::Unconfigured,
            (1, left) => Grant::Units { left },
            (2, left) => Grant::OverLimit { left },
            (code, _) => return Err(Unusable::Code(code)),
        };
        Ok(Self { grant, until_reset })
    }
}

/// `google.protobuf.Duration.seconds`
fn seconds(duration: &[u8]) -> Result<u64, Unusable> {
    let mut seconds = 0;
    for field in Fields(duration) {
        if let (1, Value::Number(number)) = field.ok_or(Unusable::Malformed)? {
            seconds = number;
        }
    }
    Ok(seconds)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a service reads of a call: the descriptor's entries, its limit and the units.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Received {
        pub(crate) domain: String,
        pub(crate) entries: Vec<(String, String)>,
        pub(crate) limit: Option<(u64, u64)>,
        pub(crate) units: u64,
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    pub(crate) fn receive(frame: &[u8]) -> Received {
        let mut received = Received::default();
        for field in Fields(&frame[FRAME..]).map(Option::unwrap) {
            match field {
                (1, Value::Bytes(domain)) => received.domain = text(domain),
                (2, Value::Bytes(descriptor)) => {
                    for field in Fields(descriptor).map(Option::unwrap) {
                        match field {
                            (1, Value::Bytes(entry)) => {
                                let parts: Vec<_> = Fields(entry)
                                    .map(|field| match field {
                                        Some((_, Value::Bytes(part))) => text(part),
                                        _ => panic!("an entry has two texts"),
                                    })
                                    .collect();
                                received.entries.push((parts[0].clone(), parts[1].clone()));
                            }
                            (2, Value::Bytes(limit)) => {
                                let numbers: Vec<_> = Fields(limit)
                                    .map(|field| match field {
                                        Some((_, Value::Number(number))) => number,
                                        _ => panic!("a limit has two numbers"),
                                    })
                                    .collect();
                                received.limit = Some((numbers[0], numbers[1]));
                            }
                            _ => panic!("a descriptor has entries and a limit"),
                        }
                    }
                }
                (3, Value::Number(units)) => received.units = units,
                _ => panic!("a request has a domain, descriptors and units"),
            }
        }
        received
    }

    fn request(plan: Option<&str>, index: Option<u32>, limit: Option<u32>) -> Received {
        let request = Request {
            domain: "weir",
            class: "standard",
            window: Window::MINUTE,
            plan,
            index,
            who: &[0xab; 16],
            limit,
            units: 300,
        };
        let frame = request.encode();
        assert_eq!(frame[..FRAME], [0, 0, 0, 0, u8::try_from(frame.len() - FRAME).unwrap()]);
        receive(&frame)
    }

    #[test]
    fn a_request_names_class_window_and_bearer_and_only_what_else_its_service_needs() {
        let who = "ab".repeat(16);
        let rows = [
            (None, None, Some(600), "class=standard window=minute"),
            (Some("pro"), None, None, "class=standard window=minute plan=pro"),
            (Some("pro"), Some(7), None, "class=standard window=minute plan=pro index=7"),
        ];
        for (plan, index, limit, entries) in rows {
            let received = request(plan, index, limit);
            let named: Vec<_> =
                received.entries.iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(named.join(" "), format!("{entries} who={who}"));
            assert_eq!((received.domain.as_str(), received.units), ("weir", 300));
            assert_eq!(received.limit, limit.map(|limit| (limit.into(), 2)));
        }
    }

    fn frame(message: &[u8]) -> Vec<u8> {
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend(message);
        frame
    }

    #[test]
    fn an_answer_is_read_whole_and_anything_else_is_an_error_that_says_what_it_is() {
        use crate::request::header_pairs::serialize;
        let ok = [(":status", &b"200"[..])];
        let done = [("grpc-status", &b"0"[..])];
        // OK; one status: OK, a limit, 7 left, 41 seconds; unknown fields in between.
        let granted = frame(&[
            8, 1, 0x12, 12, 8, 1, 0x12, 2, 8, 60, 0x18, 7, 0x22, 2, 8, 41, 0x1a, 1, 0, 0x25, 0, 0, 0, 0,
        ]);
        let units = Ok(Response { grant: Grant::Units { left: Some(7) }, until_reset: Some(41) });
        let without_reset = |grant| Ok(Response { grant, until_reset: None });
        let unlimited = frame(&[8, 1, 0x12, 8, 8, 1, 0x18, 0xff, 0xff, 0xff, 0xff, 0xf]);
        let (ok, done) = (serialize(&ok), serialize(&done));
        let both = serialize(&[(":status", b"200"), ("grpc-status", b"0")]);
        let status = |status: &'static [u8]| serialize(&[(":status", status)]);
        let grpc = |status: &'static [u8]| serialize(&[("grpc-status", status)]);
        let none = serialize(&[]);
        let overloaded = serialize(&[(":status", b"503"), ("x-envoy-overloaded", b"true")]);
        let message = b"upstream connect error or disconnect/reset before headers. reset reason: overflow";
        let overflow = serialize(&[(":status", b"200"), ("grpc-status", b"14"), ("grpc-message", message)]);
        let rows = [
            (&ok, granted.clone(), &done, units.clone()),
            (&both, granted.clone(), &none, units),
            (&ok, frame(&[8, 2, 0x12, 2, 8, 2]), &done, without_reset(Grant::OverLimit { left: Some(0) })),
            (&ok, frame(&[8, 2]), &done, without_reset(Grant::OverLimit { left: None })),
            (&ok, frame(&[8, 1]), &done, without_reset(Grant::Units { left: None })),
            (&ok, frame(&[8, 1, 0x12, 2, 8, 1]), &done, without_reset(Grant::Unconfigured)),
            (&ok, unlimited, &done, without_reset(Grant::Unlimited)),
            (&none, vec![], &none, Err(Unusable::None)),
            (&status(b"504"), vec![], &none, Err(Unusable::Http("504".to_owned()))),
            (&overloaded, vec![], &none, Err(Unusable::Overloaded)),
            (&overflow, vec![], &none, Err(Unusable::Overloaded)),
            (&ok, granted.clone(), &grpc(b"14"), Err(Unusable::Grpc("14".to_owned()))),
            (&ok, granted.clone(), &none, Err(Unusable::Malformed)),
            (&ok, vec![], &done, Err(Unusable::Malformed)),
            (&ok, granted[..7].to_vec(), &done, Err(Unusable::Malformed)),
            (&ok, [&[1], &granted[1..]].concat(), &done, Err(Unusable::Malformed)),
            (&ok, frame(&[0x12, 9, 8]), &done, Err(Unusable::Malformed)),
            (&ok, frame(b""), &done, Err(Unusable::Code(0))),
            (&ok, frame(&[8, 9]), &done, Err(Unusable::Code(9))),
        ];
        for (headers, body, trailers, expected) in rows {
            assert_eq!(Response::read(headers, &body, trailers), expected, "{body:?}");
        }
    }

    #[test]
    fn an_answer_names_the_window_that_ends_nearest() {
        let rows = [
            // milliseconds, seconds until reset, the window's place
            (Window::MINUTE, 59_990, 1, Some(0)),
            (Window::MINUTE, 60_010, 1, Some(0)),
            (Window::MINUTE, 60_010, 60, Some(1)),
            (Window::MINUTE, 59_600, 60, Some(1)),
            (Window::MINUTE, 61_500, 60, Some(1)),
            (Window::SECOND, 1_500, 1, None),
        ];
        for (window, milliseconds, until_reset, expected) in rows {
            let response = Response { grant: Grant::Unlimited, until_reset: Some(until_reset) };
            let now = Timestamp::from_nanos(milliseconds * 1_000_000);
            assert_eq!(response.window_index(window, now), expected, "{milliseconds} {until_reset}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd_for_an_answer(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let headers = crate::request::header_pairs::serialize(&[(":status", b"200"), ("grpc-status", b"0")]);
            let _ = Response::read(&headers, &frame(&bytes), b"");
            let _ = Response::read(&headers, &bytes, &bytes);
        }
    }
}
