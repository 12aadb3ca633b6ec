//! Reports for machines: JSON and JUnit's XML.

use std::fmt::Write as _;

use host_sim_cli::scenario::StepReport;
use serde_json::{Value as Json, json};

use super::{Ran, text::difference};

fn step_json(step: &StepReport) -> Json {
    let mut json = json!(step);
    json["ok"] = step.misses.is_empty().into();
    json
}

/// The runs as one object.
pub(super) fn json(runs: &[Ran]) -> String {
    let scenario = |Ran { name, report, .. }: &Ran| {
        let steps: Vec<_> = report.steps.iter().map(step_json).collect();
        json!({ "name": name, "ok": report.passed(), "steps": steps })
    };
    let scenarios: Vec<_> = runs.iter().map(scenario).collect();
    format!("{:#}", json!({ "ok": runs.iter().all(|ran| ran.report.passed()), "scenarios": scenarios }))
}

/// A text within XML. Of the characters that XML does not have, the numbers stay.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            character if character.is_control() => escaped.extend(character.escape_unicode()),
            character => escaped.push(character),
        }
    }
    escaped
}

/// What a step that missed has to say.
fn failure(step: &StepReport) -> String {
    let misses = step.misses.iter().map(|miss| format!("{}\n{}", miss.what, difference(miss)));
    let log = step.log.iter().map(ToString::to_string);
    let trace = step.trace.iter().map(ToString::to_string);
    let parts = step.causes.iter().cloned().chain(misses).chain(log).chain(trace);
    parts.collect::<Vec<_>>().join("\n")
}

/// The runs as JUnit has them: a suite for each scenario, a case for each step.
pub(super) fn junit(runs: &[Ran]) -> String {
    let missed = |ran: &Ran| ran.report.steps.iter().filter(|step| !step.misses.is_empty()).count();
    let steps: usize = runs.iter().map(|ran| ran.report.steps.len()).sum();
    let failures: usize = runs.iter().map(missed).sum();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"{steps}\" failures=\"{failures}\">\n"
    );
    // Nothing that is written to a text fails.
    for ran in runs {
        let name = escaped(&ran.name);
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\">",
            ran.report.steps.len(),
            missed(ran)
        );
        for (index, step) in ran.report.steps.iter().enumerate() {
            let case = format!("{} {}", index + 1, escaped(&step.name));
            let Some(first) = step.misses.first() else {
                let _ = match step.not_comparable.as_slice() {
                    [] => writeln!(xml, "    <testcase classname=\"{name}\" name=\"{case}\"/>"),
                    reasons => writeln!(
                        xml,
                        "    <testcase classname=\"{name}\" name=\"{case}\">\n      <skipped message=\"{}\"/>\n    \
                         </testcase>",
                        escaped(&reasons.join("\n")).replace('\n', "&#10;")
                    ),
                };
                continue;
            };
            let message = step.causes.first().map_or_else(
                || format!("{}: expected {}, found {}", first.what, first.expected, first.found),
                Clone::clone,
            );
            let _ = writeln!(
                xml,
                "    <testcase classname=\"{name}\" name=\"{case}\">\n      <failure message=\"{}\">{}</failure>\n    \
                 </testcase>",
                escaped(&message).replace('\n', "&#10;"),
                escaped(&failure(step))
            );
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>");
    xml
}

#[cfg(test)]
mod tests {
    use host_sim_cli::scenario::{Miss, Report};

    use super::*;

    #[test]
    fn a_report_is_well_formed_whatever_it_says() {
        let miss =
            Miss { what: "body".into(), expected: "<a & \"b\">".into(), found: "\u{1}\u{ffff}".into() };
        let step = StepReport { name: "a <step>".into(), misses: vec![miss], ..StepReport::default() };
        let ok = StepReport { name: "another".into(), ..StepReport::default() };
        let reasons = vec!["Envoy's clock".into(), "a & b".into()];
        let not_comparable =
            StepReport { name: "a third".into(), not_comparable: reasons, ..StepReport::default() };
        let runs = [Ran {
            name: "x&y.yaml".into(),
            report: Report { steps: vec![step, ok, not_comparable] },
            broken: false,
        }];
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites tests=\"3\" failures=\"1\">
  <testsuite name=\"x&amp;y.yaml\" tests=\"3\" failures=\"1\">
    <testcase classname=\"x&amp;y.yaml\" name=\"1 a &lt;step&gt;\">
      <failure message=\"body: expected &lt;a &amp; &quot;b&quot;&gt;, found \\u{1}\u{fffd}\">body
- &lt;a &amp; &quot;b&quot;&gt;
+ \\u{1}\u{fffd}</failure>
    </testcase>
    <testcase classname=\"x&amp;y.yaml\" name=\"2 another\"/>
    <testcase classname=\"x&amp;y.yaml\" name=\"3 a third\">
      <skipped message=\"Envoy's clock&#10;a &amp; b\"/>
    </testcase>
  </testsuite>
</testsuites>";
        assert_eq!(junit(&runs), expected);
        let parsed: Json = serde_json::from_str(&json(&runs)).unwrap();
        assert_eq!(parsed["ok"], false);
        assert_eq!(parsed["scenarios"][0]["steps"][0]["misses"][0]["expected"], "<a & \"b\">");
        assert_eq!(parsed["scenarios"][0]["steps"][1]["ok"], true);
    }
}
