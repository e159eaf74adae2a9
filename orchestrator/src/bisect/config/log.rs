// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a search of configs. A search that is resumed resolves the same mixes
//! again and takes what the log says of each resolved config. Lines are written and
//! read as those of any other search ([`super::super::log`]).

use serde::{Deserialize, Serialize};

use super::super::step::Finding;
use super::{Config, ConfigOutcome, digest};
use crate::fault::Fault;

/// Says what a log is.
pub const CONFIG_LOG_SCHEMA: &str = "kvet/bisect-config/1";

/// What was searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigStart {
    /// [`CONFIG_LOG_SCHEMA`].
    pub schema: String,
    /// What is called bad, in words.
    pub predicate: String,
    /// Digest of the good end as it was asked for.
    pub good: String,
    /// Digest of the bad end as it was asked for.
    pub bad: String,
}

impl ConfigStart {
    /// What a search is about.
    #[must_use]
    pub fn new(good: &Config, bad: &Config, predicate: &str) -> Self {
        Self {
            schema: CONFIG_LOG_SCHEMA.to_owned(),
            predicate: predicate.to_owned(),
            good: digest(good),
            bad: digest(bad),
        }
    }
}

/// One resolved config that was judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStep {
    /// Digest of the resolved config.
    pub config: String,
    /// The symbols in which it differs from the resolved good end.
    pub changed: Vec<String>,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// What was seen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The image was known from another config, so that it was not run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same: bool,
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum ConfigEntry {
    /// What is searched; the first line.
    Start(ConfigStart),
    /// A config that was judged.
    Trial(ConfigStep),
    /// Why nothing more was tried.
    Stopped {
        /// The fault.
        fault: Fault,
    },
    /// How it ended.
    Outcome(ConfigOutcome),
}

/// The steps of a log of the same search.
///
/// # Errors
/// A `plan` fault that names the line which does not fit.
pub fn replay(
    entries: &[ConfigEntry],
    name: &str,
    start: &ConfigStart,
) -> Result<Vec<ConfigStep>, Fault> {
    let mut steps: Vec<ConfigStep> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let wrong = |what: &str| {
            Err(Fault::plan(what)
                .at(format!("{name}:{}", index + 1))
                .help("use a log only with the configs that it is of"))
        };
        match (index, entry) {
            (0, ConfigEntry::Start(found)) if found == start => {}
            (0, ConfigEntry::Start(_)) => return wrong("the log is of other configs"),
            (0, _) => return wrong("a log begins with what was searched"),
            (_, ConfigEntry::Start(_)) => return wrong("a second search begins here"),
            (_, ConfigEntry::Trial(step)) => {
                if steps.iter().any(|earlier| earlier.config == step.config) {
                    return wrong("this config was judged before");
                }
                steps.push(step.clone());
            }
            (_, ConfigEntry::Stopped { .. } | ConfigEntry::Outcome(_)) => {}
        }
    }
    Ok(steps)
}
