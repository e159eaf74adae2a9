// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often one trial lies, and how likely what was seen is because of it.

use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// The error that a search of a noisy predicate stops at if none is stated.
pub const DEFAULT_ERROR: f64 = 0.001;

/// Second parameter of the prior of an unknown rate of false positives, Beta(1, 4):
/// a mean of 20%, since a good kernel seldom shows the fault that is looked for.
const PRIOR_POSITIVE: u32 = 4;
/// The same for false negatives, Beta(1, 1): a race may show in any share of runs.
const PRIOR_NEGATIVE: u32 = 1;

/// How often one trial lies. Runs are taken to be independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Rates {
    /// It never does: a counted or otherwise exact predicate, run once.
    Exact,
    /// Known rates, each in 0..1.
    Stated {
        /// A good candidate looks bad.
        false_positive: f64,
        /// A bad candidate looks good.
        false_negative: f64,
    },
    /// Unknown rates: this many trials at either end tell them roughly, and every
    /// later one adds to it. What they leave unknown is part of the confidence.
    Estimated {
        /// Trials at either end, at least.
        trials: u32,
    },
}

/// What a search believes before the first trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// How often trials lie.
    pub rates: Rates,
    /// The probability of a wrong answer at which the search stops. Exact
    /// predicates ignore it.
    pub error: f64,
}

impl Rule {
    /// A predicate that never lies.
    pub const EXACT: Self = Self { rates: Rates::Exact, error: 0.0 };

    /// A rule for a noisy predicate.
    ///
    /// # Errors
    /// A `plan` fault when a rate or the error makes no sense.
    pub fn noisy(rates: Rates, error: f64) -> Result<Self, Fault> {
        let rule = Self { rates, error };
        rule.check()?;
        Ok(rule)
    }

    /// Whether the rule makes sense.
    ///
    /// # Errors
    /// A `plan` fault that says what does not.
    pub fn check(&self) -> Result<(), Fault> {
        if let Rates::Stated { false_positive, false_negative } = self.rates {
            let rate = |value: f64| (0.0..1.0).contains(&value);
            if !rate(false_positive) || !rate(false_negative) {
                return Err(Fault::plan(format!(
                    "rates of false positives and negatives have to be in 0..1, not {false_positive} and {false_negative}"
                )));
            }
            if false_positive + false_negative >= 1.0 {
                return Err(Fault::plan(format!(
                    "with {false_positive} false positives and {false_negative} false negatives a trial says nothing"
                ))
                .help("the two rates together have to be below 1"));
            }
        }
        if matches!(self.rates, Rates::Estimated { trials: 0 }) {
            return Err(Fault::plan("rates cannot be estimated from no trials")
                .help("ask for some at either end, such as 10"));
        }
        if !self.is_exact() && !(1e-12..0.5).contains(&self.error) {
            return Err(Fault::plan(format!("a stated error of {} makes no sense", self.error))
                .help("state a small probability, such as 0.001"));
        }
        Ok(())
    }

    /// Whether both say the same; a rate may have lost its last bit in a log.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-12;
        near(self.error, other.error)
            && match (self.rates, other.rates) {
                (
                    Rates::Stated { false_positive: a, false_negative: b },
                    Rates::Stated { false_positive: c, false_negative: d },
                ) => near(a, c) && near(b, d),
                (ours, theirs) => ours == theirs,
            }
    }

    /// Whether one trial decides.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        match self.rates {
            Rates::Exact => true,
            Rates::Stated { false_positive, false_negative } => {
                false_positive == 0.0 && false_negative == 0.0
            }
            Rates::Estimated { .. } => false,
        }
    }

    /// The error that a verdict may have: 0 for an exact predicate.
    #[must_use]
    pub fn allowed(&self) -> f64 {
        if self.is_exact() { 0.0 } else { self.error }
    }

    /// How many trials each end needs at least.
    #[must_use]
    pub fn at_ends(&self) -> u32 {
        match self.rates {
            Rates::Estimated { trials } => trials,
            Rates::Exact | Rates::Stated { .. } => 1,
        }
    }
}

/// What trials said under one hypothesis, which says what they should have said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Good candidates that looked good.
    pub good_as_good: u32,
    /// Good candidates that looked bad.
    pub good_as_bad: u32,
    /// Bad candidates that looked good.
    pub bad_as_good: u32,
    /// Bad candidates that looked bad.
    pub bad_as_bad: u32,
}

/// Logarithms of factorials, for rates that are not known.
#[derive(Debug)]
pub struct Factorials(Vec<f64>);

impl Factorials {
    /// Enough for as many trials.
    #[must_use]
    pub fn up_to(trials: u32) -> Self {
        let mut sum = 0.0;
        let last = trials + PRIOR_POSITIVE.max(PRIOR_NEGATIVE) + 1;
        Self(
            (0..=last)
                .map(|n| {
                    sum += f64::from(n.max(1)).ln();
                    sum
                })
                .collect(),
        )
    }

    /// ln of B(1 + lies, prior + truths) / B(1, prior): how likely one sequence of
    /// trials is when the rate of lies has the prior Beta(1, prior).
    fn marginal(&self, lies: u32, truths: u32, prior: u32) -> f64 {
        let ln = |n: u32| self.0[n as usize];
        f64::from(prior).ln() + ln(lies) + ln(prior + truths - 1) - ln(prior + lies + truths)
    }
}

impl Rates {
    /// ln of the probability of what was seen; `-inf` when it cannot be.
    #[must_use]
    pub fn ln_likelihood(&self, tally: Tally, factorials: &Factorials) -> f64 {
        let (positive, negative) = match *self {
            Self::Exact => (0.0, 0.0),
            Self::Stated { false_positive, false_negative } => (false_positive, false_negative),
            Self::Estimated { .. } => {
                return factorials.marginal(tally.good_as_bad, tally.good_as_good, PRIOR_POSITIVE)
                    + factorials.marginal(tally.bad_as_good, tally.bad_as_bad, PRIOR_NEGATIVE);
            }
        };
        times(tally.good_as_bad, positive)
            + times(tally.good_as_good, 1.0 - positive)
            + times(tally.bad_as_good, negative)
            + times(tally.bad_as_bad, 1.0 - negative)
    }

    /// The rates of false positives and negatives: known ones, or the mean of what
    /// is believed when a hypothesis with this tally holds.
    #[must_use]
    pub fn expected(&self, tally: Tally) -> (f64, f64) {
        let mean = |lies: u32, truths: u32, prior: u32| {
            f64::from(1 + lies) / f64::from(1 + prior + lies + truths)
        };
        match *self {
            Self::Exact => (0.0, 0.0),
            Self::Stated { false_positive, false_negative } => (false_positive, false_negative),
            Self::Estimated { .. } => (
                mean(tally.good_as_bad, tally.good_as_good, PRIOR_POSITIVE),
                mean(tally.bad_as_good, tally.bad_as_bad, PRIOR_NEGATIVE),
            ),
        }
    }
}

/// `count * ln(probability)`, where 0 * ln(0) is 0.
fn times(count: u32, probability: f64) -> f64 {
    if count == 0 { 0.0 } else { f64::from(count) * probability.ln() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Tally = Tally { good_as_good: 3, good_as_bad: 1, bad_as_good: 2, bad_as_bad: 4 };

    #[test]
    fn a_marginal_likelihood_is_the_integral_over_the_rates() {
        let steps = 20_000;
        let integral = |lies: i32, truths: i32, prior: i32| -> f64 {
            (0..steps)
                .map(|step| (f64::from(step) + 0.5) / f64::from(steps))
                .map(|rate: f64| {
                    let density = f64::from(prior) * (1.0 - rate).powi(prior - 1);
                    density * rate.powi(lies) * (1.0 - rate).powi(truths) / f64::from(steps)
                })
                .sum()
        };
        let by_hand = integral(1, 3, 4).ln() + integral(2, 4, 1).ln();
        let rates = Rates::Estimated { trials: 5 };
        let ours = rates.ln_likelihood(SEEN, &Factorials::up_to(10));
        assert!((ours - by_hand).abs() < 1e-6, "{ours} {by_hand}");
    }

    #[test]
    fn exact_trials_that_lied_cannot_be() {
        let factorials = Factorials::up_to(10);
        assert_eq!(Rates::Exact.ln_likelihood(SEEN, &factorials), f64::NEG_INFINITY);
        let honest = Tally { good_as_bad: 0, bad_as_good: 0, ..SEEN };
        assert_eq!(Rates::Exact.ln_likelihood(honest, &factorials), 0.0);
    }

    #[test]
    fn rules_that_say_nothing_are_refused() {
        let stated =
            |false_positive, false_negative| Rates::Stated { false_positive, false_negative };
        assert!(Rule::noisy(stated(0.5, 0.5), 0.01).is_err());
        assert!(Rule::noisy(stated(-0.1, 0.5), 0.01).is_err());
        assert!(Rule::noisy(stated(f64::NAN, 0.5), 0.01).is_err());
        assert!(Rule::noisy(stated(0.0, 0.9), 0.0).is_err());
        assert!(Rule::noisy(Rates::Estimated { trials: 0 }, 0.01).is_err());
        assert!(Rule::noisy(stated(0.0, 0.9), 0.01).is_ok());
        assert!(Rule::noisy(stated(0.0, 0.0), 0.0).is_ok_and(|rule| rule.is_exact()));
    }
}
