// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test measured, as lines of the report for people: a table for each metric.

use std::collections::BTreeSet;

use kvet_records::{Better, Value};

use super::number::{change, grouped, range};
use super::{foreign, terminal};
use crate::compare::metrics::{Figures, MetricResult, MetricVerdict};
use crate::fault::escape;
use crate::plan::manifest::{Measure, VariantName};
use crate::run::result::TestResult;

/// Longest test that is shown in full; of longer ones, metrics of which nothing
/// changed are one line each.
const MAX_ROWS: usize = 24;

/// The lines of a measured test. `paint` gives a text a style of the terminal.
pub(super) fn lines(test: &TestResult, paint: &dyn Fn(&str, &str) -> String) -> Vec<String> {
    let metrics = &test.metrics;
    let variants: Vec<VariantName> = metrics
        .iter()
        .flat_map(|metric| metric.figures.keys().copied())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut out = vec![format!("  {}: {}", escape(&test.name), what(metrics))];
    for group in groups(metrics) {
        if metrics.len() > MAX_ROWS && group.iter().all(is_unchanged) {
            out.push(unchanged(&group));
        } else {
            table(&mut out, &group, &variants, paint);
        }
    }
    let foreign = foreign::lines(metrics);
    out.extend(foreign.iter().map(|line| format!("    foreign work in {}", escape(line))));
    if variants.len() > 1 {
        let gate = match metrics.iter().any(|metric| metric.gate) {
            true => "they count for the exit code, as the plan says (`gate: true`)",
            false => "they do not change the exit code, since the plan does not say `gate: true`",
        };
        out.push(format!("  metrics: {}; {gate}", summary(metrics)));
    }
    out
}

/// A test in one line.
pub(super) fn brief(test: &TestResult) -> String {
    format!("{}: {}", escape(&test.name), summary(&test.metrics))
}

/// What the figures are.
fn what(metrics: &[MetricResult]) -> String {
    let counts = metrics.iter().flat_map(|metric| metric.figures.values());
    let phases: BTreeSet<usize> = counts.map(|figures| figures.values.len()).collect();
    let phases = match (phases.first(), phases.last()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most} phases"),
        (_, Some(1)) => "1 phase".to_owned(),
        (_, most) => format!("{} phases", most.copied().unwrap_or_default()),
    };
    match metrics.iter().all(|metric| metric.measure == Measure::Instructions) {
        true => format!("counted instructions at {phases}, not time"),
        false => format!("time on the host's clock, {phases}"),
    }
}

/// The metrics by name, in the order of their first.
pub(super) fn groups(metrics: &[MetricResult]) -> Vec<Vec<&MetricResult>> {
    let mut out: Vec<Vec<&MetricResult>> = Vec::new();
    for metric in metrics {
        let same = |group: &&mut Vec<&MetricResult>| {
            group[0].name == metric.name && group[0].unit == metric.unit
        };
        match out.iter_mut().find(same) {
            Some(group) => group.push(metric),
            None => out.push(vec![metric]),
        }
    }
    out
}

fn is_unchanged(metric: &&MetricResult) -> bool {
    metric.verdict == Some(MetricVerdict::Unchanged)
}

fn unchanged(group: &[&MetricResult]) -> String {
    let deltas = group.iter().filter_map(|metric| metric.delta_percent).map(f64::abs);
    format!(
        "    {}: unchanged in all {}, at most {}% apart",
        heading(group[0]),
        group.len(),
        range(deltas.fold(0.0, f64::max))
    )
}

fn heading(metric: &MetricResult) -> String {
    let better = if metric.better == Better::Higher { ", higher is better" } else { "" };
    let unit = &metric.unit;
    // What a guest calls a second is a billion instructions, or that much idling.
    let counted = metric.measure == Measure::Instructions;
    let clock = match counted && (unit == "ns" || unit.ends_with("/s")) {
        true => " of guest time",
        false => "",
    };
    format!("{} ({}{clock}{better})", escape(&metric.name), escape(unit))
}

/// A column's cells, the head first, all of one width.
struct Column {
    cells: Vec<String>,
    left: bool,
}

impl Column {
    fn new(head: &str, left: bool, cells: impl Iterator<Item = String>) -> Self {
        Self { cells: std::iter::once(head.to_owned()).chain(cells).collect(), left }
    }

    fn cell(&self, row: usize) -> String {
        let width = self.cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        let cell = &self.cells[row];
        if self.left { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") }
    }
}

fn table(
    out: &mut Vec<String>,
    group: &[&MetricResult],
    variants: &[VariantName],
    paint: &dyn Fn(&str, &str) -> String,
) {
    let mut columns = Vec::new();
    let names: BTreeSet<&String> =
        group.iter().flat_map(|metric| metric.parameters.keys()).collect();
    for name in names {
        let values: Vec<Option<&Value>> =
            group.iter().map(|metric| metric.parameters.get(name)).collect();
        let text = values.iter().any(|value| matches!(value, Some(Value::Text(_))));
        let shown = |value: &Option<&Value>| {
            value.map_or("-".to_owned(), |value| escape(&value.to_string()))
        };
        columns.push(Column::new(&escape(name), text, values.iter().map(shown)));
    }
    for &variant in variants {
        let of = |shown: fn(&Figures) -> String| {
            let cell = move |metric: &&MetricResult| {
                metric.figures.get(&variant).map_or("-".to_owned(), shown)
            };
            group.iter().map(cell)
        };
        columns.push(Column::new(
            &variant.to_string(),
            false,
            of(|figures| grouped(figures.median)),
        ));
        let spread = |figures: &Figures| format!("{}%", range(figures.spread_percent()));
        columns.push(Column::new("range", false, of(spread)));
    }
    if variants.len() > 1 {
        let delta = |metric: &&MetricResult| match metric.delta_percent {
            Some(percent) => format!("{}%", change(percent)),
            // In percent of nothing.
            None => metric.delta.map_or("-".to_owned(), |delta| format!("by {}", grouped(delta))),
        };
        columns.push(Column::new("delta", false, group.iter().map(delta)));
    }
    out.push(format!("    {}", heading(group[0])));
    let line = |row| columns.iter().map(|column| column.cell(row)).collect::<String>();
    out.push(format!("    {}", line(0)));
    for (row, metric) in group.iter().enumerate() {
        let verdict = if variants.len() > 1 { verdict(metric, paint) } else { String::new() };
        out.push(format!("    {}{verdict}", line(row + 1)));
    }
}

fn verdict(metric: &MetricResult, paint: &dyn Fn(&str, &str) -> String) -> String {
    let Some(verdict) = metric.verdict else {
        let count = |variant| metric.figures.get(&variant).map_or(0, |f| f.values.len());
        let (base, patched) = (count(VariantName::Base), count(VariantName::Patched));
        let why = format!("no verdict: base at {base} phases, patched at {patched}");
        return format!("  {}", paint(terminal::YELLOW, &why));
    };
    let style = match verdict {
        MetricVerdict::Improved => terminal::GREEN,
        MetricVerdict::Unchanged => "0",
        MetricVerdict::Inconclusive => terminal::YELLOW,
        MetricVerdict::Regressed => terminal::RED,
    };
    format!("  {}", paint(style, &verdict.to_string()))
}

/// How many came to what.
pub(super) fn summary(metrics: &[MetricResult]) -> String {
    use MetricVerdict::{Improved, Inconclusive, Regressed, Unchanged};
    let verdicts = [Some(Improved), Some(Regressed), Some(Inconclusive), Some(Unchanged), None];
    let counts: Vec<String> = verdicts
        .into_iter()
        .map(|verdict| {
            let count = metrics.iter().filter(|metric| metric.verdict == verdict).count();
            (count, verdict.map_or("without a verdict".to_owned(), |verdict| verdict.to_string()))
        })
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::report::sample::{self, measured, metric};

    fn shown(test: &TestResult) -> String {
        lines(test, &|_, text| text.to_owned()).join("\n")
    }

    #[test]
    fn a_measured_test_is_a_table_for_each_metric() {
        let latency = |vlen, base: &[f64], patched: &[f64]| {
            metric("latency", &[("vlen", vlen)], (base, patched)).text("advice", "free")
        };
        let quiet = |metric: crate::report::sample::Metric| {
            metric.beside([("switches", (0, 0)), ("interrupts", (6, 7))]).result()
        };
        let mut lone = metric("call", &[("vlen", 1)], (&[3234.0, 3234.0], &[])).result();
        lone.figures.remove(&VariantName::Patched);
        lone.verdict = None;
        let test = measured(
            "process_madvise.instructions",
            vec![
                quiet(latency(1, &[26_804_351.0, 26_801_561.0], &[27_123_865.0, 27_121_060.0])),
                quiet(latency(2, &[24_459_474.0, 24_458_970.0], &[21_151_223.0, 21_153_959.0])),
                latency(1024, &[21_520_501.0, 21_520_502.0], &[14_536_794.0, 14_539_134.0])
                    .beside([("switches", (4, 4)), ("softirqs", (3, 4))])
                    .result(),
                metric("rate", &[], (&[26.2963, 26.2957], &[26.2924, 26.2911]))
                    .unit("M/s", Better::Higher)
                    .result(),
                metric("scans", &[], (&[0.0, 0.0], &[3.0, 3.0])).result(),
                lone,
            ],
        );
        insta::assert_snapshot!(shown(&test));
    }

    #[test]
    fn of_a_long_test_what_did_not_change_is_a_line() {
        let row = |name: &'static str, vlen, patched: f64| {
            metric(name, &[("vlen", vlen)], (&[100.0, 100.0], &[patched, patched])).result()
        };
        let mut metrics: Vec<_> = (0..20).map(|vlen| row("locks", vlen, 100.0)).collect();
        metrics[7] = row("locks", 7, 100.05);
        metrics.extend((0..20).map(|vlen| row("flushes", vlen, 50.0)));
        metrics[39].gate = true;
        let text = shown(&measured("t.instructions", metrics));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 1 + 22 + 1, "{text}");
        assert_eq!(lines[1], "    locks (instructions): unchanged in all 20, at most 0.05% apart");
        assert!(
            lines[24].starts_with("  metrics: 20 improved, 20 unchanged; they count"),
            "{text}"
        );
    }

    #[test]
    fn a_measured_test_that_one_kernel_did_not_complete_is_no_test_of_neither() {
        let mut lone = metric("latency", &[], (&[5.0, 7.0], &[])).result();
        lone.figures.remove(&VariantName::Patched);
        let mut test = measured("t.instructions", vec![lone]);
        test.faults.push(Fault::kernel("patched: oops"));
        let conclusion = test.conclusion(2).unwrap();
        assert!(conclusion.starts_with("base completes this test and patched does not"));
        test.metrics.clear();
        assert!(test.conclusion(2).unwrap().starts_with("neither kernel"));
    }

    #[test]
    fn the_report_of_a_run_has_the_figures_with_their_colours() {
        let worse = metric("latency", &[], (&[5.0, 5.0], &[6.0, 6.0])).result();
        let tests = vec![measured("t.instructions", vec![worse])];
        let result = sample::run("plan", vec![sample::cell("series", "up", tests)]);
        let page = terminal::render(&result, true);
        assert!(page.contains("+20.00%  \u{1b}[31mregressed\u{1b}[0m\n"), "{page}");
        assert!(page.contains("exit 0: acceptable") && !page.contains("no result"), "{page}");
        assert!(!terminal::render(&result, false).contains('\u{1b}'));
    }

    #[test]
    fn one_variant_alone_has_figures_and_no_verdict() {
        let mut one = metric("latency", &[], (&[5.0, 7.0], &[])).result();
        one.figures.remove(&VariantName::Patched);
        one.verdict = None;
        let text = shown(&measured("t.instructions", vec![one]));
        assert_eq!(
            text,
            "  t.instructions: counted instructions at 2 phases, not time\n    latency (instructions)\n      base   range\n         6  33.33%"
        );
    }
}
