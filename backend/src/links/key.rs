//! Validation of keys. A key must not look like another key, and must not contain invisible characters.

use unicode_properties::UnicodeEmoji;
use unicode_security::general_security_profile::IdentifierType;
use unicode_security::mixed_script::AugmentedScriptSet;
use unicode_security::{GeneralSecurityProfile, MixedScript};

/// The message for an invalid key.
pub(crate) const INVALID: &str = "Invalid key.";

const JOINER: char = '\u{200d}';
const EMOJI_STYLE: char = '\u{fe0f}';
const KEYCAP: char = '\u{20e3}';
const BLACK_FLAG: char = '\u{1f3f4}';
const END_OF_TAGS: char = '\u{e007f}';

/// Whether a key or prefix is valid: letters, digits, `_`, `-`, `.`, `/` and visible non-ASCII characters, with letters
/// of one script in each segment.
pub(crate) fn is_valid(key: &str) -> bool {
    // Browsers resolve dot segments before the request, so such a link could not be visited.
    let dots = key.split('/').any(|segment| segment.is_empty() || segment == "." || segment == "..");
    let reserved = key.starts_with('_') || key.ends_with(".php") || key.starts_with(".well-known");
    !dots
        && !reserved
        && key.chars().all(is_allowed)
        && shows_all_of_itself(key)
        && key.split('/').all(is_of_one_script)
}

fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '_' | '-' | '.' | '/')
        || (!character.is_ascii() && !character.is_control() && !character.is_whitespace())
}

/// Whether a character is invisible or changes the direction of text.
fn is_invisible(character: char) -> bool {
    let ignorable =
        character.identifier_type().is_some_and(|kind| matches!(kind, IdentifierType::Default_Ignorable));
    // The blank Braille pattern and interlinear annotation characters.
    ignorable || matches!(character, '\u{2800}' | '\u{fff9}'..='\u{fffb}')
}

/// Whether all invisible characters are part of emoji.
fn shows_all_of_itself(key: &str) -> bool {
    let characters: Vec<char> = key.chars().collect();
    let at = |index: usize| characters.get(index).copied();
    let mut index = 0;
    while let Some(character) = at(index) {
        let before = index.checked_sub(1).and_then(at);
        if is_tag(character) {
            // A subdivision flag: a black flag followed by the tag letters of the subdivision's code.
            let length = characters[index..].iter().take_while(|other| is_tag(**other)).count();
            let last = at(index + length - 1);
            if before != Some(BLACK_FLAG) || length < 2 || last != Some(END_OF_TAGS) {
                return false;
            }
            index += length;
            continue;
        }
        let is_part_of_emoji = match character {
            JOINER => {
                (before == Some(EMOJI_STYLE) || before.is_some_and(is_emoji))
                    && at(index + 1).is_some_and(is_emoji)
            }
            EMOJI_STYLE => match before {
                Some(digit) if digit.is_ascii_digit() => at(index + 1) == Some(KEYCAP),
                before => before.is_some_and(is_emoji),
            },
            _ => !is_invisible(character),
        };
        if !is_part_of_emoji {
            return false;
        }
        index += 1;
    }
    true
}

fn is_tag(character: char) -> bool {
    matches!(character, '\u{e0020}'..='\u{e007f}')
}

fn is_emoji(character: char) -> bool {
    !character.is_ascii() && character.is_emoji_char()
}

/// Whether the letters of a segment belong to one script, or to Latin and an East Asian script that is used with it:
/// the level "highly restrictive" of UTS 39.
fn is_of_one_script(segment: &str) -> bool {
    if segment.is_single_script() {
        return true;
    }
    let others: String = segment.chars().filter(|character| !character.is_ascii_alphabetic()).collect();
    let scripts = AugmentedScriptSet::for_str(&others);
    scripts.hanb || scripts.jpan || scripts.kore
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
            // Cyrillic and Greek letters among Latin ones.
            ("pаypal", false),
            ("αbc", false),
            ("аkα", false),
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
