// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report for people: a pure function of the result.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kvet_records::Value;

use super::{metrics, robust, warnings};
use crate::compare::behaviour::{Row, Verdict};
use crate::compare::snapshot::SnapshotState;
use crate::fault::{ExitCode, Fault, escape};
use crate::kernel::series::MovedHunk;
use crate::plan::manifest::VariantName;
use crate::run::result::{BehaviourResult, CellResult, RunResult, TestResult};

/// Widest value that a table shows; longer ones are cut.
const MAX_VALUE: usize = 24;
/// Most hunks that are named because they applied in another line.
const MAX_HUNKS: usize = 8;

/// Longest table that is shown in full.
const MAX_ROWS: usize = 24;
/// Values of a program's tests of which, in a long table, a count is enough.
const QUIET: [&str; 3] = ["ok", "skip", "xfail"];

/// The report of a run.
#[must_use]
pub fn render(result: &RunResult, color: bool) -> String {
    let mut page = Page { out: String::new(), color };
    for fault in &result.faults {
        page.fault("", fault);
    }
    for cell in &result.cells {
        page.cell(cell);
    }
    for line in robust::lines(&result.robustness) {
        page.line(&escape(&line));
    }
    if !result.robustness.is_empty() {
        page.line("");
    }
    for line in &result.unchecked {
        let line = page.paint(YELLOW, &format!("not checked: {}", escape(line)));
        page.line(&line);
    }
    for reason in &result.skipped {
        page.line(&format!("not run: {}", escape(reason)));
    }
    page.environment(result);
    let code = result.exit_code;
    let style = if code == ExitCode::Acceptable { GREEN } else { RED };
    let verdict = page.paint(style, &format!("exit {}: {}", code as u8, code.meaning()));
    page.line(&verdict);
    page.out
}

pub(super) const RED: &str = "31";
pub(super) const GREEN: &str = "32";
pub(super) const YELLOW: &str = "33";
const BOLD: &str = "1";

struct Page {
    out: String,
    color: bool,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn cell(&mut self, cell: &CellResult) {
        let source =
            cell.source.as_deref().map_or(String::new(), |source| format!(" ({})", escape(source)));
        let title = format!(
            "{} on {}{source}, config {}, guest {}",
            cell.series, cell.kernel, cell.config, cell.guest
        );
        let title = self.paint(BOLD, &title);
        self.line(&title);
        if let Some(input) = &cell.input {
            self.line(&format!("  series from {}", escape(input)));
        }
        for reason in &cell.passed_over {
            let head = if reason.starts_with("note: ") { "" } else { "passed over: " };
            self.line(&format!("  {head}{}", escape(reason)));
        }
        for found in &cell.overrides {
            self.line(&format!("  {found}"));
        }
        self.moved_hunks(&cell.moved_hunks);
        for (variant, built) in &cell.variants {
            let how = if built.build.stored {
                "from the store".to_owned()
            } else {
                format!("built in {} s, {} steps", built.build.seconds, built.build.steps)
            };
            self.line(&format!(
                "  {:<8} {}  linux {}  {how}",
                variant,
                &built.image_sha256[..12.min(built.image_sha256.len())],
                escape(&built.release)
            ));
            for line in &built.build.refused {
                let words = self.paint(YELLOW, &format!("its build {}", escape(line)));
                self.line(&format!("           {words}"));
            }
        }
        if cell.identical {
            let words = self.paint(YELLOW, "identical");
            let what = match cell.unchanged {
                true => "the series changes nothing: it touches no file of the kernel's tree",
                false => "the series changes nothing in this configuration",
            };
            self.line(&format!("  {words}: {what}"));
        }
        warnings::lines(cell).iter().for_each(|line| self.line(line));
        for fault in &cell.faults {
            self.fault("  ", fault);
        }
        for test in &cell.tests {
            // Many, and summed up for all of them.
            let brief = cell.variation_of.is_some() && test.faults.is_empty();
            match brief && !test.metrics.is_empty() {
                true => self.line(&format!("  {}", metrics::brief(test))),
                false => self.test(test, cell.variants.len()),
            }
        }
        for row in &cell.splats {
            let allowed = match &row.allowed {
                Some(reason) => format!(", allowed: {}", escape(reason)),
                None => String::new(),
            };
            let title = escape(&row.splat.title);
            self.line(&format!(
                "  splat ({}{}{allowed}): {title} [{}]",
                row.verdict,
                with(&row.variants),
                row.splat.fingerprint
            ));
        }
        self.line("");
    }

    fn test(&mut self, test: &TestResult, variants: usize) {
        self.line("");
        match &test.behaviour {
            Some(behaviour) => {
                self.behaviour(&test.name, behaviour);
                if test.boots.get() > 1 {
                    self.line(&format!("  the same in {} boots of each variant", test.boots));
                }
            }
            None if test.metrics.is_empty() => self.line(&format!("  {}: no result", test.name)),
            None => {}
        }
        if !test.metrics.is_empty() {
            for line in metrics::lines(test, &|style, text| self.paint(style, text)) {
                self.line(&line);
            }
        }
        for reason in &test.skips {
            self.line(&format!("    skipped: {reason}"));
        }
        for fault in &test.faults {
            self.fault("    ", fault);
        }
        if let Some(conclusion) = test.conclusion(variants) {
            self.line(&format!("  no comparison: {conclusion}"));
        }
    }

    fn behaviour(&mut self, name: &str, behaviour: &BehaviourResult) {
        let variants: Vec<VariantName> = behaviour.observations.keys().copied().collect();
        let rows: Vec<TableRow> = if behaviour.rows.is_empty() {
            let observed = behaviour.observations.values().next();
            let names = observed.map(|observed| observed.keys().cloned().collect::<Vec<_>>());
            let value = |name: &String| {
                variants
                    .iter()
                    .map(|variant| shown(behaviour.observations[variant].get(name)))
                    .collect()
            };
            names
                .unwrap_or_default()
                .into_iter()
                .map(|name| (name.clone(), value(&name), None))
                .collect()
        } else {
            let row = |row: &Row| {
                let all = behaviour.observations.values();
                let values = all.map(|observed| shown(observed.get(&row.name))).collect();
                (row.name.clone(), values, Some(row.verdict))
            };
            behaviour.rows.iter().map(row).collect()
        };
        let (rows, summary) = summarise(rows);
        let first = rows.iter().map(|row| row.0.len() + 2).chain([name.len()]).max().unwrap_or(0);
        let width =
            rows.iter().flat_map(|row| row.1.iter().map(String::len)).chain([8]).max().unwrap_or(8);
        let heads: String = variants.iter().fold(String::new(), |mut out, variant| {
            let _ = write!(out, "  {variant:<width$}");
            out
        });
        self.line(&format!("  {name:<first$}{heads}"));
        for (name, values, verdict) in rows {
            let cells: String = values.iter().fold(String::new(), |mut out, value| {
                let _ = write!(out, "  {value:<width$}");
                out
            });
            let verdict = verdict.map_or(String::new(), |verdict| {
                let style = match verdict {
                    Verdict::Same => "0",
                    Verdict::Expected => GREEN,
                    Verdict::Missing | Verdict::Unexpected => RED,
                };
                format!("  {}", self.paint(style, &verdict.to_string()))
            });
            self.line(&format!("    {name:<0$}{cells}{verdict}", first - 2));
        }
        for line in summary {
            self.line(&format!("    {line}"));
        }
        self.verdict(behaviour);
        self.snapshots(behaviour);
    }

    fn verdict(&mut self, behaviour: &BehaviourResult) {
        let Some(verdict) = behaviour.verdict else {
            return;
        };
        let words = match verdict {
            Verdict::Same => "the same with and without the series",
            Verdict::Expected => "changed as the series declares, and nothing else",
            Verdict::Missing => "a declared change did not come",
            Verdict::Unexpected => "changed in a way that the series does not declare",
        };
        for row in &behaviour.rows {
            if let (Some((base, patched)), true) = (&row.declared, verdict_is_bad(row.verdict)) {
                self.line(&format!(
                    "    declared for {}: {} -> {}",
                    row.name,
                    shown(Some(base)),
                    shown(Some(patched))
                ));
            }
        }
        let strays = |row: &&Row| row.verdict == Verdict::Unexpected && row.base == row.patched;
        let words = match behaviour.rows.iter().find(strays) {
            Some(row) if row.declared.is_none() => {
                "a part of the series changes what the whole of it does not"
            }
            _ => words,
        };
        let style = if verdict_is_bad(verdict) { RED } else { GREEN };
        let verdict = self.paint(style, &verdict.to_string());
        self.line(&format!("  behaviour {verdict}: {words}"));
    }

    fn snapshots(&mut self, behaviour: &BehaviourResult) {
        let states: Vec<String> = behaviour
            .snapshot
            .iter()
            .map(|(variant, state)| format!("{variant} {state}"))
            .collect();
        let hint = match behaviour.snapshot.values().any(|state| *state != SnapshotState::Matches) {
            true => " (`kvet review` shows it, `kvet accept` takes it)",
            false => "",
        };
        self.line(&format!("  snapshots: {}{hint}", states.join(", ")));
    }

    fn moved_hunks(&mut self, moved: &[MovedHunk]) {
        for hunk in moved.iter().take(MAX_HUNKS) {
            let MovedHunk { patch, file, hunk: number, line, offset, .. } = hunk;
            let way = if *offset < 0 { "up" } else { "down" };
            let by = offset.unsigned_abs();
            let text = format!(
                "  {}: hunk {number} of {} applied at line {line}, {by} line(s) further {way}",
                escape(patch),
                escape(file)
            );
            self.line(&text);
        }
        if moved.len() > MAX_HUNKS {
            self.line(&format!("  ... {} more hunks applied elsewhere", moved.len() - MAX_HUNKS));
        }
        let mut ambiguous: Vec<&str> =
            moved.iter().filter(|hunk| hunk.ambiguous).map(|hunk| hunk.patch.as_str()).collect();
        ambiguous.dedup();
        for patch in ambiguous {
            let words = format!(
                "  {}: fits in more than one place; look whether it is in the right one",
                escape(patch)
            );
            let words = self.paint(YELLOW, &words);
            self.line(&words);
        }
    }

    fn fault(&mut self, indent: &str, fault: &Fault) {
        let text = fault.to_string();
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let style = if fault.nothing_to_do { YELLOW } else { RED };
        let first = self.paint(style, first);
        self.line(&format!("{indent}{first}"));
        for line in lines {
            self.line(&format!("{indent}{line}"));
        }
    }

    fn environment(&mut self, result: &RunResult) {
        let environment = &result.environment;
        if let Some(chosen) = &environment.accelerator {
            self.line(&format!(
                "{}; {} ({})",
                escape(&environment.qemu),
                chosen.accelerator,
                escape(&chosen.reason)
            ));
        }
        if let Some(sandbox) = &environment.sandbox {
            self.line(&format!("sandbox of builds: {}", escape(sandbox)));
        }
    }
}

/// ` in patch-01, patched`, where that says something.
fn with(variants: &[VariantName]) -> String {
    let names: Vec<String> = variants.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(", ")) }
}

/// Name of an observation, its values, and what they came to.
type TableRow = (String, Vec<String>, Option<Verdict>);

/// Where there are many rows, those that are the same in every variant become a
/// line for each value, but for what fails in all of them, which is shown.
fn summarise(rows: Vec<TableRow>) -> (Vec<TableRow>, Vec<String>) {
    if rows.len() <= MAX_ROWS {
        return (rows, Vec::new());
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for row in rows {
        let dull = row.1.iter().all(|value| *value == row.1[0])
            && row.2.is_none_or(|verdict| verdict == Verdict::Same)
            && QUIET.contains(&row.1[0].as_str());
        if dull {
            *counts.entry(row.1[0].clone()).or_default() += 1;
        } else {
            kept.push(row);
        }
    }
    let line = |(value, count): (String, usize)| format!("{count} more, in every variant: {value}");
    (kept, counts.into_iter().map(line).collect())
}

fn verdict_is_bad(verdict: Verdict) -> bool {
    verdict.exit_code() != ExitCode::Acceptable
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    let text = escape(&value.to_string());
    match text.char_indices().nth(MAX_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
