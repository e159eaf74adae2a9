// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a run: the data behind every report, `result.json` as it is.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::robust::Robust;
use crate::compare::behaviour::{Observations, Row, Verdict};
use crate::compare::metrics::{MetricResult, MetricVerdict};
use crate::compare::snapshot::SnapshotState;
use crate::compare::splats::{SplatRow, SplatVerdict};
use crate::compare::warnings::WarningChange;
use crate::fault::{Blame, ExitCode, Fault};
use crate::host::sandbox::Cached;
use crate::kernel::kconfig::Override;
use crate::kernel::series::MovedHunk;
use crate::plan::manifest::VariantName;
use crate::vm::accel::Chosen;

/// `schema` of `result.json`.
pub const RUN_SCHEMA: &str = "kvet/run/1";

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// Name of the run's folder.
    pub id: String,
    /// Name of the plan.
    pub plan: String,
    /// What kvet exits with.
    pub exit_code: ExitCode,
    /// What the figures depend on.
    pub environment: Environment,
    /// Faults that belong to no cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// What the plan or a series leads one to expect and nothing looked at; a run
    /// with any of these is no pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
    /// Combinations that were not run, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// What of the counted figures holds on every kernel and CPU that was tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub robustness: Vec<Robust>,
    /// One entry for each (series, kernel, config, guest).
    pub cells: Vec<CellResult>,
}

/// What the figures depend on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// kvet's version.
    pub kvet: String,
    /// The host's kernel and machine.
    pub host: String,
    /// First line of QEMU's `--version`.
    pub qemu: String,
    /// What builds run in, such as `bubblewrap 0.8.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The accelerator and why; none when nothing was booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Chosen>,
}

/// One (series, kernel, config, guest).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Name of the series.
    pub series: String,
    /// What it was read from, where that is no folder with a `series.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// What stands in its input and was not taken for a patch, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
    /// Hunks that applied in another line than they say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_hunks: Vec<MovedHunk>,
    /// Name of the kernel.
    pub kernel: String,
    /// What the kernel's source is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Name of the config.
    pub config: String,
    /// Where its fragments ask for different values of one symbol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    /// Name of the guest.
    pub guest: String,
    /// The cell that it repeats on another kernel or CPU, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation_of: Option<String>,
    /// The CPU model that it asks QEMU for, where it asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Hash of the initramfs that all guests of the cell started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initramfs: Option<String>,
    /// The images.
    pub variants: BTreeMap<VariantName, VariantResult>,
    /// Base and patched are the same image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub identical: bool,
    /// The series changes no file at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchanged: bool,
    /// The plan allows that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_identical: bool,
    /// A splat that both variants have counts too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// How the compiler's warnings differ, from each variant to the next and from
    /// the first to the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningChange>,
    /// What broke in the guests.
    pub splats: Vec<SplatRow>,
    /// Why there is no result, where there is none.
    pub faults: Vec<Fault>,
    /// The tests that ran.
    pub tests: Vec<TestResult>,
}

/// A built variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantResult {
    /// SHA-256 of the bootable image.
    pub image_sha256: String,
    /// Kernel release.
    pub release: String,
    /// How it came to be.
    pub build: BuildResult,
}

/// How an image came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildResult {
    /// Key in the store.
    pub key: String,
    /// First line of the compiler's `--version`.
    pub compiler: String,
    /// It was in the store.
    pub stored: bool,
    /// Steps that its build took.
    pub steps: u32,
    /// Wall-clock seconds that its build took.
    pub seconds: u32,
    /// Number of the compiler's warnings; none where they are not known.
    #[serde(default)]
    pub warnings: Option<usize>,
    /// What its build ran in; none where kvet had no sandboxes yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// What its build tried and was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// What ccache did for its build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ccache: Option<Cached>,
}

/// One test in all its variants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// Name and parameters.
    pub name: String,
    /// Boots of each variant; all observed the same, or there is a fault.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub boots: NonZeroU16,
    /// Why there is no result, where there is none.
    pub faults: Vec<Fault>,
    /// Reasons why a variant did not run it, or a part of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<String>,
    /// What it observed; none without results of both variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<BehaviourResult>,
    /// What it measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricResult>,
}

fn once() -> NonZeroU16 {
    NonZeroU16::MIN
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_once(boots: &NonZeroU16) -> bool {
    *boots == NonZeroU16::MIN
}

/// What a test observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BehaviourResult {
    /// The worst of its rows; none when only one variant was run.
    pub verdict: Option<Verdict>,
    /// What each variant observed.
    pub observations: BTreeMap<VariantName, Observations>,
    /// How each variant relates to its accepted snapshot.
    pub snapshot: BTreeMap<VariantName, SnapshotState>,
    /// The comparison.
    pub rows: Vec<Row>,
}

impl RunResult {
    /// Settles the exit code from everything in the result.
    pub fn settle(&mut self) {
        let own = self.faults.iter().map(Fault::exit_code);
        let unchecked = self.unchecked.iter().map(|_| ExitCode::Inconclusive);
        let cells = self.cells.iter().map(CellResult::exit_code);
        self.exit_code = ExitCode::worst(own.chain(unchecked).chain(cells));
    }
}

impl CellResult {
    /// What the cell alone would make kvet exit with.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        let faults = self.faults.iter().map(Fault::exit_code);
        let tests = self.tests.iter().map(TestResult::exit_code);
        let splats = self.splats.iter().map(|row| match (row.verdict, &row.allowed) {
            (SplatVerdict::New, None) => ExitCode::Behaviour,
            (SplatVerdict::Both, None) if self.strict => ExitCode::Behaviour,
            _ => ExitCode::Acceptable,
        });
        let identical = match (self.identical, self.allow_identical) {
            (true, false) => ExitCode::Inconclusive,
            _ => ExitCode::Acceptable,
        };
        ExitCode::worst(faults.chain(tests).chain(splats).chain([identical]))
    }
}

impl TestResult {
    /// What can and what cannot be concluded where a variant has no result.
    /// `variants` is the number that were run.
    #[must_use]
    pub fn conclusion(&self, variants: usize) -> Option<&'static str> {
        if variants < 2 || self.faults.is_empty() {
            return None;
        }
        if !self.faults.iter().all(|fault| matches!(fault.blame, Blame::Kernel | Blame::Test)) {
            return Some("a variant has no result for a reason that is not the kernel's");
        }
        let completed = |variant| {
            self.behaviour.as_ref().is_some_and(|found| found.observations.contains_key(&variant))
        };
        match (completed(VariantName::Base), completed(VariantName::Patched)) {
            (true, true) => None,
            (true, false) => Some(
                "base completes this test and patched does not: the fault came with the series; \
                 nothing was compared beyond that",
            ),
            (false, true) => Some(
                "patched completes this test and base does not: the series may mend the fault, but \
                 without a result of base nothing that patched observed can be called a change",
            ),
            (false, false) => Some(
                "neither kernel completes this test: the fault is there without the series, and \
                 nothing can be concluded about what the series changes",
            ),
        }
    }

    /// What the test alone would make kvet exit with. A test that observed
    /// nothing says nothing, which is not a pass.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        let faults = self.faults.iter().map(Fault::exit_code);
        let behaviour = match &self.behaviour {
            None if !self.metrics.is_empty() => ExitCode::Acceptable,
            None => ExitCode::Inconclusive,
            Some(behaviour) if behaviour.observations.values().all(Observations::is_empty) => {
                ExitCode::Inconclusive
            }
            Some(behaviour) => {
                let verdict = behaviour.verdict.map_or(ExitCode::Acceptable, Verdict::exit_code);
                let differs =
                    behaviour.snapshot.values().any(|&state| state == SnapshotState::Differs);
                let snapshot = if differs { ExitCode::Behaviour } else { ExitCode::Acceptable };
                ExitCode::worst([verdict, snapshot])
            }
        };
        let gates = self.metrics.iter().filter(|metric| metric.gate);
        let metrics = gates
            .map(|metric| metric.verdict.map_or(ExitCode::Acceptable, MetricVerdict::exit_code));
        ExitCode::worst(faults.chain([behaviour]).chain(metrics))
    }
}
