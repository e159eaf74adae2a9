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
    let lies = rates.expected(state.beliefs.tally(weights.likeliest()));
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
    for (point, bad) in weights.bad(history, |at| weights.of[at] > 0.0).into_iter().enumerate() {
        if weights.of[point] == 0.0
            || state.record(point).is_some_and(|record| record.skip.is_some())
        {
            continue;
        }
        let told = information(bad, lies);
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

/// Bits that a trial tells about a candidate that is bad with probability `bad`, when
/// good ones look bad and bad ones good at these rates: H(result) - H(result | truth).
fn information(bad: f64, (positive, negative): (f64, f64)) -> f64 {
    let looks_bad = bad * (1.0 - negative) + (1.0 - bad) * positive;
    entropy(looks_bad) - bad * entropy(negative) - (1.0 - bad) * entropy(positive)
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
    use super::*;

    #[test]
    fn exact_information_is_the_criterion_of_git() {
        let told = |reached: u32| information(f64::from(reached) / 9.0, (0.0, 0.0));
        for reached in 0..9_u32 {
            for other in 0..9_u32 {
                let halves = |reached: u32| reached.min(9 - reached);
                let expected = halves(reached).cmp(&halves(other));
                let ours = told(reached) - told(other);
                match expected {
                    std::cmp::Ordering::Equal => assert!(ours.abs() < 1e-12),
                    std::cmp::Ordering::Less => assert!(ours < 0.0),
                    std::cmp::Ordering::Greater => assert!(ours > 0.0),
                }
            }
        }
    }

    #[test]
    fn a_trial_that_lies_half_of_the_time_tells_nothing() {
        assert!(information(0.3, (0.5, 0.5)).abs() < 1e-12);
        assert!((information(0.5, (0.0, 0.0)) - 1.0).abs() < 1e-12);
    }
}
