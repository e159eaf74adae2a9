// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a search ends with.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::history::{Candidate, Role};
use crate::fault::escape;

/// How sure an answer is: a probability, or 1 where no trial can lie.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Confidence(pub f64);

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded down: what is not certain is never called 100%.
        match self.0 {
            1.0.. => f.write_str("certain if every trial told the truth"),
            sure => write!(f, "{:.2}% sure", (sure * 10_000.0).floor() / 100.0),
        }
    }
}

/// A suspect and how likely it is the first bad one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Likely {
    /// The suspect.
    pub candidate: Candidate,
    /// The probability that it is the first bad one.
    pub probability: f64,
}

/// What a search ends with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The first bad one.
    Found {
        /// It.
        first_bad: Candidate,
        /// How sure that is.
        confidence: Confidence,
    },
    /// The first bad one is among these, which nothing that can be tried tells apart.
    Among {
        /// Parents first.
        candidates: Vec<Candidate>,
        /// How sure it is that it is one of them.
        confidence: Confidence,
    },
    /// An end that has to be good is bad: nothing was searched.
    GoodEndIsBad {
        /// The end.
        end: Candidate,
        /// Why it has to be good.
        role: Role,
        /// How sure that is.
        confidence: Confidence,
    },
    /// The bad end is good: nothing was searched.
    BadEndIsGood {
        /// The end.
        end: Candidate,
        /// How sure that is.
        confidence: Confidence,
    },
    /// The bad end looked good in all trials, of a predicate whose rates are not known:
    /// it is good, or shows the fault too seldom.
    NotReproduced {
        /// The end.
        end: Candidate,
        /// Trials of it.
        trials: u32,
    },
    /// An end cannot be tried, so nothing is known of it.
    EndUntestable {
        /// The end.
        end: Candidate,
        /// Why.
        reason: String,
    },
    /// The bad end and a good one are the same image, so that nothing between them
    /// can make them differ.
    EndsIdentical {
        /// The good end.
        good: Candidate,
        /// The bad end.
        bad: Candidate,
    },
    /// As many trials as were allowed did not decide.
    Undecided {
        /// The likeliest, at most ten, the likeliest first.
        likely: Vec<Likely>,
        /// Trials until then.
        trials: u32,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |candidate: &Candidate| {
            format!("{} {}", escape(&candidate.id), escape(&candidate.subject))
        };
        match self {
            Self::Found { first_bad, confidence } => {
                write!(f, "first bad: {} ({confidence})", name(first_bad))
            }
            Self::Among { candidates, confidence } => {
                write!(
                    f,
                    "first bad: one of {}, which no candidate that can be tried tells apart ({confidence})",
                    candidates.len()
                )?;
                candidates.iter().try_for_each(|candidate| write!(f, "\n  {}", name(candidate)))
            }
            Self::GoodEndIsBad { end, role: Role::Good, confidence } => {
                write!(
                    f,
                    "the good end is bad: {} ({confidence})\n  help: name an older good end",
                    name(end)
                )
            }
            Self::GoodEndIsBad { end, role: Role::MergeBase, confidence } => write!(
                f,
                "a merge base of the ends is bad: {} ({confidence})\n  help: the good end holds a fix that the bad end lacks: search for the fix between the two, calling fixed bad",
                name(end)
            ),
            Self::BadEndIsGood { end, confidence } => {
                write!(
                    f,
                    "the bad end is good: {} ({confidence})\n  help: check what reproduces the fault there",
                    name(end)
                )
            }
            Self::NotReproduced { end, trials } => {
                write!(
                    f,
                    "the bad end was good in all {trials} trials: {}\n  help: allow more trials at the ends, or make the fault show more often",
                    name(end)
                )
            }
            Self::EndUntestable { end, reason } => {
                write!(
                    f,
                    "an end cannot be tried: {}: {}\n  help: name another end",
                    name(end),
                    escape(reason)
                )
            }
            Self::EndsIdentical { good, bad } => write!(
                f,
                "both ends are the same image: {} and {}\n  help: choose a config that compiles what changed",
                name(good),
                name(bad)
            ),
            Self::Undecided { likely, trials } => {
                write!(f, "undecided after {trials} trials; the first bad is most likely one of")?;
                likely.iter().try_for_each(|likely| {
                    write!(
                        f,
                        "\n  {:5.1}%  {}",
                        likely.probability * 100.0,
                        name(&likely.candidate)
                    )
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_certain_is_never_called_so() {
        assert_eq!(Confidence(0.999_99).to_string(), "99.99% sure");
        assert!(Confidence(1.0).to_string().starts_with("certain"));
    }

    #[test]
    fn a_subject_cannot_reach_a_terminal_unescaped() {
        let first_bad = Candidate::new("abc", "x\u{1b}[2J");
        let text = Outcome::Found { first_bad, confidence: Confidence(1.0) }.to_string();
        assert!(text.contains("x\\u{1b}[2J"), "{text}");
    }
}
