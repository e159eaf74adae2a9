// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says in /proc.

use std::fs;
use std::ops::Range;

use super::{Stop, TestResult, Why};

/// Two lines of /proc/PID/status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Letter of the state, such as `S` for an interruptible sleep.
    pub state: char,
    /// How often the task has gone to sleep.
    pub voluntary_switches: u64,
}

impl Status {
    /// Reads /proc/`pid`/status.
    ///
    /// # Errors
    /// There is no such process, or a line is missing.
    pub fn read(pid: u32) -> TestResult<Self> {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).why(format_args!("read {path}"))?;
        Self::parse(&text).why(format_args!("{path} lacks State or voluntary_ctxt_switches"))
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self {
            state: field(text, "State:")?.chars().next()?,
            voluntary_switches: field(text, "voluntary_ctxt_switches:")?.parse().ok()?,
        })
    }
}

/// Whether process `pid` may have huge pages, as /proc/PID/status says; `None` if
/// it does not say, as kernels before 5.0.
///
/// # Errors
/// There is no such process.
pub fn thp_enabled(pid: u32) -> TestResult<Option<bool>> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).why(format_args!("read {path}"))?;
    Ok(field(&text, "THP_enabled:").map(|word| word == "1"))
}

/// The first word behind `key` at the start of a line.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next())
}

/// Bytes of anonymous memory that process `pid` maps with huge pages in `range`
/// of its addresses.
///
/// # Errors
/// The process is gone, or the kernel does not say.
pub fn huge_bytes(pid: u32, range: Range<usize>) -> TestResult<u64> {
    smaps(pid, &range, "AnonHugePages:")
}

/// Bytes of process `pid` in `range` of its addresses that are in swap.
///
/// # Errors
/// The process is gone, or the kernel does not say.
pub fn swap_bytes(pid: u32, range: Range<usize>) -> TestResult<u64> {
    smaps(pid, &range, "Swap:")
}

fn smaps(pid: u32, range: &Range<usize>, key: &str) -> TestResult<u64> {
    let path = format!("/proc/{pid}/smaps");
    let text = fs::read_to_string(&path).why(format_args!("read {path}"))?;
    sum_smaps(&text, range, key).why(format_args!("no {key} of {range:x?} in {path}"))
}

/// Number of areas (VMAs) of process `pid` that begin in `range` of its addresses.
///
/// # Errors
/// The process is gone.
pub fn areas(pid: u32, range: &Range<usize>) -> TestResult<usize> {
    let path = format!("/proc/{pid}/maps");
    let text = fs::read_to_string(&path).why(format_args!("read {path}"))?;
    Ok(count_areas(&text, range))
}

fn count_areas(maps: &str, range: &Range<usize>) -> usize {
    maps.lines().filter_map(area).filter(|area| range.contains(&area.start)).count()
}

/// Sum of `key`, in bytes, over the areas that lie in `range`. `None` if the
/// text does not look like smaps or has no such area.
fn sum_smaps(text: &str, range: &Range<usize>, key: &str) -> Option<u64> {
    let mut sum = None;
    let mut inside = false;
    for line in text.lines() {
        if let Some(area) = area(line) {
            inside = range.start <= area.start && area.end <= range.end;
        } else if inside && let Some(rest) = line.strip_prefix(key) {
            let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
            sum = Some(sum.unwrap_or(0) + kib.checked_mul(1024)?);
        }
    }
    sum
}

/// The addresses of an area, if `line` is the first of its lines.
fn area(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// A counter of /proc/vmstat.
///
/// # Errors
/// A skip if this kernel does not have the counter.
pub fn vmstat(name: &str) -> TestResult<u64> {
    let text = fs::read_to_string("/proc/vmstat").why("read /proc/vmstat")?;
    counter(&text, name).ok_or_else(|| Stop::skip(format!("no {name} in /proc/vmstat")))
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// A size of /proc/meminfo in bytes.
///
/// # Errors
/// This kernel does not say.
pub fn meminfo(name: &str) -> TestResult<u64> {
    let text = fs::read_to_string("/proc/meminfo").why("read /proc/meminfo")?;
    field(&text, &format!("{name}:"))
        .and_then(|kib| kib.parse::<u64>().ok()?.checked_mul(1024))
        .why(format_args!("no {name} in /proc/meminfo"))
}

/// Process id of the kernel thread of that name, if it runs.
///
/// # Errors
/// /proc cannot be read.
pub fn kernel_thread(name: &str) -> TestResult<Option<u32>> {
    for entry in fs::read_dir("/proc").why("list /proc")? {
        let entry = entry.why("list /proc")?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between the two looks.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if parse_stat(&stat) == Some((name, true)) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// Name of a process and whether it is a kernel thread, from /proc/PID/stat.
/// The name stands in parentheses and may itself hold spaces and parentheses.
fn parse_stat(text: &str) -> Option<(&str, bool)> {
    /// `PF_KTHREAD` of include/linux/sched.h.
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    // Behind the name: state, parent, group, session, terminal, its group, flags.
    let flags: u64 = after.split_whitespace().nth(6)?.parse().ok()?;
    Some((name, flags & KERNEL_THREAD != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0c0a00000-55d0c0e00000 rw-p 00000000 00:00 0                          [heap]
Size:               4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
Size:               8192 kB
AnonHugePages:      6144 kB
ShmemPmdMapped:        0 kB
7f0000800000-7f0000a00000 rw-p 00000000 00:00 0
AnonHugePages:         0 kB
";

    #[test]
    fn smaps_are_summed_over_the_areas_of_a_range() {
        let sum = |range| sum_smaps(SMAPS, &range, "AnonHugePages:");
        assert_eq!(sum(0x7f00_0000_0000..0x7f00_0080_0000), Some(6 << 20));
        assert_eq!(sum(0x7f00_0000_0000..0x7f00_00a0_0000), Some(6 << 20));
        assert_eq!(sum(0x7f00_0080_0000..0x7f00_00a0_0000), Some(0));
        assert_eq!(sum(0..usize::MAX), Some(8 << 20));
        assert_eq!(sum(0..0x1000), None);
    }

    #[test]
    fn areas_are_counted_where_they_begin() {
        assert_eq!(count_areas(SMAPS, &(0x7f00_0000_0000..0x7f00_00a0_0000)), 2);
        assert_eq!(count_areas(SMAPS, &(0x7f00_0000_1000..0x7f00_00a0_0000)), 1);
        assert_eq!(count_areas(SMAPS, &(0..0x1000)), 0);
    }

    #[test]
    fn broken_smaps_are_no_zero() {
        let range = 0..usize::MAX;
        assert_eq!(sum_smaps("", &range, "AnonHugePages:"), None);
        assert_eq!(sum_smaps("1-2 r\nAnonHugePages: x kB\n", &range, "AnonHugePages:"), None);
        assert_eq!(sum_smaps("1-2 r\nAnonHugePages: 4\n", &range, "AnonHugePages:"), None);
        let huge = "1-2 r\nAnonHugePages: 18446744073709551615 kB\n";
        assert_eq!(sum_smaps(huge, &range, "AnonHugePages:"), None);
    }

    #[test]
    fn status_gives_state_and_switches() {
        let text = "Name:\tkhugepaged\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t17\n\
                    nonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(Status::parse(text), Some(Status { state: 'S', voluntary_switches: 17 }));
        assert_eq!(Status::parse("State:\tS\n"), None);
        assert_eq!(Status::parse("State:\nvoluntary_ctxt_switches:\t1\n"), None);
        assert!(Status::read(std::process::id()).is_ok());
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "thp_collapse_alloc 1\nthp_collapse_alloc_failed 2\n";
        assert_eq!(counter(text, "thp_collapse_alloc"), Some(1));
        assert_eq!(counter(text, "thp_collapse_alloc_failed"), Some(2));
        assert_eq!(counter(text, "thp_collapse"), None);
    }

    #[test]
    fn stat_tells_kernel_threads_whatever_their_name() {
        let kernel = "42 (a) b (c) S 2 0 0 0 -1 2129984 0 0";
        assert_eq!(parse_stat(kernel), Some(("a) b (c", true)));
        assert_eq!(parse_stat("42 (sh) S 1 42 42 0 -1 4194304 0"), Some(("sh", false)));
        assert_eq!(parse_stat("42 (sh) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn memory_is_found_on_this_machine() {
        assert!(meminfo("MemTotal").unwrap() > 0);
        assert!(matches!(meminfo("NoSuchThing"), Err(Stop::Fail(_))));
        assert!(matches!(vmstat("no_such_counter"), Err(Stop::Skip(_))));
    }
}
