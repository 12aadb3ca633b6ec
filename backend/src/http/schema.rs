//! The JSON schemas of the types of fields.

use utoipa::PartialSchema;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

use super::fields::{ByName, Item, Items, List, MAX_ITEM, NoFlag, NoList, NoText, Text, Whole};

fn of_type(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(kind)
}

/// The name of a field of a body: in camel case, unless it has another.
pub(crate) fn name(field: &str, given: &[&str]) -> String {
    if let Some(name) = given.first() {
        return (*name).to_owned();
    }
    let mut words = field.trim_start_matches("r#").split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(1.min(word.len()));
        name + &initial.to_ascii_uppercase() + rest
    })
}

/// A value or null, with a description if there is one.
pub(crate) fn optional<T: PartialSchema>(description: &[&str]) -> RefOr<Schema> {
    let description = description.first().copied();
    OneOfBuilder::new().item(T::schema()).item(of_type(Type::Null)).description(description).into()
}

impl<const MAX: usize> PartialSchema for Text<MAX> {
    fn schema() -> RefOr<Schema> {
        of_type(Type::String).max_length(Some(MAX)).into()
    }
}

impl PartialSchema for Item {
    fn schema() -> RefOr<Schema> {
        of_type(Type::String).max_length(Some(MAX_ITEM)).into()
    }
}

impl<const MAX: usize> PartialSchema for Items<MAX> {
    fn schema() -> RefOr<Schema> {
        let list = ArrayBuilder::new().items(Item::schema()).max_items(Some(MAX));
        OneOfBuilder::new().item(list).item(of_type(Type::String)).into()
    }
}

impl<T: PartialSchema> PartialSchema for List<T> {
    fn schema() -> RefOr<Schema> {
        ArrayBuilder::new().items(T::schema()).into()
    }
}

impl<T: PartialSchema> PartialSchema for ByName<T> {
    fn schema() -> RefOr<Schema> {
        of_type(Type::Object).additional_properties(Some(AdditionalProperties::RefOr(T::schema()))).into()
    }
}

impl<const MIN: u64, const MAX: u64> PartialSchema for Whole<MIN, MAX> {
    fn schema() -> RefOr<Schema> {
        of_type(Type::Integer).minimum(Some(MIN as f64)).maximum(Some(MAX as f64)).into()
    }
}

impl PartialSchema for NoFlag {
    fn schema() -> RefOr<Schema> {
        of_type(Type::Boolean).enum_values(Some([false])).description(Some("Not supported.")).into()
    }
}

impl PartialSchema for NoList {
    fn schema() -> RefOr<Schema> {
        let nothing = ObjectBuilder::new();
        ArrayBuilder::new().items(nothing).max_items(Some(0)).description(Some("Not supported.")).into()
    }
}

impl PartialSchema for NoText {
    fn schema() -> RefOr<Schema> {
        of_type(Type::Null).description(Some("Not supported.")).into()
    }
}
