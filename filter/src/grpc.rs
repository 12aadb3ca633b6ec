//! gRPC's status codes, and how Envoy maps them to HTTP statuses and back.
//!
//! A refund names HTTP statuses or gRPC codes. The filter judges a response of the other kind by the status that Envoy would give it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// The codes in their order: the name in gRPC's documentation, and the HTTP status of `Grpc::Utility::grpcToHttpStatus` in Envoy.
const CODES: [(&str, u16); 17] = [
    ("OK", 200),
    ("CANCELLED", 499),
    ("UNKNOWN", 500),
    ("INVALID_ARGUMENT", 400),
    ("DEADLINE_EXCEEDED", 504),
    ("NOT_FOUND", 404),
    ("ALREADY_EXISTS", 409),
    ("PERMISSION_DENIED", 403),
    ("RESOURCE_EXHAUSTED", 429),
    ("FAILED_PRECONDITION", 400),
    ("ABORTED", 409),
    ("OUT_OF_RANGE", 400),
    ("UNIMPLEMENTED", 501),
    ("INTERNAL", 500),
    ("UNAVAILABLE", 503),
    ("DATA_LOSS", 500),
    ("UNAUTHENTICATED", 401),
];

/// The names of the codes, in the order of the codes.
pub fn names() -> impl Iterator<Item = &'static str> {
    CODES.iter().map(|(name, _)| *name)
}

/// The code of a name.
///
/// ```
/// assert_eq!(filter::grpc::code("UNAVAILABLE"), Some(14));
/// assert_eq!(filter::grpc::code("unavailable"), None);
/// ```
#[must_use]
pub fn code(name: &str) -> Option<u32> {
    (0..).zip(names()).find_map(|(code, known)| (known == name).then_some(code))
}

/// The HTTP status of a code. As in Envoy, 500 for a code that gRPC does not have.
#[must_use]
pub fn http_status(code: u32) -> u16 {
    usize::try_from(code).ok().and_then(|code| CODES.get(code)).map_or(500, |(_, status)| *status)
}

/// The code of a reply of the filter: the first that has this HTTP status, or `UNKNOWN`.
#[must_use]
pub fn of_reply(status: u16) -> i32 {
    const UNKNOWN: i32 = 2;
    (0..).zip(CODES).find_map(|(code, (_, of_code))| (of_code == status).then_some(code)).unwrap_or(UNKNOWN)
}

/// The code of an HTTP status (`Grpc::Utility::httpToGrpcStatus` in Envoy); `None` for a success, which has no code without a gRPC
/// response.
#[must_use]
pub fn from_http_status(status: u16) -> Option<u32> {
    match status {
        200..=299 => None,
        400 => code("INTERNAL"),
        401 => code("UNAUTHENTICATED"),
        403 => code("PERMISSION_DENIED"),
        404 => code("UNIMPLEMENTED"),
        429 | 502..=504 => code("UNAVAILABLE"),
        _ => code("UNKNOWN"),
    }
}

/// A `google.rpc.Status` whose only detail is a `google.rpc.RetryInfo`, as `grpc-status-details-bin` carries it. The OpenTelemetry collector repeats a
/// call that ends with `RESOURCE_EXHAUSTED` only if it has this.
#[must_use]
pub fn retry_details(code: i32, message: &str, seconds: u64) -> String {
    const TYPE: &str = "type.googleapis.com/google.rpc.RetryInfo";
    let retry_delay = number(1, seconds);
    let retry_info = message_field(1, &retry_delay);
    let detail = [message_field(1, TYPE.as_bytes()), message_field(2, &retry_info)].concat();
    let code = number(1, code.unsigned_abs().into());
    STANDARD_NO_PAD.encode([code, message_field(2, message.as_bytes()), message_field(3, &detail)].concat())
}

/// A field of a protocol buffer that is a number.
fn number(field: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    push_varint(&mut bytes, value);
    bytes
}

/// A field of a protocol buffer that is a text or a message.
fn message_field(field: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![field << 3 | 2];
    push_varint(&mut bytes, value.len() as u64);
    bytes.extend(value);
    bytes
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By protoc's own encoder: `google.rpc.Status{code: 8, message: "wait", details: [Any(RetryInfo{retry_delay: 300 s})]}`.
    #[test]
    fn a_client_reads_how_long_to_wait_from_the_details() {
        let expected = "CAgSBHdhaXQaMQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIFCgMIrAI";
        assert_eq!(retry_details(8, "wait", 300), expected);
    }

    #[test]
    fn codes_map_to_http_statuses_as_in_envoy() {
        let rows = [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
        for (code, status) in (0..).zip(rows) {
            assert_eq!(http_status(code), status, "{code}");
        }
        assert_eq!([17, u32::MAX].map(http_status), [500, 500]);
    }

    #[test]
    fn http_statuses_map_to_codes_as_in_envoy() {
        let rows = [
            (400, Some(13)),
            (401, Some(16)),
            (403, Some(7)),
            (404, Some(12)),
            (429, Some(14)),
            (502, Some(14)),
            (503, Some(14)),
            (504, Some(14)),
            (500, Some(2)),
            (501, Some(2)),
            (302, Some(2)),
            (200, None),
            (204, None),
        ];
        for (status, code) in rows {
            assert_eq!(from_http_status(status), code, "{status}");
        }
    }

    #[test]
    fn every_name_has_its_code() {
        for (expected, name) in (0..).zip(names()) {
            assert_eq!(code(name), Some(expected), "{name}");
        }
        assert_eq!(["", "CANCELED", "unknown"].map(code), [None; 3]);
    }
}
