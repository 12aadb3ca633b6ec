//! As much of the protocol-buffers wire format as arguments of host calls need: fields, one after the other.

/// A field's value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// One of the fixed-size kinds, which no message here has.
    Fixed,
}

/// The fields of a message with their numbers; `None` when it is malformed.
pub(crate) fn fields(mut message: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        if tag >> 3 == 0 {
            return None;
        }
        let field = match tag & 7 {
            0 => Field::Varint(varint(&mut message)?),
            1 => fixed(&mut message, 8)?,
            2 => {
                let len = usize::try_from(varint(&mut message)?).ok()?;
                Field::Bytes(take(&mut message, len)?)
            }
            5 => fixed(&mut message, 4)?,
            _ => return None,
        };
        fields.push((tag >> 3, field));
    }
    Some(fields)
}

fn take<'a>(message: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(len)?;
    *message = rest;
    Some(taken)
}

fn fixed<'a>(message: &mut &'a [u8], len: usize) -> Option<Field<'a>> {
    take(message, len).map(|_| Field::Fixed)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *take(message, 1)?.first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(any(feature = "signatures", test))]
fn put_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Adds a field of text or bytes. One that is empty is left out.
#[cfg(any(feature = "signatures", test))]
pub(crate) fn put_bytes(message: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_varint(message, number << 3 | 2);
        put_varint(message, bytes.len() as u64);
        message.extend_from_slice(bytes);
    }
}

/// Adds a field that says yes. One that says no is left out.
#[cfg(any(feature = "signatures", test))]
pub(crate) fn put_true(message: &mut Vec<u8>, number: u64) {
    put_varint(message, number << 3);
    message.push(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_malformed_messages_are_not() {
        let message = b"\x0a\x02hi\x10\x96\x01\x1d\0\0\0\0";
        let expected = vec![(1, Field::Bytes(b"hi")), (2, Field::Varint(150)), (3, Field::Fixed)];
        assert_eq!(fields(message), Some(expected));
        let mut written = Vec::new();
        put_bytes(&mut written, 1, b"hi");
        put_true(&mut written, 2);
        put_bytes(&mut written, 3, b"");
        put_bytes(&mut written, 4, &[7; 300]);
        let expected = vec![(1, Field::Bytes(b"hi")), (2, Field::Varint(1)), (4, Field::Bytes(&[7; 300]))];
        assert_eq!(fields(&written), Some(expected));
        for malformed in [&b"backend"[..], b"\x0a\x05hi", b"\x08", b"\x00\x00", b"\x0f"] {
            assert_eq!(fields(malformed), None, "{malformed:?}");
        }
    }
}
