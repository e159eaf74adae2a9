// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends all children at once, for a kvet that leaves before they have ended in
//! their own way. What the kernel does when kvet dies reaches a child, but not what
//! that child has started: a compiler below `make`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Time between two looks at processes that were killed.
const LOOK: Duration = Duration::from_millis(2);

/// A process, as /proc/PID/stat has it.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    /// It has ended and is waited for by its parent.
    ended: bool,
}

/// Kills this process' children with their process groups, and waits until they are
/// gone, but not longer than `patience`. A program that left its group and is no
/// child stays.
pub fn end_all(patience: Duration) {
    let deadline = Instant::now() + patience;
    let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    let mut groups = BTreeSet::new();
    loop {
        let processes = processes();
        let own_group = processes.iter().find(|process| process.pid == own).map(|own| own.group);
        for process in processes.iter().filter(|process| process.parent == own) {
            if Some(process.group) == own_group {
                // On its way into a group of its own.
                if let Some(pid) = Pid::from_raw(process.pid).filter(|_| !process.ended) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            } else {
                groups.insert(process.group);
            }
        }
        for group in groups.iter().filter_map(|&group| Pid::from_raw(group)) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let left = processes.iter().any(|process| {
            !process.ended && (process.parent == own || groups.contains(&process.group))
        });
        if !left || Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .filter_map(|entry| std::fs::read(entry.path().join("stat")).ok())
        .filter_map(|text| parse(&String::from_utf8_lossy(&text)))
        .collect()
}

/// Reads `PID (NAME) STATE PARENT GROUP ...`; a name may hold anything.
fn parse(stat: &str) -> Option<Process> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let pid = head.split_once(" (")?.0.parse().ok()?;
    let mut fields = rest.split(' ');
    let ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    Some(Process { pid, parent, group: fields.next()?.parse().ok()?, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "12 (a) b) Z (c) S 3 4 5 0 -1";
        assert_eq!(parse(stat), Some(Process { pid: 12, parent: 3, group: 4, ended: false }));
        assert!(parse("12 (x) Z 3 4 5").unwrap().ended);
        assert_eq!(parse("12 (x"), None);
    }
}
