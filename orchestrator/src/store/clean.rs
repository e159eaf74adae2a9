// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the store smaller: what was not used for longest goes first, and what a
//! killed kvet left goes always.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytesize::ByteSize;

use super::{LOCK_POLL, Store, remove};
use crate::fault::Fault;
use crate::run::event::{Events, RunEvent};

/// Parts whose entries can be had again, at the price of making them again.
const MADE: [&str; 8] =
    ["applied", "ccache", "images", "initramfs", "kselftests", "sources", "states", "trees"];

/// Something that goes or stays as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    part: &'static str,
    name: String,
    used: SystemTime,
    bytes: u64,
    /// The source that a tree belongs to, and cannot be without.
    source: Option<String>,
}

/// What is in the store, or went from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number and bytes of the entries of each part.
    pub parts: BTreeMap<&'static str, (usize, u64)>,
}

impl Tally {
    fn of<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut tally = Self::default();
        for entry in entries {
            let (count, bytes) = tally.parts.entry(entry.part).or_default();
            *count += 1;
            *bytes += entry.bytes;
        }
        tally
    }

    /// Bytes of everything.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.values().map(|(_, bytes)| bytes).sum()
    }
}

/// What cleaning did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// What went.
    pub removed: Tally,
    /// What stayed.
    pub kept: Tally,
}

impl Store {
    /// Waits until no other kvet uses the store, then removes entries until what is
    /// left has at most `keep` bytes; `dry` removes nothing.
    ///
    /// # Errors
    /// An `infra` fault when the lock fails.
    pub async fn clean(
        &self,
        keep: Option<u64>,
        dry: bool,
        events: &Events,
    ) -> Result<Cleaned, Fault> {
        let mut said = false;
        // Only looking needs nobody to wait.
        let alone = || if dry { Ok(()) } else { self.in_use.try_lock() };
        loop {
            match alone() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => {
                    return Err(Fault::io("lock the cache folder", &error));
                }
                Err(TryLockError::WouldBlock) => {
                    if !said {
                        let what = "other kvets that use this cache folder".to_owned();
                        events.send(&RunEvent::Waiting { what });
                        said = true;
                    }
                    tokio::time::sleep(LOCK_POLL).await;
                }
            }
        }
        if !dry {
            self.remove_leftovers();
        }
        let entries = self.entries();
        let (gone, kept) = split(entries, keep.unwrap_or(u64::MAX));
        let mut failed = Vec::new();
        if !dry {
            for entry in &gone {
                failed.extend(self.remove(entry).err());
            }
        }
        let _ = self.in_use.lock_shared();
        match failed.split_first() {
            None => Ok(Cleaned { removed: Tally::of(&gone), kept: Tally::of(&kept) }),
            Some((first, rest)) => {
                Err(rest.iter().fold(first.clone(), |fault, other| fault.evidence(&other.what)))
            }
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for part in MADE {
            for (name, path) in children(&self.root.join(part)) {
                // A tree's marks go with it.
                if part == "trees" && !path.is_dir() {
                    continue;
                }
                let Ok(data) = std::fs::symlink_metadata(&path) else {
                    continue;
                };
                let used = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let source = (part == "trees").then(|| source_of(&path)).flatten();
                entries.push(Entry { part, name, used, bytes: size(&path), source });
            }
        }
        entries
    }

    fn remove(&self, entry: &Entry) -> Result<(), Fault> {
        if entry.part == "trees" {
            for mark in ["building", "configured", "kin.json", "ready", "warnings.json"] {
                remove(&self.path("trees", &format!("{}.{mark}", entry.name)))?;
            }
        }
        remove(&self.path(entry.part, &entry.name))
    }

    /// What belongs to nothing: locks that nobody holds, trees whose making was cut
    /// short, packs that git did not finish. Nobody else uses the store now.
    fn remove_leftovers(&self) {
        for (name, path) in children(&self.root.join("locks")) {
            if name != "in-use" && name != "scratch" {
                let _ = remove(&path);
            }
        }
        for (name, path) in children(&self.root.join("trees")) {
            let tree = name.split('.').next().unwrap_or(&name);
            if !is_key(tree) {
                continue;
            }
            if !self.path("trees", &format!("{tree}.ready")).exists()
                || !self.path("trees", tree).is_dir()
            {
                let _ = remove(&path);
            }
        }
        for (_, source) in children(&self.root.join("sources")) {
            for (name, path) in children(&source.join("git/objects/pack")) {
                if name.starts_with("tmp_") {
                    let _ = remove(&path);
                }
            }
        }
        for part in MADE {
            for (name, path) in children(&self.root.join(part)) {
                // tempfile's own prefix, of files that are written atomically.
                if name.starts_with(".tmp") {
                    let _ = remove(&path);
                }
            }
        }
    }
}

/// Parts what goes from what stays: the least recently used go first, and a tree
/// goes with its source.
fn split(mut entries: Vec<Entry>, keep: u64) -> (Vec<Entry>, Vec<Entry>) {
    let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    entries.sort_by_key(|entry| entry.used);
    let (mut gone, mut kept): (Vec<Entry>, Vec<Entry>) = (Vec::new(), entries);
    while total > keep && !kept.is_empty() {
        let oldest = kept.remove(0);
        total -= oldest.bytes;
        if oldest.part == "sources" {
            let with = |entry: &Entry| entry.source.as_ref() == Some(&oldest.name);
            let (more, rest): (Vec<Entry>, Vec<Entry>) = kept.into_iter().partition(with);
            kept = rest;
            total -= more.iter().map(|entry| entry.bytes).sum::<u64>();
            gone.extend(more);
        }
        gone.push(oldest);
    }
    (gone, kept)
}

/// Whether a name is one of [`super::key`]'s.
fn is_key(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Key of the source whose repository a tree belongs to: its `.git` says
/// `gitdir: CACHE/sources/KEY/git/worktrees/NAME`.
fn source_of(tree: &Path) -> Option<String> {
    let link = std::fs::read_to_string(tree.join(".git")).ok()?;
    let mut parts = Path::new(link.trim_end().strip_prefix("gitdir: ")?).components().rev();
    parts.nth(3).map(|part| part.as_os_str().to_string_lossy().into_owned())
}

/// What is in a folder that is no link: a part of the cache may be one, and what it
/// leads to is not ours to clean.
fn children(folder: &Path) -> Vec<(String, PathBuf)> {
    if !std::fs::symlink_metadata(folder).is_ok_and(|data| data.is_dir()) {
        return Vec::new();
    }
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    found.sort();
    found
}

/// Bytes on the disk; links are not followed.
fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(data) = std::fs::symlink_metadata(path) else {
        return 0;
    };
    let own = data.blocks() * 512;
    if !data.is_dir() {
        return own;
    }
    own + children(path).iter().map(|(_, path)| size(path)).sum::<u64>()
}

/// What was done, for people.
#[must_use]
pub fn render(cleaned: &Cleaned, keep: Option<u64>, dry: bool) -> String {
    let shown = |bytes| ByteSize(bytes).display().si();
    let line = |tally: &Tally| -> String {
        let parts = tally.parts.iter().map(|(part, (count, bytes))| {
            format!("  {part:<12}{count:>6}  {:>10}\n", shown(*bytes).to_string())
        });
        parts.collect()
    };
    let mut text = String::new();
    if !cleaned.removed.parts.is_empty() {
        let verb = if dry { "would remove" } else { "removed" };
        text += &format!("{verb} {}\n{}", shown(cleaned.removed.bytes()), line(&cleaned.removed));
    }
    let verb = if dry { "would keep" } else { "kept" };
    let most = keep.map_or(String::new(), |keep| format!(" of at most {}", shown(keep)));
    text + &format!("{verb} {}{most}\n{}", shown(cleaned.kept.bytes()), line(&cleaned.kept))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(part: &'static str, name: &str, used: u64, source: Option<&str>) -> Entry {
        Entry {
            part,
            name: name.to_owned(),
            used: SystemTime::UNIX_EPOCH + Duration::from_secs(used),
            bytes: 100,
            source: source.map(str::to_owned),
        }
    }

    fn names(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn the_least_recently_used_go_first_and_trees_with_their_source() {
        let all = || {
            vec![
                entry("images", "i1", 5, None),
                entry("sources", "s1", 1, None),
                entry("trees", "t1", 9, Some("s1")),
                entry("images", "i2", 2, None),
                entry("trees", "t2", 8, Some("s2")),
            ]
        };
        let (gone, kept) = split(all(), 300);
        assert_eq!(names(&gone), ["t1", "s1"]);
        assert_eq!(names(&kept), ["i2", "i1", "t2"]);
        assert_eq!(split(all(), 500).0, []);
        assert_eq!(split(all(), 0).1, []);
    }

    #[tokio::test]
    async fn leftovers_go_and_what_is_used_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let store = Store::open(root).unwrap();
        let tree = |digit: &str, rest: &str| format!("trees/{}{rest}", digit.repeat(32));
        std::fs::create_dir(root.join(tree("a", ""))).unwrap();
        std::fs::write(root.join(tree("a", ".ready")), "").unwrap();
        std::fs::create_dir(root.join(tree("b", ""))).unwrap();
        std::fs::write(root.join(tree("b", ".building")), "").unwrap();
        std::fs::create_dir(root.join("trees/oak")).unwrap();
        std::fs::write(root.join("locks/images-1"), "").unwrap();
        std::fs::create_dir_all(root.join("sources/s/git/objects/pack")).unwrap();
        std::fs::write(root.join("sources/s/git/objects/pack/tmp_pack_1"), "").unwrap();
        let events = Events::default();
        let other = Store::open(root).unwrap();
        let waiting = store.clean(None, false, &events);
        assert!(tokio::time::timeout(Duration::from_millis(250), waiting).await.is_err());
        drop(other);
        let cleaned = store.clean(None, false, &events).await.unwrap();
        assert_eq!(cleaned.removed, Tally::default());
        let there = |name: &str| root.join(name).exists();
        assert!(there(&tree("a", "")) && there(&tree("a", ".ready")) && there("trees/oak"));
        assert!(!there(&tree("b", "")) && !there(&tree("b", ".building")));
        assert!(!there("locks/images-1") && there("locks/in-use"));
        assert!(!there("sources/s/git/objects/pack/tmp_pack_1"));
        let cleaned = store.clean(Some(0), true, &events).await.unwrap();
        assert_eq!(cleaned.kept, Tally::default());
        assert!(there(&tree("a", "")));
        store.clean(Some(0), false, &events).await.unwrap();
        assert!(!there(&tree("a", "")) && !there(&tree("a", ".ready")) && !there("sources/s"));
        // It can be used again.
        Store::open(root).unwrap();
    }
}
