//! The operators' endpoints: where they are, and the tokens of those who may call them.

use serde::Deserialize;

use super::digest;
use super::error::ConfigError;
use super::plans::{NAME, check_name, is_name};
use super::problem::Problem;
use super::subscribers::parse_key;
use crate::count::fingerprint::KeyDigest;

/// Endpoints at which operators see where a subscriber stands, and reset a quota.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Operators {
    /// Path above the endpoints. The filter answers 404 to all other paths. Its segments have `A-Z`, `a-z`, `0-9`, `_` and `-`.
    #[serde(default = "default_path")]
    path: String,
    /// Bearer tokens of the operators. With two at a time, a token can be replaced without a gap.
    tokens: Vec<OperatorToken>,
}

fn default_path() -> String {
    "/weir".to_owned()
}

/// A bearer token of an operator.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct OperatorToken {
    /// Unique name, which the audit line states: 1 to 32 of `a-z`, `0-9`, `_` and `-`.
    name: String,
    /// SHA-256 of the token, as `sha256:` and 64 hexadecimal digits. A plain token is refused.
    token: String,
}

/// The operators of a configuration that answers them alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSettings {
    /// Path above the endpoints.
    pub path: String,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    name: String,
    digest: KeyDigest,
}

impl OperatorSettings {
    pub(super) fn check(raw: Operators) -> Result<Self, ConfigError> {
        if !is_path(&raw.path) {
            return Err(ConfigError::new("path", Problem::Value { expected: PATH.to_owned() }));
        }
        if raw.tokens.is_empty() {
            return Err(ConfigError::new("tokens", Problem::NoneGiven));
        }
        let mut tokens: Vec<Token> = Vec::with_capacity(raw.tokens.len());
        for (index, raw) in raw.tokens.into_iter().enumerate() {
            let token = check_token(raw, &tokens).map_err(|error| error.within(index).within("tokens"))?;
            tokens.push(token);
        }
        Ok(Self { path: raw.path, tokens })
    }

    /// The name of the operator who has this token.
    #[must_use]
    pub fn operator(&self, token: &[u8]) -> Option<&str> {
        let given = digest(token);
        // All tokens are compared, whichever is given.
        self.tokens.iter().fold(
            None,
            |found, Token { name, digest }| {
                if is_same(digest, &given) { Some(name.as_str()) } else { found }
            },
        )
    }
}

const PATH: &str = "a path of segments of A-Z, a-z, 0-9, _ and -, such as /weir";

fn is_path(path: &str) -> bool {
    let is_segment = |segment: &str| {
        !segment.is_empty()
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    path.strip_prefix('/').is_some_and(|path| path.split('/').all(is_segment))
}

fn check_token(OperatorToken { name, token }: OperatorToken, others: &[Token]) -> Result<Token, ConfigError> {
    check_name(&name, NAME, is_name).map_err(|error| error.within("name"))?;
    if others.iter().any(|other| other.name == name) {
        return Err(ConfigError::new("name", Problem::Duplicate));
    }
    let digest = parse_key(&token).map_err(|problem| ConfigError::new("token", problem))?;
    if others.iter().any(|other| other.digest == digest) {
        return Err(ConfigError::new("token", Problem::Duplicate));
    }
    Ok(Token { name, digest })
}

/// Compares in a time that does not depend on the bytes.
fn is_same(one: &KeyDigest, other: &KeyDigest) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    core::hint::black_box(differ) == 0
}

#[cfg(test)]
mod tests {
    use super::super::tests::with;

    const ONE: &str = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn an_operator_is_known_by_the_hash_of_its_token() {
        let other = format!("sha256:{}", "ab".repeat(32));
        let config = with(&format!(
            r#""operators": {{"tokens": [{{"name": "on-call", "token": "{ONE}"}}, {{"name": "ci", "token": "{other}"}}]}}"#
        ));
        let operators = config.unwrap().operators.unwrap();
        assert_eq!(operators.path, "/weir");
        assert_eq!(operators.operator(b"secret"), Some("on-call"));
        for unknown in ["", "Secret", ONE, &other] {
            assert_eq!(operators.operator(unknown.as_bytes()), None, "{unknown}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field_and_without_what_was_given() {
        let token =
            |fields: &str| format!(r#"{{"tokens": [{{"name": "a", "token": "{ONE}"}}, {{{fields}}}]}}"#);
        let rows = [
            ("{}".to_owned(), "operators: missing field `tokens`"),
            (r#"{"tokens": []}"#.to_owned(), "operators.tokens: must not be empty"),
            (
                token(r#""name": "B", "token": "x""#),
                "operators.tokens[1].name: a name is 1 to 32 of a-z, 0-9, _ and -",
            ),
            (token(r#""name": "a", "token": "x""#), "operators.tokens[1].name: given twice"),
            (
                token(r#""name": "b", "token": "sha256:abc""#),
                r#"operators.tokens[1].token: expected "sha256:" and 64 hexadecimal digits"#,
            ),
            (
                token(r#""name": "b", "token": "secret""#),
                r#"operators.tokens[1].token: keys and tokens are given by their hash and written nowhere as they are; write "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b""#,
            ),
            (
                token(&format!(r#""name": "b", "token": "{}""#, ONE.to_uppercase().replace("SHA", "sha"))),
                "operators.tokens[1].token: given twice",
            ),
            (
                token(r#""name": "b", "key": "secret""#),
                "operators.tokens[1].*: unknown field, expected one of name, token",
            ),
        ];
        for path in ["", "/", "weir", "/weir/", "//weir", "/a/../b", "/a%2Fb", "/secret?"] {
            let operators = format!(r#"{{"path": "{path}", "tokens": [{{"name": "a", "token": "{ONE}"}}]}}"#);
            let expected =
                "operators.path: expected a path of segments of A-Z, a-z, 0-9, _ and -, such as /weir";
            assert_eq!(with(&format!(r#""operators": {operators}"#)).unwrap_err(), expected, "{path}");
        }
        for (operators, expected) in rows {
            assert_eq!(with(&format!(r#""operators": {operators}"#)).unwrap_err(), expected, "{operators}");
        }
    }
}
