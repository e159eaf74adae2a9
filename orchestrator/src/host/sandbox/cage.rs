// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups for builds of root, whose processes no resource limit counts
//! (kernel/fork.c, copy_process: `p->real_cred->user != INIT_USER`). Everybody
//! else's are limited without one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::watchdog::Limits;

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// How often, and how many times, a group is tried to be removed: it can be when its
/// last process is gone.
const REMOVE: (Duration, u32) = (Duration::from_millis(10), 50);

/// The groups of one session, removed when dropped.
#[derive(Debug, Default)]
pub(super) struct Cage {
    folders: Vec<PathBuf>,
}

impl Cage {
    /// Groups with these limits, as far as the host has any; none for other users.
    pub(super) fn new(limits: Limits) -> Self {
        let mut cage = Self::default();
        if rustix::process::geteuid().is_root() {
            cage.make(Path::new(MOUNT), limits);
        }
        cage
    }

    fn make(&mut self, mount: &Path, limits: Limits) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kvet-{}-{number}", std::process::id());
        let (processes, memory) = (limits.processes.to_string(), limits.memory.to_string());
        // Version 2 has one tree for all controllers, version 1 a tree for each.
        let unified = std::fs::read_to_string(mount.join("cgroup.controllers"))
            .is_ok_and(|controllers| controllers.split_whitespace().any(|word| word == "pids"));
        let wanted: &[(&str, &[(&str, &str)])] = if unified {
            &[("", &[("pids.max", &processes), ("memory.max", &memory)])]
        } else {
            &[
                ("pids", &[("pids.max", &processes)]),
                ("memory", &[("memory.limit_in_bytes", &memory)]),
            ]
        };
        for (tree, settings) in wanted {
            let tree = mount.join(tree);
            sweep(&tree);
            let folder = tree.join(&name);
            if std::fs::create_dir(&folder).is_err() {
                continue;
            }
            let set = |(file, value): &(&str, &str)| std::fs::write(folder.join(file), value);
            let limited = settings.iter().map(set).filter(Result::is_ok).count() > 0;
            if limited && folder.join("cgroup.procs").exists() {
                self.folders.push(folder);
            } else {
                let _ = std::fs::remove_dir(&folder);
            }
        }
    }

    /// Whether a process was refused because there were as many as there may be
    /// (Documentation/admin-guide/cgroup-v2.rst, `pids.events`; version 1 has it, too).
    pub(super) fn was_full(&self) -> bool {
        self.folders.iter().any(|folder| {
            let events = std::fs::read_to_string(folder.join("pids.events")).unwrap_or_default();
            let refused = events.lines().find_map(|line| line.strip_prefix("max "));
            refused.is_some_and(|count| count.trim() != "0")
        })
    }

    /// Words before a command that make it start inside; and a host short of memory
    /// ends a build before anything of the user's.
    pub(super) fn entrance(&self) -> Vec<OsString> {
        let script = "echo 500 >/proc/self/oom_score_adj; while [ \"$1\" != -- ]; do echo $$ >\"$1/cgroup.procs\" || exit; shift; done; shift; exec \"$@\"";
        let mut words: Vec<OsString> = ["/bin/sh", "-c", script, "sh"].map(OsString::from).into();
        words.extend(self.folders.iter().map(|folder| folder.clone().into_os_string()));
        words.push("--".into());
        words
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        for folder in &self.folders {
            for _ in 0..REMOVE.1 {
                if std::fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(REMOVE.0);
            }
        }
    }
}

/// Removes the groups of kvets that are gone.
fn sweep(tree: &Path) {
    for entry in std::fs::read_dir(tree).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix("kvet-")?.split_once('-'));
        let gone = |(process, _): (&str, &str)| !Path::new("/proc").join(process).exists();
        if process.is_some_and(gone) {
            // Only an empty one goes.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { processes: 10, memory: 1 << 30, disk: 0 };

    #[test]
    fn a_host_without_control_groups_has_no_cage() {
        let folder = tempfile::tempdir().unwrap();
        let mut cage = Cage::default();
        cage.make(folder.path(), LIMITS);
        assert!(cage.folders.is_empty());
    }

    #[test]
    fn groups_of_the_dead_are_removed_and_those_of_the_living_stay() {
        let folder = tempfile::tempdir().unwrap();
        let group = |name: &str| folder.path().join(name);
        let mine = format!("kvet-{}-0", std::process::id());
        for name in ["kvet-4194305-0", mine.as_str(), "other"] {
            std::fs::create_dir(group(name)).unwrap();
        }
        sweep(folder.path());
        assert!(!group("kvet-4194305-0").exists());
        assert!(group(&mine).exists() && group("other").exists());
    }

    #[test]
    fn what_starts_in_a_cage_cannot_have_more_processes() {
        let cage = Cage::new(LIMITS);
        let words = cage.entrance();
        if cage.folders.is_empty() {
            println!("not run: only root needs control groups, and some hosts have none");
            return;
        }
        let mut command = std::process::Command::new(&words[0]);
        command.args(&words[1..]).args([
            "sh",
            "-c",
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.2 & done; wait",
        ]);
        let output = command.output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("fork"), "{output:?}");
        assert!(cage.was_full());
        let folders = cage.folders.clone();
        drop(cage);
        assert!(folders.iter().all(|folder| !folder.exists()));
    }
}
