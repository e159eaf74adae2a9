// SPDX-License-Identifier: MIT OR Apache-2.0
//! A search's own account: what was searched, how it ended, and what it took.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::lab::Work;
use crate::bisect::config::{ConfigEntry, ConfigOutcome};
use crate::bisect::history::Candidate;
use crate::bisect::log::Entry;
use crate::bisect::outcome::Outcome;
use crate::bisect::step::Finding;
use crate::fault::{ExitCode, Fault};
use crate::report::number::counted;

/// `schema` of `bisect.json`.
pub const BISECTION_SCHEMA: &str = "kvet/bisection/1";

/// Its file in a search's folder.
pub const FILE: &str = "bisect.json";

/// How a search ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// One over commits or patches.
    Changes(Outcome),
    /// One over the symbols of two configs.
    Configs(ConfigOutcome),
}

impl Ended {
    /// What kvet exits with: 0 only where what makes the difference is named.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Changes(Outcome::Found { .. }) => ExitCode::Acceptable,
            Self::Configs(ConfigOutcome::Found { changes, enough: true, .. })
                if !changes.is_empty() =>
            {
                ExitCode::Acceptable
            }
            Self::Changes(_) | Self::Configs(_) => ExitCode::Inconclusive,
        }
    }
}

/// What one side of a change showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Which one.
    pub candidate: Candidate,
    /// Good, bad or skip.
    pub word: String,
    /// What was seen, in lines.
    pub evidence: String,
    /// Trials that said so.
    pub trials: u32,
}

/// A search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`BISECTION_SCHEMA`].
    pub schema: String,
    /// Name of the search's folder.
    pub id: String,
    /// Name of the plan.
    pub plan: String,
    /// What was searched, in words.
    pub searched: String,
    /// What is called bad.
    pub predicate: String,
    /// Test, config and guest, in words.
    pub setting: String,
    /// How it ended.
    pub ended: Ended,
    /// What kvet exits with.
    pub exit_code: ExitCode,
    /// Who wrote the first bad one, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<(String, String)>,
    /// What the first bad one showed; where none is named, the bad end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<Side>,
    /// What those just before it showed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Side>,
    /// Why candidates were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Side>,
    /// Kernels that were asked for.
    pub builds: u32,
    /// Boots that were judged.
    pub boots: u32,
    /// Wall-clock seconds of this life of the search.
    pub seconds: f64,
    /// What it did, in the order in which it was done.
    pub work: Vec<Work>,
}

impl Record {
    /// Seconds that the builds and boots would take one after another.
    #[must_use]
    pub fn in_sequence(&self) -> f64 {
        self.work.iter().fold(0.0, |sum, work| sum + work.seconds)
    }
}

/// Reads the account of a search.
///
/// # Errors
/// A `plan` fault when there is none in the folder.
pub fn read(run: &Path) -> Result<Record, Fault> {
    let file = run.join(FILE);
    let wrong = |what: String| {
        Fault::plan(what).at(file.display()).help("name the folder of a search that has ended")
    };
    let text = std::fs::read(&file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let record: Record = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("not an account of a search: {error}")))?;
    match record.schema == BISECTION_SCHEMA {
        true => Ok(record),
        false => {
            Err(wrong(format!("schema {:?}; this kvet reads {BISECTION_SCHEMA}", record.schema)))
        }
    }
}

/// Builds and boots of a log of commits or patches.
#[must_use]
pub fn cost(entries: &[Entry]) -> (u32, u32) {
    let mut built = BTreeSet::new();
    let mut boots = 0;
    for entry in entries {
        match entry {
            Entry::Trial(step) => {
                built.insert(step.candidate.id.as_str());
                boots += u32::from(step.image.is_some());
            }
            Entry::Same(same) => drop(built.insert(same.candidate.id.as_str())),
            Entry::Start(_) | Entry::Stopped { .. } | Entry::Outcome(_) => {}
        }
    }
    (u32::try_from(built.len()).unwrap_or(u32::MAX), boots)
}

/// Builds and boots of a log of configs.
#[must_use]
pub fn config_cost(entries: &[ConfigEntry]) -> (u32, u32) {
    let steps = || {
        entries.iter().filter_map(|entry| match entry {
            ConfigEntry::Trial(step) => Some(step),
            _ => None,
        })
    };
    let boots = steps().filter(|step| step.image.is_some() && !step.same).count();
    (u32::try_from(steps().count()).unwrap_or(u32::MAX), u32::try_from(boots).unwrap_or(u32::MAX))
}

/// The last bad and the last good config of a log: the nearest ones, since a search
/// brings both sides together.
#[must_use]
pub fn config_sides(entries: &[ConfigEntry]) -> [Option<Side>; 2] {
    [Finding::Bad, Finding::Good].map(|finding| {
        let step = entries.iter().rev().find_map(|entry| match entry {
            ConfigEntry::Trial(step) if step.finding == finding => Some(step),
            _ => None,
        })?;
        let changed = counted(step.changed.len(), "symbol");
        Some(Side {
            candidate: Candidate::new(&step.config, format!("{changed} not as in the good config")),
            word: finding.word().to_owned(),
            evidence: step.evidence.clone(),
            trials: 1,
        })
    })
}

/// What a log says of one candidate: its last trial, or that of the one whose image it
/// is.
#[must_use]
pub fn side(entries: &[Entry], id: &str) -> Option<Side> {
    let of = |id: &str| {
        let trials = || {
            entries.iter().filter_map(move |entry| match entry {
                Entry::Trial(step) if step.candidate.id == id => Some(step),
                _ => None,
            })
        };
        let last = trials().next_back()?;
        let same = trials().filter(|step| step.finding.word() == last.finding.word());
        Some(Side {
            candidate: last.candidate.clone(),
            word: last.finding.word().to_owned(),
            evidence: match &last.finding {
                Finding::Skip { reason } => reason.clone(),
                Finding::Good | Finding::Bad => last.evidence.clone(),
            },
            trials: u32::try_from(same.count()).unwrap_or(u32::MAX),
        })
    };
    of(id).or_else(|| {
        let same = entries.iter().find_map(|entry| match entry {
            Entry::Same(same) if same.candidate.id == id => Some(same),
            _ => None,
        })?;
        let side = of(&same.as_id)?;
        let evidence = format!("{}\nthe same image as {}", side.evidence, same.as_id);
        Some(Side { candidate: same.candidate.clone(), evidence, ..side })
    })
}

/// Every candidate that was skipped.
#[must_use]
pub fn skipped(entries: &[Entry]) -> Vec<Side> {
    let steps = entries.iter().filter_map(|entry| match entry {
        Entry::Trial(step) if matches!(step.finding, Finding::Skip { .. }) => Some(step),
        _ => None,
    });
    steps.filter_map(|step| side(entries, &step.candidate.id)).collect()
}
