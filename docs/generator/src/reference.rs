//! The configuration reference: the schema as a page.
//!
//! Each field of the configuration has a section. An object that only this field has is described there. Every other type, which several
//! fields have or which is part of another, has a section at the end.

use std::fmt::Write as _;

use serde_json::{Map, Value};

const START: &str = "\
# Configuration reference

This page is generated from the code that reads the configuration. [`docs/schema.json`](../schema.json) has the same content as a JSON
Schema (draft 2020-12), with which editors complete and check a configuration. Name the schema in the settings of your editor: the
configuration itself has no field for it.

The configuration is JSON. The gateway hands it to the filter: as the field `configuration` of Envoy's Wasm filter, `pluginConfig` of an
Istio `WasmPlugin`, `config` of an `EnvoyExtensionPolicy`, or the argument of nginx's `proxy_wasm`.

Unknown fields are refused, and so are invalid values. An invalid configuration is refused as a whole. The gateway's log has one line that
names the field:

```text
plans.pro.standard[0]: \"600/fortnight\": unknown unit, expected second, minute, hour, day, week, month, year, billing_month or billing_year
```

Envoy then does not start or, on an update, keeps its current configuration. Messages about `key_sources`, `subscribers`, `directory` and
`operators` quote nothing from the configuration, because a key or a token may be there. Other messages abbreviate texts of more than 20
characters.

The schema checks each field. Only the filter checks whether fields fit together, for example whether the plan of a subscriber exists.
`weir check` checks a configuration without a gateway: see [The command weir](weir.md).

";

/// The page that shows a schema.
pub(crate) fn page(schema: &Value) -> String {
    let reference = Reference(schema);
    let fields = reference.fields(schema);
    let mut page = START.to_owned();
    page += "| field | type | default |\n|---|---|---|\n";
    for field in &fields {
        let kind = reference.kind(field.schema);
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| [`{0}`](#{0}) | {kind} | {1} |", field.name, field.default());
    }
    for field in &fields {
        let _ = write!(page, "\n## `{}`\n\n{}\n", field.name, reference.description(field.schema));
        if let Some(choices) = reference.choices(field.schema) {
            page += "\n";
            for (value, meaning) in choices {
                let _ = writeln!(page, "- `{value}`: {meaning}");
            }
        }
        for example in array(field.schema, "examples") {
            let _ = write!(page, "\n```json,fields\n{{\"{}\": {}}}\n```\n", field.name, spaced(example));
        }
        if let Some((name, object)) = reference.object(field.schema)
            && !reference.has_section(name)
        {
            page += &reference.table(object);
        }
    }
    for (name, definition) in object(reference.0, "$defs").into_iter().flatten() {
        if reference.has_section(name) && reference.choices(definition).is_none() {
            let _ = write!(page, "\n## Type `{name}`\n\n{}\n", reference.description(definition));
            page += &reference.table(definition);
        }
    }
    page
}

/// A schema with its definitions.
struct Reference<'s>(&'s Value);

/// A field of an object.
struct Field<'s> {
    name: &'s str,
    schema: &'s Value,
    is_required: bool,
}

impl Field<'_> {
    fn default(&self) -> String {
        match self.schema.get("default") {
            Some(value) => format!("`{}`", spaced(value)),
            None if self.is_required => "required".to_owned(),
            None => "optional".to_owned(),
        }
    }
}

impl<'s> Reference<'s> {
    fn fields(&self, schema: &'s Value) -> Vec<Field<'s>> {
        let required = array(schema, "required");
        let fields = object(schema, "properties").into_iter().flatten();
        fields
            .map(|(name, schema)| Field {
                name,
                schema,
                is_required: required.contains(&Value::from(name.as_str())),
            })
            .collect()
    }

    /// The name and the schema of the definition that a schema refers to.
    fn definition(&self, schema: &'s Value) -> Option<(&'s str, &'s Value)> {
        let name = schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        Some((name, object(self.0, "$defs")?.get(name)?))
    }

    /// The schema of a value that may be absent, without the null that means absence.
    fn given(&self, schema: &'s Value) -> &'s Value {
        match array(schema, "anyOf") {
            [given, null] if null.get("type").is_some_and(|kind| kind == "null") => given,
            _ => schema,
        }
    }

    fn description(&self, schema: &'s Value) -> &'s str {
        schema.get("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// The values of a schema that lists them, as JSON, with their meaning.
    fn choices(&self, schema: &'s Value) -> Option<Vec<(&'s Value, &'s str)>> {
        let given = self.given(schema);
        let listed = self.definition(given).map_or(given, |(_, definition)| definition);
        let choices = array(listed, "oneOf")
            .iter()
            .map(|choice| Some((choice.get("const")?, self.description(choice))));
        choices.collect::<Option<Vec<_>>>().filter(|choices| !choices.is_empty())
    }

    /// The definition of the object that a schema is about, itself or as the entry of a list.
    fn object(&self, schema: &'s Value) -> Option<(&'s str, &'s Value)> {
        let given = self.given(schema);
        let entry = given.get("items").unwrap_or(given);
        self.definition(entry).filter(|(_, definition)| definition.get("properties").is_some())
    }

    /// Whether a definition has a section: unless it is the object of one field of the configuration, and no other schema refers to it.
    fn has_section(&self, name: &str) -> bool {
        let reference = Value::from(format!("#/$defs/{name}"));
        let fields = self.fields(self.0);
        let is_of_field =
            fields.iter().any(|field| self.object(field.schema).is_some_and(|(of, _)| of == name));
        count(self.0, &reference) > 1 || !is_of_field
    }

    /// The type of a schema, in words.
    fn kind(&self, schema: &'s Value) -> String {
        let given = self.given(schema);
        if let Some(choices) = self.choices(given) {
            return choices.iter().map(|(value, _)| format!("`{value}`")).collect::<Vec<_>>().join(" or ");
        }
        if let Some((name, definition)) = self.definition(given) {
            let is_linked = self.has_section(name) || definition.get("properties").is_none();
            return if is_linked {
                format!("[{name}](#type-{})", name.to_lowercase())
            } else {
                "object".to_owned()
            };
        }
        if let Some(value) = given.get("const") {
            return format!("`{value}`");
        }
        if let Some(entry) = given.get("additionalProperties").filter(|entry| entry.is_object()) {
            return format!("map of {}", plural(&self.kind(entry)));
        }
        match (given.get("type").map(kinds).as_deref(), given.get("items")) {
            (Some(["array"]), Some(items)) => format!("list of {}", plural(&self.kind(items))),
            (Some([kind]), _) => (*kind).to_owned(),
            _ => array(given, "anyOf").iter().map(|one| self.kind(one)).collect::<Vec<_>>().join(" or "),
        }
    }

    /// The fields of an object as a table. A definition that is not an object is the list of its forms.
    fn table(&self, schema: &'s Value) -> String {
        let fields = self.fields(schema);
        if fields.is_empty() {
            let forms = array(schema, "anyOf");
            let list: String = forms.iter().map(|form| format!("- {}\n", self.kind(form))).collect();
            let objects = forms.iter().filter(|form| form.get("properties").is_some());
            let tables: String = objects.map(|object| self.table(object)).collect();
            return format!("\n{list}{tables}");
        }
        let mut table = "\n| field | type | default | meaning |\n|---|---|---|---|\n".to_owned();
        for field in fields {
            let mut meaning = self.description(field.schema).to_owned();
            for (value, chosen) in self.choices(field.schema).into_iter().flatten() {
                // Writing to a String cannot fail.
                let _ = write!(meaning, "<br>`{value}`: {chosen}");
            }
            let (name, kind, default) = (field.name, self.kind(field.schema), field.default());
            let _ = writeln!(table, "| `{name}` | {kind} | {default} | {} |", meaning.replace("\n\n", " "));
        }
        table
    }
}

fn object<'s>(schema: &'s Value, keyword: &str) -> Option<&'s Map<String, Value>> {
    schema.get(keyword)?.as_object()
}

fn array<'s>(schema: &'s Value, keyword: &str) -> &'s [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The JSON types that a `type` allows, without null.
fn kinds(of: &Value) -> Vec<&str> {
    let listed = of.as_array().map_or(std::slice::from_ref(of), Vec::as_slice);
    listed.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect()
}

fn plural(kind: &str) -> String {
    match kind.split_once(' ') {
        Some(("map", of)) => format!("maps {of}"),
        None if !kind.starts_with('[') => format!("{kind}s"),
        _ => kind.to_owned(),
    }
}

/// A value as JSON on one line, with a space after each colon and comma.
fn spaced(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::from(name.as_str()), spaced(value))
            };
            format!("{{{}}}", list(fields.iter().map(field).collect()))
        }
        Value::Array(items) => format!("[{}]", list(items.iter().map(spaced).collect())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// How often a schema refers to a definition.
fn count(schema: &Value, reference: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            let here = usize::from(fields.get("$ref") == Some(reference));
            here + fields.values().map(|value| count(value, reference)).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(|value| count(value, reference)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
