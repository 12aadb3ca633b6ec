//! The public URL of the service, and the short links under it.

use url::Url;

/// The public URL. Short links are `<base>/r/<key>`.
#[derive(Clone, Debug)]
pub struct PublicUrl {
    base: Url,
    host: String,
}

/// The public URL is not valid for short links.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("public URL {url:?}: expected http:// or https:// with a host, without query and fragment")]
pub struct InvalidPublicUrl {
    url: String,
}

impl PublicUrl {
    /// Parses the public URL of the service.
    ///
    /// # Errors
    /// [`InvalidPublicUrl`] if it is not an HTTP URL with a host, or has a query or fragment.
    pub fn parse(text: &str) -> Result<Self, InvalidPublicUrl> {
        let invalid = || InvalidPublicUrl { url: text.to_owned() };
        let base = Url::parse(text.trim_end_matches('/')).map_err(|_| invalid())?;
        let host = base.host_str().ok_or_else(invalid)?;
        let host = host.strip_suffix('.').unwrap_or(host).to_owned();
        let plain = base.query().is_none() && base.fragment().is_none() && base.username().is_empty();
        if !plain || !matches!(base.scheme(), "http" | "https") {
            return Err(invalid());
        }
        Ok(Self { base, host })
    }

    /// The scheme of all short links.
    pub(crate) fn scheme(&self) -> &str {
        self.base.scheme()
    }

    /// The URL without a trailing slash.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The domain of links that do not specify one.
    #[must_use]
    pub fn default_domain(&self) -> &str {
        &self.host
    }

    /// The URL of the short link `key` on `domain`. Links on the default domain use the public URL with its port and
    /// path; links on other domains are at the root of the domain.
    #[must_use]
    pub fn short_link(&self, domain: &str, key: &str) -> String {
        let key = percent_encoding::utf8_percent_encode(key, KEY_IN_PATH);
        if domain == self.host {
            format!("{}/r/{key}", self.base())
        } else {
            format!("{}://{domain}/r/{key}", self.scheme())
        }
    }

    pub(crate) fn qr_code(&self, short_link: &str) -> String {
        format!("{}/qr?url={short_link}?qr=1", self.base())
    }
}

/// The characters of a key that are escaped in a path.
const KEY_IN_PATH: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/').remove(b'~');
