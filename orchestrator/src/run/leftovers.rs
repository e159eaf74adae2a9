// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a killed kvet leaves in the cache, among the runs and beside snapshots, and
//! that nobody removes on his way. Only what no living kvet can be at work on goes:
//! its lock is free, or it is older than anybody is at work on such a thing.

use std::fs::{DirEntry, File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// A file that is written whole or not at all is renamed within seconds.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60 * 60);
/// A run's folder is locked and told its intent right after it was made; git's writing
/// of a pack does not pause for as long.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// Removes what killed kvets left in a cache: files that were not renamed, and what
/// git was writing in kvet's own repositories.
pub fn sweep_cache(cache: &Path) {
    for part in ["applied", "initramfs", "probes", "trees"] {
        remove(&cache.join(part), WRITTEN_WITHIN, is_unfinished);
    }
    for source in entries(&cache.join("sources")) {
        let name = source.file_name().to_string_lossy().into_owned();
        let objects = source.path().join("git/objects");
        // Whoever writes packs holds the source's lock.
        let Some(_lock) = lock(&cache.join("locks").join(format!("sources-{name}"))) else {
            continue;
        };
        remove(&objects.join("pack"), STARTED_WITHIN, |name| {
            name.starts_with("tmp_") || name.starts_with(".tmp-")
        });
        // Patches are applied without that lock, one small object at a time.
        for folder in entries(&objects).filter(|entry| entry.file_name().len() == 2) {
            remove(&folder.path(), WRITTEN_WITHIN, |name| name.starts_with("tmp_obj_"));
        }
    }
}

/// Removes what killed kvets left in a folder of runs: links that were not renamed,
/// and runs that had not got to say what they are about.
pub fn sweep_runs(runs: &Path) {
    remove(runs, STARTED_WITHIN, |name| name.starts_with(".latest-"));
    for run in entries(runs).filter(|entry| is_old(entry, STARTED_WITHIN)) {
        let empty = entries(&run.path()).all(|entry| entry.file_name() == "lock");
        let is_run = run.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit());
        if !is_run || !empty || !run.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let file = run.path().join("lock");
        if !file.exists() || lock(&file).is_some() {
            let _ = std::fs::remove_file(file);
            // Never what somebody has put there meanwhile.
            let _ = std::fs::remove_dir(run.path());
        }
    }
}

/// Removes the files that were not renamed in a run whose lock the caller holds.
pub fn sweep_run(run: &Path) {
    remove(run, Duration::ZERO, is_unfinished);
    for entry in entries(run) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sweep_run(&entry.path());
        }
    }
}

/// Removes the files that were not renamed in a folder of snapshots.
pub fn sweep_snapshots(folder: &Path) {
    remove(folder, WRITTEN_WITHIN, is_unfinished);
}

/// Whether `store::write_atomically` names its files like this before they are whole:
/// `.tmp` and six letters or digits.
fn is_unfinished(name: &str) -> bool {
    name.strip_prefix(".tmp").is_some_and(|rest| {
        rest.len() == 6 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Removes the files and links of a folder with such names that are older than `age`.
fn remove(folder: &Path, age: Duration, named: impl Fn(&str) -> bool) {
    for entry in entries(folder) {
        let name = entry.file_name();
        let file = entry.file_type().is_ok_and(|kind| !kind.is_dir());
        if file && name.to_str().is_some_and(&named) && is_old(&entry, age) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_old(entry: &DirEntry, age: Duration) -> bool {
    let modified = entry.metadata().and_then(|data| data.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|since| since >= age))
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

/// The lock in a file, if nobody holds it.
fn lock(path: &Path) -> Option<File> {
    let file = File::options().create(true).append(true).open(path).ok()?;
    match file.try_lock() {
        Ok(()) => Some(file),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn write(path: &Path, age_seconds: u64) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
        age(path, age_seconds);
    }

    fn age(path: &Path, seconds: u64) {
        let when = SystemTime::now() - Duration::from_secs(seconds);
        File::open(path).unwrap().set_modified(when).unwrap();
    }

    #[test]
    fn unfinished_files_go_once_nobody_can_be_writing_them() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path();
        let old = 2 * WRITTEN_WITHIN.as_secs();
        for (name, seconds, stays) in [
            ("applied/.tmpAb12Cd", old, false),
            ("applied/.tmpAb12Ce", 5, true),
            ("probes/.tmpnotes.json", old, true),
            ("initramfs/key.cpio", old, true),
        ] {
            write(&cache.join(name), seconds);
            sweep_cache(cache);
            assert_eq!(cache.join(name).exists(), stays, "{name}");
        }
    }

    #[test]
    fn what_git_left_goes_unless_its_source_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path();
        let objects = cache.join("sources/tiny/git/objects");
        std::fs::create_dir(cache.join("locks")).unwrap();
        let pack = objects.join("pack/tmp_pack_Ab12Cd");
        let (young, old) = (objects.join("ab/tmp_obj_young1"), objects.join("ab/tmp_obj_older1"));
        let whole = objects.join("pack/pack-1.pack");
        write(&pack, 2 * STARTED_WITHIN.as_secs());
        write(&whole, 2 * STARTED_WITHIN.as_secs());
        write(&young, 5);
        write(&old, 2 * WRITTEN_WITHIN.as_secs());
        let held = lock(&cache.join("locks/sources-tiny")).unwrap();
        sweep_cache(cache);
        assert!(pack.exists() && old.exists());
        drop(held);
        sweep_cache(cache);
        assert!(!pack.exists() && !old.exists());
        assert!(young.exists() && whole.exists());
    }

    #[test]
    fn runs_that_said_nothing_go_and_those_that_live_or_said_something_stay() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str| folder.path().join(name);
        for name in ["2026-01-01-dead", "2026-01-01-live", "2026-01-01-said", "notes", "2026-new"] {
            write(&run(name).join("lock"), 0);
        }
        write(&run("2026-01-01-said").join("intent.json"), 0);
        std::fs::create_dir(run("2026-01-01-bare")).unwrap();
        for name in ["dead", "live", "said", "bare"] {
            age(&run(&format!("2026-01-01-{name}")), 2 * STARTED_WITHIN.as_secs());
        }
        age(&run("notes"), 2 * STARTED_WITHIN.as_secs());
        let _live = lock(&run("2026-01-01-live").join("lock")).unwrap();
        sweep_runs(folder.path());
        assert!(!run("2026-01-01-dead").exists() && !run("2026-01-01-bare").exists());
        for name in ["2026-01-01-live", "2026-01-01-said", "notes", "2026-new"] {
            assert!(run(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_run_that_goes_on_loses_what_was_half_written_in_it() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("boots/cell/.tmpAb12Cd"), 0);
        write(&folder.path().join("boots/cell/boot.json"), 0);
        sweep_run(folder.path());
        assert!(!folder.path().join("boots/cell/.tmpAb12Cd").exists());
        assert!(folder.path().join("boots/cell/boot.json").exists());
    }
}
