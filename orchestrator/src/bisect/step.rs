// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one trial found, as it is written to the log.

use serde::{Deserialize, Serialize};

use super::history::Candidate;

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
