//! Bytes as questions and answers spell them.

/// Bytes of an answer that are logged.
const SHOWN: usize = 600;

/// The bytes of a text.
pub(crate) fn unescape(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word;
    if word == "_" {
        return bytes;
    }
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend(before.as_bytes());
        let Some((digits, after)) = after.split_at_checked(2) else { break };
        bytes.extend(u8::from_str_radix(digits, 16));
        rest = after;
    }
    bytes.extend(rest.as_bytes());
    bytes
}

/// The blob of pairs that are written as `name=value;name=value`.
pub(crate) fn pairs(word: &str) -> Vec<u8> {
    if word == "_" {
        return Vec::new();
    }
    let pairs = word.split(';').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let pairs: Vec<_> = pairs.map(|(name, value)| (unescape(name), unescape(value))).collect();
    let mut blob = (pairs.len() as u32).to_le_bytes().to_vec();
    for (name, value) in &pairs {
        blob.extend((name.len() as u32).to_le_bytes());
        blob.extend((value.len() as u32).to_le_bytes());
    }
    for (name, value) in &pairs {
        blob.extend([name.as_slice(), b"\0", value.as_slice(), b"\0"].concat());
    }
    blob
}

/// The pairs of a blob; none where it is not exactly one.
fn of_blob(blob: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let number = |at: usize| Some(u32::from_le_bytes(blob.get(at..at + 4)?.try_into().ok()?) as usize);
    let count = number(0).filter(|count| (1..1000).contains(count))?;
    let mut at = 4 + 8 * count;
    let mut pairs = Vec::new();
    for index in 0..count {
        let (name, value) = (number(4 + 8 * index)?, number(8 + 8 * index)?);
        let (name_end, value_end) =
            (at.checked_add(name)?, at.checked_add(name)?.checked_add(value)?.checked_add(1)?);
        pairs.push((blob.get(at..name_end)?, blob.get(name_end + 1..value_end)?));
        at = value_end + 1;
    }
    (at == blob.len()).then_some(pairs)
}

/// Bytes for the log: pairs as such, and long ones with their size and a sum of them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    if let Some(pairs) = of_blob(bytes) {
        let pairs =
            pairs.iter().map(|(name, value)| format!("{}={}", name.escape_ascii(), value.escape_ascii()));
        return format!("{{{}}}", pairs.collect::<Vec<_>>().join("; "));
    }
    if bytes.len() > SHOWN {
        let sum = bytes.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
        return format!("{} bytes, sum {sum:08x}", bytes.len());
    }
    format!("\"{}\"", bytes.escape_ascii())
}

/// Takes a block that the host was given by `malloc` and has filled.
pub(crate) fn taken(data: u32, size: u32) -> Vec<u8> {
    if data == 0 || size == 0 {
        return Vec::new();
    }
    // SAFETY: `malloc` has given away a `Vec` of this capacity, and the host has filled as many bytes.
    unsafe { Vec::from_raw_parts(data as *mut u8, size as usize, size as usize) }
}

/// The address of a text that stays.
pub(crate) fn leak(text: &'static [u8]) -> u64 {
    text.as_ptr() as u64
}

/// Gives the host a block.
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut u8 {
    core::mem::ManuallyDrop::new(Vec::with_capacity(size)).as_mut_ptr()
}
