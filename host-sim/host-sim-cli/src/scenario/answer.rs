//! What upstreams and clusters answer: once, or one after the other.

use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

use host_sim::Response;
use jiff::SignedDuration;
use serde::{
    Deserialize, Deserializer,
    de::{
        Error, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

use super::message::message;

message! {
    /// What an upstream or a cluster answers.
    #[derive(Debug, Clone, Deserialize)]
    pub struct Answer as Response {
        /// The status.
        #[serde(default = "ok")]
        pub status: u16,
        /// Instead of a body: the one message of an answer of gRPC, whose trailers say that it is fine.
        pub grpc_message: Option<String>,
        /// Instead of a body: the status of an answer of gRPC that is not fine.
        pub grpc_status: Option<u32>,
        /// How late it comes, as in `2s`; at once unless given.
        #[serde(default, deserialize_with = "delay")]
        pub after: Option<SignedDuration>,
        /// Instead of an answer: the connection is broken off.
        #[serde(default)]
        pub reset: bool,
        /// Instead of an answer: something that is no HTTP.
        #[serde(default)]
        pub malformed: bool,
        /// Instead of an answer: there is none, until the filter's time-out or the route's.
        #[serde(default)]
        pub never: bool,
    }
}

fn ok() -> u16 {
    200
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            status: ok(),
            headers: BTreeMap::new(),
            body: String::new(),
            chunked: false,
            trailers: BTreeMap::new(),
            grpc_message: None,
            grpc_status: None,
            chunks: Vec::new(),
            after: None,
            reset: false,
            malformed: false,
            never: false,
        }
    }
}

impl Answer {
    /// Whether it is one of gRPC.
    pub fn is_grpc(&self) -> bool {
        self.grpc_message.is_some() || self.grpc_status.is_some()
    }

    /// The response that it describes.
    pub fn response(&self) -> Response {
        if self.reset {
            return Response::reset();
        }
        if self.malformed {
            return Response::malformed();
        }
        if self.never {
            return Response::silence();
        }
        let response = match (self.grpc_status, &self.grpc_message) {
            (Some(status), _) => Response::grpc_status(status, ""),
            (None, Some(message)) => Response::grpc(message.clone()),
            (None, None) => self.with_body(Response::new(self.status)),
        };
        let response = self.with_fields(response);
        match self.after {
            Some(after) => response.after(after.unsigned_abs()),
            None => response,
        }
    }
}

/// Answers, in their order.
#[derive(Debug)]
pub(crate) struct Sequence<T = Response> {
    answers: Vec<T>,
    next: AtomicUsize,
}

impl<T: Clone> Sequence<T> {
    pub(crate) fn new(answers: Vec<T>) -> Self {
        Self { answers, next: AtomicUsize::new(0) }
    }

    /// The next answer. The last one is repeated.
    pub(crate) fn next(&self) -> Option<T> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.answers.get(next).or(self.answers.last()).cloned()
    }
}

impl Sequence {
    pub(super) fn of(answers: &Answers) -> Self {
        Self::new(answers.iter().map(Answer::response).collect())
    }

    pub(super) fn next_response(&self) -> Response {
        self.next().unwrap_or_else(Response::ok)
    }
}

/// Answers, in their order; the last goes on.
#[derive(Debug, Clone)]
pub struct Answers(Vec<Answer>);

impl Answers {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Answer> {
        self.0.iter()
    }

    /// Whether they are those of a service of gRPC.
    pub fn are_grpc(&self) -> bool {
        self.0.iter().any(Answer::is_grpc)
    }
}

impl From<Answer> for Answers {
    fn from(answer: Answer) -> Self {
        Self(vec![answer])
    }
}

impl Default for Answers {
    fn default() -> Self {
        Answer::default().into()
    }
}

/// An answer, or a list of them.
impl<'de> Deserialize<'de> for Answers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Answers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an answer, as in {status: 200}, or a list of answers")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Answers, A::Error> {
                Answer::deserialize(MapAccessDeserializer::new(map)).map(Answers::from)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Answers, A::Error> {
                let answers = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                if answers.is_empty() {
                    return Err(A::Error::custom("a list without an answer"));
                }
                Ok(Answers(answers))
            }
        }

        deserializer.deserialize_any(OneOrMore)
    }
}

/// A time with its unit; of a bare number it says what to write.
pub(super) fn duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SignedDuration>, D::Error> {
    struct WithUnit;

    fn bare<E: Error>(number: impl fmt::Display) -> Result<Option<SignedDuration>, E> {
        Err(E::custom(format_args!("{number} has no unit: write {number}s")))
    }

    impl Visitor<'_> for WithUnit {
        type Value = Option<SignedDuration>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a time with its unit, as in 60s or 1h 30m")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            text.parse().map(Some).map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
            bare(number)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
            bare(number)
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
            bare(number)
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }

    deserializer.deserialize_any(WithUnit)
}

fn delay<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SignedDuration>, D::Error> {
    let delay = duration(deserializer)?;
    match delay.filter(SignedDuration::is_negative) {
        Some(negative) => {
            Err(D::Error::custom(format_args!("{negative:#}: an answer follows what it answers")))
        }
        None => Ok(delay),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_their_order_and_the_last_goes_on() {
        let statuses = |text: &str| -> Vec<u16> {
            let sequence = Sequence::of(&serde_saphyr::from_str(text).unwrap());
            (0..4).map(|_| sequence.next_response().status()).collect()
        };
        assert_eq!(statuses("{status: 201}"), [201, 201, 201, 201]);
        assert_eq!(statuses("[{status: 500}, {}, {status: 404}]"), [500, 200, 404, 404]);
    }

    #[test]
    fn what_is_no_answer_or_no_time_is_told() {
        let rows = [
            ("[]", "a list without an answer"),
            ("200", "expected an answer, as in {status: 200}"),
            ("{stauts: 200}", "unknown field `stauts`"),
            ("[{after: 2}]", "2 has no unit: write 2s"),
            ("{after: -2s}", "2s ago: an answer follows what it answers"),
            ("{after: 1.5}", "1.5 has no unit: write 1.5s"),
            ("{after: soon}", "expected a time with its unit, as in 60s"),
        ];
        for (text, expected) in rows {
            let error = serde_saphyr::from_str::<Answers>(text).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
