//! What operators ask for.

use std::borrow::Cow;

use super::refusal::Refusal;
use crate::config::{OperatorSettings, parse_key};
use crate::count::fingerprint::KeyDigest;
use crate::request::header_pairs::HeaderPairs;
use crate::request::identity::{Credential, in_headers};
use crate::request::path::segments;
use crate::request::query;

/// Most characters of a request's id that the audit line has.
const MAX_REQUEST_ID: usize = 128;

/// What an operator asks for: to see where a subscriber stands, or to reset a quota first.
#[derive(Debug)]
pub(super) struct Call<'r> {
    /// The name of the operator's token.
    pub(super) operator: &'r str,
    pub(super) subscriber: String,
    /// The only key that the operator asks about.
    pub(super) key: Option<KeyDigest>,
    /// The names of the class and of the quota to reset.
    pub(super) reset: Option<(String, String)>,
    pub(super) request_id: Option<String>,
}

impl<'r> Call<'r> {
    /// Reads a request to the operators' listener. Below their path nothing but its token is looked at before that is known.
    pub(super) fn read(operators: &'r OperatorSettings, headers: HeaderPairs<'_>) -> Result<Self, Refusal> {
        let path = headers.get(":path").unwrap_or_default();
        let mut below = segments(path);
        if !segments(operators.path.as_bytes()).all(|segment| below.next() == Some(segment)) {
            return Err(Refusal::NoEndpoint);
        }
        let Credential::Key(token) = in_headers(headers, "authorization", Some("Bearer")) else {
            return Err(Refusal::NoOperator);
        };
        let operator = operators.operator(&token).ok_or(Refusal::NoOperator)?;
        let below: Vec<_> = below.collect();
        let below: Vec<&[u8]> = below.iter().map(AsRef::as_ref).collect();
        let (subscriber, allow, is_reset) = match below.as_slice() {
            [b"subscribers", subscriber] => (subscriber, "GET, HEAD", false),
            [b"subscribers", subscriber, b"reset"] => (subscriber, "POST", true),
            _ => return Err(Refusal::NoEndpoint),
        };
        let method = headers.get(":method").unwrap_or_default();
        if !allow.split(", ").any(|allowed| allowed.as_bytes() == method) {
            return Err(Refusal::Method { allow });
        }
        let required =
            |name, expected| parameter(path, name)?.ok_or_else(|| Refusal::parameter(name, expected));
        let id = headers.get("x-request-id").map(String::from_utf8_lossy);
        Ok(Self {
            operator,
            subscriber: str::from_utf8(subscriber).map_err(|_| Refusal::NoSubscriber)?.to_owned(),
            reset: match is_reset {
                false => None,
                true => Some((
                    required("class", "the name of a class")?,
                    required("quota", "the name of a quota of the class")?,
                )),
            },
            key: parameter(path, "key")?
                .map(|key| parse_key(&key))
                .transpose()
                .map_err(|_| Refusal::parameter("key", r#""sha256:" and 64 hexadecimal digits"#))?,
            request_id: id.map(|id| id.chars().take(MAX_REQUEST_ID).collect()),
        })
    }
}

/// The value of a query parameter. One that is empty counts as absent.
fn parameter(path: &[u8], name: &'static str) -> Result<Option<String>, Refusal> {
    let mut values = query::values(path, name).filter(|value| !value.is_empty());
    let value = values.next().map(Cow::into_owned).map(String::from_utf8).transpose();
    match values.next() {
        Some(_) => Err(Refusal::parameter(name, "one value")),
        None => value.map_err(|_| Refusal::parameter(name, "UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;
    use crate::request::header_pairs::serialize;

    const HASH: &str = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn operators() -> OperatorSettings {
        let json = format!(
            r#"{{"plans": {{"free": {{"standard": ["1/day"]}}}},
                "operators": {{"path": "/ops/weir", "tokens": [{{"name": "on-call", "token": "{HASH}"}}]}}}}"#
        );
        Config::from_json(json.as_bytes()).unwrap().settings.operators.unwrap()
    }

    fn read(method: &str, path: &[u8], authorization: &[u8]) -> Result<String, Refusal> {
        let headers =
            serialize(&[(":method", method.as_bytes()), (":path", path), ("authorization", authorization)]);
        let operators = operators();
        let call = Call::read(&operators, HeaderPairs::parse(&headers).unwrap())?;
        assert_eq!(call.operator, "on-call");
        Ok(match call.reset {
            None => format!("see {}", call.subscriber),
            Some((class, quota)) => format!("reset {class}/{quota} of {}", call.subscriber),
        })
    }

    #[test]
    fn an_operator_names_a_subscriber_and_a_quota() {
        let parameter = |name, expected: &str| Err(Refusal::parameter(name, expected));
        let rows = [
            ("GET", "/ops/weir/subscribers/acme", Ok("see acme")),
            ("HEAD", "/ops/weir/subscribers/acme/?x=1#y", Ok("see acme")),
            ("GET", "/ops/weir/subscribers/a%2Fb%20c+d", Ok("see a/b c+d")),
            ("GET", "/%6fps/weir/subscribers/caf%C3%A9", Ok("see café")),
            ("GET", "/ops/weir/subscribers/%ff", Err(Refusal::NoSubscriber)),
            ("POST", "/ops/weir/subscribers/a/reset?class=c&quota=q", Ok("reset c/q of a")),
            ("POST", "/ops/weir/subscribers/a%2Freset/reset/?quota=q&class=c", Ok("reset c/q of a/reset")),
            (
                "POST",
                "/ops/weir/subscribers/a/reset?class=c",
                parameter("quota", "the name of a quota of the class"),
            ),
            (
                "POST",
                "/ops/weir/subscribers/a/reset?quota=c&class=",
                parameter("class", "the name of a class"),
            ),
            (
                "POST",
                "/ops/weir/subscribers/a/reset?quota=c&quota=d&class=c",
                parameter("quota", "one value"),
            ),
            ("POST", "/ops/weir/subscribers/a/reset?quota=%ff&class=c", parameter("quota", "UTF-8")),
            (
                "GET",
                "/ops/weir/subscribers/a?key=s3cret",
                parameter("key", r#""sha256:" and 64 hexadecimal digits"#),
            ),
            ("GET", "/ops/weir/subscribers/a/reset?class=c&quota=q", Err(Refusal::Method { allow: "POST" })),
            ("POST", "/ops/weir/subscribers/a", Err(Refusal::Method { allow: "GET, HEAD" })),
            ("DELETE", "/ops/weir/subscribers/a", Err(Refusal::Method { allow: "GET, HEAD" })),
            ("GET", "/ops/weir/subscribers", Err(Refusal::NoEndpoint)),
            ("GET", "/ops/weir/subscribers/a/b/c", Err(Refusal::NoEndpoint)),
            ("GET", "/ops/weir", Err(Refusal::NoEndpoint)),
            ("GET", "/ops/weirs/subscribers/a", Err(Refusal::NoEndpoint)),
            ("GET", "/ops/weir/../weir/subscribers/a", Err(Refusal::NoEndpoint)),
            ("GET", "//ops/weir/subscribers/a", Err(Refusal::NoEndpoint)),
            ("GET", "/", Err(Refusal::NoEndpoint)),
        ];
        for (method, path, expected) in rows {
            let found = read(method, path.as_bytes(), b"Bearer secret");
            assert_eq!(found.as_deref(), expected.as_ref().copied(), "{method} {path}");
        }
    }

    #[test]
    fn without_a_token_all_paths_below_the_operators_are_alike() {
        let tokens =
            ["", "secret", "Basic secret", "Bearer", "Bearer Secret", "Bearer secret,Bearer secret", HASH];
        for path in ["/ops/weir", "/ops/weir/subscribers/acme", "/ops/weir/subscribers/a/reset"] {
            for token in tokens {
                let found = read("GET", path.as_bytes(), token.as_bytes());
                assert_eq!(found, Err(Refusal::NoOperator), "{path} {token}");
            }
        }
        assert_eq!(read("GET", b"/links", b""), Err(Refusal::NoEndpoint));
    }

    proptest! {
        #[test]
        fn no_path_is_too_odd(path in prop::collection::vec(prop::num::u8::ANY, 0..40), below in prop::bool::ANY) {
            let prefix = if below { &b"/ops/weir/subscribers/"[..] } else { b"" };
            let _ = read("POST", &[prefix, &path].concat(), b"Bearer secret");
        }
    }
}
