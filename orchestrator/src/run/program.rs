// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program's end and output come to, as observations.
//!
//! How a program ended is a fact like any other: one that fails in both variants
//! fails without the series, too. A program that could not be run is a fault.

use kvet_records::{Format, Outcome, Value};

use crate::compare::behaviour::Observations;
use crate::host::process::signal_name;
use crate::ktap;
use crate::vm::halt::{BootReport, HaltReason};

/// Name of the observation that says how the program ended.
pub const EXIT: &str = "exit";
/// Its value for exit status 0.
pub const PASS: &str = "pass";
/// Its value for [`SKIP_STATUS`] after results.
pub const SKIP: &str = "skip";
/// Exit status of a test that cannot run here (tools/testing/selftests/kselftest.h,
/// `KSFT_SKIP`).
const SKIP_STATUS: i32 = 4;

/// Turns how a program ended and what it wrote into observations.
pub fn settle(format: Format, report: &mut BootReport) {
    if report.halt != HaltReason::Completed {
        return;
    }
    let report = &mut report.report;
    let exit = match &report.outcome {
        Some(Outcome::Completed) => PASS.to_owned(),
        Some(Outcome::Exited { status: SKIP_STATUS }) => SKIP.to_owned(),
        Some(Outcome::Exited { status }) => format!("status {status}"),
        Some(Outcome::Killed { signal }) => format!("signal {signal}{}", signal_name(*signal)),
        Some(Outcome::Skipped | Outcome::Failed { .. }) | None => return,
    };
    let mut observations = Observations::new();
    let mut ran = exit != SKIP;
    if format.is_read() {
        let lines: Vec<&str> = report.output.iter().map(String::as_str).collect();
        let results = match format {
            Format::Words => ktap::parse_words(&lines),
            Format::Exit | Format::Tap | Format::Ktap => ktap::parse_lines(&lines),
        };
        if !results.found && exit == PASS {
            report.outcome = Some(Outcome::Failed {
                reason: format!(
                    "the program printed no result that `format: {}` knows; `format: exit` judges it by its exit status",
                    name(format)
                ),
            });
            return;
        }
        match ktap::facts(&results, &[EXIT]) {
            Ok(facts) => {
                // A plan of no tests is TAP's way to say that it cannot run here.
                ran = !facts.is_empty() || (ran && exit != PASS);
                observations = facts;
            }
            Err(reason) => {
                report.outcome = Some(Outcome::Failed { reason });
                return;
            }
        }
    }
    if ran {
        observations.insert(EXIT.to_owned(), Value::Text(exit));
        report.outcome = Some(Outcome::Completed);
    } else {
        report.skips.push(reason_to_skip(&report.output, &report.logs));
        report.outcome = Some(Outcome::Skipped);
    }
    report.observations = observations;
}

/// The last thing that a program said before it ended without a result.
fn reason_to_skip(output: &[String], logs: &[String]) -> String {
    let last =
        output.iter().chain(logs).rev().map(|line| line.trim()).find(|line| !line.is_empty());
    match last {
        Some(line) => {
            let reason = line.rsplit_once("# SKIP").map_or(line, |(_, reason)| reason).trim();
            crate::fault::escape(&reason.chars().take(200).collect::<String>())
        }
        None => "the program gave no reason".to_owned(),
    }
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Exit => "exit",
        Format::Tap => "tap",
        Format::Ktap => "ktap",
        Format::Words => "words",
    }
}

/// Whether anything in these observations is a pass. Exit status 0 is one only of
/// a program without results: of one with results, those count.
#[must_use]
pub fn passed(observations: &Observations) -> bool {
    let good = [PASS, ktap::Status::Passed.word(), ktap::Status::Xfail.word()];
    let alone = observations.len() == 1;
    observations.iter().any(|(name, value)| match value {
        Value::Text(text) => good.contains(&text.as_str()) && (alone || name != EXIT),
        Value::Bool(_) | Value::Integer(_) => false,
    })
}

/// Whether the program stopped before it had given all its results.
#[must_use]
pub fn cut_short(observations: &Observations) -> bool {
    [ktap::MISSING, ktap::BAIL_OUT].iter().any(|name| observations.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::virtio::Report;

    fn settled(format: Format, outcome: Outcome, output: &str) -> Report {
        let mut report = BootReport {
            halt: HaltReason::Completed,
            report: Report {
                outcome: Some(outcome),
                output: output.lines().map(str::to_owned).collect(),
                ..Report::default()
            },
            splats: Vec::new(),
            tail: Vec::new(),
            hang: Vec::new(),
            boot_seconds: None,
            start_seconds: None,
            seconds: 0.0,
        };
        settle(format, &mut report);
        report.report
    }

    fn shown(report: &Report) -> Vec<String> {
        report.observations.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn the_end_of_a_program_is_an_observation() {
        let exit = |outcome| shown(&settled(Format::Exit, outcome, "ok 1 not read\n")).join(" ");
        assert_eq!(exit(Outcome::Completed), "exit=pass");
        assert_eq!(exit(Outcome::Exited { status: 1 }), "exit=status 1");
        assert_eq!(exit(Outcome::Killed { signal: 11 }), "exit=signal 11 (SIGSEGV)");
    }

    #[test]
    fn a_skip_gives_its_reason() {
        let output = "TAP version 13\n1..0 # SKIP no hugetlb\n";
        let report = settled(Format::Tap, Outcome::Exited { status: 4 }, output);
        assert_eq!(
            (report.outcome, report.skips),
            (Some(Outcome::Skipped), vec!["no hugetlb".to_owned()])
        );
    }

    #[test]
    fn results_before_a_skip_or_a_crash_are_kept() {
        let output = "TAP version 13\n1..2\nok 1 a\n";
        let report = settled(Format::Tap, Outcome::Killed { signal: 9 }, output);
        assert_eq!(report.outcome, Some(Outcome::Completed));
        assert_eq!(shown(&report), ["a=ok", "exit=signal 9 (SIGKILL)", "missing=1", "problems=1"]);
        let report = settled(Format::Tap, Outcome::Exited { status: 4 }, output);
        assert_eq!(shown(&report)[1], "exit=skip");
    }

    #[test]
    fn a_program_that_passes_without_a_result_has_not_passed() {
        let report = settled(Format::Ktap, Outcome::Completed, "fine\n");
        assert!(
            matches!(report.outcome, Some(Outcome::Failed { reason }) if reason.contains("format: exit"))
        );
        let report = settled(Format::Ktap, Outcome::Exited { status: 1 }, "usage\n");
        assert_eq!(shown(&report), ["exit=status 1"]);
    }

    #[test]
    fn only_passes_are_passes() {
        let passes = |output: &str, status| {
            passed(&settled(Format::Tap, Outcome::Exited { status }, output).observations)
        };
        assert!(!passes("1..1\nnot ok 1 a\n", 1));
        assert!(passes("1..2\nnot ok 1 a\nok 2 b\n", 1));
        assert!(!passes("1..1\nok 1 a # SKIP\n", 4));
        // What it exits with does not outweigh its results.
        let report = settled(Format::Tap, Outcome::Completed, "1..1\nnot ok 1 a\n");
        assert!(!passed(&report.observations), "{:?}", report.observations);
        assert!(passed(&settled(Format::Exit, Outcome::Completed, "").observations));
    }

    #[test]
    fn a_plan_of_no_tests_is_a_skip() {
        let report = settled(Format::Tap, Outcome::Completed, "1..0 # SKIP not here\n");
        assert_eq!(report.outcome, Some(Outcome::Skipped));
        assert_eq!(report.skips, ["not here"]);
    }

    #[test]
    fn what_stops_early_is_known() {
        let short = |output: &str| {
            cut_short(&settled(Format::Tap, Outcome::Completed, output).observations)
        };
        assert!(short("1..3\nok 1 a\n"));
        assert!(short("1..3\nok 1 a\nBail out! no disk\n"));
        assert!(!short("1..1\nok 1 a\n"));
    }
}
