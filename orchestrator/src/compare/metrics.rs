// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares counted figures of the variants.
//!
//! A count has no noise, but it depends a little on where its window lies relative to
//! the timer ticks. So each figure is taken at several start phases, and a difference is
//! only one if it is larger than what phases and ticks make of it.

use std::collections::BTreeMap;

use kvet_records::{Better, Parameters, TICK_METRIC};
use serde::{Deserialize, Serialize};

use crate::fault::ExitCode;
use crate::plan::Instructions;
use crate::plan::manifest::{Measure, VariantName};
use crate::transport::virtio::Sample;

/// What a counter is called that says how many interrupts a window held.
pub const INTERRUPTS: &str = "interrupts";
/// Ticks that a difference must be worth where a window holds any: one more or fewer can
/// fall into it, at either end.
const TICKS: f64 = 2.0;

/// What a metric came to. From best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricVerdict {
    /// Better with the series.
    Improved,
    /// No difference that counts.
    Unchanged,
    /// A difference, but not at every phase.
    Inconclusive,
    /// Worse with the series.
    Regressed,
}

impl MetricVerdict {
    /// What it means for the exit code where the plan lets it count.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Improved | Self::Unchanged => ExitCode::Acceptable,
            Self::Inconclusive => ExitCode::Inconclusive,
            Self::Regressed => ExitCode::Behaviour,
        }
    }
}

impl std::fmt::Display for MetricVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Improved => "improved",
            Self::Unchanged => "unchanged",
            Self::Inconclusive => "inconclusive",
            Self::Regressed => "regressed",
        })
    }
}

/// A figure of one variant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// One value for each phase, in the order of the phases.
    pub values: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// What else was counted, by name: the least and the most of all phases.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, (i64, i64)>,
}

impl Figures {
    /// The least value.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest value.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// How far the values lie apart, in percent of their median.
    #[must_use]
    pub fn spread_percent(&self) -> f64 {
        percent(self.most() - self.least(), self.median)
    }

    fn push(&mut self, sample: &Sample) {
        self.values.push(sample.value);
        for (name, &count) in &sample.beside {
            let range = self.beside.entry(name.clone()).or_insert((count, count));
            *range = (range.0.min(count), range.1.max(count));
        }
    }

    fn holds_interrupts(&self) -> bool {
        self.beside.get(INTERRUPTS).is_some_and(|range| range.1 > 0)
    }
}

/// A metric with one set of parameters, in all variants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricResult {
    /// Name of the metric.
    pub name: String,
    /// Unit of its values.
    pub unit: String,
    /// Which way it improves.
    pub better: Better,
    /// What distinguishes it from others of that name.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    /// How it was measured.
    pub measure: Measure,
    /// The variants' figures.
    pub figures: BTreeMap<VariantName, Figures>,
    /// Patched less base, medians; none without both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// The same in percent of base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_percent: Option<f64>,
    /// What a difference must be more than, in the metric's unit: the plan's threshold,
    /// or two ticks.
    pub allowance: f64,
    /// What it came to; none without both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<MetricVerdict>,
    /// The verdict changes the exit code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate: bool,
}

/// The samples of each phase, in the order of the phases.
pub type Phases = Vec<Vec<Sample>>;

/// A metric's name and parameters.
type Key = (String, Parameters);

/// Makes figures of the samples of each variant, and compares base and patched. A
/// metric that a variant lacks at some phase has no verdict.
#[must_use]
pub fn compare(
    measured: &BTreeMap<VariantName, Phases>,
    measure: Measure,
    rule: &Instructions,
) -> Vec<MetricResult> {
    let mut order: Vec<Key> = Vec::new();
    let mut first: BTreeMap<Key, Sample> = BTreeMap::new();
    let mut figures: BTreeMap<Key, BTreeMap<VariantName, Figures>> = BTreeMap::new();
    for (&variant, phases) in measured {
        for sample in phases.iter().flatten() {
            let key = (sample.metric.clone(), sample.parameters.clone());
            if !first.contains_key(&key) {
                order.push(key.clone());
                first.insert(key.clone(), sample.clone());
            }
            figures.entry(key).or_default().entry(variant).or_default().push(sample);
        }
    }
    let tick = ticks(&figures);
    let results = order.into_iter().filter(|key| key.0 != TICK_METRIC).map(|key| {
        let sample = &first[&key];
        let mut figures = figures.remove(&key).unwrap_or_default();
        for found in figures.values_mut() {
            found.median = median(&found.values);
        }
        let mut result = MetricResult {
            name: sample.metric.clone(),
            unit: sample.unit.clone(),
            better: sample.better,
            parameters: sample.parameters.clone(),
            measure,
            figures,
            delta: None,
            delta_percent: None,
            allowance: 0.0,
            verdict: None,
            gate: rule.gate,
        };
        judge(&mut result, tick, rule);
        result
    });
    results.collect()
}

/// What a timer tick costs at most, in instructions; 0 where nobody said.
fn ticks(figures: &BTreeMap<Key, BTreeMap<VariantName, Figures>>) -> f64 {
    let of = |figures: &BTreeMap<VariantName, Figures>| {
        figures.values().map(Figures::most).fold(0.0, f64::max)
    };
    figures
        .iter()
        .filter(|(key, _)| key.0 == TICK_METRIC)
        .map(|(_, all)| of(all))
        .fold(0.0, f64::max)
}

fn judge(result: &mut MetricResult, tick: f64, rule: &Instructions) {
    let both = (
        result.figures.get(&VariantName::Base).cloned(),
        result.figures.get(&VariantName::Patched).cloned(),
    );
    let (Some(base), Some(patched)) = both else { return };
    let delta = patched.median - base.median;
    let ticks =
        if base.holds_interrupts() || patched.holds_interrupts() { TICKS * tick } else { 0.0 };
    let allowance = (base.median.abs() * rule.threshold_percent / 100.0).max(ticks);
    result.delta = Some(delta);
    result.delta_percent = (base.median != 0.0).then(|| percent(delta, base.median));
    result.allowance = allowance;
    if base.values.len() == patched.values.len() {
        result.verdict = Some(verdict(&base, &patched, delta, allowance, result.better));
    }
}

fn verdict(
    base: &Figures,
    patched: &Figures,
    delta: f64,
    allowance: f64,
    better: Better,
) -> MetricVerdict {
    let apart = base.most() < patched.least() || patched.most() < base.least();
    if apart && delta.abs() > allowance {
        let lower = delta < 0.0;
        return match lower == (better == Better::Lower) {
            true => MetricVerdict::Improved,
            false => MetricVerdict::Regressed,
        };
    }
    // At each phase, or whatever the phases are: no two values lie far apart.
    let pairs = base.values.iter().zip(&patched.values);
    let alike = pairs.clone().all(|(base, patched)| (patched - base).abs() <= allowance);
    let least = base.least().min(patched.least());
    let close = base.most().max(patched.most()) - least <= allowance;
    match delta.abs() <= allowance && (alike || close) {
        true => MetricVerdict::Unchanged,
        false => MetricVerdict::Inconclusive,
    }
}

/// The middle value; the mean of the two middle ones of an even number.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole * 100.0 }
}

/// Where two repetitions at one phase are not the same, one line for each sample.
#[must_use]
pub fn differences(first: &[Sample], second: &[Sample]) -> Vec<String> {
    let name = |sample: &Sample| {
        let parameters: Vec<String> =
            sample.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        match parameters.is_empty() {
            true => sample.metric.clone(),
            false => format!("{} {}", sample.metric, parameters.join(" ")),
        }
    };
    if first.len() != second.len() {
        return vec![format!("{} samples, then {}", first.len(), second.len())];
    }
    let differ = first.iter().zip(second).filter(|(one, other)| one != other);
    differ
        .map(|(one, other)| {
            if one.metric != other.metric || one.parameters != other.parameters {
                return format!("{}, then {}", name(one), name(other));
            }
            if one.value == other.value {
                return format!("{}: {:?}, then {:?}", name(one), one.beside, other.beside);
            }
            let away = other.value - one.value;
            format!("{}: {}, then {} ({away:+})", name(one), one.value, other.value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(metric: &str, value: f64, interrupts: i64) -> Sample {
        Sample {
            metric: metric.to_owned(),
            unit: "instructions".to_owned(),
            better: Better::Lower,
            parameters: Parameters::new(),
            value,
            beside: BTreeMap::from([(INTERRUPTS.to_owned(), interrupts)]),
        }
    }

    fn judged(base: &[f64], patched: &[f64], interrupts: i64) -> MetricResult {
        let phases = |values: &[f64]| {
            let phase = |&value: &f64| {
                vec![sample(TICK_METRIC, 2000.0, 0), sample("latency", value, interrupts)]
            };
            values.iter().map(phase).collect::<Phases>()
        };
        let measured = BTreeMap::from([
            (VariantName::Base, phases(base)),
            (VariantName::Patched, phases(patched)),
        ]);
        let mut results = compare(&measured, Measure::Instructions, &Instructions::default());
        assert_eq!(results.len(), 1, "a tick is no metric");
        results.remove(0)
    }

    fn verdict_of(base: &[f64], patched: &[f64], interrupts: i64) -> MetricVerdict {
        judged(base, patched, interrupts).verdict.unwrap()
    }

    #[test]
    fn a_change_is_one_at_every_phase_and_beyond_threshold_and_ticks() {
        use MetricVerdict::{Improved, Inconclusive, Regressed, Unchanged};
        assert_eq!(verdict_of(&[1e6, 1e6 + 10.0], &[9e5, 9e5 + 10.0], 0), Improved);
        assert_eq!(verdict_of(&[9e5, 9e5], &[1e6, 1e6], 0), Regressed);
        // Below 0.1 %.
        assert_eq!(verdict_of(&[1e6, 1e6], &[1_000_900.0, 1_000_900.0], 0), Unchanged);
        // Above it, but below two ticks of 2000 where ticks may fall into the window.
        assert_eq!(verdict_of(&[1e6, 1e6], &[1_003_000.0, 1_003_000.0], 3), Unchanged);
        assert_eq!(verdict_of(&[1e6, 1e6], &[1_003_000.0, 1_003_000.0], 0), Regressed);
        // The ranges overlap.
        assert_eq!(verdict_of(&[1e6, 1.2e6], &[1.1e6, 1.3e6], 0), Inconclusive);
        // Equal medians of what depends on the phase, at other phases.
        assert_eq!(verdict_of(&[1e6, 1.2e6], &[1.2e6, 1e6], 0), Inconclusive);
        // The same dependence at the same phases.
        assert_eq!(verdict_of(&[1e6, 1.2e6], &[1e6 + 9.0, 1.2e6 + 9.0], 0), Unchanged);
    }

    #[test]
    fn the_difference_is_one_of_medians() {
        let result = judged(&[100.0, 104.0, 102.0], &[51.0, 50.0, 52.0], 0);
        assert_eq!((result.delta, result.delta_percent), (Some(-51.0), Some(-50.0)));
        assert_eq!(result.figures[&VariantName::Base].least(), 100.0);
        assert!((result.figures[&VariantName::Base].spread_percent() - 3.921_568).abs() < 1e-5);
    }

    #[test]
    fn a_metric_of_one_variant_has_no_verdict() {
        let measured = BTreeMap::from([(VariantName::Base, vec![vec![sample("latency", 1.0, 0)]])]);
        let results = compare(&measured, Measure::Instructions, &Instructions::default());
        assert_eq!((results[0].verdict, results[0].delta), (None, None));
    }

    #[test]
    fn repetitions_that_differ_are_shown() {
        let first = [sample("a", 1.0, 0), sample("b", 2.0, 0)];
        assert!(differences(&first, &first).is_empty());
        let second = [sample("a", 1.0, 1), sample("b", 5.0, 0)];
        assert_eq!(
            differences(&first, &second),
            ["a: {\"interrupts\": 0}, then {\"interrupts\": 1}", "b: 2, then 5 (+3)"]
        );
        assert_eq!(differences(&first, &first[..1]), ["2 samples, then 1"]);
    }
}
