//! Destinations of links, and the campaign parameters in them.

use std::collections::HashSet;

use url::{Url, form_urlencoded};

use super::change::Change;
use super::conflict::Conflict;
use super::parameters;

/// Maximum length of a destination, in characters.
pub(crate) const MAX_URL: usize = 32_000;
/// Maximum length of a campaign parameter, in characters.
pub(crate) const MAX_PARAMETER: usize = 255;

/// Schemes that execute code in the browser or read from it.
const FORBIDDEN_SCHEMES: [&str; 6] = ["javascript", "data", "vbscript", "file", "blob", "about"];

/// The query parameters of a destination that fields of the link set.
pub(crate) const NAMES: [&str; 6] =
    ["utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "ref"];

/// The destination that a text means.
pub(crate) fn parse(text: &str) -> Option<String> {
    let text = text.trim();
    // Parsers of URLs ignore line breaks, but the header of a redirect cannot contain them. PostgreSQL cannot store NUL.
    if text.contains(|character: char| character.is_ascii_control() && character != '\t') {
        return None;
    }
    if let Ok(url) = Url::parse(text) {
        // `localhost:3000` and `example.com:8080/x` parse as URLs with a scheme.
        let names_port = !text.contains("://")
            && text.split_once(':').is_some_and(|(host, rest)| {
                (host.contains('.') || host == "localhost")
                    && rest.starts_with(|first: char| first.is_ascii_digit())
            });
        if !names_port {
            return (!FORBIDDEN_SCHEMES.contains(&url.scheme())).then(|| text.to_owned());
        }
    }
    let with_scheme = format!("https://{text}");
    let url = Url::parse(&with_scheme).ok()?;
    let is_host = |host: &str| host.contains('.') || host == "localhost";
    url.host_str().is_some_and(is_host).then_some(with_scheme)
}

/// The conflict of a destination of which a part is too long.
pub(crate) fn too_long(url: &str) -> Option<Conflict> {
    let exceeds = |text: &str, max: usize| text.len() > max && text.chars().count() > max;
    if exceeds(url, MAX_URL) {
        return Some(Conflict::TooLong { field: "url", max: MAX_URL });
    }
    let utm = UtmParameters::of(url);
    let mut values = utm.values().into_iter().zip(NAMES);
    let long = values.find(|(value, _)| value.as_ref().is_some_and(|value| exceeds(value, MAX_PARAMETER)));
    long.map(|(_, field)| Conflict::TooLong { field, max: MAX_PARAMETER })
}

/// The campaign parameters in the query of a destination. Empty parameters count as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UtmParameters {
    pub(crate) source: Option<String>,
    pub(crate) medium: Option<String>,
    pub(crate) campaign: Option<String>,
    pub(crate) term: Option<String>,
    pub(crate) content: Option<String>,
}

impl UtmParameters {
    /// The source, the medium, the campaign, the term and the content.
    pub(crate) fn values(&self) -> [&Option<String>; 5] {
        [&self.source, &self.medium, &self.campaign, &self.term, &self.content]
    }

    pub(crate) fn of(url: &str) -> Self {
        let mut utm = Self::default();
        // Most parameters are not campaign parameters, so the prefix is checked first.
        if !url.contains('?') {
            return utm;
        }
        let Ok(url) = Url::parse(url) else { return utm };
        for (name, value) in url.query_pairs().filter(|(_, value)| !value.is_empty() && !value.contains('\0'))
        {
            let field = match &*name {
                "utm_source" => &mut utm.source,
                "utm_medium" => &mut utm.medium,
                "utm_campaign" => &mut utm.campaign,
                "utm_term" => &mut utm.term,
                "utm_content" => &mut utm.content,
                _ => continue,
            };
            *field = Some(value.into_owned());
        }
        utm
    }
}

/// The campaign parameters that a request sets or clears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(&'static str, Change<String>)>);

impl Parameters {
    /// The changed ones of these parameters.
    pub(crate) fn of(parameters: [(&'static str, Change<String>); NAMES.len()]) -> Self {
        Self(parameters.into_iter().filter(|(_, change)| *change != Change::Keep).collect())
    }

    /// The destination with these parameters. All other bytes of it stay.
    pub(crate) fn apply(&self, url: &str) -> String {
        let Some(parsed) = (!self.0.is_empty()).then(|| Url::parse(url).ok()).flatten() else {
            return url.to_owned();
        };
        let (mut names, mut added) = (HashSet::new(), Vec::new());
        for (name, change) in &self.0 {
            let value = match change {
                Change::Set(value) => Some(value.as_str()),
                Change::Clear | Change::Keep => None,
            };
            if value_in(&parsed, name).as_deref() != value {
                names.insert(parameters::name_of(name));
                let pair = |value: &str| {
                    form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish()
                };
                added.extend(value.map(pair));
            }
        }
        if names.is_empty() {
            return url.to_owned();
        }
        let added: Vec<&str> = added.iter().map(String::as_str).collect();
        parameters::changed(url, &names, &added)
    }
}

/// The value of a parameter, as links show it: the last one that is not empty.
fn value_in(url: &Url, name: &str) -> Option<String> {
    let values = url.query_pairs().filter(|(key, value)| key == name && !value.is_empty());
    values.filter(|(_, value)| !value.contains('\0')).last().map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn parameters_change_nothing_else_of_a_destination() {
        //  destination, fields, and the destination with them
        let table = [
            ("https://example.com", json!({"utm_source": null, "ref": ""}), "https://example.com"),
            (
                "https://example.com?a=b%20c&flag",
                json!({"utm_term": null}),
                "https://example.com?a=b%20c&flag",
            ),
            (
                "https://example.com?utm_source=a+b&",
                json!({"utm_source": "a b"}),
                "https://example.com?utm_source=a+b&",
            ),
            (
                "https://example.com?utm_source=",
                json!({"utm_source": null}),
                "https://example.com?utm_source=",
            ),
            ("nonsense", json!({"utm_source": "s"}), "nonsense"),
            ("https://example.com", json!({"utm_source": "s t&u"}), "https://example.com?utm_source=s+t%26u"),
            (
                "https://example.com/?a=b%20c&flag&utm_source=x&sig=%2f+#top",
                json!({"utm_source": "y", "utm_term": null}),
                "https://example.com/?a=b%20c&flag&sig=%2f+&utm_source=y#top",
            ),
            (
                "https://example.com/?utm_source=a&utm%5fsource=b",
                json!({"utm_source": null}),
                "https://example.com/",
            ),
            ("https://example.com/?ref=a&b", json!({"ref": "c"}), "https://example.com/?b&ref=c"),
        ];
        for (url, body, expected) in table {
            let change = |name| match body.get(name).and_then(Value::as_str) {
                Some("") => Change::Clear,
                Some(value) => Change::Set(value.to_owned()),
                None => body.get(name).map_or(Change::Keep, |_| Change::Clear),
            };
            let parameters = Parameters::of(NAMES.map(|name| (name, change(name))));
            assert_eq!(parameters.apply(url), expected, "{url} {body}");
            assert_eq!(parameters.apply(expected), expected, "{url} {body}");
        }
    }
}
