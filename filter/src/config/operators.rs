//! The operators' endpoints: where they are, and the tokens of those who may call them.

use super::digest::{KeyHash, digest};
use super::leaf::{Name, OperatorsPath};
use crate::count::fingerprint::KeyDigest;
use crate::read::error::{At as _, ConfigError, differ};
use crate::read::{NonEmpty, fields};

fields! {
    /// Endpoints at which operators see where a subscriber stands, and reset a quota.
    pub struct OperatorSettings as "Operators" derive(Clone, Debug, PartialEq, Eq) checked by check {
        /// Path above the endpoints. The filter answers 404 to all other paths. Its segments have `A-Z`, `a-z`, `0-9`, `_` and `-`.
        pub path: OperatorsPath = "/weir",
        /// Bearer tokens of the operators. With two at a time, a token can be replaced without a gap.
        tokens: NonEmpty<Token>,
    }
}

fields! {
    /// A bearer token of an operator.
    struct Token as "OperatorToken" derive(Clone, Debug, PartialEq, Eq) {
        /// Unique name, which the audit line states: 1 to 32 of `a-z`, `0-9`, `_` and `-`.
        name: Name,
        /// SHA-256 of the token, as `sha256:` and 64 hexadecimal digits. A plain token is refused.
        token: KeyHash,
    }
}

impl OperatorSettings {
    /// Checks what tokens have to differ in.
    fn check(&self) -> Result<(), ConfigError> {
        let NonEmpty(tokens) = &self.tokens;
        differ("name", tokens.iter().map(|token| token.name.as_bytes()))
            .and_then(|()| differ("token", tokens.iter().map(|token| token.token.0.as_slice())))
            .at("tokens")
    }

    /// The name of the operator who has this token.
    #[must_use]
    pub fn operator(&self, token: &[u8]) -> Option<&str> {
        let given = digest(token);
        let NonEmpty(tokens) = &self.tokens;
        // All tokens are compared, whichever is given.
        tokens.iter().fold(
            None,
            |found, Token { name, token }| {
                if is_same(&token.0, &given) { Some(&**name) } else { found }
            },
        )
    }
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
        let operators = config.unwrap().settings.operators.unwrap();
        assert_eq!(&*operators.path, "/weir");
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
            (
                token(&format!(r#""name": "a", "token": "sha256:{}""#, "a".repeat(64))),
                "operators.tokens[1].name: given twice",
            ),
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
                "operators.tokens[1].*: unknown field, expected name, token",
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
