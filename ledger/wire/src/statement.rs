//! What a gateway states of one counter in one window.

use serde::{Deserialize, Serialize};

use crate::{EXACT, Hex128};

/// What a gateway states of one counter in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Fields")]
pub struct Statement {
    /// The counter, by a hash that is the same at every gateway.
    pub counter: Hex128,
    /// The index of the window.
    pub window: u32,
    /// When the window begins, in seconds since 1970.
    pub begins: u64,
    /// When it ends, in seconds since 1970; after `begins`.
    pub ends: u64,
    /// The quota's limit, as this gateway has it.
    pub limit: u32,
    /// Which of the gateway's counts of this window states this. A count that begins again is another holder.
    pub generation: u32,
    /// The statement's number, from 1, which grows from statement to statement of a generation.
    pub seq: u32,
    /// Units that the count has used.
    pub used: u32,
    /// The reset number that the count began under.
    pub reset: u64,
    /// What it asks for or keeps.
    #[serde(flatten)]
    pub says: Says,
}

/// What a statement asks for or keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Says {
    /// Units are needed. An ask never lowers a share.
    Ask {
        /// Units that requests wait for, in all.
        need: u32,
        /// Units of the request that asks. Fewer are of no use to it.
        cost: u32,
        /// Units that the gateway would like to hold, those in `need` included.
        hold: u32,
    },
    /// Units are given back.
    Return {
        /// Units that the gateway keeps beyond what it has used.
        keep: u32,
    },
}

/// A statement as JSON has it.
#[derive(Deserialize)]
struct Fields {
    counter: Hex128,
    window: u32,
    begins: u64,
    ends: u64,
    limit: u32,
    generation: u32,
    seq: u32,
    used: u32,
    reset: u64,
    need: Option<u32>,
    cost: Option<u32>,
    hold: Option<u32>,
    keep: Option<u32>,
}

impl TryFrom<Fields> for Statement {
    /// The field that is wrong, a colon, and what is expected.
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let Fields { counter, window, begins, ends, limit, generation, seq, used, reset, .. } = fields;
        let times = [("begins", begins), ("ends", ends), ("reset", reset)];
        if let Some((field, _)) = times.into_iter().find(|(_, number)| *number >= EXACT) {
            return Err(format!("{field}: expected a number below 2^53"));
        }
        if ends <= begins {
            return Err("ends: expected a time after begins".to_owned());
        }
        if seq == 0 {
            return Err("seq: expected a number from 1".to_owned());
        }
        let says = match (fields.keep, fields.need, fields.cost, fields.hold) {
            (Some(keep), None, None, None) => Says::Return { keep },
            (None, Some(need), Some(cost), Some(hold)) => Says::Ask { need, cost, hold },
            (keep, need, cost, hold) => {
                let ask = [("need", need), ("cost", cost), ("hold", hold)];
                let wrong = ask.into_iter().find(|(_, units)| units.is_some() == keep.is_some());
                let why = if keep.is_some() { "not beside keep" } else { "missing" };
                let field = wrong.map_or("keep", |(field, _)| field);
                return Err(format!("{field}: {why}; an item has need, cost and hold, or keep"));
            }
        };
        Ok(Self { counter, window, begins, ends, limit, generation, seq, used, reset, says })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"counter":"9b1e0000000000000000000000000001","window":29401353,"begins":1764081180,"ends":1764081240,"limit":600,"generation":1,"seq":812,"used":97,"reset":0,"#;

    #[test]
    fn a_statement_is_an_ask_or_a_return() {
        let rows = [
            (r#""need":3,"cost":1,"hold":20}"#, Says::Ask { need: 3, cost: 1, hold: 20 }),
            (r#""keep":0}"#, Says::Return { keep: 0 }),
        ];
        for (tail, says) in rows {
            let json = format!("{HEAD}{tail}");
            let statement: Statement = serde_json::from_str(&json).unwrap();
            assert_eq!((statement.says, statement.seq, statement.used), (says, 812, 97));
            assert_eq!(serde_json::to_string(&statement).unwrap(), json);
        }
    }

    #[test]
    fn a_statement_that_is_none_is_refused_by_the_name_of_its_field() {
        let whole = format!("{HEAD}\"keep\":0}}");
        let rows = [
            (r#""keep":0}"#, r#""need":1,"hold":1}"#, "cost: missing"),
            (r#""keep":0}"#, r#""keep":1,"cost":1}"#, "cost: not beside keep"),
            (r#","keep":0}"#, "}", "need: missing"),
            ("\"seq\":812", "\"seq\":0", "seq: expected a number from 1"),
            ("1764081240", "1764081180", "ends: expected a time after begins"),
            ("\"reset\":0", "\"reset\":9007199254740992", "reset: expected a number below 2^53"),
            ("9b1e", "9B1E", "expected 32 lower-case hexadecimal digits"),
            ("\"9b1e", "\"+9b1", "expected 32 lower-case hexadecimal digits"),
            ("\"used\":97", "\"used\":-1", "expected u32"),
        ];
        for (from, to, message) in rows {
            let json = whole.replace(from, to);
            assert_ne!(json, whole, "{from}");
            let error = serde_json::from_str::<Statement>(&json).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
