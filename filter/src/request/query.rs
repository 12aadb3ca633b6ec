//! The query of a request's path, as `application/x-www-form-urlencoded`: `+` is a space, `%XX` a byte, an invalid escape itself.

use std::borrow::Cow;

use super::path::percent_decoded;

/// All values of the parameter `name` in the query of a request's `:path`. A parameter without `=` has an empty value.
///
/// ```
/// use filter::request::query::values;
/// assert!(values(b"/x?a=b&quota=per%2Dday&quota#quota=c", "quota").eq([&b"per-day"[..], b""]));
/// ```
pub fn values<'r>(path: &'r [u8], name: &str) -> impl Iterator<Item = Cow<'r, [u8]>> {
    of(path).split(|byte| *byte == b'&').filter_map(move |parameter| {
        let at = parameter.iter().position(|byte| *byte == b'=').unwrap_or(parameter.len());
        let (found, value) = parameter.split_at_checked(at)?;
        let is_named = percent_decoded(found, b' ') == name.as_bytes();
        is_named.then(|| percent_decoded(value.strip_prefix(b"=").unwrap_or_default(), b' '))
    })
}

/// The names of all parameters, also for an upstream that separates them by `;`, too.
pub(super) fn names(path: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let parameters = of(path).split(|byte| matches!(byte, b'&' | b';'));
    parameters.map(|parameter| {
        let name = parameter.split(|byte| *byte == b'=').next();
        percent_decoded(name.unwrap_or_default(), b' ')
    })
}

/// The query of a path.
fn of(path: &[u8]) -> &[u8] {
    let path = path.split(|byte| *byte == b'#').next().unwrap_or_default();
    let query = path.iter().position(|byte| *byte == b'?').and_then(|at| path.get(at + 1..));
    query.unwrap_or_default()
}
