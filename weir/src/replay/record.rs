//! A line of an access log, as names and values: JSON, and the text formats of Envoy, Istio, nginx and Apache.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The names and values of a line.
#[derive(Debug, Default)]
pub(super) struct Record<'l>(Vec<(Cow<'l, str>, Cow<'l, str>)>);

impl<'l> Record<'l> {
    /// Reads a line, whatever a container runtime or kubectl has put before it. The error is that of a line of JSON.
    pub(super) fn read(line: &'l [u8]) -> Result<Self, String> {
        if let Some(record) = str::from_utf8(line).ok().and_then(text) {
            return Ok(record);
        }
        let begin = line.iter().position(|byte| *byte == b'{');
        let Some(json) = begin.and_then(|begin| line.get(begin..)) else {
            return Err("neither a JSON object nor a line of Envoy's, Istio's or nginx's text format".into());
        };
        let values: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let values = values.into_iter().filter_map(|(name, value)| Some((name, scalar(value.get())?)));
        let record = Self(values.collect());
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

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    fn into_owned<'o>(self) -> Record<'o> {
        let owned = |text: Cow<'l, str>| Cow::Owned(text.into_owned());
        Record(self.0.into_iter().map(|(name, value)| (owned(name), owned(value))).collect())
    }
}

/// A value of JSON as a text; an object, a list and null are none.
fn scalar(json: &str) -> Option<Cow<'_, str>> {
    match json.as_bytes().first()? {
        b'{' | b'[' | b'n' => None,
        b'"' if json.contains('\\') => serde_json::from_str(json).ok().map(Cow::Owned),
        b'"' => Some(json.trim_matches('"').into()),
        _ => Some(json.into()),
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
        let is_istio = first > 0;
        fields.extend(words.get(if is_istio { 6 } else { 4 }).map(|took| ("duration", *took)));
        if is_istio {
            let client = words.len().checked_sub(3).and_then(|place| words.get(place));
            fields.extend(client.map(|client| ("downstream_remote_address", *client)));
            fields.extend(words.get(2).map(|details| ("response_code_details", *details)));
        }
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
            assert_eq!(record.names().collect::<Vec<_>>(), ["n", "path", "é"], "{line}");
        }
        for line in ["", "GET /", "{", "[1]", "[2026-01-01T00:00:00Z] \"", "[x] \"GET\" 200"] {
            assert!(Record::read(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn text_formats_have_the_names_of_their_fields() {
        let envoy = r#"[2026-01-01T00:00:01.500Z] "GET /a?b HTTP/1.1" 429 - 0 59 21 - "203.0.113.9" "curl/8" "id" "api.test" "-""#;
        let istio = r#"[2026-01-01T00:00:01.500Z] "GET /a?b HTTP/2" 429 - weir_rate_limited - "-" 0 59 7 - "203.0.113.8" "curl/8" "id" "api.test" "10.0.0.1:80" inbound|80|| 127.0.0.6:1 10.0.0.2:80 203.0.113.9:4000 - default"#;
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
            "duration",
        ];
        let time = Some("2026-01-01T00:00:01.500Z");
        let rest = [Some("/a?b"), Some("429")];
        let agent = Some("curl/8");
        let rows = [
            (
                envoy,
                [
                    time,
                    None,
                    rest[0],
                    rest[1],
                    Some("203.0.113.9"),
                    agent,
                    Some("api.test"),
                    None,
                    None,
                    Some("21"),
                ],
            ),
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
                    Some("7"),
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
