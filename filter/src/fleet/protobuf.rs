//! Protobuf's wire format: fields of a message, by their numbers.

/// Protobuf's wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// The fields of a message, by their numbers; `None` where the bytes are none.
pub(super) struct Fields<'m>(pub(super) &'m [u8]);

pub(super) enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
    Fixed,
}

impl<'m> Iterator for Fields<'m> {
    type Item = Option<(u64, Value<'m>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.split();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'m> Fields<'m> {
    fn split(&mut self) -> Option<(u64, Value<'m>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            VARINT => Value::Number(self.varint()?),
            BYTES => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED32 => self.take(4).map(|_| Value::Fixed)?,
            FIXED64 => self.take(8).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn take(&mut self, length: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for place in 0..10 {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

pub(super) fn push_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    message.push((number & 0x7f) as u8);
}

pub(super) fn push_number(message: &mut Vec<u8>, field: u64, number: u64) {
    push_varint(message, field << 3 | VARINT);
    push_varint(message, number);
}

pub(super) fn push_bytes(message: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    push_varint(message, field << 3 | BYTES);
    push_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}
