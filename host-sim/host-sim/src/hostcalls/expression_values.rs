//! Values of properties as expressions have them.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use cel::{
    Value as Cel,
    objects::{Key, Map},
};

use crate::wire::property::Value;

/// A property as expressions see it: what is no UTF-8 is bytes, everything else is text.
pub(super) fn to_cel(value: Value) -> Cel {
    match value {
        Value::Bytes(bytes) => match String::from_utf8(bytes.to_vec()) {
            Ok(text) => text.into(),
            Err(error) => error.into_bytes().into(),
        },
        Value::Int(number) => Cel::Int(number),
        Value::Uint(number) => Cel::UInt(number),
        Value::Double(number) => Cel::Float(number),
        Value::Bool(yes) => Cel::Bool(yes),
        Value::Timestamp(nanos) => Cel::Timestamp(chrono_of(nanos)),
        Value::Duration(nanos) => Cel::Duration(chrono::Duration::nanoseconds(nanos)),
        Value::Map(map) | Value::Message(_, map) => {
            map_of(map.into_iter().map(|(key, value)| (key, to_cel(value))))
        }
        Value::List(list) => Cel::List(Arc::new(list.into_iter().map(to_cel).collect())),
        Value::Null => Cel::Null,
    }
}

fn chrono_of(nanos: i64) -> chrono::DateTime<chrono::FixedOffset> {
    chrono::DateTime::from_timestamp_nanos(nanos).fixed_offset()
}

/// A map by names.
pub(super) fn map_of(entries: impl IntoIterator<Item = (Bytes, Cel)>) -> Cel {
    let entries = entries
        .into_iter()
        .map(|(name, value)| (Key::from(String::from_utf8_lossy(&name).into_owned()), value));
    Cel::Map(Map { map: Arc::new(entries.collect::<HashMap<_, _>>()) })
}

/// What an expression answers, as a property; none for what cannot cross the ABI.
pub(super) fn of_cel(value: Cel) -> Option<Value> {
    Some(match value {
        Cel::String(text) => Value::Bytes(text.as_bytes().to_vec().into()),
        Cel::Bytes(bytes) => Value::Bytes(bytes.to_vec().into()),
        Cel::Int(number) => Value::Int(number),
        Cel::UInt(number) => Value::Uint(number),
        Cel::Float(number) => Value::Double(number),
        Cel::Bool(yes) => Value::Bool(yes),
        Cel::Duration(duration) => Value::Duration(duration.num_nanoseconds()?),
        Cel::Timestamp(time) => Value::Timestamp(time.timestamp_nanos_opt()?),
        Cel::List(list) => Value::List(list.iter().cloned().map(of_cel).collect::<Option<_>>()?),
        Cel::Map(map) => {
            let entry = |(key, value): (&Key, &Cel)| {
                let key = of_cel(key.into())?.encode().ok()?;
                Some((key, of_cel(value.clone())?))
            };
            Value::Map(map.map.iter().map(entry).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}
