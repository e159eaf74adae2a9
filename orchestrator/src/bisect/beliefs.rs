// SPDX-License-Identifier: MIT OR Apache-2.0
//! What trials say about which candidate is the first bad one: a weight for each
//! hypothesis, by Bayes' rule.
//!
//! The hypotheses are: a suspect is the first bad one, so that it and what descends
//! from it is bad; a good end is bad; the bad end is good. With an exact predicate
//! weights are 0 or the prior, and what remains is what `git bisect` calls the
//! suspects. With a noisy one this is the posterior of probabilistic bisection
//! (Horstein, "Sequential transmission using noiseless feedback", 1963; Waeber,
//! Frazier and Henderson, "Bisection search with noisy responses", 2013).

use super::history::History;
use super::rates::{Factorials, Rates, Rule, Tally};

/// How likely it is taken to be, before any trial, that one end is not what the user
/// says: 5%. Trials at the ends decide; with an exact predicate the figure has no
/// effect.
const END_WRONG: f64 = 0.05;

/// Results under each hypothesis, for all trials so far.
#[derive(Debug, Clone)]
pub struct Beliefs {
    /// For each hypothesis the trials of candidates that are bad under it:
    /// how many looked good, and how many bad.
    of_bad: Vec<[u32; 2]>,
    /// All trials: how many looked good, and how many bad.
    all: [u32; 2],
    /// Hypotheses that identical images rule out.
    excluded: Vec<bool>,
}

impl Beliefs {
    /// Nothing was tried yet.
    #[must_use]
    pub fn new(history: &History) -> Self {
        let hypotheses = history.len() + 1;
        Self { of_bad: vec![[0; 2]; hypotheses], all: [0; 2], excluded: vec![false; hypotheses] }
    }

    /// The hypothesis that the bad end is good. Those before are the points: a
    /// suspect is the first bad one, a good end is bad.
    #[must_use]
    pub fn bad_end_is_good(history: &History) -> usize {
        history.len()
    }

    /// Adds one trial.
    pub fn add(&mut self, history: &History, point: usize, bad: bool) {
        let result = usize::from(bad);
        self.all[result] += 1;
        for (counts, is_bad) in self.of_bad.iter_mut().zip(bad_under(history, point)) {
            counts[result] += u32::from(is_bad);
        }
    }

    /// Two points are the same kernel: what makes them differ is ruled out. Changes
    /// nothing and returns false when nothing else would remain, as where a change
    /// was taken back and made again.
    pub fn same(&mut self, history: &History, rule: &Rule, a: usize, b: usize) -> bool {
        let mut excluded = self.excluded.clone();
        let pairs = bad_under(history, a).into_iter().zip(bad_under(history, b));
        for (excluded, (a, b)) in excluded.iter_mut().zip(pairs) {
            *excluded |= a != b;
        }
        let before = std::mem::replace(&mut self.excluded, excluded);
        let remains = self.weights(history, rule).total > 0.0;
        if !remains {
            self.excluded = before;
        }
        remains
    }

    /// The trials as one hypothesis sees them.
    #[must_use]
    pub fn tally(&self, hypothesis: usize) -> Tally {
        let [bad_as_good, bad_as_bad] = self.of_bad[hypothesis];
        Tally {
            good_as_good: self.all[0] - bad_as_good,
            good_as_bad: self.all[1] - bad_as_bad,
            bad_as_good,
            bad_as_bad,
        }
    }

    /// The posterior, not normalised: with an exact predicate the weights of suspects
    /// are 0 or 1, so that their sums are exact.
    #[must_use]
    pub fn weights(&self, history: &History, rule: &Rule) -> Weights {
        let factorials = Factorials::up_to(match rule.rates {
            Rates::Estimated { .. } => self.all[0] + self.all[1],
            Rates::Exact | Rates::Stated { .. } => 0,
        });
        let suspects = history.suspects().len();
        let end = END_WRONG * suspects as f64;
        let mut of: Vec<f64> = (0..self.of_bad.len())
            .map(|hypothesis| match self.excluded[hypothesis] {
                true => f64::NEG_INFINITY,
                false => rule.rates.ln_likelihood(self.tally(hypothesis), &factorials),
            })
            .collect();
        let most = of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (hypothesis, weight) in of.iter_mut().enumerate() {
            let prior = if hypothesis < suspects { 1.0 } else { end };
            *weight = if most.is_finite() { prior * (*weight - most).exp() } else { 0.0 };
        }
        let total = of.iter().sum();
        Weights { of, total }
    }
}

/// For each hypothesis whether a point is bad under it.
fn bad_under(history: &History, point: usize) -> Vec<bool> {
    let suspects = history.suspects().len();
    let ends = history.ends().len();
    let mut bad = if point < suspects { history.below(point) } else { vec![false; suspects] };
    // If a good end is bad, all suspects are.
    bad.extend((suspects..suspects + ends).map(|end| point < suspects || point == end));
    bad.push(false);
    bad
}

/// How likely each hypothesis is.
#[derive(Debug, Clone)]
pub struct Weights {
    /// A weight for each hypothesis.
    pub of: Vec<f64>,
    /// Their sum; 0 when what was seen cannot be.
    pub total: f64,
}

impl Weights {
    /// The probability of one hypothesis.
    #[must_use]
    pub fn probability(&self, hypothesis: usize) -> f64 {
        self.of[hypothesis] / self.total
    }

    /// For each point the probability that it is bad.
    #[must_use]
    pub fn bad(&self, history: &History) -> Vec<f64> {
        let suspects = history.suspects().len();
        let ends = &self.of[suspects..history.len()];
        let all: f64 = ends.iter().sum();
        let sums = history.sums(&self.of[..suspects], |_| true);
        let of_suspects = sums.into_iter().map(|sum| ((sum + all) / self.total).min(1.0));
        of_suspects.chain(ends.iter().map(|weight| weight / self.total)).collect()
    }
}
