//! What parts of a counter's name mean: the `stats_config.stats_tags` of an Envoy bootstrap.
//!
//! Envoy takes tags out of names such as `plan=.=pro;.;class=.=read;.;requests_total` with the regular expressions of its
//! bootstrap. The same expressions make a table of the counters of any filter.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde_json::Value;

use crate::error::ConfigurationError;

/// What Envoy writes before the names of metrics that filters define.
const PREFIX: &str = "wasmcustom.";

/// Tags of counters, in the order of the bootstrap.
#[derive(Debug, Clone, Default)]
pub struct StatsTags(Vec<(String, Regex)>);

/// Counters of one kind: a row for each combination of tags but the last, a column for each value of the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagTable {
    /// What is counted: the name without its tags.
    pub name: String,
    /// The names of the tags that make the rows.
    pub rows: Vec<String>,
    /// The name of the tag that makes the columns.
    pub columns: String,
    /// The columns' values, sorted.
    pub values: Vec<String>,
    /// The rows' values, sorted, with the count of each column.
    pub counts: Vec<(Vec<String>, Vec<u64>)>,
}

/// The counts of one kind of counter: by the values of the row tags, then by the value of the column tag.
type Counts = BTreeMap<Vec<String>, BTreeMap<String, u64>>;

impl TagTable {
    /// What is counted, and by what.
    pub fn title(&self) -> String {
        let by = if self.rows.is_empty() { self.columns.clone() } else { self.rows.join(" and ") };
        format!("{}, by {by}", self.name)
    }
}

impl StatsTags {
    /// The tags of a bootstrap in JSON or YAML; none where it names none, or is no bootstrap.
    ///
    /// # Errors
    /// When the text is neither JSON nor YAML, or a tag's expression is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigurationError> {
        let document: Value = match serde_json::from_slice(bytes) {
            Ok(document) => document,
            Err(_) => {
                serde_saphyr::from_slice(bytes).map_err(|error| ConfigurationError::syntax(bytes, &error))?
            }
        };
        let tags = document.pointer("/stats_config/stats_tags").and_then(Value::as_array);
        let field = |expected| ConfigurationError::Field { field: "stats_config.stats_tags", expected };
        let tags = tags.into_iter().flatten().filter_map(|tag| {
            // A tag of a fixed value takes nothing out of a name.
            let regex = tag.get("regex")?.as_str()?;
            let name = tag.get("tag_name").and_then(Value::as_str).unwrap_or_default().to_owned();
            Some(Regex::new(regex).map(|regex| (name, regex)).map_err(|_| field("regular expressions")))
        });
        tags.collect::<Result<_, _>>().map(Self)
    }

    /// A counter's name without its tags, and its tags' values. As in Envoy, each expression sees the whole name; its
    /// first group is taken out of the name, and its second, or the first where it is alone, is the value.
    fn split(&self, name: &str) -> (String, BTreeMap<usize, String>) {
        let full = format!("{PREFIX}{name}");
        let mut removed = Vec::new();
        let mut values = BTreeMap::new();
        for (index, (_, regex)) in self.0.iter().enumerate() {
            let Some(captures) = regex.captures(&full) else { continue };
            let Some(outer) = captures.get(1) else { continue };
            values.insert(index, captures.get(2).unwrap_or(outer).as_str().to_owned());
            removed.push(outer.range());
        }
        let kept = full.char_indices().filter(|(at, _)| !removed.iter().any(|range| range.contains(at)));
        let kept: String = kept.map(|(_, c)| c).collect();
        (kept.strip_prefix(PREFIX).unwrap_or(&kept).to_owned(), values)
    }

    /// The counters as tables, one for each name and set of tags, and those that have no tag as they are.
    pub fn tables<'a>(
        &self,
        counters: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> (Vec<TagTable>, Vec<(&'a str, u64)>) {
        let mut kinds: BTreeMap<(String, Vec<usize>), Counts> = BTreeMap::new();
        let mut rest = Vec::new();
        for (name, count) in counters {
            let (base, mut values) = self.split(name);
            let tags: Vec<usize> = values.keys().copied().collect();
            let Some((_, column)) = values.pop_last() else {
                rest.push((name, count));
                continue;
            };
            let row = kinds.entry((base, tags)).or_default().entry(values.into_values().collect());
            *row.or_default().entry(column).or_default() += count;
        }
        let name_of = |index: &usize| self.0.get(*index).map(|(name, _)| name.clone()).unwrap_or_default();
        let table = |((name, tags), counts): ((String, Vec<usize>), Counts)| {
            let values: BTreeSet<&String> = counts.values().flat_map(BTreeMap::keys).collect();
            let cells = |row: &BTreeMap<String, u64>| {
                values.iter().map(|value| row.get(*value).copied().unwrap_or(0)).collect()
            };
            let (columns, rows) = tags.split_last()?;
            Some(TagTable {
                name,
                rows: rows.iter().map(name_of).collect(),
                columns: name_of(columns),
                counts: counts.iter().map(|(row, counts)| (row.clone(), cells(counts))).collect(),
                values: values.iter().map(|value| (*value).clone()).collect(),
            })
        };
        (kinds.into_iter().filter_map(table).collect(), rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTSTRAP: &str = r"
stats_config:
  stats_tags:
  - tag_name: plan
    regex: '^wasmcustom\.f\.plan(\.([^.]+))\.class\.'
  - tag_name: class
    regex: '^wasmcustom\.f\.plan\.[^.]+\.class(\.([^.]+))\.'
  - tag_name: outcome
    regex: '^wasmcustom\.f\.plan\.[^.]+\.class\.[^.]+(\.([^.]+))$'
  - tag_name: zone
    fixed_value: a
";

    #[test]
    fn counters_become_a_table_by_the_tags_of_the_bootstrap() {
        let tags = StatsTags::parse(BOOTSTRAP.as_bytes()).unwrap();
        let counters = [
            ("f.plan.free.class.read.admitted", 60),
            ("f.plan.free.class.read.refused", 3),
            ("f.plan.pro.class.read.admitted", 7),
            ("f.configured", 1),
        ];
        let (tables, rest) = tags.tables(counters);
        let row = |plan: &str, counts: [u64; 2]| (vec![plan.to_owned(), "read".to_owned()], counts.to_vec());
        assert_eq!(
            tables,
            [TagTable {
                name: "f.plan.class".to_owned(),
                rows: vec!["plan".to_owned(), "class".to_owned()],
                columns: "outcome".to_owned(),
                values: vec!["admitted".to_owned(), "refused".to_owned()],
                counts: vec![row("free", [60, 3]), row("pro", [7, 0])],
            }]
        );
        assert_eq!(rest, [("f.configured", 1)]);
    }

    #[test]
    fn tags_in_the_form_of_istio_are_taken_out_wherever_they_stand() {
        let tag = |name| serde_json::json!({"tag_name": name, "regex": format!(r"({name}=\.=(.*?);\.;)")});
        let tags = ["plan", "class", "outcome"].map(tag);
        let bootstrap = serde_json::json!({"stats_config": {"stats_tags": tags}}).to_string();
        let tags = StatsTags::parse(bootstrap.as_bytes()).unwrap();
        let counters = [
            ("f.plan=.=free;.;class=.=read;.;outcome=.=admitted;.;requests_total", 60),
            // Tags in another order, and a value with dots.
            ("f.outcome=.=refused;.;class=.=read;.;plan=.=v1.2;.;requests_total", 3),
            // A tag that does not end.
            ("f.plan=.=free;.requests_total", 1),
            ("f.calls_total", 2),
        ];
        let (tables, rest) = tags.tables(counters);
        let row = |plan: &str, counts: [u64; 2]| (vec![plan.to_owned(), "read".to_owned()], counts.to_vec());
        assert_eq!(
            tables,
            [TagTable {
                name: "f.requests_total".to_owned(),
                rows: vec!["plan".to_owned(), "class".to_owned()],
                columns: "outcome".to_owned(),
                values: vec!["admitted".to_owned(), "refused".to_owned()],
                counts: vec![row("free", [60, 0]), row("v1.2", [0, 3])],
            }]
        );
        assert_eq!(rest, [("f.plan=.=free;.requests_total", 1), ("f.calls_total", 2)]);
    }

    #[test]
    fn what_names_no_tags_leaves_counters_as_they_are() {
        for text in ["{}", "[1, 2]", "rules: {}", ""] {
            let (tables, rest) = StatsTags::parse(text.as_bytes()).unwrap().tables([("a.b", 1)]);
            assert_eq!((tables.len(), rest), (0, vec![("a.b", 1)]), "{text}");
        }
        let broken = "stats_config: {stats_tags: [{tag_name: a, regex: '('}]}";
        assert_eq!(
            StatsTags::parse(broken.as_bytes()).unwrap_err().to_string(),
            "stats_config.stats_tags: expected regular expressions"
        );
    }
}
