// SPDX-License-Identifier: MIT OR Apache-2.0
//! What building and booting one kernel came to, kept in the search's folder so that a
//! resumed search has it, too.

use std::collections::{BTreeMap, BTreeSet};

use kvet_records::{Outcome, Value};
use serde::{Deserialize, Serialize};

use crate::fault::{Blame, Fault};
use crate::run::program;
use crate::transport::virtio::Sample;
use crate::vm::halt::{BootReport, HaltReason};
use crate::vm::splat::Splat;

/// What building and booting one kernel came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "came_to", rename_all = "snake_case")]
pub enum Facts {
    /// It does not build, or cannot be configured.
    Unbuilt {
        /// Why.
        fault: Fault,
    },
    /// It builds, and was not booted.
    Built,
    /// It was booted.
    Booted(Booted),
}

/// What one boot came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Booted {
    /// Folder of its traces.
    pub folder: String,
    /// Why there is no result: a fault of the kernel or of the test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// How the test or the kernel failed: words that are the same in every boot that
    /// fails so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Why the test cannot run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// What was observed.
    pub observations: BTreeMap<String, Value>,
    /// What was measured.
    pub samples: Vec<Sample>,
    /// What broke.
    pub splats: Vec<SplatSeen>,
}

/// What is kept of a splat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplatSeen {
    /// Its fingerprint.
    pub fingerprint: String,
    /// Its title; untrusted.
    pub title: String,
    /// The kernel could not be trusted to go on.
    pub fatal: bool,
}

impl Booted {
    /// Reads a settled report.
    ///
    /// # Errors
    /// The fault of a boot that says nothing of its kernel: the host's, or the user's.
    pub fn read(task: &str, report: BootReport, folder: &str) -> Result<Self, Fault> {
        let fault = report.fault(task).map(|fault| fault.at(folder));
        if let Some(fault) = &fault
            && !matches!(fault.blame, Blame::Series | Blame::Kernel | Blame::Test)
        {
            return Err(fault.clone());
        }
        let failure = failure(&report);
        let skipped = (report.report.outcome == Some(Outcome::Skipped))
            .then(|| report.report.skips.join("; "))
            .map(|why| if why.is_empty() { "no reason given".to_owned() } else { why });
        let splat = |splat: &Splat| SplatSeen {
            fingerprint: splat.fingerprint.clone(),
            title: splat.title.clone(),
            fatal: splat.fatal,
        };
        Ok(Self {
            folder: folder.to_owned(),
            fault,
            failure,
            skipped,
            splats: report.splats.iter().map(splat).collect(),
            observations: report.report.observations,
            samples: report.report.samples,
        })
    }
}

/// How a boot failed, if it did.
fn failure(report: &BootReport) -> Option<String> {
    match &report.halt {
        HaltReason::Completed => {}
        HaltReason::Kernel { title, .. } => return Some(title.clone()),
        other => return Some(other.name().replace('_', " ")),
    }
    match report.report.outcome.as_ref()? {
        Outcome::Completed => {
            // A program's end is an observation of it.
            let exit = report.report.observations.get(program::EXIT)?.to_string();
            (exit != program::PASS && exit != program::SKIP).then(|| format!("exit is {exit}"))
        }
        Outcome::Skipped => None,
        Outcome::Failed { .. } => Some("the test failed".to_owned()),
        Outcome::Exited { status } => Some(format!("the test exited with status {status}")),
        Outcome::Killed { signal } => Some(format!("the test was killed by signal {signal}")),
    }
}

/// What tells one failure of a build from another: its lines with an error, without
/// numbers of lines and addresses, which other changes move.
#[must_use]
pub fn errors(fault: &Fault) -> BTreeSet<String> {
    let plain = |line: &str| -> String {
        let mut out = String::new();
        for character in line.trim().chars() {
            match character.is_ascii_digit() {
                true if out.ends_with('#') => {}
                true => out.push('#'),
                false => out.push(character),
            }
        }
        out
    };
    let says = |line: &&String| {
        let line = line.to_lowercase();
        line.contains("error") || line.contains("undefined reference")
    };
    // What make says after it names a step, which any error there has.
    let own = |line: &&String| !line.starts_with("make");
    let lines: BTreeSet<String> =
        fault.evidence.iter().filter(says).filter(own).map(|line| plain(line)).collect();
    match lines.is_empty() {
        true => fault.evidence.iter().map(|line| plain(line)).collect(),
        false => lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_same_wherever_its_line_is() {
        let fault = |text| Fault::series("x").evidence(text);
        let first = errors(&fault("mm/a.c: In function 'f':\nmm/a.c:12:3: error: 'x' undeclared"));
        let moved =
            errors(&fault("mm/a.c:112:3: error: 'x' undeclared\nmake[2]: *** [a.o] Error 1"));
        let other = errors(&fault("mm/b.c:12:3: error: 'x' undeclared"));
        assert_eq!(first, moved);
        assert!(first.is_disjoint(&other));
        assert!(!errors(&fault("it was stopped")).is_empty());
    }
}
