// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel does beside what is measured, as it counts it itself.

use std::collections::BTreeMap;
use std::fs;

use super::{TestResult, Why, vmstat};

/// The kernel's counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity(BTreeMap<&'static str, u64>);

/// Counters by their names in a record.
const VMSTAT: [(&str, &str); 2] =
    [("faults", "pgfault"), ("tlb_flushes", "nr_tlb_local_flush_all")];

impl Activity {
    /// Reads the counters.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn read() -> TestResult<Self> {
        let workers = workers()?;
        let mut counts = BTreeMap::from([("kworkers", workers)]);
        for (name, counter) in VMSTAT {
            // Some are there in some configurations only.
            if let Ok(value) = vmstat(counter) {
                counts.insert(name, value);
            }
        }
        // Last, so that it counts little of what the others take.
        let text = fs::read_to_string("/proc/stat").why("read /proc/stat")?;
        counts.extend(stat(&text).why("/proc/stat lacks intr, ctxt or softirq")?);
        Ok(Self(counts))
    }

    /// How much has been added since `before`.
    ///
    /// # Errors
    /// A counter has gone backwards.
    pub fn since(&self, before: &Self) -> TestResult<BTreeMap<String, i64>> {
        self.0
            .iter()
            .map(|(&name, now)| {
                let added = now.checked_sub(before.0.get(name).copied().unwrap_or_default());
                let added = added.why(format_args!("{name} went backwards"))?;
                Ok((name.to_owned(), i64::try_from(added).ok().why("a count beyond all bounds")?))
            })
            .collect()
    }
}

/// Interrupts of every kind, context switches and softirqs since the boot
/// (Documentation/filesystems/proc.rst, 1.7).
fn stat(text: &str) -> Option<[(&'static str, u64); 3]> {
    let first = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.split(' ').next()?.parse().ok()
    };
    Some([
        ("interrupts", first("intr")?),
        ("switches", first("ctxt")?),
        ("softirqs", first("softirq")?),
    ])
}

/// How often workers of the kernel's workqueues have gone to sleep: once for each time
/// that they had something to do.
fn workers() -> TestResult<u64> {
    let mut sum = 0;
    for entry in fs::read_dir("/proc").why("list /proc")?.flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // A process may end at any moment.
        let text = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        sum += switches(&text).unwrap_or_default();
    }
    Ok(sum)
}

/// Voluntary switches of a kworker by its /proc/PID/status; none of anything else.
fn switches(status: &str) -> Option<u64> {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":")).map(str::trim)
    };
    field("Name")?.starts_with("kworker/").then_some(())?;
    field("voluntary_ctxt_switches")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_first_numbers() {
        let text = "cpu  1 2\nintr 500 1 2\nctxt 70\nbtime 1\nsoftirq 9 1 2\n";
        assert_eq!(stat(text), Some([("interrupts", 500), ("switches", 70), ("softirqs", 9)]));
        assert_eq!(stat("intr 500\nctxt 7\n"), None);
    }

    #[test]
    fn only_kworkers_count() {
        let status = |name| format!("Name:\t{name}\nState:\tI\nvoluntary_ctxt_switches:\t12\n");
        assert_eq!(switches(&status("kworker/0:1-events")), Some(12));
        assert_eq!(switches(&status("khugepaged")), None);
    }

    #[test]
    fn what_goes_up_is_the_difference() {
        let before = Activity(BTreeMap::from([("switches", 5)]));
        let after = Activity(BTreeMap::from([("switches", 8)]));
        assert_eq!(after.since(&before).unwrap()["switches"], 3);
        assert!(before.since(&after).is_err());
        let now = Activity::read().unwrap();
        assert!(Activity::read().unwrap().since(&now).is_ok());
    }
}
