// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which symbols of two kernel configs make the difference.
//!
//! A config is known by what Kconfig makes of it, never by what was asked for: a mix
//! of both ends is resolved first, which is cheap, and only the resolved config is
//! built and judged. What did not take has not been tried.
//!
//! The search keeps a good and a bad config and makes them meet (delta debugging's
//! isolation of a difference; Zeller and Hildebrandt, "Simplifying and isolating
//! failure-inducing input", 2002): of n differing symbols half is taken over, and
//! whatever that gives replaces one side. One guilty symbol among n takes
//! ceil(log2 n) builds beyond those of the two ends and one more that shows that the
//! symbol alone is enough: 10 for 300. If it is not, the symbols that it needs are
//! found in the same way, each for as many builds again.

mod log;
mod mix;
mod narrow;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use log::{ConfigEntry, ConfigStart, ConfigStep, replay};
pub use mix::{differing, digest};
pub use narrow::{Configs, Cost, drive};

use super::drive::{Built, Seen};
use crate::fault::{Fault, escape};

/// Symbols, without `CONFIG_`, and their values as `.config` has them; one that is not
/// set is not there.
pub type Config = BTreeMap<String, String>;

/// Tries configs. As for [`super::drive::Trial`], a fault of the series, the kernel or
/// the test skips a config, any other ends the search.
pub trait ConfigTrial {
    /// What Kconfig makes of a config (`make olddefconfig`), without building it.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn resolve(&self, request: &Config) -> impl Future<Output = Result<Config, Fault>>;

    /// Makes the image of a resolved config. Called once for each.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn build(&self, config: &Config) -> impl Future<Output = Result<Built, Fault>>;

    /// Runs an image once; the predicate has to be exact.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn run(&self, config: &Config, image: &str) -> impl Future<Output = Result<Seen, Fault>>;
}

/// Why a symbol belongs to what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Changing it makes the difference.
    Guilty,
    /// Without it a guilty one cannot be set.
    Enables,
}

/// A symbol that makes the difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The symbol.
    pub symbol: String,
    /// Its value on the good side.
    pub good: Option<String>,
    /// Its value on the bad side.
    pub bad: Option<String>,
    /// What it does.
    pub part: Part,
}

/// What a search of configs ends with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum ConfigOutcome {
    /// What makes the difference.
    Found {
        /// The symbols, those found first at the front.
        changes: Vec<Change>,
        /// The good config with these changes and nothing else was bad. False when
        /// they were only seen to matter beside other changes.
        enough: bool,
        /// What could not be narrowed, and why.
        notes: Vec<String>,
    },
    /// The good end is bad.
    GoodEndIsBad,
    /// The bad end is good.
    BadEndIsGood,
    /// An end cannot be tried.
    EndUntestable {
        /// The good end or the bad one.
        which: String,
        /// Why.
        reason: String,
    },
    /// Kconfig makes the same of both ends.
    EndsIdentical,
}

impl fmt::Display for ConfigOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { changes, enough, notes } => {
                f.write_str(match (changes.len(), enough) {
                    (1, _) => "this symbol makes the difference",
                    (_, true) => "these symbols together make the difference",
                    (_, false) => "some or all of these symbols make the difference",
                })?;
                let value =
                    |value: &Option<String>| value.as_deref().map_or("not set".to_owned(), escape);
                for change in changes {
                    let (good, bad) = (value(&change.good), value(&change.bad));
                    write!(f, "\n  {}: good {good}, bad {bad}", escape(&change.symbol))?;
                    if change.part == Part::Enables {
                        f.write_str(" (needed to set the others)")?;
                    }
                }
                f.write_str(match enough {
                    true => "\n  the good config with nothing but this changed is bad",
                    false => "\n  it was not shown that the good config with nothing but this changed is bad",
                })?;
                notes.iter().try_for_each(|note| write!(f, "\n  {}", escape(note)))
            }
            Self::GoodEndIsBad => f.write_str("the good config is bad"),
            Self::BadEndIsGood => f.write_str("the bad config is good"),
            Self::EndUntestable { which, reason } => {
                write!(f, "the {which} config cannot be tried: {}", escape(reason))
            }
            Self::EndsIdentical => f.write_str("Kconfig makes the same config of both ends"),
        }
    }
}
