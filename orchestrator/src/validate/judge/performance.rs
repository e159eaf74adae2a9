// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of counted figures of the ends.

use super::{MAX_LINES, Symptom, faults, is_ours, of_variant, skipped_words, skips};
use crate::compare::metrics::{MetricResult, MetricVerdict};
use crate::fault::Fault;
use crate::plan::manifest::VariantName;
use crate::run::result::{RunResult, TestResult};
use crate::validate::result::Finding;

/// The regression of a counted figure that does not pass, in percent of base. A count
/// has no noise, but code that a series does not mean to change may be laid out anew, and
/// a tick of some 2,200 instructions may fall into a window: 0.1 % of one of two million.
/// 2 % is far above that. What is below is told, for the author to judge.
pub const THRESHOLD_PERCENT: f64 = 2.0;

/// Regressions beyond the threshold.
#[must_use]
pub fn regressions(result: &RunResult) -> Vec<Symptom> {
    let mut out = Vec::new();
    for cell in &result.cells {
        for test in &cell.tests {
            let worse = test.metrics.iter().filter(|metric| {
                metric.verdict == Some(MetricVerdict::Regressed)
                    && metric.delta_percent.is_some_and(|delta| delta.abs() > THRESHOLD_PERCENT)
            });
            out.extend(worse.map(|metric| Symptom::Metric {
                guest: cell.guest.clone(),
                test: test.name.clone(),
                metric: Box::new(metric.clone()),
            }));
        }
    }
    // The largest first: it is the one to look for.
    let size = |one: &Symptom| match one {
        Symptom::Metric { metric, .. } => metric.delta_percent.unwrap_or_default().abs(),
        _ => 0.0,
    };
    out.sort_by(|one, other| size(other).total_cmp(&size(one)));
    out
}

/// Of counted figures without a regression beyond the threshold.
#[must_use]
pub fn performance(result: &RunResult) -> Finding {
    let cells = result.cells.iter().flat_map(|cell| &cell.faults);
    if let Some(finding) = faults(result.faults.iter().chain(cells)) {
        return finding;
    }
    let tests = || result.cells.iter().flat_map(|cell| &cell.tests);
    let broken: Vec<&Fault> = tests().flat_map(|test| &test.faults).collect();
    let without = |test: &&TestResult| of_variant(test, VariantName::Base).is_some();
    let unfinished = tests().filter(without).count();
    if !broken.is_empty()
        && unfinished == tests().filter(|test| !test.faults.is_empty()).count()
        && !broken.iter().any(|fault| is_ours(fault.blame))
    {
        return Finding::inconclusive(format!(
            "{unfinished} tests have no result without the series"
        ))
        .with(broken.iter().map(|fault| fault.what.clone()).take(MAX_LINES));
    }
    if let Some(finding) = faults(broken.into_iter()) {
        return finding;
    }
    if result.cells.iter().all(|cell| cell.identical) {
        return Finding::ok("the same kernel counts the same");
    }
    let metrics: Vec<(&TestResult, &MetricResult)> = result
        .cells
        .iter()
        .flat_map(|cell| &cell.tests)
        .flat_map(|test| test.metrics.iter().map(move |metric| (test, metric)))
        .collect();
    let count =
        |verdict| metrics.iter().filter(|(_, metric)| metric.verdict == Some(verdict)).count();
    let lines = metrics
        .iter()
        .filter(|(_, metric)| metric.verdict != Some(MetricVerdict::Unchanged))
        .map(|(test, metric)| format!("{}: {} {}", test.name, figure(metric), change(metric)))
        .take(MAX_LINES)
        .collect::<Vec<_>>();
    let parts = [
        (count(MetricVerdict::Unchanged), "unchanged"),
        (count(MetricVerdict::Improved), "improved"),
        (count(MetricVerdict::Inconclusive), "unclear"),
    ];
    let mut words: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let small = count(MetricVerdict::Regressed);
    if small > 0 {
        words.push(format!("{small} worse by less than {THRESHOLD_PERCENT} %"));
    }
    let without = metrics.iter().filter(|(_, metric)| metric.verdict.is_none()).count();
    if metrics.is_empty() && !skips(result).is_empty() {
        return Finding::skipped(skips(result).join("; "));
    }
    if metrics.is_empty() || without > 0 {
        let words = if metrics.is_empty() {
            "nothing was counted".to_owned()
        } else {
            format!("{without} figures are of one kernel only")
        };
        return Finding::inconclusive(words + &skipped_words(result))
            .with(skips(result))
            .with(lines);
    }
    let odd = metrics.iter().any(|(_, metric)| {
        metric.verdict == Some(MetricVerdict::Inconclusive)
            && metric.delta_percent.is_some_and(|delta| delta.abs() > THRESHOLD_PERCENT)
    });
    if odd {
        return Finding::inconclusive(format!("counted instructions: {}", words.join(", ")))
            .with(lines);
    }
    Finding::ok(format!("counted instructions: {}{}", words.join(", "), skipped_words(result)))
        .with(lines)
        .with(skips(result))
}

pub(super) fn figure(metric: &MetricResult) -> String {
    let parameters: Vec<String> =
        metric.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    match parameters.is_empty() {
        true => metric.name.clone(),
        false => format!("{} ({})", metric.name, parameters.join(", ")),
    }
}

pub(super) fn change(metric: &MetricResult) -> String {
    let verdict =
        metric.verdict.map_or("without a verdict".to_owned(), |verdict| verdict.to_string());
    match metric.delta_percent {
        Some(percent) => format!("{verdict} {percent:+.2} % ({})", metric.unit),
        None => verdict,
    }
}
