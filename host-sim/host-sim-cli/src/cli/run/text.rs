//! Reports for people.

use std::fmt;

use host_sim_cli::scenario::{Miss, StepReport};
use similar::{ChangeTag, TextDiff};

use super::{Ran, print};
use crate::cli::TraceForm;

/// The most lines of the log that a miss shows, the newest.
const MAX_LOG: usize = 100;

/// The most callbacks that a miss shows, the newest.
const MAX_TRACE: usize = 50;

const INDENT: &str = "            ";

/// Prints something, all its lines indented.
fn print_indented(text: impl fmt::Display) {
    for line in text.to_string().lines() {
        print(format_args!("{INDENT}{line}").to_string().trim_end());
    }
}

/// Prints how a scenario went. The traces of all steps are printed where a form is given, and else those of missed ones.
pub(super) fn print_run(ran: &Ran, trace: Option<TraceForm>) {
    print(&ran.name);
    for (index, step) in ran.report.steps.iter().enumerate() {
        let missed = !step.misses.is_empty();
        let word = match (missed, step.not_comparable.is_empty()) {
            (true, _) => "MISS",
            (false, true) => "ok  ",
            (false, false) => "N/C ",
        };
        print(format_args!("  {word} {:>3}  {}", index + 1, step.name));
        step.causes.iter().for_each(print_indented);
        step.misses.iter().for_each(print_miss);
        step.not_comparable.iter().for_each(|why| print_indented(format_args!("not comparable: {why}")));
        step.warnings.iter().for_each(|warning| print_indented(format_args!("warning: {warning}")));
        if missed {
            print_part("log", &step.log, MAX_LOG);
        }
        if missed || trace.is_some() {
            print_trace(step, trace);
        }
    }
}

/// Prints the newest of `lines` under a heading, and how many there are before them.
fn print_part(heading: &str, lines: &[impl fmt::Display], most: usize) {
    if lines.is_empty() {
        return;
    }
    let left_out = lines.len().saturating_sub(most);
    match left_out {
        0 => print_indented(format_args!("{heading}:")),
        _ => print_indented(format_args!("{heading}, without the first {left_out}:")),
    }
    for line in lines.iter().skip(left_out) {
        for line in line.to_string().lines() {
            print_indented(format_args!("  {line}"));
        }
    }
}

fn print_trace(step: &StepReport, form: Option<TraceForm>) {
    if form == Some(TraceForm::Json) {
        step.trace.iter().for_each(|callback| print(TraceForm::Json.of(callback)));
    } else {
        print_part("trace", &step.trace, if form.is_some() { usize::MAX } else { MAX_TRACE });
    }
}

/// Prints what was expected and what was found, line by line.
fn print_miss(miss: &Miss) {
    print_indented(&miss.what);
    print_indented(difference(miss));
}

/// What was expected and what was found, line by line.
pub(super) fn difference(miss: &Miss) -> String {
    let sign = |tag| match tag {
        ChangeTag::Delete => '-',
        ChangeTag::Insert => '+',
        ChangeTag::Equal => ' ',
    };
    let difference = TextDiff::from_lines(&miss.expected, &miss.found);
    let lines = difference.iter_all_changes().map(|change| {
        let line = change.value().trim_end_matches('\n');
        format!("{} {line}", sign(change.tag()))
    });
    lines.collect::<Vec<_>>().join("\n")
}
