// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the series changed in exact facts.

use kvet_records::Value;

use super::text::Letter;
use crate::compare::behaviour::{Row, Verdict};
use crate::run::result::{CellResult, TestResult};

/// Most declared changes of a test that are listed.
const MAX_DECLARED: usize = 10;
/// Most changes of a test that should not be, and are listed.
const MAX_STRAY: usize = 20;

/// A short list for each test that observed something.
pub(super) fn write(letter: &mut Letter, group: &[&CellResult]) {
    let tests: Vec<(&CellResult, &TestResult)> = group
        .iter()
        .flat_map(|cell| cell.tests.iter().map(move |test| (*cell, test)))
        .filter(|(_, test)| test.behaviour.is_some())
        .collect();
    if tests.is_empty() {
        return;
    }
    letter.heading("Behaviour", '-');
    letter.paragraph(
        "Exact facts, observed without and with the series, and compared with what it declares:",
    );
    for (cell, test) in tests {
        let Some(behaviour) = &test.behaviour else { continue };
        let rows = &behaviour.rows;
        let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
        let words: Vec<String> = [
            (Verdict::Expected, "changed as declared"),
            (Verdict::Unexpected, "CHANGED WITHOUT BEING DECLARED"),
            (Verdict::Missing, "DECLARED AND NOT CHANGED"),
            (Verdict::Same, "the same"),
        ]
        .into_iter()
        .map(|(verdict, words)| (count(verdict), words))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
        let words = match words.is_empty() {
            true => "not compared".to_owned(),
            false => words.join(", "),
        };
        letter.item(&format!("{} (guest {}): {words}", test.name, cell.guest));
        list(letter, rows, MAX_DECLARED, &[Verdict::Expected]);
        list(letter, rows, MAX_STRAY, &[Verdict::Unexpected, Verdict::Missing]);
    }
    letter.blank();
}

fn list(letter: &mut Letter, rows: &[Row], most: usize, verdicts: &[Verdict]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| verdicts.contains(&row.verdict)).collect();
    for row in rows.iter().take(most) {
        let declared = match (&row.declared, row.verdict) {
            (Some((base, patched)), Verdict::Missing | Verdict::Unexpected) => {
                format!(" (declared: {base} -> {patched})")
            }
            _ => String::new(),
        };
        let text =
            format!("{}: {} -> {}{declared}", row.name, shown(&row.base), shown(&row.patched));
        letter.hang("    ", "      ", &text);
    }
    if rows.len() > most {
        letter.hang("    ", "      ", &format!("and {} more", rows.len() - most));
    }
}

fn shown(value: &Option<Value>) -> String {
    value.as_ref().map_or("-".to_owned(), Value::to_string)
}
