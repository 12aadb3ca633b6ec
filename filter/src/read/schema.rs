//! JSON Schema, draft 2020-12, made from the types that read a document.
//!
//! A schema accepts every document that the types accept. It also accepts some that are refused afterwards: those whose fields contradict each
//! other, such as a subscriber whose plan does not exist.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON objects take any key; the module that gateways load is built without this"
)]

use serde_json::{Map, Value, json};

use super::Read;

/// The schema of a document of type `T`, which is defined as `name`.
pub(crate) fn document<T: Read>(name: &str, title: &str) -> Value {
    let mut definitions = Definitions::default();
    T::schema(&mut definitions);
    let mut schema = definitions.0.remove(name).unwrap_or_default();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema["$defs"] = Value::Object(definitions.0);
    schema
}

/// The schemas of the types with a name.
#[derive(Debug, Default)]
pub(crate) struct Definitions(Map<String, Value>);

/// What is said of a field beside its type.
pub(crate) struct Field<'f> {
    pub(crate) name: &'f str,
    pub(crate) about: &'f str,
    /// JSON.
    pub(crate) default: Option<&'f str>,
    /// JSON.
    pub(crate) examples: &'f [&'f str],
    pub(crate) bounds: Value,
}

/// The schema of a field of type `T`: its name, itself, and whether it is required.
pub(crate) fn field<T: Read>(definitions: &mut Definitions, field: &Field<'_>) -> (String, Value, bool) {
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let mut schema = with(T::schema(definitions), field.bounds.clone());
    schema["description"] = paragraphs(field.about);
    if let Some(default) = field.default.map(json).filter(|default| !default.is_null()) {
        schema["default"] = default;
    }
    if !field.examples.is_empty() {
        schema["examples"] = field.examples.iter().map(|example| json(example)).collect();
    }
    (field.name.to_owned(), schema, field.default.is_none() && !T::OPTIONAL)
}

impl Definitions {
    /// Defines an object, and refers to it.
    pub(crate) fn object(
        &mut self,
        title: &str,
        doc: &str,
        fields: &[(String, Value, bool)],
        more: Value,
    ) -> Value {
        let properties: Map<_, _> =
            fields.iter().map(|(name, schema, _)| (name.clone(), schema.clone())).collect();
        let required: Vec<_> =
            fields.iter().filter(|(.., required)| *required).map(|(name, ..)| name).collect();
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        self.define(title, doc, with(schema, more))
    }

    /// Defines an enumeration by its words and their meaning, and refers to it.
    pub(crate) fn words(&mut self, title: &str, doc: &str, words: &[(&str, &str)]) -> Value {
        let word = |(word, about): &(&str, &str)| json!({"const": word, "description": paragraphs(about)});
        self.define(title, doc, json!({"oneOf": words.iter().map(word).collect::<Vec<_>>()}))
    }

    /// Defines a type, and refers to it.
    pub(crate) fn define(&mut self, title: &str, doc: &str, mut schema: Value) -> Value {
        schema["description"] = paragraphs(doc);
        self.0.insert(title.to_owned(), schema);
        json!({"$ref": format!("#/$defs/{title}")})
    }

    /// Adds the short form of an object, a text.
    pub(crate) fn or_text(&mut self, title: &str, text: &Value) {
        if let Some(schema) = self.0.get_mut(title) {
            let mut object = schema.take();
            let description = object.as_object_mut().and_then(|object| object.remove("description"));
            *schema = json!({"description": description, "anyOf": [text, object]});
        }
    }
}

/// The keywords of both schemas.
fn with(mut schema: Value, more: Value) -> Value {
    if let (Value::Object(schema), Value::Object(more)) = (&mut schema, more) {
        schema.extend(more);
    }
    schema
}

/// The text of a documentation comment: a line for each paragraph.
fn paragraphs(comment: &str) -> Value {
    let lines: Vec<_> = comment.lines().map(str::trim).collect();
    lines.join(" ").trim().replace("  ", "\n\n").into()
}

/// A schema of the objects that have a field with another value than null, which the filter takes for an absent field.
pub(crate) fn given(field: &str) -> Value {
    json!({"required": [field], "properties": {field: {"not": {"type": "null"}}}})
}
