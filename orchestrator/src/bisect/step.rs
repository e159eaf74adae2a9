// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one trial found, as it is written to the log.

use serde::{Deserialize, Serialize};

use super::history::Candidate;
use crate::fault::Fault;

/// Longest evidence of a log's entry, in bytes; as JSON it is at most six times as long.
const EVIDENCE: usize = 64 << 10;

/// What one trial found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// What is searched for did not show.
    Good,
    /// It showed.
    Bad,
    /// Nobody can say: it does not build, or fails for another reason. Skipped,
    /// never blamed.
    Skip {
        /// Why, in one line.
        reason: String,
    },
}

impl Finding {
    /// The word for it, which is git's.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Skip { .. } => "skip",
        }
    }
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What was tried.
    pub candidate: Candidate,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// Which trial of this candidate it was, from 1.
    pub repeat: u32,
    /// What was seen, for whoever reads the log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
    /// The image that was tried: images with the same key are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// A candidate that is the same image as one that was tried, so that it was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Same {
    /// What was not tried.
    pub candidate: Candidate,
    /// Which one was.
    pub as_id: String,
    /// What both are.
    pub image: String,
}

/// Evidence of a bounded length: its end is where a console or a compiler says why.
#[must_use]
pub fn bounded(evidence: String) -> String {
    let from = (evidence.len().saturating_sub(EVIDENCE)..=evidence.len())
        .find(|&at| evidence.is_char_boundary(at));
    match from {
        Some(from) if from > 0 => evidence[from..].to_owned(),
        _ => evidence,
    }
}

/// A fault with evidence of a bounded length.
#[must_use]
pub fn bounded_fault(fault: &Fault) -> Fault {
    let mut fault = fault.clone();
    let mut left = EVIDENCE;
    let whole = fault.evidence.iter().rev().take_while(|line| {
        let fits = line.len() < left;
        left = left.saturating_sub(line.len() + 1);
        fits
    });
    let from = fault.evidence.len() - whole.count();
    fault.evidence.drain(..from);
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_evidence_keeps_its_end() {
        let long = format!("{}é the reason", "é".repeat(EVIDENCE));
        let short = bounded(long);
        assert!(short.len() <= EVIDENCE && short.ends_with("é the reason"));
        assert_eq!(bounded("x".to_owned()), "x");
        let mut fault = Fault::infra("x");
        fault.evidence = (0..100_000).map(|line| line.to_string()).collect();
        let fault = bounded_fault(&fault);
        assert_eq!(fault.evidence.last().map(String::as_str), Some("99999"));
        assert!(fault.evidence.iter().map(String::len).sum::<usize>() <= EVIDENCE);
    }
}
