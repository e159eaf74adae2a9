// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of each mutant, and whether that is what the table says.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kvet_records::Outcome as End;

use super::table::{Expect, Harm, Mutant};
use crate::compare::behaviour::Observations;
use crate::fault::{ExitCode, escape};
use crate::vm::halt::{BootReport, HaltReason};

/// Most names of differing observations that the report shows for a mutant.
const MAX_SHOWN: usize = 3;

/// One mutant and what was seen of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    name: String,
    series: String,
    test: String,
    guest: String,
    expect: Expect,
    /// How its guest ended.
    end: String,
    /// What differs from the series: the observations, and splats by title.
    differs: Vec<String>,
    seconds: f64,
    /// What is not as the table says.
    wrong: Vec<String>,
}

/// Compares what one mutant's boot showed with what the series itself shows.
pub(super) fn judge(
    mutant: &Mutant,
    expect: &Expect,
    original: &Observations,
    report: &BootReport,
) -> Outcome {
    let seen = &report.report.observations;
    let end = end(report);
    let completed = end == "completed";
    // A guest that did not get to an observation says nothing about it.
    let all: BTreeSet<&String> = match completed {
        true => original.keys().chain(seen.keys()).collect(),
        false => seen.keys().collect(),
    };
    let shown = |name: &String| {
        let value = |from: &Observations| from.get(name).map_or("-".into(), ToString::to_string);
        format!("{name} {}, not {}", value(seen), value(original))
    };
    let changed: Vec<&String> =
        all.into_iter().filter(|&name| seen.get(name) != original.get(name)).collect();
    let mut differs: Vec<String> = changed.iter().map(|&name| shown(name)).collect();
    let mut wrong = Vec::new();
    match expect {
        Expect::Red { names, any_end } => {
            for name in names.iter().filter(|name| !changed.contains(name)) {
                let value = original.get(name).map_or("not observed".into(), ToString::to_string);
                wrong.push(format!("{name} is {value} as in the series"));
            }
            // The named ones first: they are why it is red.
            differs.sort_by_key(|line| {
                !names.iter().any(|name| line.starts_with(&format!("{name} ")))
            });
            if !completed && !any_end {
                wrong.push(format!("the guest ended with {end}"));
            }
        }
        Expect::End(wanted) => {
            if end != *wanted {
                wrong.push(format!("the guest ended with {end}, not {wanted}"));
            }
        }
        Expect::Green(_) => {
            if !completed {
                wrong.push(format!("the guest ended with {end}"));
            }
            wrong.extend(differs.iter().cloned());
            wrong.extend(report.splats.iter().map(|splat| splat.title.clone()));
        }
    }
    differs.extend(report.splats.iter().map(|splat| splat.title.clone()));
    Outcome {
        name: mutant.name.clone(),
        series: mutant.plan.clone(),
        test: mutant.test.clone(),
        guest: mutant.guest.clone(),
        expect: expect.clone(),
        end,
        differs,
        seconds: report.seconds,
        wrong,
    }
}

/// How a guest ended, in one word.
fn end(report: &BootReport) -> String {
    match (&report.halt, &report.report.outcome) {
        (HaltReason::Completed, Some(End::Completed)) => "completed".to_owned(),
        (HaltReason::Completed, Some(End::Skipped)) => "test_skipped".to_owned(),
        (HaltReason::Completed, _) => "test_failed".to_owned(),
        (halt, _) => halt.name().to_owned(),
    }
}

/// The table of what was seen, and how much of it is as it must be.
#[must_use]
pub fn render(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let width = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).max().unwrap_or(0);
    let (name, wide) = (width(|outcome| outcome.name.len()), width(|outcome| place(outcome).len()));
    for outcome in outcomes {
        let colour = match outcome.differs.is_empty() && outcome.end == "completed" {
            true if outcome.expect == Expect::Green(Harm::Unseen) => "survives",
            true => "green",
            false => "red",
        };
        let _ = write!(
            out,
            "{:<name$}  {:<wide$}  {colour:<8}  {:>5.1} s",
            outcome.name,
            place(outcome),
            outcome.seconds
        );
        out.push_str(if outcome.wrong.is_empty() { "" } else { "  WRONG" });
        if outcome.end != "completed" {
            let _ = write!(out, "  {}", outcome.end);
        }
        let more = outcome.differs.len().saturating_sub(MAX_SHOWN);
        for line in outcome.differs.iter().take(MAX_SHOWN) {
            let _ = write!(out, "\n{:<name$}    {}", "", escape(line));
        }
        if more > 0 {
            let _ = write!(out, "\n{:<name$}    and {more} more", "");
        }
        for wrong in &outcome.wrong {
            let _ = write!(out, "\n{:<name$}    wrong: {}", "", escape(wrong));
        }
        out.push('\n');
    }
    let count = |wanted: fn(&Expect) -> bool| {
        let all = outcomes.iter().filter(|outcome| wanted(&outcome.expect));
        let right = all.clone().filter(|outcome| outcome.wrong.is_empty()).count();
        format!("{right} of {}", all.count())
    };
    let _ = writeln!(
        out,
        "\n{} mutants caught as said, {} harmless changes passed, {} known to survive",
        count(|expect| matches!(expect, Expect::Red { .. } | Expect::End(_))),
        count(|expect| *expect == Expect::Green(Harm::None)),
        count(|expect| *expect == Expect::Green(Harm::Unseen)),
    );
    out
}

fn place(outcome: &Outcome) -> String {
    format!("{} {} {}", outcome.series, outcome.test, outcome.guest)
}

/// 0 when all is as the table says.
#[must_use]
pub fn exit_code(outcomes: &[Outcome]) -> ExitCode {
    let right = outcomes.iter().all(|outcome| outcome.wrong.is_empty());
    if right { ExitCode::Acceptable } else { ExitCode::Behaviour }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::virtio::Report;

    fn mutant() -> Mutant {
        let text = "{name: m, what: w, plan: p, test: t, guest: g, edits: []}";
        crate::plan::yaml::parse(std::path::Path::new("t.yaml"), text.to_owned()).unwrap().value
    }

    fn observations(pairs: &[(&str, i64)]) -> Observations {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect()
    }

    fn report(halt: HaltReason, seen: &[(&str, i64)]) -> BootReport {
        BootReport {
            halt,
            report: Report {
                observations: observations(seen),
                outcome: Some(End::Completed),
                ..Report::default()
            },
            splats: Vec::new(),
            tail: Vec::new(),
            hang: Vec::new(),
            boot_seconds: Some(1.0),
            start_seconds: None,
            seconds: 2.0,
        }
    }

    fn wrong(expect: &Expect, halt: HaltReason, seen: &[(&str, i64)]) -> Vec<String> {
        let original = observations(&[("a", 1), ("b", 2)]);
        judge(&mutant(), expect, &original, &report(halt, seen)).wrong
    }

    fn red(name: &str, any_end: bool) -> Expect {
        Expect::Red { names: vec![name.to_owned()], any_end }
    }

    #[test]
    fn red_means_that_the_named_observation_differs() {
        let (red, any, unknown) = (red("a", false), red("a", true), red("c", false));
        let completed = || HaltReason::Completed;
        assert!(wrong(&red, completed(), &[("a", 9), ("b", 2)]).is_empty());
        assert!(wrong(&red, completed(), &[("a", 9), ("b", 9)]).is_empty());
        assert!(wrong(&red, completed(), &[("b", 2)]).is_empty());
        assert_eq!(wrong(&red, completed(), &[("a", 1), ("b", 9)]), ["a is 1 as in the series"]);
        assert_eq!(wrong(&red, HaltReason::Reset, &[("a", 9)]), ["the guest ended with reset"]);
        // What a guest did not get to is no difference.
        assert_eq!(wrong(&red, HaltReason::Reset, &[]).len(), 2);
        assert!(wrong(&any, HaltReason::Reset, &[("a", 9)]).is_empty());
        assert_eq!(wrong(&any, HaltReason::Reset, &[]).len(), 1);
        assert_eq!(
            wrong(&unknown, completed(), &[("a", 9), ("b", 2)]),
            ["c is not observed as in the series"]
        );
    }

    #[test]
    fn green_means_that_nothing_differs() {
        for harm in [Harm::None, Harm::Unseen] {
            let green = Expect::Green(harm);
            assert!(wrong(&green, HaltReason::Completed, &[("a", 1), ("b", 2)]).is_empty());
            for seen in [&[("a", 1)][..], &[("a", 1), ("b", 3)], &[("a", 1), ("b", 2), ("c", 1)]] {
                assert_eq!(wrong(&green, HaltReason::Completed, seen).len(), 1, "{seen:?}");
            }
            assert_eq!(wrong(&green, HaltReason::Reset, &[("a", 1)]).len(), 1);
        }
    }

    #[test]
    fn an_end_is_named() {
        let reset = Expect::End("reset".into());
        assert!(wrong(&reset, HaltReason::Reset, &[]).is_empty());
        assert_eq!(wrong(&reset, HaltReason::Completed, &[("a", 9)]).len(), 1);
    }

    #[test]
    fn a_wrong_outcome_is_told_and_counts() {
        let original = observations(&[("a", 1)]);
        let seen = report(HaltReason::Completed, &[("a", 2)]);
        let red = judge(&mutant(), &red("a", false), &original, &seen);
        let green = judge(&mutant(), &Expect::Green(Harm::None), &original, &seen);
        assert_eq!(exit_code(std::slice::from_ref(&red)), ExitCode::Acceptable);
        assert_eq!(exit_code(&[red.clone(), green.clone()]), ExitCode::Behaviour);
        insta::assert_snapshot!(render(&[red, green]));
    }
}
