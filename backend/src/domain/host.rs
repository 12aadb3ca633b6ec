//! The host that a request names.

use std::borrow::Cow;
use std::net::Ipv4Addr;

/// The host of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host<'a> {
    /// An IP address, or no host at all. It says nothing about the domain that a visitor means.
    Address,
    /// A name in lower case.
    Name(Cow<'a, str>),
}

impl<'a> Host<'a> {
    /// Parses a `Host` header or the authority of a URL. One dot at the end is dropped: `go.example.com.` is the same name as
    /// `go.example.com`.
    pub(crate) fn parse(text: Option<&'a str>) -> Self {
        let text = text.unwrap_or_default();
        let name = text.split(':').next().unwrap_or_default();
        let name = name.strip_suffix('.').unwrap_or(name);
        if text.is_empty() || text.starts_with('[') || name.parse::<Ipv4Addr>().is_ok() {
            return Self::Address;
        }
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Self::Name(name.to_ascii_lowercase().into());
        }
        Self::Name(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for (text, name) in [
            ("go.example.com", Some("go.example.com")),
            ("GO.example.com.", Some("go.example.com")),
            ("go.example.com..", Some("go.example.com.")),
            ("go.example.com.:8080", Some("go.example.com")),
            ("localhost:8080", Some("localhost")),
            ("", None),
            ("127.0.0.1", None),
            ("192.0.2.1:8080", None),
            ("[::1]", None),
            ("[2001:db8::1]:8080", None),
            ("192.0.2.1.example.com", Some("192.0.2.1.example.com")),
        ] {
            let expected = name.map_or(Host::Address, |name| Host::Name(name.into()));
            assert_eq!(Host::parse(Some(text)), expected, "{text}");
        }
        assert_eq!(Host::parse(None), Host::Address);
    }
}
