// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run was to look at, and did not.

use std::collections::BTreeSet;

use super::program;
use super::result::RunResult;
use super::selection::Selection;
use crate::compare::behaviour::Observations;
use crate::plan::Plan;

/// What nothing looked at: changes that a series declares for tests that were
/// not compared, and variants without another to compare with.
pub(super) fn unchecked(plan: &Plan, selection: &Selection, result: &RunResult) -> Vec<String> {
    let mut compared: BTreeSet<(&str, &str, &str, &str)> = BTreeSet::new();
    let mut lines = BTreeSet::new();
    for (cell, done) in plan.cells.iter().zip(&result.cells) {
        let key = |test| {
            (cell.series.name.as_str(), cell.kernel.name.as_str(), cell.config.name.as_str(), test)
        };
        let tests = cell.tests.iter().filter(|test| {
            done.tests.iter().any(|ran| ran.name == test.id() && ran.behaviour.is_some())
        });
        compared.extend(tests.map(|test| key(test.name.as_str())));
    }
    for (cell, done) in plan.cells.iter().zip(&result.cells) {
        for test in cell.tests.iter().filter(|test| test.program.is_some()) {
            let ran = done.tests.iter().find(|ran| ran.name == test.id());
            let behaviour =
                ran.filter(|ran| ran.faults.is_empty()).and_then(|ran| ran.behaviour.as_ref());
            let every = |wrong: fn(&Observations) -> bool| {
                behaviour.is_some_and(|found| found.observations.values().all(wrong))
            };
            if every(program::cut_short) {
                lines.insert(format!(
                    "test {} on {}, guest {}, stopped early in every variant, so what it did not get to was not compared",
                    test.id(),
                    cell.kernel.name,
                    cell.guest.name
                ));
            }
            if every(|seen| !program::passed(seen)) {
                lines.insert(format!(
                    "nothing passed in test {} on {}, guest {}, in any variant, so it cannot show what the series breaks",
                    test.id(),
                    cell.kernel.name,
                    cell.guest.name
                ));
            }
        }
    }
    if plan.cells.iter().any(|cell| selection.variants_of(cell).len() < 2) {
        lines.insert("only one variant was run, so nothing was compared".to_owned());
    }
    for (cell, done) in plan.cells.iter().zip(&result.cells) {
        let changes = || cell.series.expect.iter().filter(|expect| expect.base != expect.patched);
        if done.identical && changes().next().is_some() {
            lines.insert(format!(
                "{} declares changes, but base and patched are the same image",
                cell.series.name
            ));
            continue;
        }
        // A variation counts, and observes nothing.
        let looks = done.faults.is_empty() && cell.variation_of.is_none();
        for expect in cell.series.expect.iter().filter(|_| looks) {
            let key = (
                cell.series.name.as_str(),
                cell.kernel.name.as_str(),
                cell.config.name.as_str(),
                expect.test.as_str(),
            );
            if !compared.contains(&key) {
                lines.insert(format!(
                    "{} declares a change of {} in test {}, which was not run on {}, config {}",
                    cell.series.name,
                    expect.observation,
                    expect.test,
                    cell.kernel.name,
                    cell.config.name
                ));
            }
        }
    }
    lines.into_iter().collect()
}
