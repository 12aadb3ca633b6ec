//! The name of a domain of short links.

use url::Url;

/// The text is not a host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?}: expected a host name in ASCII, such as go.example.com")]
pub struct InvalidDomain {
    name: String,
}

/// Checks the name of a domain and converts it to lower case.
///
/// # Errors
/// [`InvalidDomain`] if the text is not a host name.
pub fn parse_domain(name: &str) -> Result<String, InvalidDomain> {
    let domain = name.to_ascii_lowercase();
    let url = Url::parse(&format!("https://{domain}/"));
    match url.as_ref().map(Url::domain) {
        Ok(Some(host)) if host == domain => Ok(domain),
        Ok(_) | Err(_) => Err(InvalidDomain { name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_host_name() {
        for (name, expected) in [
            ("go.example.com", Some("go.example.com")),
            ("Go.Example.COM", Some("go.example.com")),
            ("localhost", Some("localhost")),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            ("bücher.example", None),
            ("", None),
            ("go.example.com:8080", None),
            ("go.example.com/r", None),
            ("https://go.example.com", None),
            ("me@go.example.com", None),
            ("10.0.0.1", None),
            ("go example", None),
        ] {
            assert_eq!(parse_domain(name).ok().as_deref(), expected, "{name:?}");
        }
    }
}
