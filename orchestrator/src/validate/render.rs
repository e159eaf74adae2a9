// SPDX-License-Identifier: MIT OR Apache-2.0
//! The summary of a validation: one line for each check, what is behind those that did
//! not pass, and what a cover letter can say. Pure functions of the results.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::result::{Check, Outcome, ValidateResult};
use crate::compare::behaviour::Verdict;
use crate::fault::{ExitCode, escape};
use crate::report::number::counted;
use crate::run::result::RunResult;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
/// Widest evidence of a check's line; the rest is in the details and in the file.
const MAX_EVIDENCE: usize = 160;
/// Most lines of what is told beside a check that passed.
const MAX_TOLD: usize = 4;
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
    let patches = match result.patches {
        1 => "1 patch".to_owned(),
        count => format!("{count} patches"),
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
    let mut said = BTreeSet::new();
    for check in &result.checks {
        let outcome = check.finding.outcome;
        let style = match outcome {
            Outcome::Ok => GREEN,
            Outcome::Failed => RED,
            Outcome::Inconclusive | Outcome::Skipped | Outcome::Nothing => YELLOW,
        };
        let _ = writeln!(out, "{}", one_line(check, &paint(style, &outcome.to_string())));
        let whole = escape(&check.finding.evidence);
        if whole.chars().count() > MAX_EVIDENCE {
            let _ = writeln!(out, "      {whole}");
        }
        // Of what did not pass everything; elsewhere what was not said yet.
        let most = match outcome {
            Outcome::Failed | Outcome::Inconclusive => usize::MAX,
            Outcome::Ok | Outcome::Skipped | Outcome::Nothing => MAX_TOLD,
        };
        let details: Vec<&String> =
            check.finding.details.iter().filter(|detail| said.insert(*detail)).collect();
        for detail in details.iter().take(most) {
            let _ = writeln!(out, "      {}", escape(detail));
        }
        if let beyond @ 1.. = details.len().saturating_sub(most) {
            let _ = writeln!(out, "      and {beyond} more in {}", super::FILE);
        }
    }
    for fault in &result.faults {
        let _ = writeln!(out, "  {fault}");
    }
    out
}

/// What the checks that are left took before, each its shortest and longest time in
/// seconds; nothing when none is left or none was made before.
#[must_use]
pub fn left(times: &[Option<(u32, u32)>]) -> Option<String> {
    let known: Vec<(u32, u32)> = times.iter().copied().flatten().collect();
    if known.is_empty() {
        return None;
    }
    let shortest: u32 = known.iter().map(|(shortest, _)| shortest).sum();
    let longest: u32 = known.iter().map(|(_, longest)| longest).sum();
    let shown = |seconds: u32| format!("{}:{:02}", seconds / 60, seconds % 60);
    let range = match shortest == longest {
        true => shown(shortest),
        false => format!("{} to {}", shown(shortest), shown(longest)),
    };
    let checks = counted(known.len(), "check");
    let new = match times.len() - known.len() {
        0 => String::new(),
        1 => ", and 1 that was never made here".to_owned(),
        count => format!(", and {count} that were never made here"),
    };
    Some(format!("left: {checks}, which took {range} min before{new}"))
}

/// The last line.
#[must_use]
pub fn verdict(result: &ValidateResult, color: bool) -> String {
    let code = result.exit_code;
    let of =
        |outcome| result.checks.iter().filter(|check| check.finding.outcome == outcome).count();
    let mut counts = format!(
        "{} of {} checks passed, {} failed, {} skipped",
        of(Outcome::Ok),
        result.checks.len(),
        of(Outcome::Failed),
        of(Outcome::Skipped),
    );
    if let unclear @ 1.. = of(Outcome::Inconclusive) {
        let _ = write!(counts, ", {unclear} unclear");
    }
    let _ = write!(counts, ", in {:.0} s", result.seconds);
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
    let tests = || behaviour.cells.iter().flat_map(|cell| &cell.tests);
    let seen = tests().filter(|test| test.behaviour.is_some()).count();
    let all = tests().count();
    let same = behaviour.cells.iter().all(|cell| cell.identical);
    if seen == 0 && !same {
        out.push_str("  Nothing was observed: no test has a result.\n");
    } else if lines.is_empty() {
        out.push_str("  No observable behaviour changes.\n");
    }
    if (1..all).contains(&seen) {
        let _ = writeln!(out, "  Of {all} tests, {seen} have a result.");
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

#[cfg(test)]
mod tests {
    use super::super::result::{ChosenTest, Finding, VALIDATE_RUN_SCHEMA};
    use super::*;

    fn check(name: &str, config: Option<&str>, finding: Finding) -> Check {
        Check {
            name: name.to_owned(),
            config: config.map(str::to_owned),
            finding,
            seconds: 12.0,
            runs: Vec::new(),
        }
    }

    #[test]
    fn what_is_left_is_told_by_what_it_took_before() {
        let left = |times: &[_]| left(times).unwrap_or_default();
        assert_eq!(left(&[]), "");
        assert_eq!(left(&[None]), "");
        assert_eq!(left(&[Some((61, 61))]), "left: 1 check, which took 1:01 min before");
        assert_eq!(
            left(&[Some((1, 60)), None, Some((2, 65))]),
            "left: 2 checks, which took 0:03 to 2:05 min before, and 1 that was never made here"
        );
    }

    #[test]
    fn the_summary_has_a_line_for_each_check_and_says_things_once() {
        let told = || ["a test skipped: there is no swap".to_owned()];
        let checks = vec![
            check(
                "applies",
                None,
                Finding::ok("all 3 patches, 1 hunk in another line")
                    .with(["0002: hunk 1 of mm/a.c".to_owned()]),
            ),
            check("checkpatch", None, Finding::skipped("perl is not installed")),
            check("behaviour", Some("microvm"), Finding::ok("unchanged in 4 kernels").with(told())),
            check("boots", Some("lockdep"), Finding::ok("2 tests, no new splats").with(told())),
            check(
                "boots",
                Some("kasan"),
                Finding::failed(
                    ExitCode::Behaviour,
                    "new splat: KASAN: x\u{1b}[2J at patch 2 of 3",
                )
                .with(["more".to_owned()])
                .at_patch(Some(2)),
            ),
        ];
        let mut result = ValidateResult {
            schema: VALIDATE_RUN_SCHEMA.to_owned(),
            id: "run".to_owned(),
            series: "topic".to_owned(),
            title: "a topic".to_owned(),
            patches: 3,
            kernel: "linux".to_owned(),
            source: Some("linux at 0123".to_owned()),
            files: (1..=6).map(|number| format!("mm/{number}.c")).collect(),
            tests: vec![ChosenTest {
                test: "selftest_pass".to_owned(),
                guests: vec!["up".to_owned()],
                reason: "it must boot".to_owned(),
            }],
            checks,
            faults: Vec::new(),
            complete: true,
            seconds: 61.0,
            exit_code: ExitCode::Acceptable,
        };
        result.settle();
        insta::assert_snapshot!(render(&result, false) + &verdict(&result, false), @r"
        topic (3 patches) on linux (linux at 0123)
          touches mm/1.c, mm/2.c, mm/3.c, mm/4.c and 2 more
          runs selftest_pass in up: it must boot

          applies                   ok          12 s  all 3 patches, 1 hunk in another line
              0002: hunk 1 of mm/a.c
          checkpatch                skipped     12 s  perl is not installed
          behaviour   microvm       ok          12 s  unchanged in 4 kernels
              a test skipped: there is no swap
          boots       lockdep       ok          12 s  2 tests, no new splats
          boots       kasan         failed      12 s  new splat: KASAN: x\u{1b}[2J at patch 2 of 3
              more
        exit 1: regressed, unexpected or missing behaviour; 3 of 5 checks passed, 1 failed, 1 skipped, in 61 s
        ");
        let plain = render(&result, false);
        let colored = render(&result, true);
        let bare = ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[0m"]
            .iter()
            .fold(colored, |text, code| text.replace(code, ""));
        assert_eq!(bare, plain, "colours change nothing else");
    }
}
