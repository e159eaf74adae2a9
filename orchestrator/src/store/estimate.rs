// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long something will take, by what others of its kind took here.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Store, write_atomically};

/// Times that are remembered of each kind.
const KEPT: usize = 9;

/// What others of one kind took, such as builds of one config and compiler, with so many
/// jobs, of all of a tree or of what a series touches.
#[derive(Debug, Clone)]
pub struct Estimate {
    file: PathBuf,
    earlier: Earlier,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Earlier {
    /// Wall-clock seconds, the latest last.
    seconds: Vec<u32>,
}

impl Estimate {
    /// Of the kind with this key.
    #[must_use]
    pub fn read(store: &Store, kind: &str) -> Self {
        let file = store.path("estimates", &format!("{kind}.json"));
        let earlier = std::fs::read(&file).ok();
        let earlier = earlier.and_then(|text| serde_json::from_slice(&text).ok());
        Self { file, earlier: earlier.unwrap_or_default() }
    }

    /// Median of what they took, in seconds.
    #[must_use]
    pub fn seconds(&self) -> Option<u32> {
        let mut seconds = self.earlier.seconds.clone();
        seconds.sort_unstable();
        seconds.get(seconds.len() / 2).copied()
    }

    /// The shortest and the longest, in seconds.
    #[must_use]
    pub fn range(&self) -> Option<(u32, u32)> {
        let seconds = || self.earlier.seconds.iter().copied();
        seconds().min().zip(seconds().max())
    }

    /// Remembers another; a store that cannot be written only loses the estimate.
    pub fn learn(mut self, seconds: u32) {
        self.earlier.seconds.push(seconds);
        let excess = self.earlier.seconds.len().saturating_sub(KEPT);
        self.earlier.seconds.drain(..excess);
        let _ = write_atomically(&self.file, &crate::report::json::pretty(&self.earlier));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_latest_counts() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let read = || Estimate::read(&store, "k");
        assert_eq!(read().seconds(), None);
        for seconds in [1000, 1000, 1000, 10, 11, 12, 13, 14, 15, 16] {
            read().learn(seconds);
        }
        assert_eq!(read().seconds(), Some(14));
        assert_eq!(read().range(), Some((10, 1000)));
    }
}
