// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of `kvet validate`: `validate.json` as it is.

use serde::{Deserialize, Serialize};

use crate::fault::{ExitCode, Fault};

/// `schema` of `validate.json`.
pub const VALIDATE_RUN_SCHEMA: &str = "kvet/validate-run/1";

/// All checks of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValidateResult {
    /// [`VALIDATE_RUN_SCHEMA`].
    pub schema: String,
    /// Name of the run's folder.
    pub id: String,
    /// Name of the series.
    pub series: String,
    /// One line for people.
    pub title: String,
    /// Number of its patches.
    pub patches: usize,
    /// Name of the kernel.
    pub kernel: String,
    /// What its source is, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The files that the series touches.
    pub files: Vec<String>,
    /// The tests, and why these.
    pub tests: Vec<ChosenTest>,
    /// The checks, in their order.
    pub checks: Vec<Check>,
    /// Faults that belong to no check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// All checks have had their turn.
    pub complete: bool,
    /// Wall-clock seconds of this life of the run.
    pub seconds: f64,
    /// What kvet exits with.
    pub exit_code: ExitCode,
}

/// A test that was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenTest {
    /// Its name, with what it measures.
    pub test: String,
    /// The guests that it runs in; all of the table's or the plan's when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<String>,
    /// Why it was chosen.
    pub reason: String,
}

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Nothing to complain of.
    Ok,
    /// The series, or what it runs on, does not pass.
    Failed,
    /// It was made, and shows nothing.
    Inconclusive,
    /// It was not made.
    Skipped,
    /// There is nothing to do: the series is in the source already.
    Nothing,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Inconclusive => "unclear",
            Self::Skipped => "skipped",
            Self::Nothing => "nothing",
        })
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// `applies`, `checkpatch`, `builds`, `boots`, `behaviour` or `performance`.
    pub name: String,
    /// The config that it is made of, where it is made of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// What it came to.
    #[serde(flatten)]
    pub finding: Finding,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// The folders of its runs, below this run's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What it came to.
    pub outcome: Outcome,
    /// One line: the evidence, or the reason why it was not made.
    pub evidence: String,
    /// More lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// The patch that is to blame, from 1, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<usize>,
    /// What it alone would make kvet exit with.
    pub exit_code: ExitCode,
}

impl Finding {
    /// Passed.
    #[must_use]
    pub fn ok(evidence: impl Into<String>) -> Self {
        Self::new(Outcome::Ok, ExitCode::Acceptable, evidence)
    }

    /// Not made, and why. That is no failure: a tool or a compiler may be missing.
    #[must_use]
    pub fn skipped(why: impl Into<String>) -> Self {
        Self::new(Outcome::Skipped, ExitCode::Acceptable, why)
    }

    /// Failed, with what kvet exits with.
    #[must_use]
    pub fn failed(exit_code: ExitCode, evidence: impl Into<String>) -> Self {
        Self::new(Outcome::Failed, exit_code, evidence)
    }

    /// It shows nothing.
    #[must_use]
    pub fn inconclusive(evidence: impl Into<String>) -> Self {
        Self::new(Outcome::Inconclusive, ExitCode::Inconclusive, evidence)
    }

    /// A fault in the place of a finding.
    #[must_use]
    pub fn fault(fault: &Fault) -> Self {
        let outcome = if fault.nothing_to_do { Outcome::Nothing } else { Outcome::Failed };
        let mut finding = Self::new(outcome, fault.exit_code(), fault.what.clone());
        finding.details.extend(fault.place.iter().map(|place| format!("at {place}")));
        finding.details.extend(fault.evidence.iter().cloned());
        finding.details.extend(fault.help.iter().map(|help| format!("help: {help}")));
        finding
    }

    fn new(outcome: Outcome, exit_code: ExitCode, evidence: impl Into<String>) -> Self {
        Self { outcome, evidence: evidence.into(), details: Vec::new(), patch: None, exit_code }
    }

    /// Adds lines.
    #[must_use]
    pub fn with(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }

    /// Names the patch that is to blame.
    #[must_use]
    pub fn at_patch(mut self, patch: Option<usize>) -> Self {
        self.patch = patch;
        self
    }
}

impl ValidateResult {
    /// Settles the exit code from everything in the result.
    pub fn settle(&mut self) {
        let faults = self.faults.iter().map(Fault::exit_code);
        let checks = self.checks.iter().map(|check| check.finding.exit_code);
        self.exit_code = ExitCode::worst(faults.chain(checks));
    }
}
