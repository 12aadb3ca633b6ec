//! Validation of keys. Letters of keys are composed (NFC), and none is invisible.

use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::is_nfc;

/// Maximum length of keys and domains, in characters.
pub(crate) const MAX_KEY: usize = 190;
/// The message for an invalid key.
pub(crate) const INVALID: &str = "Invalid key.";
/// The longest emoji, lovers of two tones of skin who kiss, in characters.
const LONGEST_EMOJI: usize = 10;

/// What is not seen: control characters and formats, unassigned and private characters, white space, what fonts ignore, and the blank of
/// Braille.
#[expect(clippy::expect_used, reason = "the expression is a constant, and a test uses it")]
static INVISIBLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\x{2800}]").expect("an expression")
});

/// Whether a key or prefix is valid: letters, digits, `_`, `-`, `.`, `/` and visible non-ASCII characters.
pub(crate) fn is_valid(key: &str) -> bool {
    // Browsers resolve dot segments before the request, so such a link could not be visited.
    let dots = key.split('/').any(|segment| segment.is_empty() || segment == "." || segment == "..");
    let reserved = key.starts_with('_') || key.ends_with(".php") || key.starts_with(".well-known");
    let is_allowed = |character: char| {
        !character.is_ascii() || character.is_ascii_alphanumeric() || "_-./".contains(character)
    };
    // `e` with a combining accent looks like `é`.
    !dots && !reserved && key.chars().all(is_allowed) && is_nfc(key) && shows_all_of_itself(key)
}

/// Whether all invisible characters, such as joiners, are part of emoji that Unicode recommends. Others may look like an emoji without them.
fn shows_all_of_itself(key: &str) -> bool {
    if !INVISIBLE.is_match(key) {
        return true;
    }
    let mut rest = key;
    while let Some(first) = rest.chars().next() {
        let emoji = rest.char_indices().map(|(at, character)| at + character.len_utf8()).take(LONGEST_EMOJI);
        let emoji = emoji.filter_map(|end| rest.get(..end));
        let emoji = emoji.filter(|text| emojis::get(text).is_some_and(|emoji| emoji.as_str() == *text));
        let length = match emoji.last() {
            Some(emoji) => emoji.len(),
            None => first.len_utf8(),
        };
        let (shown, after) = rest.split_at(length);
        if shown.chars().nth(1).is_none() && INVISIBLE.is_match(shown) {
            return false;
        }
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_they_look_like() {
        let table = [
            ("docs", true),
            ("a/b.c-d_e", true),
            ("préis", true),
            ("акция", true),
            ("sale/акция", true),
            ("東京", true),
            ("tシャツ", true),
            ("삼성tv", true),
            ("5€→★", true),
            ("café東京", true),
            ("naïveシャツ", true),
            ("😀", true),
            ("hi😀", true),
            // Family, rainbow flag, heart, keycap, flags of a country and of a part of one, and a tone of skin.
            ("👨\u{200d}👩\u{200d}👧", true),
            ("🏳\u{fe0f}\u{200d}🌈", true),
            ("❤\u{fe0f}", true),
            ("1\u{fe0f}\u{20e3}", true),
            ("🇩🇪", true),
            ("🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}", true),
            ("👍🏽", true),
            // A woman with a beard, lovers of two tones of skin, and sequences beside others.
            ("🧔🏽\u{200d}♀\u{fe0f}", true),
            ("👩🏻\u{200d}❤\u{fe0f}\u{200d}👨🏿", true),
            ("go👨\u{200d}👩\u{200d}👧😀🏳\u{fe0f}\u{200d}🌈s", true),
            ("caf\u{e9}", true),
            // Letters of several scripts, which may look alike.
            ("tαйм", true),
            ("pаypal", true),
            ("\u{ac00}", true),
            // Invisible: zero width, joiners outside emoji, fillers, soft hyphen, variation selectors, tags, blank pattern.
            ("do\u{200b}cs", false),
            ("do\u{200c}cs", false),
            ("do\u{200d}cs", false),
            ("docs\u{feff}", false),
            ("do\u{2060}cs", false),
            ("do\u{ad}cs", false),
            ("\u{3164}", false),
            ("\u{115f}a", false),
            ("docs\u{fe0f}", false),
            ("1\u{fe0f}", false),
            ("😀\u{200d}", false),
            ("😀\u{200d}a", false),
            ("docs\u{e0101}", false),
            ("docs\u{e0061}", false),
            ("🏴\u{e0067}\u{e0062}", false),
            ("🏴\u{e007f}", false),
            ("\u{2800}", false),
            ("do\u{206a}cs", false),
            ("do\u{206f}cs", false),
            ("do\u{e0001}cs", false),
            ("a\u{600}", false),
            // For private use, and unassigned.
            ("\u{e000}", false),
            ("\u{378}", false),
            // They look like the emoji without what follows.
            ("😀\u{fe0f}", false),
            ("🏴\u{e0064}\u{e0065}\u{e0062}\u{e0065}\u{e007f}", false),
            // They look like the emoji without the joiner, or like the recommended emoji.
            ("😀\u{200d}😀", false),
            ("👨\u{200d}👩\u{200d}👧\u{200d}😀", false),
            ("😀\u{200d}👨\u{200d}👩\u{200d}👧", false),
            ("👨\u{200d}\u{200d}👩", false),
            ("\u{200d}😀", false),
            ("🏳\u{200d}🌈", false),
            ("👩\u{200d}❤\u{200d}👨", false),
            // They look like what they are composed to.
            ("cafe\u{301}", false),
            ("\u{1100}\u{1161}", false),
            ("\u{f900}", false),
            ("\u{212b}", false),
            // Direction.
            ("do\u{202e}cs", false),
            ("do\u{2066}cs", false),
            ("do\u{200f}cs", false),
            ("do\u{61c}cs", false),
            // As before.
            ("a b", false),
            ("_a", false),
            ("a//b", false),
            ("a/../b", false),
            ("a.php", false),
            (".well-known/x", false),
        ];
        for (key, valid) in table {
            assert_eq!(is_valid(key), valid, "{key:?}");
        }
    }
}
