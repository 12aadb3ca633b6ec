//! JSON objects whose names the user chose.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess};

use super::forms::{Forms, forms};
use super::rate::Grant;

/// A JSON object whose names the user chose, in their order. A repeated name is refused.
#[derive(Debug)]
pub struct Entries<T>(pub Vec<(String, T)>);

/// The classes of a plan, or those that a subscriber's limits replace:
/// `{"standard": ["5000/minute"], "analytics": "unlimited"}`.
pub type Grants = Entries<Grant>;

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Forms<'de> for Entries<T> {
    const EXPECTED: &'static str = "an object";

    fn object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut entries: Vec<(String, T)> = Vec::new();
        while let Some(name) = object.next_key::<String>()? {
            if entries.iter().any(|(other, _)| *other == name) {
                return Err(A::Error::custom("given twice"));
            }
            entries.push((name, object.next_value()?));
        }
        Ok(Self(entries))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        forms(deserializer)
    }
}

#[cfg(feature = "schema")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Entries_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "object", "additionalProperties": generator.subschema_for::<T>()})
    }
}
