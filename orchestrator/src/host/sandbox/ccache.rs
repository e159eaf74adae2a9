// SPDX-License-Identifier: MIT OR Apache-2.0
//! ccache in a folder of kvet's own, and what it did for a build.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::beneath;
use crate::host::process::find_program;
use crate::store::Store;

/// ccache for a session's compilers.
#[derive(Debug, Clone)]
pub struct CompilerCache {
    /// ccache's program.
    pub program: PathBuf,
    /// Its folder, a part of the store.
    pub folder: PathBuf,
    /// The compilers that it stands for.
    pub compilers: Vec<&'static str>,
    /// Nothing may be added.
    pub read_only: bool,
}

/// Name of the folder. What is in an older one, `objects`, cannot be relied upon: it has
/// objects with `.incbin` of other kernels.
const OBJECTS: &str = "preprocessed";

/// Most bytes of compiled objects that are kept: some hundred full builds of a
/// small kernel.
pub(super) const CCACHE_SIZE: &str = "4G";

/// A line for each compilation; an allmodconfig kernel has 30,000 of some 100 bytes.
const MAX_STATS_BYTES: u64 = 32 << 20;

/// What ccache did for a build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    /// Compilations that it had.
    pub hits: u32,
    /// Compilations that it could have had.
    pub of: u32,
}

impl Cached {
    /// What the statistics log in a session's folder says; nothing where there is none.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let text = beneath::read(folder, "ccache", MAX_STATS_BYTES).ok()?;
        Some(Self::count(&String::from_utf8_lossy(&text)))
    }

    /// Counts in a statistics log: a comment with the file, then what happened.
    fn count(text: &str) -> Self {
        let mut cached = Self::default();
        for line in text.lines() {
            match line {
                "direct_cache_hit" | "preprocessed_cache_hit" => {
                    cached.hits += 1;
                    cached.of += 1;
                }
                "cache_miss" => cached.of += 1,
                _ => {}
            }
        }
        cached
    }
}

/// Whether ccache can be used, and where.
#[must_use]
pub fn compiler_cache(
    store: &Store,
    compilers: &[&'static str],
    read_only: bool,
) -> Option<CompilerCache> {
    let program = find_program("ccache")?;
    let folder = store.path("ccache", OBJECTS);
    std::fs::create_dir_all(&folder).ok()?;
    Some(CompilerCache { program, folder, compilers: compilers.to_vec(), read_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ccaches_log_is_counted() {
        let log = "# mm/a.c\ndirect_cache_hit\n# mm/b.c\ncache_miss\n# -\nautoconf_test\n# mm/c.c\npreprocessed_cache_hit\n";
        assert_eq!(Cached::count(log), Cached { hits: 2, of: 3 });
    }
}
