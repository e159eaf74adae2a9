// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run's results as text for a series' cover letter: plain ASCII, at most 72
//! columns, no tabs. The series that kvet knows have the tables of their mails.

mod behaviour;
mod environment;
mod figure;
mod generic;
mod khugepaged_cold;
mod machine;
mod process_madvise;
mod text;
mod thp_disable;

use crate::compare::snapshot::SnapshotState;
use crate::compare::splats::SplatVerdict;
use crate::report::number::change;
use crate::report::{foreign, metrics, robust};
use crate::run::result::{CellResult, RunResult, TestResult};
use crate::run::robust::Place;

pub use machine::{Machine, Machines};
use text::{Letter, Table};

/// Most problems that are listed; the report for people has all.
const MAX_PROBLEMS: usize = 12;

/// The text.
#[must_use]
pub fn render(result: &RunResult, machines: &Machines) -> String {
    let mut letter = Letter::default();
    let groups = groups(result);
    for group in &groups {
        let CellResult { series, kernel, config, .. } = group[0];
        letter.heading(&format!("{series} on {kernel}, config {config}"), '=');
        environment::write(&mut letter, result, group, machines);
        let measured = measured(group);
        match measured.is_empty() {
            true => letter.paragraph(
                "This run measured nothing: what follows is behaviour only. A plan measures \
                 with `measure: [instructions]`.",
            ),
            false => what_figures_are(&mut letter, &measured),
        }
        for (cell, test) in measured {
            let section = Section { test, machine: machines.get(cell, test), group };
            section.write(&mut letter);
        }
        behaviour::write(&mut letter, group);
    }
    robustness(&mut letter, result);
    problems(&mut letter, result);
    commands(&mut letter, result);
    letter.finish()
}

/// The cells of one series on one kernel; they differ in their guests.
fn groups(result: &RunResult) -> Vec<Vec<&CellResult>> {
    let mut groups: Vec<Vec<&CellResult>> = Vec::new();
    // Of variations, what holds in all of them is told.
    for cell in result.cells.iter().filter(|cell| cell.variation_of.is_none()) {
        let key =
            |cell: &CellResult| (cell.series.clone(), cell.kernel.clone(), cell.config.clone());
        match groups.iter_mut().find(|group| key(group[0]) == key(cell)) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

fn measured<'a>(group: &[&'a CellResult]) -> Vec<(&'a CellResult, &'a TestResult)> {
    let tests = |cell: &&'a CellResult| {
        let cell: &'a CellResult = cell;
        cell.tests.iter().map(move |test| (cell, test))
    };
    group.iter().flat_map(tests).filter(|(_, test)| !test.metrics.is_empty()).collect()
}

/// Once for all tables.
fn what_figures_are(letter: &mut Letter, measured: &[(&CellResult, &TestResult)]) {
    let phases = measured.iter().map(|(_, test)| figure::phases(test)).max().unwrap_or(0);
    letter.paragraph(&format!(
        "The figures are instructions that a guest with one CPU executed, in the kernel and in \
         user space, counted by QEMU. They are not time. Each is the median of windows at \
         {phases} start phases relative to the timer tick; instead of a standard deviation, \
         range% is the largest less the smallest of these, in percent of the median. Counts at \
         one phase are identical when repeated, which each run checks at its first."
    ));
}

/// One measured test.
struct Section<'a> {
    test: &'a TestResult,
    machine: Option<&'a Machine>,
    group: &'a [&'a CellResult],
}

impl Section<'_> {
    fn write(&self, letter: &mut Letter) {
        let name = self.test.name.split('.').next().unwrap_or_default();
        letter.heading(&format!("{name}, counted"), '-');
        let known = match name {
            "process_madvise" => process_madvise::write(letter, self),
            "thp_disable" => thp_disable::write(letter, self),
            "khugepaged_cold" => khugepaged_cold::write(letter, self),
            _ => false,
        };
        if !known {
            generic::write(letter, self);
        }
        let foreign = foreign::lines(&self.test.metrics);
        if !foreign.is_empty() {
            letter.paragraph(&format!(
                "Some windows held other work than the measured, and counted it: {}.",
                foreign.join("; ")
            ));
        }
        let parameters = self.parameters();
        if !parameters.is_empty() {
            letter.paragraph(&format!("Parameters: {parameters}."));
        }
        letter.paragraph(&format!("Verdicts: {}.", metrics::summary(&self.test.metrics)));
    }

    /// The test's parameters: `memory=32MiB, vlen=1,2`, or what its name has of them.
    fn parameters(&self) -> String {
        if self.machine.is_none() && self.test.name.split('.').count() > 2 {
            return format!("as in {}", self.test.name);
        }
        let parameters = self.machine.map(|machine| &machine.parameters).into_iter().flatten();
        let words: Vec<String> =
            parameters.map(|(name, value)| format!("{name}={value}")).collect();
        words.join(", ")
    }
}

/// What holds with other configs and CPUs, where that was tried.
fn robustness(letter: &mut Letter, result: &RunResult) {
    for group in robust::groups(&result.robustness) {
        let name = group.test.split('.').next().unwrap_or_default();
        letter.heading(&format!("{name}, counted elsewhere"), '-');
        letter.paragraph(&format!(
            "The change in percent on {} combinations of config and CPU, {} among them; claimed \
             is only what has the same verdict in all of them.",
            group.places, group.cell
        ));
        let mut table = Table::new(&["", "claim", "least", "most"]);
        for row in &group.rows {
            let percent = |place: &Place| change(place.delta_percent);
            let (least, most) = (percent(&row.least), percent(&row.most));
            table.row([robust::title(row), robust::claim(row), least, most]);
        }
        if !group.rows.is_empty() {
            letter.table(&table);
        }
        if group.unchanged > 0 {
            letter.paragraph(&format!("Unchanged in all of them: {} more.", group.unchanged));
        }
    }
}

/// What keeps a reader from relying on the rest.
fn problems(letter: &mut Letter, result: &RunResult) {
    let mut lines: Vec<String> = Vec::new();
    let first = |fault: &crate::fault::Fault| {
        fault.to_string().lines().next().unwrap_or_default().to_owned()
    };
    lines.extend(result.faults.iter().map(first));
    for cell in &result.cells {
        lines.extend(cell.faults.iter().map(first));
        for test in &cell.tests {
            lines.extend(test.faults.iter().map(first));
            let states = test.behaviour.iter().flat_map(|behaviour| &behaviour.snapshot);
            let differs = states.filter(|(_, state)| **state == SnapshotState::Differs);
            lines.extend(differs.map(|(variant, _)| {
                format!("{}: {variant} does not behave as was accepted before", test.name)
            }));
        }
        let new = cell.splats.iter().filter(|row| row.verdict == SplatVerdict::New);
        lines.extend(
            new.filter(|row| row.allowed.is_none())
                .map(|row| format!("new splat: {}", row.splat.title)),
        );
    }
    lines.extend(result.unchecked.iter().map(|line| format!("not checked: {line}")));
    lines.extend(result.skipped.iter().map(|line| format!("not run: {line}")));
    if lines.is_empty() {
        return;
    }
    letter.paragraph("Before relying on this:");
    for line in lines.iter().take(MAX_PROBLEMS) {
        letter.item(line);
    }
    if lines.len() > MAX_PROBLEMS {
        letter.item(&format!("{} more; `kvet report` has them", lines.len() - MAX_PROBLEMS));
    }
    letter.blank();
}

fn commands(letter: &mut Letter, result: &RunResult) {
    let code = result.exit_code;
    letter.paragraph(&format!("kvet's exit code: {} ({}).", code as u8, code.meaning()));
    letter.paragraph("To reproduce, with RUN the folder that the first command names:");
    let given = result.cells.iter().any(|cell| cell.input.is_some());
    let series = if given { " --series SERIES" } else { "" };
    letter.command(&format!("kvet run {}{series}", result.plan));
    letter.command("kvet report RUN --format cover-letter");
}

#[cfg(test)]
mod tests;
