//! A line of an access log, as names and values: JSON, and the text formats of Envoy, Istio, nginx and Apache.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The names and values of a line.
#[derive(Debug, Default)]
pub(super) struct Record<'l>(Vec<(Cow<'l, str>, Cow<'l, str>)>);

/// A value of JSON as a text; an object, a list and null are none.
struct Scalar<'l>(Option<Cow<'l, str>>);

impl<'l> Record<'l> {
    /// Reads a line, whatever a container runtime or kubectl has put before it. The error is that of a line of JSON.
    pub(super) fn read(line: &'l [u8]) -> Result<Self, String> {
        if let Some(record) = str::from_utf8(line).ok().and_then(text) {
            return Ok(record);
        }
        let begin = line.iter().position(|byte| *byte == b'{');
        let Some(json) = begin.and_then(|begin| line.get(begin..)) else {
            return Err(
                "neither a JSON object nor a line of Envoy's, Istio's or nginx's text format".to_owned()
            );
        };
        let record: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        // Docker's json-file has the line in an object of its own.
        match (record.get("log"), record.get("stream")) {
            (Some(inner), Some("stdout" | "stderr")) => {
                Record::read(inner.as_bytes()).map(Record::into_owned)
            }
            _ => Ok(record),
        }
    }

    /// The value of a name. Gateways write "-" for what there is not.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(field, _)| field == name)?;
        Some(value.as_ref()).filter(|value| !matches!(*value, "" | "-"))
    }

    /// The names in the order of the line.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    fn into_owned<'o>(self) -> Record<'o> {
        let owned = |text: Cow<'l, str>| Cow::Owned(text.into_owned());
        Record(self.0.into_iter().map(|(name, value)| (owned(name), owned(value))).collect())
    }
}

/// A line of a text format: `[2026-01-01T00:00:00.000Z] "GET /links HTTP/1.1" 200 …` of Envoy and Istio, and
/// `192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "GET /links HTTP/1.1" 200 …` of nginx and Apache.
fn text(line: &str) -> Option<Record<'_>> {
    let (before, rest) = line.split_once("] \"")?;
    let (before, time) = before.rsplit_once('[')?;
    let (request, rest) = rest.split_once('"')?;
    let mut parts = request.split(' ');
    let (method, path) = (parts.next()?, parts.next()?);
    let (words, quoted) = values(rest);
    let mut fields = vec![("method", method), ("path", path), ("status", words.first()?)];
    if time.contains('/') {
        let address = before.split(" - ").next()?.rsplit(' ').next()?;
        fields.extend([("time_local", time), ("remote_addr", address)]);
        fields.extend(quoted.get(1).map(|agent| ("user_agent", *agent)));
    } else {
        fields.push(("start_time", time));
        // Istio has one more before those of Envoy, and the client's address after them.
        let first = quoted.len().checked_sub(5)?;
        let names = ["x_forwarded_for", "user_agent", "request_id", "authority"];
        fields.extend(names.into_iter().zip(quoted.iter().skip(first).copied()));
        let details = words.get(2).filter(|_| first > 0);
        fields.extend(details.map(|details| ("response_code_details", *details)));
        let client = words.len().checked_sub(3).and_then(|place| words.get(place)).filter(|_| first > 0);
        fields.extend(client.map(|client| ("downstream_remote_address", *client)));
    }
    Some(Record(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect()))
}

/// The words of a text, and what stands in quotation marks.
fn values(mut text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut words, mut quoted) = (Vec::new(), Vec::new());
    loop {
        text = text.trim_start();
        let (list, value, rest) = match text.strip_prefix('"') {
            Some(inner) => {
                let (value, rest) = inner.split_once('"').unwrap_or((inner, ""));
                (&mut quoted, value, rest)
            }
            None => {
                let (value, rest) = text.split_once(' ').unwrap_or((text, ""));
                (&mut words, value, rest)
            }
        };
        if text.is_empty() {
            return (words, quoted);
        }
        list.push(value);
        text = rest;
    }
}

impl<'de> Deserialize<'de> for Record<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Record<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record<'de>, A::Error> {
                let mut fields = Vec::with_capacity(16);
                while let Some((name, value)) = map.next_entry::<Scalar<'de>, Scalar<'de>>()? {
                    fields.push((name.0.unwrap_or_default(), value.0.unwrap_or_default()));
                }
                Ok(Record(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyScalar;

        macro_rules! display {
            ($($visit:ident $type:ty),*) => {
                $(fn $visit<E>(self, value: $type) -> Result<Self::Value, E> {
                    Ok(Scalar(Some(value.to_string().into())))
                })*
            };
        }

        impl<'de> Visitor<'de> for AnyScalar {
            type Value = Scalar<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            display!(visit_bool bool, visit_u64 u64, visit_i64 i64, visit_f64 f64, visit_str &str);

            fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
                Ok(Scalar(Some(value.into())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Scalar(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar(None))
            }
        }

        deserializer.deserialize_any(AnyScalar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_behind_whatever_stands_before_it() {
        const JSON: &str =
            r#"{"path":"/a","n":1.5,"none":null,"list":[1],"object":{"path":"/b"},"é":"\u00e9"}"#;
        let docker =
            serde_json::json!({"log": format!("{JSON}\n"), "stream": "stdout", "time": "x"}).to_string();
        for line in [
            JSON.to_owned(),
            format!("2026-01-01T00:00:00.123456789Z stdout F {JSON}"),
            format!("[pod/envoy-abc/envoy] {JSON}"),
            format!("envoy-1  | {JSON}\r\n"),
            docker,
        ] {
            let record = Record::read(line.as_bytes()).unwrap();
            let found = ["path", "n", "none", "list", "object", "é"].map(|name| record.get(name));
            assert_eq!(found, [Some("/a"), Some("1.5"), None, None, None, Some("é")], "{line}");
            assert_eq!(record.names().count(), 6, "{line}");
        }
        for line in ["", "GET /", "{", "[1]", "[2026-01-01T00:00:00Z] \"", "[x] \"GET\" 200"] {
            assert!(Record::read(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn text_formats_have_the_names_of_their_fields() {
        let envoy = r#"[2026-01-01T00:00:01.500Z] "GET /a?b HTTP/1.1" 429 - 0 59 2 - "203.0.113.9" "curl/8" "id" "api.test" "-""#;
        let istio = r#"[2026-01-01T00:00:01.500Z] "GET /a?b HTTP/2" 429 - weir_rate_limited - "-" 0 59 0 - "203.0.113.8" "curl/8" "id" "api.test" "10.0.0.1:80" inbound|80|| 127.0.0.6:1 10.0.0.2:80 203.0.113.9:4000 - default"#;
        let nginx =
            r#"203.0.113.9 - a b [01/Jan/2026:00:00:01 +0000] "GET /a?b HTTP/1.1" 429 2 "-" "curl/8""#;
        let names = [
            "start_time",
            "time_local",
            "path",
            "status",
            "x_forwarded_for",
            "user_agent",
            "authority",
            "remote_addr",
            "downstream_remote_address",
        ];
        let time = Some("2026-01-01T00:00:01.500Z");
        let rest = [Some("/a?b"), Some("429")];
        let agent = Some("curl/8");
        let rows = [
            (envoy, [time, None, rest[0], rest[1], Some("203.0.113.9"), agent, Some("api.test"), None, None]),
            (
                istio,
                [
                    time,
                    None,
                    rest[0],
                    rest[1],
                    Some("203.0.113.8"),
                    agent,
                    Some("api.test"),
                    None,
                    Some("203.0.113.9:4000"),
                ],
            ),
            (
                nginx,
                [
                    None,
                    Some("01/Jan/2026:00:00:01 +0000"),
                    rest[0],
                    rest[1],
                    None,
                    agent,
                    None,
                    Some("203.0.113.9"),
                    None,
                ],
            ),
        ];
        for (line, expected) in rows {
            for line in [line.to_owned(), format!("[pod/a/b] {line}\n")] {
                let record = Record::read(line.as_bytes()).unwrap();
                assert_eq!(names.map(|name| record.get(name)), expected, "{line}");
            }
        }
    }
}
