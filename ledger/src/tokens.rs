//! The bearer tokens that are accepted.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::{Reason, ServeError};

/// How often a token file is read again.
const REREAD: Duration = Duration::from_secs(1);

/// The hash of a token. How long a comparison of hashes takes does not depend on how much of a token is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token([u8; 32]);

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        let token = is_token.then(|| Self(Sha256::digest(text).into()));
        token.ok_or("a token is printable ASCII without white space and commas")
    }
}

/// The tokens that are accepted. Without any, requests need none.
#[derive(Debug)]
pub(crate) struct Tokens {
    accepted: RwLock<Vec<Token>>,
    file: Option<PathBuf>,
}

impl Tokens {
    /// The tokens of a file, or else these.
    pub(crate) fn new(tokens: Vec<Token>, file: Option<PathBuf>) -> Result<Self, ServeError> {
        let accepted = match &file {
            None => tokens,
            Some(path) => read(path)
                .map_err(|error| ServeError::new(format!("--token-file {}", path.display()), error))?,
        };
        Ok(Self { accepted: RwLock::new(accepted), file })
    }

    /// Whether a request with this value of the header `authorization` is served.
    pub(crate) fn accept(&self, authorization: Option<&[u8]>) -> bool {
        let given = authorization.and_then(|value| {
            let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| Token(Sha256::digest(token).into()))
        });
        let accepted = self.accepted.read().unwrap_or_else(PoisonError::into_inner);
        accepted.is_empty() || given.is_some_and(|given| accepted.contains(&given))
    }

    /// Reads the file again and again. While it cannot be used, the tokens stay what they were.
    pub(crate) async fn follow(&self) {
        let Some(path) = &self.file else { return };
        let mut has_failed = false;
        loop {
            tokio::time::sleep(REREAD).await;
            let tokens = read(path);
            if let Err(error) = &tokens
                && !has_failed
            {
                tracing::warn!(file = %path.display(), %error, "the token file cannot be used; the tokens stay");
            }
            has_failed = tokens.is_err();
            if let Ok(tokens) = tokens {
                *self.accepted.write().unwrap_or_else(PoisonError::into_inner) = tokens;
            }
        }
    }
}

/// The tokens of a file, one per line. White space around a token and empty lines are ignored.
fn read(path: &Path) -> Result<Vec<Token>, Reason> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty());
    let tokens = lines.map(|(line, number)| line.parse().map_err(|error| format!("line {number}: {error}")));
    let tokens: Vec<Token> = tokens.collect::<Result<_, _>>()?;
    // It would lock everybody out.
    if tokens.is_empty() { Err("the file has no token".into()) } else { Ok(tokens) }
}
