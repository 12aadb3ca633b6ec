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

/// Parses the URL of a receiver and removes differences that do not matter to it: fragments, empty queries, dots after the host, default ports,
/// and upper case in host and scheme.
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
    if url.query() == Some("") {
        url.set_query(None);
    }
    if url.as_str().len() > MAX_URL {
        return Err(InvalidReceiver::TooLong);
    }
    Ok(url)
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
