// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which counted windows held work that was not the measured work.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::metrics::MetricResult;
use crate::plan::manifest::VariantName;

/// Counters that may be work of somebody else; an interrupt is a tick, and a fault is
/// the test's own.
const FOREIGN: [&str; 3] = ["switches", "softirqs", "kworkers"];
/// A window holds foreign work from more than this many times the usual on. Where the
/// measured work switches and wakes by itself, all windows have much of it, and base
/// and patched need not have the same.
const TIMES_USUAL: i64 = 2;
/// Most figures that are named.
const MAX_LINES: usize = 6;

/// One line for each figure of a test that has more context switches, softirqs or
/// kworkers in its windows than is usual for that metric there.
#[must_use]
pub(super) fn lines(metrics: &[MetricResult]) -> Vec<String> {
    let mut out: Vec<String> = metrics.iter().filter_map(|metric| line(metric, metrics)).collect();
    let more = out.len().saturating_sub(MAX_LINES);
    if more > 0 {
        out.truncate(MAX_LINES);
        out.push(format!("{more} figures more"));
    }
    out
}

fn line(metric: &MetricResult, all: &[MetricResult]) -> Option<String> {
    let mut flagged: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    let mut variants: BTreeSet<VariantName> = BTreeSet::new();
    for counter in FOREIGN {
        let usual = usual(&metric.name, counter, all);
        for (&variant, figures) in &metric.figures {
            let Some(&(least, most)) = figures.beside.get(counter) else { continue };
            if most > usual.saturating_mul(TIMES_USUAL) {
                let range = flagged.entry(counter).or_insert((least, most));
                *range = (range.0.min(least), range.1.max(most));
                variants.insert(variant);
            }
        }
    }
    let counts: Vec<String> = FOREIGN
        .iter()
        .filter_map(|counter| Some((counter, flagged.get(counter)?)))
        .map(|(counter, (least, most))| match least == most {
            true => format!("{most} {counter}"),
            false => format!("{least}-{most} {counter}"),
        })
        .collect();
    if counts.is_empty() {
        return None;
    }
    let of: Vec<String> = variants.iter().map(ToString::to_string).collect();
    let of = match of.len() == metric.figures.len() {
        true => String::new(),
        false => format!(" ({})", of.join(", ")),
    };
    Some(format!("{}: {}{of}", title(metric), counts.join(", ")))
}

/// What the windows of half of that metric's figures do not exceed.
fn usual(name: &str, counter: &str, all: &[MetricResult]) -> i64 {
    let alike = all.iter().filter(|metric| metric.name == name);
    let mut most: Vec<i64> = alike
        .flat_map(|metric| metric.figures.values())
        .filter_map(|figures| figures.beside.get(counter))
        .map(|range| range.1)
        .collect();
    most.sort_unstable();
    most.get(most.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// A metric's name and parameters.
pub(super) fn title(metric: &MetricResult) -> String {
    let parameters = metric.parameters.iter().map(|(name, value)| format!(" {name}={value}"));
    metric.name.clone() + &parameters.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::metric;

    #[test]
    fn work_that_other_windows_do_not_have_is_foreign() {
        let beside = |least, most| [("switches", (least, most)), ("interrupts", (6, 7))];
        let metrics = [
            metric("latency", &[("vlen", 1)], (&[10.0], &[10.0])).beside(beside(0, 0)),
            metric("latency", &[("vlen", 2)], (&[10.0], &[10.0])).beside(beside(0, 0)),
            metric("latency", &[("vlen", 4)], (&[10.0], &[10.0])).beside(beside(3, 4)),
        ];
        let metrics = metrics.map(|metric| metric.result());
        assert_eq!(lines(&metrics), ["latency vlen=4: 3-4 switches"]);
        assert!(lines(&metrics[..2]).is_empty());
    }

    #[test]
    fn work_of_one_variant_alone_is_foreign_and_what_all_do_is_not() {
        let one = metric("latency", &[], (&[10.0], &[10.0]));
        let mut one = one.beside([("kworkers", (0, 0))]).result();
        let patched = one.figures.get_mut(&VariantName::Patched).unwrap();
        patched.beside.insert("kworkers".to_owned(), (0, 1));
        assert_eq!(lines(&[one]), ["latency: 0-1 kworkers (patched)"]);
        let all = metric("access", &[], (&[10.0], &[10.0])).beside([("switches", (2062, 3097))]);
        assert!(lines(&[all.result()]).is_empty());
    }
}
