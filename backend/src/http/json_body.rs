//! Request bodies with JSON.

use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::fields;
use crate::apart;
use crate::api::places::Received;
use crate::http::error::ApiError;

/// A request body with the fields of an object.
#[derive(Debug)]
pub(crate) struct Fields<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Fields<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let JsonBody { value, .. } = JsonBody::from_request(request, state).await?;
        Ok(Self(fields::read(&value, "")?))
    }
}

/// A request body with any JSON value, and its size in bytes.
#[derive(Debug)]
pub(crate) struct JsonBody {
    pub(crate) value: Value,
    pub(crate) bytes: usize,
}

/// Parses the body that was read before the request had a place.
impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, ApiError> {
        let body = request.extensions_mut().remove::<Received>();
        let Received(body) = body.ok_or_else(ApiError::internal)?;
        let bytes = body.len();
        Ok(Self { value: apart::run_on(bytes, move || parse(&body)).await?, bytes })
    }
}

/// Parses a body with any JSON value.
pub(crate) fn parse(body: &[u8]) -> Result<Value, ApiError> {
    // RFC 8259, section 8.1: a parser may ignore a byte order mark.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if has_too_many_values(body) {
        let message = format!("Too big: expected the body to have <={MAX_JSON_VALUES} JSON values");
        return Err(ApiError::invalid("too_big", "", &message));
    }
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("Invalid JSON format in request body: {error}.")))
}

/// Maximum number of JSON values in a body, with the body itself. A parsed value takes up to a hundred times the memory of its text, so that
/// the bound on the bytes of bodies alone would not bound memory. There is room for a bulk creation of 100 links with all fields of a response,
/// a `geo` target for each country, and the longest lists of tags: about 900 values a link.
const MAX_JSON_VALUES: usize = 100_000;

/// Whether a body has more than [`MAX_JSON_VALUES`] values. It counts a body that is not JSON up to the first error at least.
fn has_too_many_values(body: &[u8]) -> bool {
    // After the first value, each comma and the start of each container that is not empty precede another one.
    let (mut values, mut is_opened, mut is_text) = (1, false, false);
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        if is_text {
            match byte {
                b'\\' => _ = bytes.next(),
                b'"' => is_text = false,
                _ => {}
            }
            continue;
        }
        if byte.is_ascii_whitespace() {
            continue;
        }
        if is_opened && !matches!(byte, b']' | b'}') {
            values += 1;
        }
        is_opened = matches!(byte, b'[' | b'{');
        match byte {
            b'"' => is_text = true,
            b',' => values += 1,
            _ => {}
        }
        if values > MAX_JSON_VALUES {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_at_most_100_000_values() {
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        //  an item of a list, and the number of its values
        let table = [
            ("0", 1),
            ("null", 1),
            ("[]", 1),
            (" { } ", 1),
            ("[[[]]]", 3),
            (r#"{"":0}"#, 2),
            ("{\"a\" :\n[1, {\"b\": true}], \"c\": \"d\"}", 6),
            (r#""[,{:\",\\""#, 1),
            (r#"{"[,\\":",\u005b,"}"#, 2),
        ];
        for (item, values) in table {
            let fits = (MAX_JSON_VALUES - 1) / values;
            for (count, expected) in [(0, false), (fits, false), (fits + 1, true)] {
                let body = list(item, count);
                assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok(), "{item}");
                assert_eq!(has_too_many_values(body.as_bytes()), expected, "{count} {item}");
            }
        }
    }

    #[test]
    fn a_body_that_is_not_json_is_counted_too() {
        let many = "[".repeat(MAX_JSON_VALUES);
        //  body, and whether it has too many values
        let table = [
            (String::new(), false),
            ("\"\\".to_owned(), false),
            (format!("\"{many}[["), false),
            (many.clone(), false),
            (format!("{many}["), true),
        ];
        for (body, expected) in table {
            assert_eq!(has_too_many_values(body.as_bytes()), expected, "{} bytes", body.len());
        }
    }
}
