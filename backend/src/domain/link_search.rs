//! A search for links: a part of the destination, or of the short link as responses show it.

use std::sync::LazyLock;

use percent_encoding::percent_decode_str;
use regex::{Captures, Regex};

use super::public_url::PublicUrl;

/// A text that links are searched for, in upper or lower case.
#[derive(Clone, Debug)]
pub(crate) struct LinkSearch {
    /// The part of the destination.
    pub(crate) text: String,
    /// The part of the short link, with readable letters.
    pub(crate) in_short_link: String,
    pub(crate) default_domain: String,
    /// What precedes `/r/` in short links on the default domain, with readable letters.
    pub(crate) default_base: String,
    /// What precedes the domain in short links on other domains.
    pub(crate) scheme: String,
}

impl LinkSearch {
    pub(crate) fn new(text: &str, public: &PublicUrl) -> Self {
        Self {
            text: text.to_owned(),
            in_short_link: readable(text),
            default_domain: public.default_domain().to_owned(),
            default_base: readable(public.base()),
            scheme: format!("{}://", public.scheme()),
        }
    }
}

/// Decodes the percent-encoded letters outside ASCII, as which short links show those of keys. Others stay, because a short
/// link does not contain them: `%2F` is not part of it, though `/` is.
fn readable(text: &str) -> String {
    let letter = |escapes: &Captures<'_>| match percent_decode_str(&escapes[0]).decode_utf8() {
        Ok(letter) => letter.into_owned(),
        Err(_) => escapes[0].to_owned(),
    };
    ESCAPED.replace_all(text, letter).into_owned()
}

/// The escapes of a letter outside ASCII in UTF-8.
#[expect(clippy::expect_used, reason = "the expression is a constant, and a test uses it")]
static ESCAPED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("(?i)%[CD].%[89AB].|%E.(?:%[89AB].){2}|%F.(?:%[89AB].){3}").expect("an expression")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encoded_letters_outside_ascii_become_readable() {
        //  text                                   readable
        let table = [
            ("", ""),
            ("https://s.test/r/docs", "https://s.test/r/docs"),
            ("/r/%D0%B0%d0%ba", "/r/ак"),
            ("%E6%9D%B1-%F0%9F%98%80", "東-😀"),
            ("caf%C3%A9!", "café!"),
            ("%2F%41%25", "%2F%41%25"),
            ("%25D0%25B0", "%25D0%25B0"),
            // Parts of letters, and what is no letter.
            ("%B0%D0%BA", "%B0к"),
            ("%D0%B0%D0", "а%D0"),
            ("%D0", "%D0"),
            ("%D0%", "%D0%"),
            ("%C3é", "%C3é"),
            ("%C3%A", "%C3%A"),
            ("%C0%AF%ED%A0%80", "%C0%AF%ED%A0%80"),
            ("100%", "100%"),
            ("é%C3%A9%", "éé%"),
        ];
        for (text, expected) in table {
            assert_eq!(readable(text), expected, "{text}");
        }
    }
}
