//! Paths of matches. As in OpenAPI, a segment `{name}` stands for any one segment that is not empty: `/users/{id}/reports`.

use super::path::below;
use super::readings::Readings;

/// A path, in which names may stand for segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    has_names: bool,
}

/// Why a text is not a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It does not start with `/`.
    #[error("expected a path that starts with /")]
    NoSlash,
    /// It has a `*`.
    #[error(
        "* stands for nothing here; write {{name}} for any one segment, and path_prefix for everything below a path"
    )]
    Star,
    /// Braces enclose less than a segment, or nothing.
    #[error("a name in braces stands for a whole segment, as in /users/{{id}}/reports")]
    Brace,
}

fn is_name(segment: &str) -> bool {
    segment.starts_with('{')
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// If the text is not a template.
    pub fn new(text: String) -> Result<Self, TemplateError> {
        if !text.starts_with('/') {
            return Err(TemplateError::NoSlash);
        }
        if text.contains('*') {
            return Err(TemplateError::Star);
        }
        let is_whole = |segment: &str| {
            let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let plain = name.filter(|name| !name.is_empty()).unwrap_or(segment);
            !plain.contains(['{', '}'])
        };
        if !text.split('/').all(is_whole) {
            return Err(TemplateError::Brace);
        }
        Ok(Self { has_names: text.split('/').any(is_name), text })
    }

    /// A path that stands for itself.
    #[must_use]
    pub fn literal(text: String) -> Self {
        Self { text, has_names: false }
    }

    /// The template as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `path` is one of the template's.
    #[must_use]
    pub fn is(&self, path: &[u8]) -> bool {
        if self.has_names { self.fits(path, false) } else { path == self.text.as_bytes() }
    }

    /// Whether `path` is one of the template's, or below one.
    #[must_use]
    pub fn is_at_or_above(&self, path: &[u8]) -> bool {
        if self.has_names { self.fits(path, true) } else { below(&self.text, path).is_some() }
    }

    fn segments(&self) -> impl Iterator<Item = &str> {
        self.text.strip_suffix('/').unwrap_or(&self.text).split('/')
    }

    fn fits(&self, path: &[u8], or_below: bool) -> bool {
        let mut segments = path.split(|byte| *byte == b'/');
        let has = |wanted: &str| {
            segments.next().is_some_and(|segment| {
                if is_name(wanted) { !segment.is_empty() } else { segment == wanted.as_bytes() }
            })
        };
        self.segments().all(has) && (or_below || segments.next().is_none())
    }

    /// Whether every path of `other` is one of this template's; with `or_below`, or below one.
    #[must_use]
    pub fn covers(&self, other: &Self, or_below: bool) -> bool {
        let mut others = other.segments();
        let covers =
            |own: &str| others.next().is_some_and(|other| own == other || is_name(own) && !other.is_empty());
        self.segments().all(covers) && (or_below || others.next().is_none())
    }

    /// A path with which readings of requests' paths are compared must have one reading: itself.
    ///
    /// # Errors
    /// The template to be written in its place.
    pub fn check(&self, readings: &Readings) -> Result<(), String> {
        // What a name is called is no matter of paths.
        let names = self.text.split('/').filter(|segment| is_name(segment));
        let nameless: Vec<_> =
            self.text.split('/').map(|segment| if is_name(segment) { "{}" } else { segment }).collect();
        readings
            .check(&nameless.join("/"))
            .map_err(|normal| names.fold(normal, |normal, name| normal.replacen("{}", name, 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::new(text.to_owned()).unwrap()
    }

    #[test]
    fn a_name_stands_for_one_segment_that_is_not_empty() {
        let rows = [
            ("/users/{id}", "/users/1", true, true),
            ("/users/{id}", "/users/..", true, true),
            ("/users/{id}", "/users/", false, false),
            ("/users/{id}", "/users", false, false),
            ("/users/{id}", "/users/1/reports", false, true),
            ("/users/{id}/reports", "/users/1/reports", true, true),
            ("/users/{id}/reports", "/users/1/2/reports", false, false),
            ("/users/{id}/reports", "/users//reports", false, false),
            ("/users/{id}/reports", "/users/1/report", false, false),
            ("/{a}/{b}", "/x/y", true, true),
            ("/{a}/{b}", "//y", false, false),
            ("/{a}/", "/x/y", false, true),
            ("/users", "/users", true, true),
            ("/users", "/users/1", false, true),
            ("/users", "/usersx", false, false),
            ("/", "/", true, true),
            ("/", "/x", false, true),
        ];
        for (text, path, is, is_at_or_above) in rows {
            let template = template(text);
            let found = (template.is(path.as_bytes()), template.is_at_or_above(path.as_bytes()));
            assert_eq!(found, (is, is_at_or_above), "{path} against {text}");
        }
    }

    #[test]
    fn a_text_that_is_no_template_is_refused_with_the_form_that_works() {
        let rows = [
            ("users/{id}", TemplateError::NoSlash),
            ("/users/*", TemplateError::Star),
            ("/users/**/reports", TemplateError::Star),
            ("/files/*.json", TemplateError::Star),
            ("/users/{id", TemplateError::Brace),
            ("/users/id}", TemplateError::Brace),
            ("/users/{}", TemplateError::Brace),
            ("/users/u-{id}", TemplateError::Brace),
            ("/users/{id}.json", TemplateError::Brace),
            ("/users/{a}{b}", TemplateError::Brace),
            ("/users/{{id}}", TemplateError::Brace),
        ];
        for (text, error) in rows {
            assert_eq!(Template::new(text.to_owned()), Err(error), "{text}");
        }
    }

    #[test]
    fn a_template_covers_what_it_cannot_leave_to_a_later_one() {
        let rows = [
            ("/users/{id}", "/users/{name}", true, true),
            ("/users/{id}", "/users/me", true, true),
            ("/users/me", "/users/{id}", false, false),
            ("/users/{id}", "/users/{id}/reports", false, true),
            ("/users", "/users/{id}", false, true),
            ("/", "/users", false, true),
            ("/{any}", "/", false, false),
        ];
        for (earlier, later, covers, with_below) in rows {
            let (earlier_template, later_template) = (template(earlier), template(later));
            let found = [false, true].map(|or_below| earlier_template.covers(&later_template, or_below));
            assert_eq!(found, [covers, with_below], "{later} after {earlier}");
        }
    }

    #[test]
    fn what_is_written_instead_keeps_the_names() {
        let readings = Readings::new(Default::default());
        assert_eq!(template("/users/{userId}/reports").check(&readings), Ok(()));
        let instead = template("/%75sers/{userId}/reports/").check(&readings);
        assert_eq!(instead, Err("/users/{userId}/reports".to_owned()));
    }
}
