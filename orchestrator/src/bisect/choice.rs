// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which candidate to try next, and which suspects no trial can tell apart.

use std::collections::BTreeMap;

use super::beliefs::Weights;
use super::history::History;
use super::rates::Rates;
use super::search::State;

/// A trial that tells less than this many bits tells nothing but rounding errors.
const NOTHING: f64 = 1e-9;
/// An image that is there already is taken if its trial tells at least this share of
/// what the best one does: a boot is cheap beside a build. Costs at most a quarter
/// more boots.
const REUSE: f64 = 0.8;

/// How many skipped suspects do not make a broken stretch. With 3, two commits that do
/// not build and an oops within four commits of the bad one cost at most three builds
/// of 64 commits more, wherever they are; with 0 it was five.
const SINGLE: usize = 3;

/// The point whose trial is expected to tell the most; `None` when none tells anything.
///
/// What a trial tells is the mutual information between its result and the
/// hypotheses. With an exact predicate that is the entropy of the two halves, and so
/// largest where `min(reached, total - reached)` is: the criterion of `git bisect`
/// (`do_find_bisection` and `best_bisection` in its bisect.c). With equal rates of
/// both lies it is largest nearest to the median of the posterior, where Horstein
/// tries. Of equals the one nearest to the good end is taken.
///
/// The first [`SINGLE`] skipped suspects are taken for single ones: the best of the
/// others is mostly their neighbour. After those, others near them are likely to be
/// broken too. git then steps away by a pseudo-random amount with a bias (`skip_away`
/// in its bisect.c); here what a trial tells counts for `d / (k + d)`, the chance that
/// it can be tried at all if `k` more were skipped and the nearest is `d` edges away:
/// a long broken stretch is left in steps that grow with it.
#[must_use]
pub(super) fn choose(
    history: &History,
    rates: &Rates,
    state: &State,
    weights: &Weights,
) -> Option<usize> {
    let skipped: Vec<usize> = state.skipped(history).filter(|&at| weights.of[at] > 0.0).collect();
    let stretch = skipped.len().saturating_sub(SINGLE) as f64;
    let distances = match stretch == 0.0 {
        true => Vec::new(),
        false => history.distances(&skipped),
    };
    let away = |point: usize| match distances.get(point) {
        Some(&Some(distance)) => f64::from(distance) / (f64::from(distance) + stretch),
        Some(None) | None => 1.0,
    };
    let mut best: Option<(usize, f64)> = None;
    let mut best_built: Option<(usize, f64)> = None;
    let forecast = forecast(history, rates, state, weights, |at| weights.of[at] > 0.0);
    for (point, told) in forecast.told.into_iter().enumerate() {
        if weights.of[point] == 0.0
            || state.record(point).is_some_and(|record| record.skip.is_some())
        {
            continue;
        }
        if told < NOTHING {
            continue;
        }
        let worth = told * away(point);
        let better =
            |than: Option<(usize, f64)>| than.is_none_or(|(_, least)| worth > least * (1.0 + 1e-9));
        if better(best) {
            best = Some((point, worth));
        }
        if state.record(point).is_some_and(|record| record.tried() > 0) && better(best_built) {
            best_built = Some((point, worth));
        }
    }
    let (point, most) = best?;
    Some(match best_built {
        Some((built, worth)) if worth >= REUSE * most => built,
        _ => point,
    })
}

/// What a trial of each point is expected to find.
#[derive(Debug)]
pub(super) struct Forecast {
    /// The probability that it looks bad.
    pub(super) looks_bad: Vec<f64>,
    /// Bits that the trial tells: H(result) - H(result | hypothesis).
    pub(super) told: Vec<f64>,
}

/// Forecasts trials of the wanted points; anything for the others. Each hypothesis
/// has its own rates where they are not known, so that a trial may also tell which
/// rates are right: a good end that never looks bad speaks against hypotheses that
/// need false positives.
#[must_use]
pub(super) fn forecast(
    history: &History,
    rates: &Rates,
    state: &State,
    weights: &Weights,
    wanted: impl Fn(usize) -> bool,
) -> Forecast {
    let suspects = history.suspects().len();
    // Under each hypothesis: what a good point gives, and what a bad one adds to it.
    let (mut positives, mut doubt) = (0.0, 0.0);
    let mut more_positives = vec![0.0; weights.of.len()];
    let mut more_doubt = vec![0.0; weights.of.len()];
    for (hypothesis, &weight) in weights.of.iter().enumerate().filter(|(_, weight)| **weight > 0.0)
    {
        let (positive, negative) = rates.expected(state.beliefs.tally(hypothesis));
        positives += weight * positive;
        doubt += weight * entropy(positive);
        more_positives[hypothesis] = weight * (1.0 - negative - positive);
        more_doubt[hypothesis] = weight * (entropy(negative) - entropy(positive));
    }
    let of_points = |more: &[f64], base: f64| -> Vec<f64> {
        let ends = &more[suspects..history.len()];
        let all: f64 = ends.iter().sum();
        let sums = history.sums(&more[..suspects], &wanted);
        let suspects = sums.into_iter().map(|sum| (base + all + sum) / weights.total);
        suspects.chain(ends.iter().map(|end| (base + end) / weights.total)).collect()
    };
    let looks_bad = of_points(&more_positives, positives);
    let remains = of_points(&more_doubt, doubt);
    let told =
        looks_bad.iter().zip(remains).map(|(&bad, remains)| entropy(bad) - remains).collect();
    Forecast { looks_bad, told }
}

/// Entropy of a coin, in bits.
fn entropy(p: f64) -> f64 {
    let part = |p: f64| if p <= 0.0 { 0.0 } else { -p * p.log2() };
    part(p) + part(1.0 - p)
}

/// The suspects that are still possible, in groups that no trial can part: of each
/// group all but at most one cannot be tried.
///
/// Two suspects are told apart by a candidate that descends from one of them only. A
/// skipped one is like the first candidate after it that can be tried, if everything
/// else after it that can be tried descends from that one.
#[must_use]
pub(super) fn groups(history: &History, state: &State, weights: &Weights) -> Vec<Vec<usize>> {
    let suspects = history.suspects().len();
    let possible = |at: usize| weights.of[at] > 0.0;
    let mut can_try: Vec<bool> = (0..suspects).map(possible).collect();
    let skipped: Vec<usize> = state.skipped(history).filter(|&at| possible(at)).collect();
    skipped.iter().for_each(|&at| can_try[at] = false);
    if skipped.is_empty() {
        return (0..suspects).filter(|&at| can_try[at]).map(|at| vec![at]).collect();
    }
    let after = |from: usize| -> Vec<usize> {
        let above = history.above(from);
        (from..suspects).filter(|&at| above[at] && can_try[at]).collect()
    };
    let mut groups: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for &at in &skipped {
        let told_by = after(at);
        let key = match told_by.first() {
            Some(&first) if after(first).len() == told_by.len() => vec![first],
            _ => told_by,
        };
        groups.entry(key).or_default().push(at);
    }
    for at in (0..suspects).filter(|&at| can_try[at]) {
        groups.entry(vec![at]).or_default().push(at);
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::beliefs::Beliefs;
    use super::super::history::Candidate;
    use super::super::rates::Rule;
    use super::*;

    fn told(rates: Rates) -> Vec<f64> {
        let line = (0..=9).map(|at| Candidate::new(at.to_string(), "s")).collect();
        let history = History::line(line).unwrap();
        let mut state = State::new(&history);
        for _ in 0..30 {
            state.beliefs.add(&history, history.bad(), true);
            state.beliefs.add(&history, history.suspects().len(), false);
            if rates == Rates::Exact {
                break;
            }
        }
        let weights = Beliefs::weights(&state.beliefs, &history, &Rule { rates, error: 0.01 });
        forecast(&history, &rates, &state, &weights, |_| true).told
    }

    #[test]
    fn exact_information_is_the_criterion_of_git() {
        let told = told(Rates::Exact);
        let halves = |reached: usize| reached.min(9 - reached);
        for reached in 1..=9 {
            for other in 1..=9 {
                let ours = told[reached - 1] - told[other - 1];
                match halves(reached).cmp(&halves(other)) {
                    std::cmp::Ordering::Equal => assert!(ours.abs() < 1e-12),
                    std::cmp::Ordering::Less => assert!(ours < 0.0),
                    std::cmp::Ordering::Greater => assert!(ours > 0.0),
                }
            }
        }
    }

    #[test]
    fn a_trial_that_nearly_always_lies_tells_nearly_nothing() {
        let of = |lies: f64| told(Rates::Stated { false_positive: lies, false_negative: lies })[4];
        // Capacity of a binary symmetric channel: 1 - H(lies); the halves are 4 and 5.
        assert!((of(0.1) - 0.531).abs() < 0.01, "{}", of(0.1));
        assert!(of(0.49) < 0.001, "{}", of(0.49));
    }
}
