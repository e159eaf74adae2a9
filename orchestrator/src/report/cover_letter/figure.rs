// SPDX-License-Identifier: MIT OR Apache-2.0
//! A metric's figures as cells of a table.

use std::collections::BTreeSet;

use kvet_records::Value;

use crate::compare::metrics::{Figures, MetricResult, MetricVerdict};
use crate::plan::manifest::VariantName;
use crate::report::number::{change, grouped, plain, range};
use crate::run::result::TestResult;

/// What stands where there is nothing.
pub(super) const NOTHING: &str = "-";

/// The metric of that name with that parameter, if it is there.
pub(super) fn find<'a>(
    test: &'a TestResult,
    name: &str,
    parameters: &[(&str, &Value)],
) -> Option<&'a MetricResult> {
    let fits = |metric: &&MetricResult| {
        metric.name == name
            && parameters.iter().all(|(name, value)| metric.parameters.get(*name) == Some(*value))
    };
    test.metrics.iter().find(fits)
}

/// A variant's figures.
pub(super) fn of(metric: Option<&MetricResult>, variant: VariantName) -> Option<&Figures> {
    metric?.figures.get(&variant)
}

/// A variant's median.
pub(super) fn median(metric: Option<&MetricResult>, variant: VariantName) -> String {
    of(metric, variant).map_or(NOTHING.to_owned(), |figures| plain(figures.median))
}

/// How far a variant's values lie apart, in percent of the median.
pub(super) fn spread(metric: Option<&MetricResult>, variant: VariantName) -> String {
    of(metric, variant).map_or(NOTHING.to_owned(), |figures| range(figures.spread_percent()))
}

/// Values of the parameter `name`, in the order of the metrics.
pub(super) fn values<'a>(test: &'a TestResult, metric: &str, name: &str) -> Vec<&'a Value> {
    let mut out: Vec<&Value> = Vec::new();
    for found in test.metrics.iter().filter(|found| found.name == metric) {
        match found.parameters.get(name) {
            Some(value) if !out.contains(&value) => out.push(value),
            _ => {}
        }
    }
    out
}

/// Marks changes that are none, and explains the marks that it used.
#[derive(Debug, Default)]
pub(super) struct Marks(BTreeSet<char>);

impl Marks {
    /// By how much less, in percent of base, with a mark.
    pub(super) fn reduction(&mut self, metric: Option<&MetricResult>) -> String {
        let less = metric.and_then(|metric| metric.delta_percent).map(|percent| -percent);
        let shown = less.map_or(NOTHING.to_owned(), |less| change(less).replace('+', ""));
        shown + &self.mark(metric)
    }

    /// By how much more, in percent of base, with a mark.
    pub(super) fn delta(&mut self, metric: Option<&MetricResult>) -> String {
        let percent = metric.and_then(|metric| metric.delta_percent);
        let by = metric.and_then(|metric| metric.delta);
        let shown = match (percent, by) {
            (Some(percent), _) => format!("{}%", change(percent)),
            (None, Some(by)) => format!("by {}", grouped(by)),
            (None, None) => NOTHING.to_owned(),
        };
        shown + &self.mark(metric)
    }

    /// A space where there is nothing to explain, so that a column stays one.
    fn mark(&mut self, metric: Option<&MetricResult>) -> String {
        let mark = match metric.map(|metric| metric.verdict) {
            None | Some(Some(MetricVerdict::Improved | MetricVerdict::Regressed)) => ' ',
            Some(Some(MetricVerdict::Unchanged)) => '~',
            Some(Some(MetricVerdict::Inconclusive)) => '?',
            Some(None) => '!',
        };
        self.0.insert(mark);
        mark.to_string()
    }

    /// What the marks mean.
    pub(super) fn legend(&self) -> Vec<&'static str> {
        let words = |mark: &char| match mark {
            '~' => Some(
                "~ is no difference: no more than the plan's threshold, or than two timer ticks",
            ),
            '?' => Some("? is inconclusive: there is a difference, but not at every phase"),
            '!' => Some("! has no verdict: a kernel was not measured at every phase"),
            _ => None,
        };
        self.0.iter().filter_map(words).collect()
    }
}

/// At how many phases the figures of a test were taken.
pub(super) fn phases(test: &TestResult) -> usize {
    let figures = test.metrics.iter().flat_map(|metric| metric.figures.values());
    figures.map(|figures| figures.values.len()).max().unwrap_or(0)
}
