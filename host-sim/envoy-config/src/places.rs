//! Where in a text a field of a plugin's configuration stands.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

/// A line and a column, from 1.
pub type Place = (u64, u64);

/// A value of JSON or YAML, which has its place.
type Node = Spanned<Content>;

enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Fields(Vec<(String, Node)>),
}

/// Where a text has the field of a configuration that was found in it. The field is given by its JSON pointer (RFC 6901); a field that is
/// not there has the place of what would hold it. `None` if the text does not have this configuration, or not in one place.
pub fn place(text: &[u8], configuration: &[u8], pointer: &str) -> Option<Place> {
    let wanted: Value = serde_json::from_slice(configuration).ok()?;
    let documents: Vec<Node> = serde_saphyr::from_slice_multiple(text).ok()?;
    documents.iter().find_map(|document| within(document, text, &wanted, pointer))
}

/// The same in a value of the text.
fn within(node: &Node, text: &[u8], wanted: &Value, pointer: &str) -> Option<Place> {
    if node.value.json() == *wanted {
        return Some(at(node, pointer));
    }
    match &node.value {
        Content::Scalar(Value::String(inner)) => {
            let configuration: Node = serde_saphyr::from_str(inner).ok()?;
            let is_it = configuration.value.json() == *wanted;
            is_it.then(|| outside(text, node, inner, at(&configuration, pointer)))
        }
        Content::Scalar(_) => None,
        Content::List(list) => list.iter().find_map(|node| within(node, text, wanted, pointer)),
        Content::Fields(fields) => fields.iter().find_map(|(_, node)| within(node, text, wanted, pointer)),
    }
}

/// The place of the value that a pointer names, as far as there is one.
fn at(node: &Node, pointer: &str) -> Place {
    let mut node = node;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let next = match &node.value {
            Content::Fields(fields) => fields.iter().find(|(name, _)| *name == step).map(|(_, node)| node),
            Content::List(list) => step.parse::<usize>().ok().and_then(|index| list.get(index)),
            Content::Scalar(_) => None,
        };
        let Some(next) = next else { break };
        node = next;
    }
    (node.referenced.line(), node.referenced.column())
}

/// A place in a text that stands in another: a block of YAML, or a text in quotation marks.
fn outside(text: &[u8], node: &Node, inner: &str, (line, column): Place) -> Place {
    let (first, start) = (node.referenced.line(), node.referenced.column());
    let text = String::from_utf8_lossy(text);
    let indent = |line: &str| line.chars().take_while(|character| *character == ' ').count() as u64;
    let nth = |text: &str, line: u64| {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        text.lines().nth(index).map(str::to_owned)
    };
    // A block's place is that of its first line.
    match (nth(&text, first + line - 1), nth(inner, line)) {
        (Some(whole), Some(own)) if whole.trim() == own.trim() => {
            (first + line - 1, column + indent(&whole).saturating_sub(indent(&own)))
        }
        _ if line == 1 => (first, start + column),
        _ => (first, start),
    }
}

impl Content {
    fn json(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(list) => list.iter().map(|node| node.value.json()).collect(),
            Self::Fields(fields) => Value::Object(
                fields.iter().map(|(name, node)| (name.clone(), node.value.json())).collect::<Map<_, _>>(),
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        macro_rules! scalars {
            ($($visit:ident $type:ty),*) => {
                $(fn $visit<E>(self, value: $type) -> Result<Content, E> {
                    Ok(Content::Scalar(value.into()))
                })*
            };
        }

        impl<'de> Visitor<'de> for Any {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            scalars!(visit_bool bool, visit_u64 u64, visit_i64 i64, visit_f64 f64, visit_str &str);

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::Scalar(Value::Null))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = list.next_element()? {
                    nodes.push(node);
                }
                Ok(Content::List(nodes))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Content::Fields(fields))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::parse;

    #[test]
    fn a_field_has_its_place_in_whatever_holds_the_configuration() {
        let json = "{\n  \"a\": {\"b\": [1,\n    2]}\n}";
        let yaml = "a:\n  b: [1, 2]\n";
        let manifest = "apiVersion: v1\nkind: Other\n---\napiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nspec:\n  pluginConfig:\n    a:\n      b:\n      - 1\n      - 2\n";
        let typed = "\"@type\": x/envoy.extensions.filters.http.wasm.v3.Wasm\nconfig:\n  configuration:\n    \"@type\": x/google.protobuf.StringValue\n";
        let block = format!("{typed}    value: |\n      {{\n        \"a\": {{\"b\": [1, 2]}}\n      }}\n");
        let quoted = format!("{typed}    value: '{{\"a\": {{\"b\": [1, 2]}}}}'\n");
        //  text, pointer, line and column
        let rows = [
            (json, "/a/b/1", Some((3, 5))),
            (json, "/a/c", Some((2, 8))),
            (json, "", Some((1, 1))),
            (yaml, "/a/b/1", Some((2, 10))),
            (manifest, "/a/b/1", Some((11, 9))),
            (&block, "/a/b/1", Some((7, 24))),
            (&quoted, "/a/b/1", Some((5, 29))),
        ];
        for (text, pointer, expected) in rows {
            let configuration = parse(text.as_bytes(), None).unwrap().configuration;
            assert_eq!(place(text.as_bytes(), &configuration, pointer), expected, "{text} {pointer}");
        }
        assert_eq!(place(b"{}", b"{\"a\": 1}", "/a"), None);
    }
}
