// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the runs of a validation mean: pure functions from results to findings.

mod behaviour;
mod ends;
mod performance;

use super::prefix::at_patch;
use super::result::Finding;
use crate::compare::metrics::MetricResult;
use crate::compare::splats::{SplatRow, SplatVerdict};
use crate::fault::{Blame, ExitCode, Fault, escape};
use crate::kernel::series::Trees;
use crate::plan::manifest::VariantName;
use crate::report::number::counted;
use crate::run::result::{CellResult, RunResult, TestResult};

pub use behaviour::behaviour;
pub use ends::{beside_base, is_clean, is_silent};
pub use performance::{THRESHOLD_PERCENT, performance, regressions};
use performance::{change, figure};

/// Most lines of one kind in a finding's details.
const MAX_LINES: usize = 8;

/// Something that is wrong with the series, to be looked for in its prefixes.
#[derive(Debug, Clone, PartialEq)]
pub enum Symptom {
    /// A splat, by fingerprint.
    Splat {
        /// The cell's guest.
        guest: String,
        /// Its fingerprint.
        fingerprint: String,
        /// Its title.
        title: String,
    },
    /// A test that has no result.
    Fault {
        /// The cell's guest.
        guest: String,
        /// The test.
        test: String,
        /// How it ended.
        fault: Box<Fault>,
    },
    /// A figure that is worse.
    Metric {
        /// The cell's guest.
        guest: String,
        /// The test.
        test: String,
        /// The figures.
        metric: Box<MetricResult>,
    },
}

impl Symptom {
    /// The cell's guest.
    #[must_use]
    pub fn guest(&self) -> &str {
        match self {
            Self::Splat { guest, .. } | Self::Fault { guest, .. } | Self::Metric { guest, .. } => {
                guest
            }
        }
    }

    /// One line.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Splat { title, .. } => format!("new splat: {}", escape(title)),
            Self::Fault { fault, .. } => fault.what.clone(),
            Self::Metric { metric, test, .. } => {
                format!("{test}: {} {}", figure(metric), change(metric))
            }
        }
    }

    /// What it makes kvet exit with.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Splat { .. } | Self::Metric { .. } => ExitCode::Behaviour,
            Self::Fault { fault, .. } => fault.exit_code(),
        }
    }

    /// Whether the one variant that `result` is of has it; `None` where that cannot be
    /// told.
    #[must_use]
    pub fn is_in(&self, result: &RunResult) -> Option<bool> {
        let cell = result.cells.iter().find(|cell| cell.guest == self.guest())?;
        if !cell.faults.is_empty() {
            return None;
        }
        match self {
            Self::Splat { fingerprint, .. } => {
                Some(cell.splats.iter().any(|row| row.splat.fingerprint == *fingerprint))
            }
            Self::Fault { test, .. } => {
                let found = cell.tests.iter().find(|found| found.name == *test)?;
                if found.faults.iter().any(|fault| is_ours(fault.blame)) {
                    return None;
                }
                Some(!found.faults.is_empty())
            }
            Self::Metric { test, metric, .. } => {
                let found = cell.tests.iter().find(|found| found.name == *test)?;
                let same = |other: &&MetricResult| {
                    other.name == metric.name && other.parameters == metric.parameters
                };
                let here = found.metrics.iter().find(same)?;
                let value = here.figures.values().next()?.values.first().copied()?;
                let first = |variant| metric.figures.get(&variant)?.values.first().copied();
                let (base, patched) = (first(VariantName::Base)?, first(VariantName::Patched)?);
                // More than half of the way.
                Some((value - base) * (patched - base).signum() > (patched - base).abs() / 2.0)
            }
        }
    }
}

/// Whether the kernel cannot be to blame.
fn is_ours(blame: Blame) -> bool {
    matches!(blame, Blame::Infra | Blame::Interrupt | Blame::Plan)
}

/// Whether a test has no result because of the host.
#[must_use]
pub fn is_the_hosts(result: &RunResult) -> bool {
    let tests = result.cells.iter().flat_map(|cell| &cell.tests);
    tests.flat_map(|test| &test.faults).any(|fault| fault.blame == Blame::Infra)
}

/// Of the trees of a series that applies.
#[must_use]
pub fn applies(trees: &Trees, patches: usize) -> Finding {
    if trees.unchanged {
        return Finding::inconclusive("the series changes no file");
    }
    let all = if patches == 1 { "the patch".to_owned() } else { format!("all {patches} patches") };
    let moved = &trees.moved;
    let lines = moved.iter().map(|hunk| {
        let again = if hunk.ambiguous { ", and would apply once more" } else { "" };
        format!(
            "{}: hunk {} of {} at line {} ({:+} lines){again}",
            escape(&hunk.patch),
            hunk.hunk,
            escape(&hunk.file),
            hunk.line,
            hunk.offset
        )
    });
    let words = match moved.len() {
        0 => format!("{all}, every hunk where it says"),
        1 => format!("{all}, 1 hunk in another line than it says"),
        count => format!("{all}, {count} hunks in other lines than they say"),
    };
    Finding::ok(words).with(lines.take(MAX_LINES))
}

/// Of the builds of one config.
#[must_use]
pub fn builds(result: &RunResult, subjects: &[String]) -> Finding {
    let Some(cell) = result.cells.first() else {
        return Finding::inconclusive("nothing was built");
    };
    if let Some(finding) = faults(cell.faults.iter().chain(&result.faults)) {
        return finding.at_patch(unbuilt(cell, subjects.len()));
    }
    if let Some(finding) = warnings(cell, subjects) {
        return finding;
    }
    let seconds: u32 =
        cell.variants.values().filter(|one| !one.build.stored).map(|one| one.build.seconds).sum();
    let stored = cell.variants.values().filter(|one| one.build.stored).count();
    // Of one kernel alone none could be told from an old one.
    let new = if cell.variants.len() == 1 && is_silent(result) { "" } else { "new " };
    let mut words = format!("{}, no {new}warnings", counted(cell.variants.len(), "kernel"));
    if stored > 0 {
        words.push_str(&format!(", {stored} from the store"));
    }
    if seconds > 0 {
        words.push_str(&format!(", {seconds} s of building"));
    }
    let unknown = cell.variants.values().filter(|one| one.build.warnings.is_none()).count();
    if unknown > 0 {
        return Finding::inconclusive(format!(
            "{unknown} kernels are of builds whose warnings were not kept"
        ));
    }
    Finding::ok(words)
}

/// The first prefix of a series without an image.
fn unbuilt(cell: &CellResult, total: usize) -> Option<usize> {
    let first =
        VariantName::every(total).into_iter().find(|name| !cell.variants.contains_key(name))?;
    let count = first.patches(total);
    (count > 0 && cell.faults.iter().all(|fault| fault.blame == Blame::Series)).then_some(count)
}

/// The first of faults, and the lines of all.
fn faults<'a>(faults: impl Iterator<Item = &'a Fault>) -> Option<Finding> {
    let faults: Vec<&Fault> = faults.collect();
    let code = ExitCode::worst(faults.iter().map(|fault| fault.exit_code()));
    let first = faults.iter().find(|fault| fault.exit_code() == code)?;
    let mut finding = Finding::fault(first);
    finding.exit_code = code;
    let others = faults.iter().filter(|fault| !std::ptr::eq::<Fault>(**fault, *first));
    Some(finding.with(others.map(|fault| fault.what.clone())))
}

/// A warning that a patch brings, if one does.
fn warnings(cell: &CellResult, subjects: &[String]) -> Option<Finding> {
    let total = subjects.len();
    let mut lines = Vec::new();
    let mut first = None;
    let steps = cell.warnings.iter().filter(|change| {
        // The pair of the ends says nothing that the steps do not say.
        let span = change.to.patches(total) - change.from.patches(total);
        span == 1 || cell.variants.len() == 2
    });
    for change in steps {
        for warning in &change.introduced {
            let at = match change.to.patches(total) - change.from.patches(total) {
                1 => Some(change.to.patches(total)),
                _ => None,
            };
            let place = at.map_or("between the ends".to_owned(), |at| at_patch(at, subjects));
            first = first
                .or(Some((at, format!("new warning {place}: {}", escape(&warning.to_string())))));
            lines.push(format!("{place}: {}", escape(&warning.to_string())));
        }
    }
    let (at, words) = first?;
    let more = lines.split_off(1);
    Some(
        Finding::failed(ExitCode::Series, words)
            .with(more.into_iter().take(MAX_LINES))
            .at_patch(at),
    )
}

/// What of the boots of one config's ends is wrong with the series.
#[must_use]
pub fn symptoms(result: &RunResult) -> Vec<Symptom> {
    let mut out = Vec::new();
    for cell in result.cells.iter().filter(|cell| !cell.identical) {
        let seen = if has_whole_base(cell) { new_splats(cell) } else { Vec::new() };
        for row in seen {
            let known = |one: &Symptom| matches!(one, Symptom::Splat { fingerprint, .. } if *fingerprint == row.splat.fingerprint);
            // One guest is enough to look for it.
            if !out.iter().any(known) {
                out.push(Symptom::Splat {
                    guest: cell.guest.clone(),
                    fingerprint: row.splat.fingerprint.clone(),
                    title: row.splat.title.clone(),
                });
            }
        }
        for test in &cell.tests {
            // A base that fails, too, is told by `boots`.
            let base = of_variant(test, VariantName::Base);
            if let (None, Some(fault)) = (base, of_variant(test, VariantName::Patched))
                && !is_ours(fault.blame)
            {
                let (guest, test) = (cell.guest.clone(), test.name.clone());
                out.push(Symptom::Fault { guest, test, fault: Box::new(fault.clone()) });
            }
        }
    }
    out
}

/// Whether base came to the end of every test, so that what it did not show is not in it.
fn has_whole_base(cell: &CellResult) -> bool {
    cell.tests.iter().all(|test| of_variant(test, VariantName::Base).is_none())
}

/// What patched showed and base did not.
fn new_splats(cell: &CellResult) -> Vec<&SplatRow> {
    let new = |row: &&SplatRow| row.verdict == SplatVerdict::New && row.allowed.is_none();
    cell.splats.iter().filter(new).collect()
}

/// Of new splats beside a base that did not come to its end.
fn untold(result: &RunResult) -> impl Iterator<Item = String> {
    let cells = result.cells.iter().filter(|cell| !has_whole_base(cell));
    cells
        .flat_map(new_splats)
        .map(|row| format!("{}: whether it is new cannot be told", escape(&row.splat.title)))
}

/// The fault of a variant's boot, whose task begins with the variant's name.
fn of_variant(test: &TestResult, variant: VariantName) -> Option<&Fault> {
    let name = variant.to_string();
    test.faults.iter().find(|fault| fault.what.split(' ').next() == Some(&name))
}

/// Of boots without a symptom.
#[must_use]
pub fn boots(result: &RunResult) -> Finding {
    if let Some(finding) =
        faults(result.faults.iter().chain(result.cells.iter().flat_map(|cell| &cell.faults)))
    {
        return finding;
    }
    let tests = || result.cells.iter().flat_map(|cell| &cell.tests);
    let without: Vec<&Fault> = tests().flat_map(|test| &test.faults).collect();
    if !result.cells.is_empty() && result.cells.iter().all(|cell| cell.identical) {
        // What patched showed when it was booted alone is told, whoever else would show it.
        let seen = result.cells.iter().flat_map(|cell| &cell.splats);
        let seen = seen.map(|row| escape(&row.splat.title));
        let seen = seen.chain(without.iter().map(|fault| fault.what.clone()));
        let booted = if tests().next().is_none() { ", so nothing was booted" } else { "" };
        return Finding::ok(format!("without and with the series it is the same kernel{booted}"))
            .with(seen.take(MAX_LINES).collect::<Vec<_>>());
    }
    if !without.is_empty() {
        return unfinished(result);
    }
    let mut words = format!("{}, no new splats", counted(tests().count(), "test"));
    let (both, gone) = splat_counts(result);
    if both > 0 {
        words.push_str(&format!(", {both} that base has, too"));
    }
    if gone > 0 {
        words.push_str(&format!(", {gone} gone"));
    }
    Finding::ok(words + &skipped_words(result)).with(skips(result))
}

/// Of tests that did not come to an end, where the series is not to blame.
fn unfinished(result: &RunResult) -> Finding {
    let tests = || result.cells.iter().flat_map(|cell| &cell.tests);
    let all = || tests().flat_map(|test| &test.faults);
    let finding = match all().any(|fault| is_ours(fault.blame)) {
        true => faults(all()),
        false => {
            let count = tests().filter(|test| !test.faults.is_empty()).count();
            let have = if count == 1 { "has" } else { "have" };
            let words = counted(count, "test");
            Some(
                Finding::inconclusive(format!("{words} {have} no result without the series"))
                    .with(all().map(|fault| fault.what.clone()).take(MAX_LINES)),
            )
        }
    };
    finding.unwrap_or_else(|| Finding::inconclusive("")).with(untold(result).take(MAX_LINES))
}

fn splat_counts(result: &RunResult) -> (usize, usize) {
    let rows = || result.cells.iter().flat_map(|cell| &cell.splats);
    let count = |verdict| rows().filter(|row| row.verdict == verdict).count();
    (count(SplatVerdict::Both), count(SplatVerdict::Gone))
}

fn skipped_words(result: &RunResult) -> String {
    let tests = result.cells.iter().flat_map(|cell| &cell.tests);
    match tests.filter(|test| !test.skips.is_empty()).count() {
        0 => String::new(),
        count => format!(", {count} skipped in whole or part"),
    }
}

/// Why tests were skipped, each reason once.
fn skips(result: &RunResult) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for test in result.cells.iter().flat_map(|cell| &cell.tests) {
        for why in &test.skips {
            let why = why.split_once(": ").map_or(why.as_str(), |(_, why)| why);
            let line = format!("{} skipped: {}", test.name, escape(why));
            if !lines.contains(&line) && lines.len() < MAX_LINES {
                lines.push(line);
            }
        }
    }
    lines
}
