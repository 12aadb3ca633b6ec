//! Reads JSON into types that declare their fields by [`fields`], their words by [`words`] or their forms by [`forms`]. Every field is read here: its path, its default, unknown names, what a message quotes, and
//! its place in the JSON Schema are the same for all of them.
//!
//! serde_json splits one list or object at a time into the texts of its entries, which are read in turn. So no second copy of the document
//! is in memory. serde_json's own errors would quote values, one of which may be an API key.

pub(crate) mod error;
#[cfg(feature = "schema")]
pub(crate) mod schema;

use core::fmt::{self, Display};
use core::ops::Deref;
use std::collections::HashSet;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
#[cfg(feature = "schema")]
use serde_json::json;
use serde_json::value::RawValue;

pub use self::error::ConfigError;
use self::error::{Instead, Quoted, Step};
#[cfg(feature = "schema")]
use self::schema::Definitions;

/// One level of a JSON value.
pub(crate) enum Value<'j> {
    Null,
    Bool(bool),
    /// `None` for a number that is negative, not whole or greater than a `u32`. No field takes one.
    Number(Option<u32>),
    Text(String),
    List(Vec<&'j RawValue>),
    /// The names are different, and in the order of the document.
    Object(Vec<(String, &'j RawValue)>),
}

/// A type of the configuration.
pub(crate) trait Read: Sized {
    /// Whether a field of this type may be absent. It is then read from null.
    const OPTIONAL: bool = false;

    /// The value.
    ///
    /// # Errors
    /// The first mistake, with its path from this value.
    fn read(value: Value<'_>) -> Result<Self, ConfigError>;

    /// The JSON Schema of the value.
    #[cfg(feature = "schema")]
    fn schema(definitions: &mut Definitions) -> serde_json::Value;
}

/// Reads a document. An error of syntax has its line and column, and quotes nothing.
pub(crate) fn document<T: Read>(json: &[u8]) -> Result<T, ConfigError> {
    read_value(serde_json::from_slice(json).map_err(syntax)?)
}

/// Reads a value.
///
/// # Errors
/// The first mistake.
pub(crate) fn read_value<T: Read>(json: &RawValue) -> Result<T, ConfigError> {
    T::read(Value::of(json)?)
}

/// Reads the value of a field or an entry. An error quotes a text or a number.
fn read_at<T: Read>(json: &RawValue, step: impl Into<Step>) -> Result<T, ConfigError> {
    read_value(json).map_err(|error| quoting(error, json).within(step))
}

#[cold]
fn quoting(error: ConfigError, json: &RawValue) -> ConfigError {
    match Value::of(json) {
        Ok(Value::Text(text)) => error.given(&Quoted(&text)),
        Ok(Value::Number(_)) => error.given(&json),
        _ => error,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn syntax(error: serde_json::Error) -> ConfigError {
    ConfigError::new(error.to_string())
}

fn parse<'j, T: Deserialize<'j>>(json: &'j str) -> Result<T, ConfigError> {
    serde_json::from_str(json).map_err(syntax)
}

impl<'j> Value<'j> {
    #[inline(never)]
    fn of(json: &'j RawValue) -> Result<Self, ConfigError> {
        let json = json.get();
        Ok(match json.bytes().next().unwrap_or_default() {
            b'n' => Self::Null,
            b't' | b'f' => Self::Bool(json == "true"),
            b'"' => Self::Text(parse(json)?),
            b'[' => Self::List(parse(json)?),
            b'{' => {
                let Names(entries) = parse(json)?;
                let mut seen = HashSet::new();
                match entries.iter().find(|(name, _)| !seen.insert(name)) {
                    Some((name, _)) => return Err(ConfigError::new("given twice").within(name)),
                    None => Self::Object(entries),
                }
            }
            _ => Self::Number(json.parse().ok()),
        })
    }

    /// The error about a value that is not as expected.
    #[cold]
    pub(crate) fn refused<T>(self, expected: impl Display) -> Result<T, ConfigError> {
        let found = match self {
            // The message quotes these.
            Self::Number(_) | Self::Text(_) => "",
            Self::Null => ", found null",
            Self::Bool(_) => ", found a boolean",
            Self::List(_) => ", found a list",
            Self::Object(_) => ", found an object",
        };
        Err(ConfigError::new(format!("expected {expected}{found}")))
    }
}

/// The entries of an object, as many as there are of a name.
struct Names<'j>(Vec<(String, &'j RawValue)>);

impl<'j> Deserialize<'j> for Names<'j> {
    fn deserialize<D: Deserializer<'j>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'j> Visitor<'j> for Entries {
            type Value = Names<'j>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'j>>(self, mut object: A) -> Result<Names<'j>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = object.next_entry()? {
                    entries.push(entry);
                }
                Ok(Names(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// The fields of an object.
pub(crate) struct Fields<'j>(Vec<(String, &'j RawValue)>);

impl<'j> Fields<'j> {
    /// Refuses a field that is not one of `names`.
    #[inline(never)]
    pub(crate) fn of(value: Value<'j>, names: &[&str], expected: &str) -> Result<Self, ConfigError> {
        let Value::Object(fields) = value else { return value.refused(expected) };
        match fields.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            Some((given, _)) => {
                Err(ConfigError::new(format!("unknown field, {}", Instead { given, names })).within(given))
            }
            None => Ok(Self(fields)),
        }
    }

    /// Reads the field, or its default.
    pub(crate) fn read<T: Read>(&self, name: &'static str, default: Option<&str>) -> Result<T, ConfigError> {
        match (self.0.iter().find(|(given, _)| given == name), default) {
            (Some((_, json)), _) => read_at(json, name),
            (None, Some(default)) => read_at(parse(default)?, name),
            (None, None) if T::OPTIONAL => T::read(Value::Null),
            (None, None) => Err(ConfigError::new(format!("missing field `{name}`"))),
        }
    }
}

/// Defines an object by its fields:
///
/// ```text
/// struct Name as "name in the schema" derive(…) or "what is expected" {schema of a text} by function, checked by method where {keywords} {
///     field as "name in JSON": Type where {keywords} = default in JSON => example in JSON,
/// }
/// ```
///
/// All but names, `derive` and types is optional. `or` names a function that reads the short form of the object, a text. `checked by` names a
/// method that refuses fields that do not fit together. `where` adds keywords to the schema. Fields without a default are required, unless
/// their type is optional.
macro_rules! fields {
    ($(#[doc = $doc:literal])+ $vis:vis struct $name:ident as $title:literal derive($($derive:ident),*)
        $(or $text:literal $keywords:tt by $parse:path,)? $(checked by $check:ident)? $(where $more:tt)? { $(
            $(#[doc = $about:literal])+
            $of:vis $field:ident $(as $alias:literal)?: $type:ty $(where $bounds:tt)? $(= $default:tt)? $(=> $example:tt)*,
        )+ }) => {
        $(#[doc = $doc])+
        #[derive($($derive),*)]
        $vis struct $name { $($(#[doc = $about])+ $of $field: $type,)+ }

        impl $crate::read::Read for $name {
            fn read(value: $crate::read::Value<'_>) -> Result<Self, $crate::read::ConfigError> {
                use $crate::read::{Fields, fields};
                $(if let $crate::read::Value::Text(text) = &value {
                    return $parse(text);
                })?
                let fields = Fields::of(value, &[$(fields!(@name $field $($alias)?)),+], fields!(@expected $($text)?))?;
                let read = Self {
                    $($field: fields.read(fields!(@name $field $($alias)?), fields!(@json $($default)?))?,)+
                };
                $(read.$check()?;)?
                Ok(read)
            }

            #[cfg(feature = "schema")]
            fn schema(definitions: &mut $crate::read::schema::Definitions) -> serde_json::Value {
                use $crate::read::fields;
                use $crate::read::schema::{Field, field};
                let fields = [$(field::<$type>(definitions, &Field {
                    name: fields!(@name $field $($alias)?),
                    about: concat!($($about, "\n"),+),
                    default: fields!(@json $($default)?),
                    examples: &[$(stringify!($example)),*],
                    bounds: fields!(@keywords $($bounds)?),
                })),+];
                let object = definitions.object($title, concat!($($doc, "\n"),+), &fields, fields!(@keywords $($more)?));
                $(definitions.or_text($title, &serde_json::json!($keywords));)?
                object
            }
        }
    };
    (@expected) => { "an object" };
    (@expected $text:literal) => { $text };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $alias:literal) => { $alias };
    (@json) => { None };
    (@json $json:tt) => { Some(stringify!($json)) };
    (@keywords) => { serde_json::json!({}) };
    (@keywords $keywords:tt) => { serde_json::json!($keywords) };
}
pub(crate) use fields;

/// Defines an enumeration by the words that stand for its values. `derive` may be followed by an attribute for what is derived.
macro_rules! words {
    ($(#[doc = $doc:literal])+ $vis:vis enum $name:ident derive($($derive:ident),*) $($of_derive:meta)? {
        $($(#[doc = $about:literal])+ $word:literal => $variant:ident,)+
    }) => {
        $(#[doc = $doc])+
        #[derive($($derive),*)]
        $(#[$of_derive])?
        $vis enum $name { $($(#[doc = $about])+ $variant,)+ }

        $crate::read::forms! {
            $name: [$($word),+].join(" or "),
            |definitions| definitions.words(stringify!($name), concat!($($doc, "\n"),+), &[$(($word, concat!($($about, "\n"),+))),+]);
            $($crate::read::Value::Text(text) if text == $word => Ok(Self::$variant),)+
        }
    };
}
pub(crate) use words;

/// Reads a type from each of its forms, such as a cost: a number, or an object. Other values are refused by what is expected, unless one form
/// takes them all.
macro_rules! forms {
    ($(@[$($generics:tt)+])? $name:ty $(: $expected:expr)?, |$definitions:ident| $schema:expr; $($form:pat $(if $fits:expr)? => $value:expr,)+) => {
        impl $(<$($generics)+>)? $crate::read::Read for $name {
            fn read(value: $crate::read::Value<'_>) -> Result<Self, $crate::read::ConfigError> {
                match value {
                    $($form $(if $fits)? => $value,)+
                    $(other => other.refused($expected),)?
                }
            }

            #[cfg(feature = "schema")]
            fn schema($definitions: &mut $crate::read::schema::Definitions) -> serde_json::Value {
                $schema
            }
        }
    };
}
pub(crate) use forms;

forms! {
    bool: "true or false", |_definitions| json!({"type": "boolean"});
    Value::Bool(value) => Ok(value),
}

forms! {
    u32: "a whole number up to 4294967295", |_definitions| json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
    Value::Number(Some(number)) => Ok(number),
}

forms! {
    String: "a string", |_definitions| json!({"type": "string"});
    Value::Text(text) => Ok(text),
}

/// A value that may be absent.
impl<T: Read> Read for Option<T> {
    const OPTIONAL: bool = true;

    fn read(value: Value<'_>) -> Result<Self, ConfigError> {
        if matches!(value, Value::Null) { Ok(None) } else { T::read(value).map(Some) }
    }

    #[cfg(feature = "schema")]
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({"anyOf": [T::schema(definitions), {"type": "null"}]})
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: Value<'_>) -> Result<Self, ConfigError> {
        let Value::List(list) = value else { return value.refused("a list") };
        list.into_iter().enumerate().map(|(index, entry)| read_at(entry, index)).collect()
    }

    #[cfg(feature = "schema")]
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({"type": "array", "items": T::schema(definitions)})
    }
}

/// A list with at least one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonEmpty<T>(pub Vec<T>);

impl<T: Read> Read for NonEmpty<T> {
    fn read(value: Value<'_>) -> Result<Self, ConfigError> {
        let list = Vec::read(value)?;
        if list.is_empty() { Err(ConfigError::new("must not be empty")) } else { Ok(Self(list)) }
    }

    #[cfg(feature = "schema")]
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({"type": "array", "items": T::schema(definitions), "minItems": 1})
    }
}

/// A JSON object whose names the user chose, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entries<T, N = String>(pub Vec<(N, T)>);

impl<T, N> Default for Entries<T, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, N> Deref for Entries<T, N> {
    type Target = [(N, T)];

    fn deref(&self) -> &[(N, T)] {
        &self.0
    }
}

impl<T: Read, N: Read> Read for Entries<T, N> {
    fn read(value: Value<'_>) -> Result<Self, ConfigError> {
        let Value::Object(entries) = value else { return value.refused("an object") };
        let entry = |(name, json): (String, &RawValue)| {
            let value = read_at(json, &name)?;
            let named = N::read(Value::Text(name.clone())).map_err(|error| error.given(&Quoted(&name)))?;
            Ok((named, value))
        };
        entries.into_iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    #[cfg(feature = "schema")]
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({"type": "object", "additionalProperties": T::schema(definitions), "propertyNames": N::schema(definitions)})
    }
}
