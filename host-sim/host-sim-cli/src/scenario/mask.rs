//! Values that differ in every run, and are not compared.

/// What a hidden value is shown as.
pub(crate) const HIDDEN: &str = "…";

/// Envoy makes up the one, and appends an address of the machine to the other.
const ALWAYS: [&str; 2] = ["x-request-id: ", "x-forwarded-for: "];

/// Texts that are followed by a value that is not compared. By default there are none.
#[derive(Debug, Default)]
pub(crate) struct Masks<'a>(Vec<Mask<'a>>);

#[derive(Debug)]
struct Mask<'a> {
    before: &'a str,
    /// Where the value ends; at the end of the line without it.
    after: Option<&'a str>,
}

impl<'a> Masks<'a> {
    /// Those of Envoy's own headers and `texts`, in which a `*` stands for the value.
    pub(crate) fn new(texts: &[&'a str]) -> Self {
        let mask = |text: &'a str| {
            let (before, after) = text.split_once('*').unwrap_or((text, ""));
            Mask { before, after: Some(after).filter(|after| !after.is_empty()) }
        };
        Self(ALWAYS.into_iter().chain(texts.iter().copied()).map(mask).collect())
    }

    /// A text of several lines without the values.
    pub(crate) fn hide(&self, text: &str) -> String {
        let lines: Vec<_> = text.split('\n').map(|line| self.hide_in_line(line)).collect();
        lines.join("\n")
    }

    fn hide_in_line(&self, line: &str) -> String {
        self.0.iter().fold(line.to_owned(), |line, mask| mask.hide(&line))
    }

    /// A header line without the values.
    pub(crate) fn header(&self, name: &str, value: &str) -> String {
        self.hide(&format!("{name}: {value}"))
    }

    /// The value of a header as in its [line](Self::header).
    pub(crate) fn header_value(&self, name: &str, value: &str) -> String {
        let line = self.header(name, value);
        let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        value.unwrap_or(&line).to_owned()
    }

    /// Whether `whole` has `part` in it, apart from the values.
    pub(crate) fn contains(&self, whole: &str, part: &str) -> bool {
        whole.contains(part) || self.hide(whole).contains(&self.hide(part))
    }
}

impl Mask<'_> {
    fn hide(&self, line: &str) -> String {
        let mut parts = line.split(self.before);
        let mut shown = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            shown += self.before;
            shown += HIDDEN;
            let Some(after) = self.after else { break };
            if let Some((_, rest)) = part.split_once(after) {
                shown += after;
                shown += rest;
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_mask_is_hidden() {
        //  mask, text, what is shown
        let rows = [
            ("reset ", "limit 2, reset 58 s", "limit 2, reset …"),
            ("reset *", "limit 2, reset 58 s", "limit 2, reset …"),
            ("reset * ", "limit 2, reset 58 s", "limit 2, reset … s"),
            ("t=*,", "a;t=1, b;t=2, c;t=3", "a;t=…, b;t=…, c;t=…"),
            (r#""id":"*""#, r#"{"id":"a1","name":"b"}"#, r#"{"id":"…","name":"b"}"#),
            ("id ", "id 1\nname b\nid 2", "id …\nname b\nid …"),
            ("absent ", "limit 2", "limit 2"),
            ("limit ", "x-request-id: 1\nlimit 2", "x-request-id: …\nlimit …"),
        ];
        for (mask, text, expected) in rows {
            assert_eq!(Masks::new(&[mask]).hide(text), expected, "{mask}");
        }
    }

    #[test]
    fn a_part_is_found_with_its_hidden_value_and_without() {
        let masks = Masks::new(&["reset * "]);
        let rows = [("reset 58 s", true), ("reset 57 s", true), ("58", true), ("57", false), ("58 m", false)];
        for (part, expected) in rows {
            assert_eq!(masks.contains("limit 2, reset 58 s", part), expected, "{part}");
        }
    }
}
