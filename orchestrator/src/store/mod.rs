// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache folder: unpacked sources, build trees and images by content.
//!
//! An entry appears by one rename, so that it is whole or not there. Whoever
//! makes one holds its lock; a lock belongs to an open file, so that it ends
//! with its process, however that ends.

pub mod clean;
pub mod estimate;

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::fault::Fault;
use crate::run::event::{Events, RunEvent};

/// The folders of the cache.
const PARTS: [&str; 12] = [
    "applied",
    "ccache",
    "estimates",
    "images",
    "initramfs",
    "kselftests",
    "locks",
    "probes",
    "scratch",
    "sources",
    "states",
    "trees",
];
/// What the names of scratch folders begin with.
const SCRATCH: &str = "kvet-";
/// Says that a folder is a cache, and whose (the Cache Directory Tagging Specification).
const TAG: &str = "CACHEDIR.TAG";
const TAG_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# The cache of kvet; `kvet clean` makes it smaller.\n";
/// How often a held lock is tried again.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// The cache folder.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    /// Shared by all that use the store; whoever cleans it has it alone.
    in_use: Arc<File>,
}

/// A lock on one entry of the store, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// A folder for unfinished work inside the store, removed when dropped; one
/// that a killed kvet left behind is removed by the next.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Scratch {
    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Store {
    /// Opens the store, makes its folders, and clears what a killed kvet left.
    ///
    /// # Errors
    /// An `infra` fault when the folder cannot be used.
    pub fn open(root: &Path) -> Result<Self, Fault> {
        let root = std::path::absolute(root)
            .map_err(|error| Fault::io("find the cache folder", &error))?;
        mark(&root)?;
        for part in PARTS {
            let folder = root.join(part);
            std::fs::create_dir_all(&folder).map_err(|error| {
                Fault::io(format!("make the cache folder {}", folder.display()), &error)
                    .help("check the path that --cache-dir gives")
            })?;
        }
        let path = root.join("locks/in-use");
        let in_use = File::create(&path)
            .and_then(|file| file.lock_shared().map(|()| file))
            .map_err(|error| {
                Fault::io(format!("lock {}", path.display()), &error)
                    .help("a cache is written to: give --cache-dir a folder where kvet may")
            })?;
        let store = Self { root, in_use: Arc::new(in_use) };
        store.sweep();
        Ok(store)
    }

    /// A path inside the store. `name` is a key or a validated name.
    #[must_use]
    pub fn path(&self, part: &str, name: &str) -> PathBuf {
        debug_assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
        self.root.join(part).join(name)
    }

    /// Takes the lock of an entry; says so when another kvet holds it.
    ///
    /// # Errors
    /// An `infra` fault when the lock file cannot be made.
    pub async fn lock(&self, part: &str, name: &str, events: &Events) -> Result<Lock, Fault> {
        let path = self.root.join("locks").join(format!("{part}-{name}"));
        let failed = |error: &io::Error| Fault::io(format!("lock {}", path.display()), error);
        let file = File::create(&path).map_err(|error| failed(&error))?;
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
                Err(TryLockError::WouldBlock) => {
                    if !said {
                        let what = format!("{part}/{name}, which is being made already");
                        events.send(&RunEvent::Waiting { what });
                        said = true;
                    }
                    tokio::time::sleep(LOCK_POLL).await;
                }
            }
        }
    }

    /// Takes the lock of an entry if nobody holds it.
    #[must_use]
    pub fn try_lock(&self, part: &str, name: &str) -> Option<Lock> {
        let file = File::create(self.root.join("locks").join(format!("{part}-{name}"))).ok()?;
        file.try_lock().ok()?;
        Some(Lock { _file: file })
    }

    /// A fresh folder for unfinished work, on the store's file system so that
    /// what is in it can be renamed into place.
    ///
    /// # Errors
    /// An `infra` fault when it cannot be made.
    pub fn scratch(&self) -> Result<Scratch, Fault> {
        let parent = self.root.join("scratch");
        let make = || -> io::Result<Scratch> {
            // Sweepers take this lock alone: a folder that is made but not yet
            // locked must not look abandoned to them.
            let guard = File::create(self.root.join("locks/scratch"))?;
            guard.lock_shared()?;
            let folder = tempfile::Builder::new().prefix(SCRATCH).tempdir_in(&parent)?;
            let lock = File::open(folder.path())?;
            lock.lock()?;
            Ok(Scratch { folder, _lock: lock })
        };
        make().map_err(|error| Fault::io(format!("make a folder in {}", parent.display()), &error))
    }

    /// Renames a finished folder or file into place; keeps the one that is
    /// there when another process was first.
    ///
    /// # Errors
    /// An `infra` fault when the rename fails.
    pub fn publish(&self, finished: &Path, part: &str, name: &str) -> Result<PathBuf, Fault> {
        let place = self.path(part, name);
        match std::fs::rename(finished, &place) {
            Err(error) if !place.exists() => {
                Err(Fault::io(format!("move a finished entry to {}", place.display()), &error))
            }
            _ => Ok(place),
        }
    }

    /// Removes scratch folders whose process is gone.
    fn sweep(&self) {
        let Ok(guard) = File::create(self.root.join("locks/scratch")) else {
            return;
        };
        if guard.try_lock().is_err() {
            return;
        }
        for entry in std::fs::read_dir(self.root.join("scratch")).into_iter().flatten().flatten() {
            let path = entry.path();
            if !entry.file_name().to_string_lossy().starts_with(SCRATCH) {
                continue;
            }
            if File::open(&path).is_ok_and(|folder| folder.try_lock().is_ok()) {
                let _ = std::fs::remove_dir_all(&path);
            }
        }
    }
}

/// Marks a folder as a cache of kvet's, unless it is somebody's who has other things in
/// it: what is here may be removed at any time.
fn mark(root: &Path) -> Result<(), Fault> {
    if root.to_str().is_none() {
        return Err(Fault::plan("the name of the cache folder is not UTF-8")
            .at(root.display())
            .help("give --cache-dir another folder"));
    }
    std::fs::create_dir_all(root).map_err(|error| {
        Fault::io(format!("make the cache folder {}", root.display()), &error)
            .help("check the path that --cache-dir gives")
    })?;
    let tag = root.join(TAG);
    if std::fs::read_to_string(&tag).is_ok_and(|text| text == TAG_TEXT) {
        return Ok(());
    }
    // Caches had no mark once, but they have had this lock from the beginning.
    let ours = root.join("locks/scratch").is_file();
    // Tests and users may have parts elsewhere, by links.
    let known = |name: &str| PARTS.contains(&name) || name == TAG;
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let links = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
    // Another kvet marks it now, or was killed while it did.
    let begun = |entry: &std::fs::DirEntry| {
        let begins = entry.file_name().to_str().is_some_and(|name| name.starts_with(".tmp"));
        let short =
            |data: &std::fs::Metadata| data.is_file() && data.len() <= TAG_TEXT.len() as u64;
        begins
            && match entry.metadata() {
                Ok(data) if !short(&data) => false,
                Ok(_) | Err(_) => match std::fs::read(entry.path()) {
                    Ok(text) => TAG_TEXT.as_bytes().starts_with(&text),
                    // It has got its name meanwhile.
                    Err(error) => error.kind() == std::io::ErrorKind::NotFound,
                },
            }
    };
    // Where a user has no runtime folder, what his kvets share is here before any cache.
    let shared = |entry: &std::fs::DirEntry| {
        entry.file_name() == crate::host::budget::FALLBACK
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let empty = entries.into_iter().all(|entry| {
        begun(&entry)
            || shared(&entry)
            || (links(&entry) && entry.file_name().to_str().is_some_and(known))
    });
    if !ours && !empty {
        return Err(Fault::plan("not a cache folder of kvet's, and not empty")
            .at(root.display())
            .help("name a new or an empty folder with --cache-dir: kvet removes what it finds in its cache"));
    }
    write_atomically(&tag, TAG_TEXT.as_bytes())
}

/// Removes a file or a folder, also one whose folders a build has locked; nothing
/// happens where there is none.
///
/// # Errors
/// An `infra` fault when something stays.
pub fn remove(path: &Path) -> Result<(), Fault> {
    let Ok(data) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    let removed = if data.is_dir() {
        std::fs::remove_dir_all(path).or_else(|_| {
            unlock(path);
            std::fs::remove_dir_all(path)
        })
    } else {
        std::fs::remove_file(path)
    };
    removed.map_err(|error| Fault::io(format!("remove {}", path.display()), &error))
}

/// Gives the owner all rights to the folders below one.
fn unlock(folder: &Path) {
    let _ = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path());
        }
    }
}

/// Writes a file whole or not at all.
///
/// # Errors
/// An `infra` fault with the path.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    let write = || -> io::Result<()> {
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        // As other programs make files: the umask decides who may read them.
        let mode = std::fs::Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
        std::fs::write(file.path(), bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| Fault::io(format!("write {}", path.display()), &error))
}

/// Notes that an entry was used now: what was not used for longest goes first when
/// the store is cleaned.
pub fn touch(path: &Path) {
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Hash of several parts; unlike a hash of their concatenation, no two lists of
/// parts share an input. 32 hexadecimal digits.
#[must_use]
pub fn key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_where_parts_end() {
        assert_ne!(key([&b"ab"[..], b"c"]), key([&b"a"[..], b"bc"]));
        assert_eq!(key([&b"ab"[..]]).len(), 32);
    }

    #[test]
    fn a_mark_that_somebody_has_begun_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".tmpAbCdEf"), "Signature: 8a4").unwrap();
        mark(folder.path()).unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join(".tmpAbCdEf"), "my notes").unwrap();
        assert!(mark(other.path()).is_err());
    }

    #[test]
    fn a_folder_with_nothing_but_the_users_claims_becomes_a_cache() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("budget")).unwrap();
        std::fs::write(folder.path().join("budget/lock"), "").unwrap();
        Store::open(folder.path()).unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("budget"), "1000 for the kitchen").unwrap();
        assert!(Store::open(other.path()).is_err());
    }

    #[test]
    fn somebodys_folder_is_not_taken_for_a_cache() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("images")).unwrap();
        std::fs::write(folder.path().join("images/holiday"), "").unwrap();
        let fault = Store::open(folder.path()).unwrap_err();
        assert!(fault.what.contains("not a cache folder"), "{fault}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let own = folder.path().join("own");
        Store::open(&own).unwrap();
        Store::open(&own).unwrap();
    }

    #[test]
    fn what_a_build_has_locked_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let locked = folder.path().join("a/b/c");
        std::fs::create_dir_all(&locked).unwrap();
        for path in ["a/b/c", "a/b", "a"] {
            let mode = std::fs::Permissions::from_mode(0o000);
            std::fs::set_permissions(folder.path().join(path), mode).unwrap();
        }
        remove(&folder.path().join("a")).unwrap();
        assert!(!folder.path().join("a").exists());
        remove(&folder.path().join("a")).unwrap();
    }

    #[test]
    fn abandoned_scratch_folders_are_removed_and_live_ones_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let live = store.scratch().unwrap();
        let abandoned = folder.path().join("scratch/kvet-dead");
        std::fs::create_dir(&abandoned).unwrap();
        Store::open(folder.path()).unwrap();
        assert!(live.path().is_dir());
        assert!(!abandoned.exists());
    }

    #[tokio::test]
    async fn a_held_lock_is_waited_for_and_the_wait_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let events = Events::default();
        let held = store.lock("images", "k", &events).await.unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        events.subscribe(move |event| sender.send(event.clone()).unwrap());
        let waiting = store.lock("images", "k", &events);
        assert!(tokio::time::timeout(Duration::from_millis(250), waiting).await.is_err());
        assert!(matches!(receiver.try_recv(), Ok(RunEvent::Waiting { .. })));
        drop(held);
        store.lock("images", "k", &events).await.unwrap();
    }
}
