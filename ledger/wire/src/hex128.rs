//! 128 bits as 32 hexadecimal digits.

use core::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// 128 bits that identify something, written as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Hex128(pub u128);

impl fmt::Display for Hex128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for Hex128 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl TryFrom<String> for Hex128 {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        // One form for each number: a sign or upper case, which `from_str_radix` takes, would be another.
        let is_hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let bits = u128::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        bits.map(Self).ok_or("expected 32 lower-case hexadecimal digits")
    }
}
