//! Validation of keys. A key must not look like another key, and must not contain invisible characters.

use unicode_normalization::is_nfc;
use unicode_properties::{EmojiStatus, GeneralCategory, UnicodeEmoji, UnicodeGeneralCategory};
use unicode_security::general_security_profile::IdentifierType;
use unicode_security::mixed_script::AugmentedScriptSet;
use unicode_security::{GeneralSecurityProfile, MixedScript};

/// Maximum length of keys and domains, in characters.
pub(crate) const MAX_KEY: usize = 190;
/// The message for an invalid key.
pub(crate) const INVALID: &str = "Invalid key.";

const JOINER: char = '\u{200d}';
const EMOJI_STYLE: char = '\u{fe0f}';
const KEYCAP: char = '\u{20e3}';
const BLACK_FLAG: char = '\u{1f3f4}';

/// The flags of parts of a country that Unicode recommends: England, Scotland and Wales. Others look like a black flag.
const SUBDIVISIONS: [&str; 3] = [
    "\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
    "\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
    "\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}",
];

/// Whether a key or prefix is valid: letters, digits, `_`, `-`, `.`, `/` and visible non-ASCII characters, with letters
/// of one script in each segment.
pub(crate) fn is_valid(key: &str) -> bool {
    // Browsers resolve dot segments before the request, so such a link could not be visited.
    let dots = key.split('/').any(|segment| segment.is_empty() || segment == "." || segment == "..");
    let reserved = key.starts_with('_') || key.ends_with(".php") || key.starts_with(".well-known");
    !dots
        && !reserved
        && key.chars().all(is_allowed)
        // `e` with a combining accent looks like `é`.
        && is_nfc(key)
        && shows_all_of_itself(key)
        && key.split('/').all(is_of_one_script)
}

fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '_' | '-' | '.' | '/')
        || (!character.is_ascii() && !character.is_control() && !character.is_whitespace())
}

/// Whether a character is invisible, changes the direction of text, has no fixed form, or is a form of another character.
fn is_unclear(character: char) -> bool {
    let kind = character.identifier_type();
    let is_restricted = matches!(
        kind,
        Some(IdentifierType::Deprecated | IdentifierType::Default_Ignorable | IdentifierType::Not_NFKC)
    );
    let has_no_form = matches!(
        character.general_category(),
        GeneralCategory::Format | GeneralCategory::Unassigned | GeneralCategory::PrivateUse
    );
    // The blank Braille pattern.
    is_restricted || has_no_form || character == '\u{2800}'
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
            let tags: String = characters.iter().skip(index).take_while(|other| is_tag(**other)).collect();
            if before != Some(BLACK_FLAG) || !SUBDIVISIONS.contains(&tags.as_str()) {
                return false;
            }
            index += tags.chars().count();
            continue;
        }
        if let Some(end) = end_of_joined(&characters, index) {
            // What Unicode does not recommend may look like its parts without the joiner.
            let emoji: String = characters.iter().take(end).skip(index).collect();
            if emojis::get(&emoji).is_none_or(|known| known.as_str() != emoji) {
                return false;
            }
            index = end;
            continue;
        }
        let is_part_of_emoji = match character {
            JOINER => false,
            EMOJI_STYLE => match before {
                Some(digit) if digit.is_ascii_digit() => at(index + 1) == Some(KEYCAP),
                // An emoji that is one by default looks the same without it.
                before => before.is_some_and(|before| is_emoji(before) && !is_emoji_by_default(before)),
            },
            _ => is_emoji(character) || !is_unclear(character),
        };
        if !is_part_of_emoji {
            return false;
        }
        index += 1;
    }
    true
}

/// The end of a sequence of joined emoji that starts at `start`, such as a family. None if none does.
fn end_of_joined(characters: &[char], start: usize) -> Option<usize> {
    let at = |index: usize| characters.get(index).copied();
    let end_of_one = |start: usize| {
        at(start).filter(|first| is_emoji(*first))?;
        let is_suffix =
            |index: &usize| at(*index).is_some_and(|next| next == EMOJI_STYLE || is_skin_tone(next));
        (start + 1..).find(|index| !is_suffix(index))
    };
    let first = end_of_one(start)?;
    let mut end = first;
    while at(end) == Some(JOINER) {
        end = end_of_one(end + 1)?;
    }
    (end > first).then_some(end)
}

fn is_skin_tone(character: char) -> bool {
    matches!(character, '\u{1f3fb}'..='\u{1f3ff}')
}

fn is_tag(character: char) -> bool {
    matches!(character, '\u{e0020}'..='\u{e007f}')
}

fn is_emoji(character: char) -> bool {
    !character.is_ascii() && character.is_emoji_char()
}

/// Whether a character is shown as an emoji without a selector.
fn is_emoji_by_default(character: char) -> bool {
    matches!(
        character.emoji_status(),
        EmojiStatus::EmojiPresentation
            | EmojiStatus::EmojiPresentationAndModifierBase
            | EmojiStatus::EmojiPresentationAndEmojiComponent
            | EmojiStatus::EmojiPresentationAndModifierAndEmojiComponent
    )
}

/// Whether the letters of a segment belong to one script, or to Latin and an East Asian script that is used with it:
/// the level "highly restrictive" of UTS 39.
fn is_of_one_script(segment: &str) -> bool {
    if segment.is_single_script() {
        return true;
    }
    let others: String = segment.chars().filter(|character| !is_latin(*character)).collect();
    let scripts = AugmentedScriptSet::for_str(&others);
    scripts.hanb || scripts.jpan || scripts.kore
}

/// Whether a character is used with Latin letters. Characters of all scripts are.
fn is_latin(character: char) -> bool {
    let mut scripts = AugmentedScriptSet::for_char('a');
    scripts.intersect_with(AugmentedScriptSet::for_char(character));
    !scripts.is_empty()
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
            ("\u{ac00}", true),
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
            ("do\u{206a}cs", false),
            ("do\u{206f}cs", false),
            ("do\u{e0001}cs", false),
            ("a\u{600}", false),
            // For private use, unassigned, and forms of other characters.
            ("\u{e000}", false),
            ("\u{378}", false),
            ("𝐩𝐚𝐲", false),
            ("ｐａｙ", false),
            // They look like the emoji without what follows.
            ("😀\u{fe0f}", false),
            ("🏴\u{e0064}\u{e0065}\u{e0062}\u{e0065}\u{e007f}", false),
            ("é東а", false),
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
