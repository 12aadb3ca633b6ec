//! What the ledger answers to one statement.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// What the ledger answers to one statement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub enum Answer {
    /// The holder's share.
    Share(Share),
    /// The counter was reset under this number since the count began: the count begins again.
    Reset(u64),
    /// The statement was refused; the others of its request count.
    Refused(ItemError),
}

/// A holder's share, and what the others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Units that the holder may use in this window, in all.
    pub share: u32,
    /// Units that all others hold; `u32::MAX` if there are more.
    pub others: u32,
    /// The counter's reset number.
    pub reset: u64,
    /// Whether the store may have lost what others hold, so that nothing is granted yet.
    pub settling: bool,
}

/// Why an item was refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ItemError {
    /// For machines.
    pub code: Cow<'static, str>,
    /// The field that is wrong, if one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<Cow<'static, str>>,
    /// For people.
    pub message: String,
}

impl ItemError {
    /// The code of a statement about another window than the present one, by the ledger's clock.
    pub const CLOCK: &str = "clock";
}

/// An answer as JSON has it.
#[derive(Deserialize, Serialize)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<u64>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    settling: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

impl TryFrom<Fields> for Answer {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<Self, Self::Error> {
        match fields {
            Fields { error: Some(error), .. } => Ok(Self::Refused(error)),
            Fields { share: Some(share), others: Some(others), reset: Some(reset), settling, .. } => {
                Ok(Self::Share(Share { share, others, reset, settling }))
            }
            Fields { share: None, others: None, reset: Some(reset), .. } => Ok(Self::Reset(reset)),
            _ => Err("expected share, others and reset, or reset, or error"),
        }
    }
}

impl From<Answer> for Fields {
    fn from(answer: Answer) -> Self {
        let none = Self { share: None, others: None, reset: None, settling: false, error: None };
        match answer {
            Answer::Share(Share { share, others, reset, settling }) => {
                Self { share: Some(share), others: Some(others), reset: Some(reset), settling, ..none }
            }
            Answer::Reset(reset) => Self { reset: Some(reset), ..none },
            Answer::Refused(error) => Self { error: Some(error), ..none },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_share_a_reset_number_or_an_error() {
        let share = Share { share: 117, others: 20, reset: 0, settling: false };
        let error = ItemError { code: "clock".into(), field: None, message: "it is 7".into() };
        let rows = [
            (r#"{"share":117,"others":20,"reset":0}"#, Answer::Share(share)),
            (
                r#"{"share":117,"others":20,"reset":0,"settling":true}"#,
                Answer::Share(Share { settling: true, ..share }),
            ),
            (r#"{"reset":1764081180000}"#, Answer::Reset(1_764_081_180_000)),
            (r#"{"error":{"code":"clock","message":"it is 7"}}"#, Answer::Refused(error)),
        ];
        for (json, answer) in rows {
            assert_eq!(serde_json::from_str::<Answer>(json).unwrap(), answer);
            assert_eq!(serde_json::to_string(&answer).unwrap(), json);
        }
        for json in [r#"{"share":117,"reset":0}"#, r#"{"others":20}"#, "{}"] {
            let error = serde_json::from_str::<Answer>(json).unwrap_err().to_string();
            assert!(error.contains("expected share, others and reset"), "{json}: {error}");
        }
    }
}
