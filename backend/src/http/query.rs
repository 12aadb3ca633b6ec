//! Parses query strings. All values are strings, and lists are comma-separated.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use url::form_urlencoded;

use crate::http::error::ApiError;
use crate::http::fields::{MAX_ITEM, is_too_long, split_list};
use crate::http::issue::Issue;

/// Maximum number of values of a filter.
pub(crate) const MAX_VALUES: usize = 1_000;
/// Maximum length of a search text, in characters. PostgreSQL takes time in proportion to the square of it, for each link.
pub(crate) const MAX_SEARCH: usize = 255;
/// Maximum page number of a list.
pub(crate) const MAX_PAGE: i64 = 1_000;

/// The decoded parameters of a request in their order (`+` and `%20` are spaces). Unknown parameters are ignored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

impl Query {
    pub(crate) fn parse(query: &str) -> Result<Self, ApiError> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        match pairs.iter().find(|(_, value)| value.contains('\0')) {
            // PostgreSQL cannot store NUL.
            Some((name, _)) => Err(Issue::nul().at(name)),
            None => Ok(Self(pairs)),
        }
    }

    /// The last value of a parameter.
    fn last(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The last value of a parameter, unless it is empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.last(name).filter(|value| !value.is_empty())
    }

    /// The values of a list of at most `max` values, given as a comma-separated value or as repeated parameters. None
    /// if the parameter is absent. An empty list is refused, because it would select everything.
    pub(crate) fn list(&self, name: &str, max: usize) -> Result<Option<Vec<String>>, ApiError> {
        self.values(name, (max, MAX_ITEM), split_list)
    }

    /// Like [`Self::list`], for texts that may have white space at their ends.
    pub(crate) fn texts(&self, name: &str, max: usize) -> Result<Option<Vec<String>>, ApiError> {
        self.values(name, (max, MAX_ITEM), split_texts)
    }

    /// Addresses: the values of a filter, each of at most `max` characters. A comma belongs to an address.
    pub(crate) fn addresses(&self, name: &str, max: usize) -> Result<Option<Vec<String>>, ApiError> {
        self.values(name, (MAX_VALUES, max), |address| {
            Some(address.trim()).filter(|address| !address.is_empty())
        })
    }

    /// At most `most` values of at most `longest` characters.
    fn values<'a, I: IntoIterator<Item: Into<String>>>(
        &'a self,
        name: &str,
        (most, longest): (usize, usize),
        split: fn(&'a str) -> I,
    ) -> Result<Option<Vec<String>>, ApiError> {
        let mut parameters = self.0.iter().filter(|(key, _)| key == name).peekable();
        if parameters.peek().is_none() {
            return Ok(None);
        }
        let values = parameters.flat_map(|(_, value)| split(value));
        let values: Vec<String> = values.take(most + 1).map(Into::into).collect();
        match values.len() {
            0 => Err(Issue::empty_list().at(name)),
            length if length > most => Err(Issue::too_many(most).at(name)),
            // A `-` in front negates the filter.
            _ if values.iter().any(|value| is_too_long(value.trim_start_matches('-'), longest)) => {
                Err(Issue::too_long(longest).at(name))
            }
            _ => Ok(Some(values)),
        }
    }

    /// The last value of a filter. An empty value is refused, because it would select everything.
    pub(crate) fn filter(&self, name: &str) -> Result<Option<&str>, ApiError> {
        match self.last(name) {
            Some("") => Err(Issue::empty_text().at(name)),
            value => Ok(value),
        }
    }

    /// The text that the entries of a list must contain.
    pub(crate) fn search(&self) -> Result<Option<&str>, ApiError> {
        match self.text("search") {
            Some(search) if search.chars().count() > MAX_SEARCH => {
                Err(Issue::too_long(MAX_SEARCH).at("search"))
            }
            search => Ok(search),
        }
    }

    /// A page of a list: the number of entries before the page, and its size.
    pub(crate) fn page(&self, max_size: i64) -> Result<(i64, i64), ApiError> {
        let page = self.integer("page", 1..=MAX_PAGE, &format!("Max page is {MAX_PAGE}."))?.unwrap_or(1);
        let size = self.page_size(max_size)?;
        Ok(((page - 1) * size, size))
    }

    /// The size of a page. The default is the maximum.
    pub(crate) fn page_size(&self, max: i64) -> Result<i64, ApiError> {
        let size = self.integer("pageSize", 1..=max, &format!("Max page size is {max}."))?;
        Ok(size.unwrap_or(max))
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.last(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => {
                let message = "Invalid input: expected true or false";
                Err(ApiError::invalid("invalid_value", name, message))
            }
        }
    }

    /// An integer within `bounds`. `too_big` is the message for a number outside them.
    pub(crate) fn integer(
        &self,
        name: &str,
        bounds: std::ops::RangeInclusive<i64>,
        too_big: &str,
    ) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.last(name) else { return Ok(None) };
        let invalid = || ApiError::invalid("invalid_type", name, "Invalid input: expected a whole number");
        // The published Python client sends integers with a fraction: `600.0`.
        let digits = match text.split_once('.') {
            Some((digits, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => digits,
            _ => text,
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        match digits.parse::<i64>() {
            Ok(number) if number < *bounds.start() => {
                let message = format!("Too small: expected number to be >={}", bounds.start());
                Err(ApiError::invalid("too_small", name, &message))
            }
            Ok(number) if bounds.contains(&number) => Ok(Some(number)),
            Ok(_) | Err(_) => Err(ApiError::invalid("too_big", name, too_big)),
        }
    }

    /// One of the given values.
    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>, ApiError> {
        let Some(text) = self.last(name) else { return Ok(None) };
        match choices.iter().find(|(word, _)| *word == text) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                let message = format!("Invalid type value. Valid values are: {}", words.join(", "));
                Err(ApiError::invalid("invalid_value", name, &message))
            }
        }
    }
}

/// Like [`split_list`], for texts that may have white space at their ends. Only white space after a comma separates values.
fn split_texts(text: &str) -> impl Iterator<Item = &str> {
    let (first, others) = text.split_once(',').unwrap_or((text, ""));
    std::iter::once(first).chain(others.split(',').map(str::trim_start)).filter(|part| !part.is_empty())
}
