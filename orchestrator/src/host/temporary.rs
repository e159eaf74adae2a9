// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders for short work outside of the cache, in the system's temporary folder.
//! One that a killed kvet left is removed by the next that needs one.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How folders of kvet's are called there, up to a random part.
const PREFIX: &str = "kvet-temporary-";
/// Time in which a folder that was made is locked, many times over.
const LOCKED_WITHIN: Duration = Duration::from_secs(60);

/// A folder, locked while it is in use and removed when it is dropped.
#[derive(Debug)]
pub struct Temporary {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Temporary {
    /// A fresh, empty folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new() -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        sweep(parent, LOCKED_WITHIN);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::open(folder.path())?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes this user's folders that nobody has locked and that are older than `age`.
fn sweep(parent: &Path, age: Duration) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Of the entry itself: anybody may have put a link there.
        let Ok(data) = entry.metadata() else { continue };
        let made = data.modified().unwrap_or_else(|_| SystemTime::now());
        let old = made.elapsed().is_ok_and(|since| since >= age);
        if !data.is_dir() || data.uid() != own || !old {
            continue;
        }
        if File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_goes_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let live = Temporary::new_in(parent.path()).unwrap();
        let place = |name: &str| parent.path().join(name);
        let (dead, other) = (format!("{PREFIX}dead"), "another-programs");
        for name in [&dead, other] {
            std::fs::create_dir(place(name)).unwrap();
            std::fs::write(place(name).join("file"), "x").unwrap();
        }
        let link = format!("{PREFIX}link");
        std::os::unix::fs::symlink(place(other), place(&link)).unwrap();
        // A folder that was made just now may not be locked yet.
        sweep(parent.path(), LOCKED_WITHIN);
        assert!(place(&dead).exists());
        sweep(parent.path(), Duration::ZERO);
        assert!(!place(&dead).exists());
        assert!(live.path().is_dir() && place(other).join("file").exists());
        assert!(place(&link).is_symlink());
    }
}
