// SPDX-License-Identifier: MIT OR Apache-2.0
//! The summary of a validation: one line for each check, what is behind those that did
//! not pass, and what a cover letter can say. Pure functions of the results.

use std::fmt::Write as _;

use super::result::{Check, Outcome, ValidateResult};
use crate::compare::behaviour::Verdict;
use crate::fault::{ExitCode, escape};
use crate::run::result::RunResult;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
/// Widest evidence of a check's line; the rest is in the details and in the file.
const MAX_EVIDENCE: usize = 160;
/// Most files that are named.
const MAX_FILES: usize = 4;
/// Most lines of a cover letter's block.
const MAX_CHANGES: usize = 24;

/// One check as one line, without colour.
#[must_use]
pub fn line(check: &Check) -> String {
    one_line(check, &check.finding.outcome.to_string())
}

fn one_line(check: &Check, outcome: &str) -> String {
    let config = check.config.as_deref().unwrap_or_default();
    // Padded by what is seen of it, which colours are not.
    let pad = " ".repeat(8usize.saturating_sub(check.finding.outcome.to_string().len()));
    format!(
        "  {:<12}{config:<14}{outcome}{pad}{:>6.0} s  {}",
        check.name,
        check.seconds,
        cut(&escape(&check.finding.evidence))
    )
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_EVIDENCE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The summary.
#[must_use]
pub fn render(result: &ValidateResult, color: bool) -> String {
    let paint = |style: &str, text: &str| match color {
        true => format!("\u{1b}[{style}m{text}\u{1b}[0m"),
        false => text.to_owned(),
    };
    let mut out = String::new();
    let source = result.source.as_ref().map_or(String::new(), |source| format!(" ({source})"));
    let patches = if result.patches == 1 {
        "1 patch".to_owned()
    } else {
        format!("{} patches", result.patches)
    };
    let _ = writeln!(
        out,
        "{} ({patches}) on {}{}",
        escape(&result.series),
        result.kernel,
        escape(&source)
    );
    let shown: Vec<String> = result.files.iter().take(MAX_FILES).map(|file| escape(file)).collect();
    let more = result.files.len().saturating_sub(MAX_FILES);
    let and = if more > 0 { format!(" and {more} more") } else { String::new() };
    let _ = writeln!(out, "  touches {}{and}", shown.join(", "));
    for test in &result.tests {
        let guests = if test.guests.is_empty() {
            String::new()
        } else {
            format!(" in {}", test.guests.join(", "))
        };
        let _ = writeln!(out, "  runs {}{guests}: {}", escape(&test.test), escape(&test.reason));
    }
    out.push('\n');
    for check in &result.checks {
        let outcome = check.finding.outcome;
        let style = match outcome {
            Outcome::Ok => GREEN,
            Outcome::Failed => RED,
            Outcome::Inconclusive | Outcome::Skipped | Outcome::Nothing => YELLOW,
        };
        let _ = writeln!(out, "{}", one_line(check, &paint(style, &outcome.to_string())));
        // What passed has its details in the file.
        if outcome == Outcome::Failed || outcome == Outcome::Inconclusive {
            let whole = escape(&check.finding.evidence);
            if whole.chars().count() > MAX_EVIDENCE {
                let _ = writeln!(out, "      {whole}");
            }
            for detail in &check.finding.details {
                let _ = writeln!(out, "      {}", escape(detail));
            }
        }
    }
    for fault in &result.faults {
        let _ = writeln!(out, "  {fault}");
    }
    out
}

/// The last line.
#[must_use]
pub fn verdict(result: &ValidateResult, color: bool) -> String {
    let code = result.exit_code;
    let of =
        |outcome| result.checks.iter().filter(|check| check.finding.outcome == outcome).count();
    let counts = format!(
        "{} of {} checks passed, {} failed, {} skipped, in {:.0} s",
        of(Outcome::Ok),
        result.checks.len(),
        of(Outcome::Failed),
        of(Outcome::Skipped),
        result.seconds
    );
    let text = format!("exit {}: {}; {counts}", code as u8, code.meaning());
    let style = if code == ExitCode::Acceptable { GREEN } else { RED };
    match color {
        true => format!("\u{1b}[{style}m{text}\u{1b}[0m\n"),
        false => format!("{text}\n"),
    }
}

/// What a cover letter can say of the series, from the run of its behaviour.
#[must_use]
pub fn cover_letter(behaviour: &RunResult) -> String {
    let mut lines = Vec::new();
    for cell in &behaviour.cells {
        for test in &cell.tests {
            let rows = test.behaviour.iter().flat_map(|found| &found.rows);
            for row in rows.filter(|row| row.verdict != Verdict::Same && row.base != row.patched) {
                let shown = |value: &Option<kvet_records::Value>| {
                    value.as_ref().map_or("nothing".to_owned(), |value| escape(&value.to_string()))
                };
                lines.push(format!(
                    "  {}, {}: {} -> {}",
                    test.name,
                    row.name,
                    shown(&row.base),
                    shown(&row.patched)
                ));
            }
        }
    }
    let Some(cell) = behaviour.cells.first() else { return String::new() };
    let source = cell.source.as_deref().unwrap_or(&cell.kernel);
    let mut out = format!("For the cover letter, as observed on {}:\n\n", escape(source));
    if lines.is_empty() {
        out.push_str("  No observable behaviour changes.\n");
        return out;
    }
    let beyond = lines.len().saturating_sub(MAX_CHANGES);
    for line in lines.into_iter().take(MAX_CHANGES) {
        let _ = writeln!(out, "{line}");
    }
    if beyond > 0 {
        let _ = writeln!(out, "  and {beyond} more");
    }
    out
}
