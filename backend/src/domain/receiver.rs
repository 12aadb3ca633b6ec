//! Canonical URLs of receivers. A workspace has at most one webhook for each URL.

use url::Url;

/// Maximum length of a URL, as sent and in canonical form, in characters. An entry of an index of PostgreSQL has at most
/// 2,704 bytes, and the URLs of a workspace are in one.
pub(crate) const MAX_URL: usize = 2_048;

/// The reason why a URL is not valid for a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidReceiver {
    #[error("Invalid URL")]
    NoUrl,
    #[error("Invalid URL: expected http or https")]
    Scheme,
    #[error("Invalid URL: user and password are not sent")]
    Credentials,
    #[error("Invalid URL: expected <={MAX_URL} characters after percent-encoding")]
    TooLong,
}

/// Parses the URL of a receiver and removes differences that do not matter to it (RFC 3986, section 6.2.2): fragments,
/// empty queries, dots after the host, default ports, upper case in host and scheme, and percent-encoded letters.
pub(crate) fn parse(text: &str) -> Result<Url, InvalidReceiver> {
    let mut url = Url::parse(text).map_err(|_| InvalidReceiver::NoUrl)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(InvalidReceiver::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(InvalidReceiver::Credentials);
    }
    url.set_fragment(None);
    // The URL parser permits several dots. A resolver takes one as the end of a full name.
    let host =
        url.host_str().filter(|host| host.ends_with('.')).map(|host| host.trim_end_matches('.').to_owned());
    if let Some(host) = host {
        url.set_host(Some(&host)).map_err(|_| InvalidReceiver::NoUrl)?;
    }
    let path = decode_unreserved(url.path());
    url.set_path(&path);
    let query = url.query().filter(|query| !query.is_empty()).map(decode_unreserved);
    url.set_query(query.as_deref());
    if url.as_str().len() > MAX_URL {
        return Err(InvalidReceiver::TooLong);
    }
    Ok(url)
}

/// Decodes unreserved characters and writes the other escapes in upper case.
fn decode_unreserved(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        rest = match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    decoded.push(char::from(byte));
                } else {
                    decoded.push_str(&format!("%{byte:02X}"));
                }
                &after[2..]
            }
            None => {
                decoded.push('%');
                after
            }
        };
    }
    decoded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_reach_the_same_are_the_same() {
        let table = [
            ("https://rx.test/", "https://rx.test/"),
            ("HTTPS://RX.test", "https://rx.test/"),
            ("https://rx.test:443/#1", "https://rx.test/"),
            ("https://rx.test./?", "https://rx.test/"),
            ("https://rx.test../", "https://rx.test/"),
            ("https://rx.test%2e。.:443/", "https://rx.test/"),
            ("http://127.0.0.1../", "http://127.0.0.1/"),
            ("https://rx.test/a/../b", "https://rx.test/b"),
            ("https://rx.test/%7euser/%2f?q=%41%c3%a9", "https://rx.test/~user/%2F?q=A%C3%A9"),
            ("https://rx.test/100%", "https://rx.test/100%"),
            ("https://rx.test/%+1", "https://rx.test/%+1"),
            ("https://rx.test/%%41", "https://rx.test/%A"),
            ("http://[::1]:80/", "http://[::1]/"),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text).map(String::from).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_receiver_is_refused() {
        let table = [
            ("rx.test", InvalidReceiver::NoUrl),
            ("http://", InvalidReceiver::NoUrl),
            ("http://./", InvalidReceiver::NoUrl),
            ("http://.../", InvalidReceiver::NoUrl),
            ("ftp://rx.test/", InvalidReceiver::Scheme),
            ("https://user@rx.test/", InvalidReceiver::Credentials),
            ("https://:secret@rx.test/", InvalidReceiver::Credentials),
            (&format!("https://rx.test/{}", "é".repeat(MAX_URL / 6)), InvalidReceiver::TooLong),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }
}
