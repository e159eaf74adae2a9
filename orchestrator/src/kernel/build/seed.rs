// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new tree begins as a copy of the finished one whose config is nearest to its own:
//! kbuild knows which symbols each object depends on (scripts/basic/fixdep.c), so `make`
//! compiles what the two configs make different, and nothing else.
//!
//! Time stamps are copied, too: what `make` would have compiled again in the other tree,
//! it compiles again in this one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::Record;
use crate::fault::Fault;
use crate::host::process::{check, command};
use crate::kernel::git;
use crate::kernel::source::Source;
use crate::run::event::Events;
use crate::store::{Lock, Store, write_atomically};

/// What a tree's file of that name says: for which others it can be the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kin {
    /// Of the source, the compiler, the config's base and what the build runs.
    pub(super) family: String,
    /// Lines that are merged on the base.
    pub(super) config: String,
}

impl Kin {
    /// The file of a tree.
    pub(super) fn file(store: &Store, tree: &str) -> PathBuf {
        store.path("trees", &format!("{tree}.kin.json"))
    }

    pub(super) fn write(&self, file: &Path) -> Result<(), Fault> {
        write_atomically(file, &crate::report::json::pretty(self))
    }

    fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }

    /// Lines that only one of two configs has.
    fn distance(&self, config: &str) -> usize {
        let lines = |text: &'_ str| -> BTreeSet<String> {
            text.lines().map(str::trim).filter(|line| is_setting(line)).map(str::to_owned).collect()
        };
        lines(&self.config).symmetric_difference(&lines(config)).count()
    }
}

fn is_setting(line: &str) -> bool {
    line.starts_with("CONFIG_") || line.starts_with("# CONFIG_")
}

/// A finished tree, locked.
pub(super) struct Seed {
    folder: PathBuf,
    /// The record of its builds' warnings.
    record: PathBuf,
    /// What is checked out in it.
    commit: String,
    _lock: Lock,
}

impl Seed {
    /// The nearest tree of the first of `families` that has one which nobody uses now,
    /// and whose last build ended well.
    pub(super) async fn nearest(store: &Store, families: &[String], config: &str) -> Option<Self> {
        let entries = std::fs::read_dir(store.path("trees", "")).ok()?.flatten();
        let mut found: Vec<(usize, usize, String)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let tree = name.strip_suffix(".kin.json")?.to_owned();
                let kin = Kin::read(&entry.path())?;
                let rank = families.iter().position(|family| *family == kin.family)?;
                Some((rank, kin.distance(config), tree))
            })
            .collect();
        found.sort();
        for (_, _, tree) in found {
            if let Some(seed) = Self::take(store, &tree).await {
                return Some(seed);
            }
        }
        None
    }

    async fn take(store: &Store, tree: &str) -> Option<Self> {
        let lock = store.try_lock("trees", tree)?;
        let file = |rest: &str| store.path("trees", &format!("{tree}{rest}"));
        let (folder, record) = (file(""), file(".warnings.json"));
        if !file(".ready").exists() || file(".building").exists() {
            return None;
        }
        // Without a list of what was linked nobody could tell which warnings are of
        // objects that the other config does not have.
        if !Record::read(&record)?.has_list() {
            return None;
        }
        let mut ask = git::git(&folder.join(".git"));
        let commit = check(ask.args(["rev-parse", "--verify", "HEAD"]), b"").await.ok()?.text();
        Some(Self { folder, record, commit, _lock: lock })
    }

    /// Makes a worktree of it in a folder that does not exist, with the record.
    ///
    /// # Errors
    /// An `infra` fault where that does not come out whole.
    pub(super) async fn plant(
        &self,
        source: &Source,
        folder: &Path,
        record: &Path,
        store: &Store,
        events: &Events,
    ) -> Result<(), Fault> {
        let failed =
            |error: std::io::Error| Fault::io(format!("copy {}", self.folder.display()), &error);
        let lock = store.lock("worktrees", &source.key, events).await?;
        git::add_empty_worktree(&source.git_dir, folder, &self.commit).await?;
        drop(lock);
        let entries = std::fs::read_dir(&self.folder).map_err(failed)?;
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let entries = entries.iter().filter(|entry| entry.file_name() != ".git");
        let mut copy = command("cp");
        copy.args(["--archive", "--reflink=auto", "--target-directory"]).arg(folder).arg("--");
        check(copy.args(entries.map(std::fs::DirEntry::path)), b"").await?;
        // git reads every file before it takes one for the commit's; where a build has
        // changed one, it says so and fails.
        let git = || {
            let mut git = git::git(&folder.join(".git"));
            git.arg("--work-tree").arg(folder).current_dir(folder);
            git
        };
        check(git().args(["read-tree", "HEAD"]), b"").await?;
        check(git().args(["update-index", "--refresh"]), b"").await?;
        std::fs::copy(&self.record, record).map_err(failed)?;
        // The new config begins with its base, and with nothing of the other one.
        crate::store::remove(&folder.join(".config"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configs_are_as_far_apart_as_they_have_different_lines() {
        let kin = |config: &str| Kin { family: String::new(), config: config.to_owned() };
        let small = "# why\nCONFIG_A=y\n# CONFIG_B is not set\n";
        assert_eq!(kin(small).distance(small), 0);
        assert_eq!(kin(small).distance("CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\n"), 1);
        assert_eq!(kin(small).distance("CONFIG_B=y\n"), 3);
    }
}
