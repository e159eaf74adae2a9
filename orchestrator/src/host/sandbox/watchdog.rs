// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops a build that takes the host: processes without end, all memory, a full
//! disk. What is asked often is cheap and counts everybody; only when that is high
//! is it found out whose it is.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::host::budget::kib_field;

/// How often a running build is looked at: processes that double come to thousands
/// in a tenth of a second.
pub const POLL: Duration = Duration::from_millis(20);
/// Memory and disk fill more slowly, and cost more to look at.
const POLLS_PER_HOST: u32 = 10;
/// Processes that a build may have at least; a job of `make` has about five.
const PROCESSES: u64 = 4096;
/// Processes for each job, several times what the kernel's build takes.
const PROCESSES_PER_JOB: u64 = 32;
/// Free space that a build leaves, or an eighth of what there was if that is less.
const FREE_BYTES: u64 = 512 << 20;
/// Memory that a build may have however little is free: a link of everything with
/// debugging information takes less.
const MEMORY_BYTES: u64 = 4 << 30;
/// Deepest folder that is looked into.
const MAX_DEPTH: usize = 64;

/// What a build may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Processes at once.
    pub processes: u64,
    /// Bytes of memory of all of them.
    pub memory: u64,
    /// Bytes written to the tree by one command.
    pub disk: u64,
}

/// Watches the commands of a session.
#[derive(Debug)]
pub struct Watchdog {
    tree: PathBuf,
    limits: Limits,
    host: Host,
    began: SystemTime,
    polls: u32,
    stopped: Option<String>,
}

/// What the whole host has.
#[derive(Debug, Clone, Copy, Default)]
struct Host {
    /// Processes and threads of everybody.
    tasks: u64,
    /// Bytes that could be allocated.
    memory: u64,
    /// Bytes and files that could be written where the tree is.
    disk: u64,
    files: u64,
}

impl Host {
    fn look(tree: &Path) -> Self {
        let space = rustix::fs::statvfs(tree).ok();
        Self {
            tasks: tasks().unwrap_or_default(),
            memory: available_memory().unwrap_or(u64::MAX),
            disk: space.as_ref().map_or(u64::MAX, |space| space.f_bavail * space.f_frsize),
            files: space.map_or(u64::MAX, |space| match space.f_files {
                // A file system without a table of files.
                0 => u64::MAX,
                _ => space.f_favail,
            }),
        }
    }
}

impl Watchdog {
    /// For builds in `tree` with so many parallel jobs.
    #[must_use]
    pub fn new(tree: &Path, jobs: usize) -> Self {
        let host = Host::look(tree);
        let limits = Limits {
            processes: PROCESSES.max(PROCESSES_PER_JOB * jobs as u64),
            // What a build of a distribution's kernel takes depends on the host, so
            // these leave others a part of what there is.
            memory: (host.memory / 4 * 3).max(MEMORY_BYTES),
            disk: host.disk / 2,
        };
        Self {
            tree: tree.to_owned(),
            limits,
            host,
            began: SystemTime::now(),
            polls: 0,
            stopped: None,
        }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// A command starts.
    pub fn start(&mut self) {
        self.host = Host::look(&self.tree);
        self.began = SystemTime::now();
    }

    /// Whether the process group of `leader` must be stopped.
    pub fn must_stop(&mut self, leader: u32) -> bool {
        if self.stopped.is_none() {
            self.stopped = self.reason(leader);
        }
        self.stopped.is_some()
    }

    /// Why the build was stopped.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    fn reason(&mut self, leader: u32) -> Option<String> {
        let limits = &self.limits;
        let tasks = tasks().unwrap_or_default();
        if tasks.saturating_sub(self.host.tasks) > limits.processes / 2 {
            let count = family(leader).len() as u64;
            if count > limits.processes / 2 {
                return Some(format!("ran {count} processes at once, stopped"));
            }
        }
        self.polls += 1;
        if !self.polls.is_multiple_of(POLLS_PER_HOST) {
            return None;
        }
        let now = Host::look(&self.tree);
        if self.host.memory.saturating_sub(now.memory) > limits.memory {
            let bytes: u64 = family(leader).iter().map(|&pid| resident(pid)).sum();
            if bytes > limits.memory / 2 {
                return Some(format!("took {} of memory, stopped", shown(bytes)));
            }
        }
        let full = now.disk < FREE_BYTES.min(self.host.disk / 8);
        let wrote = self.host.disk.saturating_sub(now.disk) > limits.disk || full;
        let files = self.host.files.saturating_sub(now.files) > self.host.files / 2;
        if wrote || files {
            let since = self.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let (bytes, count) = written(&self.tree, since.cast_signed(), 0);
            if bytes > limits.disk / 2 || count > self.host.files / 4 {
                let what = format!("wrote {} in {count} files to the tree", shown(bytes));
                return Some(format!("{what}, stopped before the disk is full"));
            }
        }
        None
    }
}

fn shown(bytes: u64) -> bytesize::Display {
    bytesize::ByteSize(bytes).display().iec()
}

/// Bytes that could be allocated without swapping.
fn available_memory() -> Option<u64> {
    kib_field(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Tasks of the host: `0.52 0.58 0.59 3/411 12345`, the number after the slash.
fn tasks() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split('/').nth(1)?.parse().ok()
}

/// Process ids of `leader` and all that descend from it. Those whose parent died
/// are their sandbox's first process's children.
fn family(leader: u32) -> Vec<u32> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The command's name is in parentheses and may hold anything.
        let stat = std::fs::read(entry.path().join("stat")).unwrap_or_default();
        let after = stat.iter().rposition(|&byte| byte == b')').map_or(0, |at| at + 1);
        let rest = String::from_utf8_lossy(&stat[after..]).into_owned();
        if let Some(parent) = rest.split_whitespace().nth(1).and_then(|word| word.parse().ok()) {
            parents.push((pid, parent));
        }
    }
    parents.sort_unstable_by_key(|&(_, parent)| parent);
    let mut found = vec![leader];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let first = parents.partition_point(|&(_, of)| of < parent);
        found.extend(parents[first..].iter().take_while(|&&(_, of)| of == parent).map(|&(p, _)| p));
        next += 1;
    }
    found
}

/// Resident bytes of a process: the second number of its `statm`, in pages.
fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Bytes and number of the files below a folder that changed since `since`, in
/// seconds of Unix time. Their programs can set the time of the last write, but not
/// that of the last change.
fn written(folder: &Path, since: i64, depth: usize) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let mut sum = (0, 0);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        // Not followed where it is a link.
        let Ok(data) = entry.metadata() else {
            continue;
        };
        if data.is_dir() && depth < MAX_DEPTH {
            let (bytes, count) = written(&entry.path(), since, depth + 1);
            sum = (sum.0 + bytes, sum.1 + count);
        } else if data.ctime() >= since {
            sum = (sum.0 + data.blocks() * 512, sum.1 + 1);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::{Group, command};

    #[tokio::test]
    async fn grandchildren_are_of_the_family() {
        let mut group = Group::spawn(command("sh").args(["-c", "sleep 986 & wait"])).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(family(group.id().unwrap()).len(), 2);
        group.kill().await;
    }

    #[test]
    fn what_is_young_is_counted_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("other"), vec![1; 100_000]).unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        std::fs::write(folder.path().join("below/new"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
        let (bytes, count) = written(folder.path(), 0, 0);
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(count, 2);
        assert_eq!(written(folder.path(), i64::MAX, 0), (0, 0));
    }

    #[test]
    fn a_small_tree_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut watchdog = Watchdog::new(folder.path(), 2);
        watchdog.start();
        assert!(!watchdog.must_stop(std::process::id()));
    }
}
