//! The blob in which maps cross the ABI: a count, the lengths, then names and values, each ending in a zero byte.

use bytes::Bytes;

use crate::abi;

/// Blobs beyond these are read as an empty map (`limits.h` of proxy-wasm-cpp-host).
const MAX_BYTES: usize = 1024 * 1024;
const MAX_PAIRS: usize = 1024;

/// Encodes `pairs`. No pair gives an empty blob's four bytes; callers that return maps to a guest skip those.
pub(crate) fn encode<'a, I>(pairs: I) -> Vec<u8>
where
    I: ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
{
    let count = pairs.len();
    let size = 4 + pairs.clone().map(|(name, value)| 8 + name.len() + value.len() + 2).sum::<usize>();
    let mut blob = Vec::with_capacity(size);
    blob.extend_from_slice(&abi::count(count).to_le_bytes());
    for (name, value) in pairs.clone() {
        blob.extend_from_slice(&abi::count(name.len()).to_le_bytes());
        blob.extend_from_slice(&abi::count(value.len()).to_le_bytes());
    }
    for (name, value) in pairs {
        blob.extend_from_slice(name);
        blob.push(0);
        blob.extend_from_slice(value);
        blob.push(0);
    }
    blob
}

/// Decodes a blob. As in Envoy, a blob that is malformed or too large is an empty map.
pub(crate) fn decode(blob: &[u8]) -> Vec<(Bytes, Bytes)> {
    try_decode(blob).unwrap_or_default()
}

fn try_decode(blob: &[u8]) -> Option<Vec<(Bytes, Bytes)>> {
    if blob.len() > MAX_BYTES {
        return None;
    }
    let number = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = blob.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let count = number(0)?;
    if count > MAX_PAIRS {
        return None;
    }
    let mut at = 4 + count * 8;
    let mut text = |len: usize| -> Option<Bytes> {
        let end = at.checked_add(len)?;
        let text = blob.get(at..end)?;
        if *blob.get(end)? != 0 {
            return None;
        }
        at = end + 1;
        Some(Bytes::copy_from_slice(text))
    };
    let mut pairs = Vec::with_capacity(count);
    for pair in 0..count {
        let name = text(number(4 + pair * 8)?)?;
        let value = text(number(8 + pair * 8)?)?;
        pairs.push((name, value));
    }
    (at == blob.len()).then_some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let pairs: [(&[u8], &[u8]); 3] = [(b":path", b"/"), (b"x", b""), (b"y", &[0, 255])];
        let decoded = decode(&encode(pairs.into_iter()));
        assert_eq!(decoded.iter().map(|(n, v)| (n.as_ref(), v.as_ref())).collect::<Vec<_>>(), pairs);
    }

    #[test]
    fn a_malformed_or_oversized_blob_is_an_empty_map() {
        let good = encode([(&b"a"[..], &b"b"[..])].into_iter());
        let rows: [(&str, Vec<u8>); 6] = [
            ("nothing", vec![]),
            ("short count", vec![1, 0]),
            ("cut off", good[..good.len() - 1].to_vec()),
            ("trailing byte", [good.as_slice(), &[0]].concat()),
            ("count beyond the blob", u32::MAX.to_le_bytes().to_vec()),
            ("more than 1 MiB", encode([(&b"a"[..], vec![b'x'; MAX_BYTES].as_slice())].into_iter())),
        ];
        for (what, blob) in rows {
            assert!(decode(&blob).is_empty(), "{what}");
        }
    }
}
