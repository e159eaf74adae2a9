// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counting trace events of a kernel.
//!
//! Every counter has a trace instance of its own, so that it neither disturbs
//! nor sees what else is traced. The kernel itself selects the events by a
//! filter, and only while the counted code runs is anything recorded.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Stop, TestResult, Why};

/// Where init mounts tracefs.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Size of each CPU's buffer in KiB; an event takes some tens of bytes, so that
/// this holds several thousand.
const BUFFER_KIB: &str = "512";

/// Counts the occurrences of one event. Dropping it removes its trace instance.
#[derive(Debug)]
pub struct EventCounter {
    // Dropped in this order: an instance with an open file cannot be removed.
    switch: File,
    instance: Instance,
}

impl EventCounter {
    /// Counts the event `system`:`event` where `filter` holds, which is written
    /// as in Documentation/trace/events.rst, such as `reason == 3`.
    ///
    /// # Errors
    /// A skip if this kernel does not have the event; a failure if it does not
    /// take the filter.
    pub fn new(system: &str, event: &str, filter: &str) -> TestResult<Self> {
        let path = format!("events/{system}/{event}");
        if !Path::new(TRACEFS).join(&path).exists() {
            return Err(Stop::skip(format!("the kernel has no trace event {system}:{event}")));
        }
        // One process may count one event in several ways.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(TRACEFS)
            .join("instances")
            .join(format!("kvet-{}-{number}", std::process::id()));
        fs::create_dir(&folder).why(format_args!("make {}", folder.display()))?;
        let instance = Instance(folder);
        let folder = &instance.0;
        let put = |name: &str, value: &str| {
            let file = folder.join(name);
            fs::write(&file, value).why(format_args!("write {value:?} to {}", file.display()))
        };
        put("tracing_on", "0")?;
        put("buffer_size_kb", BUFFER_KIB)?;
        put(&format!("{path}/filter"), filter)?;
        put(&format!("{path}/enable"), "1")?;
        let switch = OpenOptions::new()
            .write(true)
            .open(folder.join("tracing_on"))
            .why("open tracing_on")?;
        Ok(Self { switch, instance })
    }

    /// Runs `counted` and returns what it returned and the number of events.
    ///
    /// # Errors
    /// The kernel does not say, or has lost events.
    pub fn count<T>(&mut self, counted: impl FnOnce() -> T) -> TestResult<(T, u64)> {
        let value = self.record(counted)?;
        Ok((value, self.recorded()?.values().sum()))
    }

    /// The same, by the CPU on which an event happened.
    ///
    /// # Errors
    /// As for [`EventCounter::count`].
    pub fn count_by_cpu<T>(
        &mut self,
        counted: impl FnOnce() -> T,
    ) -> TestResult<(T, BTreeMap<usize, u64>)> {
        let value = self.record(counted)?;
        Ok((value, self.recorded()?))
    }

    /// Runs `counted` with tracing on. Counters may be nested.
    fn record<T>(&mut self, counted: impl FnOnce() -> T) -> TestResult<T> {
        fs::write(self.instance.0.join("trace"), "").why("empty the trace")?;
        self.switch.write_all(b"1").why("switch tracing on")?;
        let value = counted();
        self.switch.write_all(b"0").why("switch tracing off")?;
        Ok(value)
    }

    /// Number of events in the buffer of each CPU.
    fn recorded(&self) -> TestResult<BTreeMap<usize, u64>> {
        let folder = self.instance.0.join("per_cpu");
        let mut by_cpu = BTreeMap::new();
        for entry in fs::read_dir(&folder).why(format_args!("list {}", folder.display()))? {
            let entry = entry.why("list the buffers")?;
            let name = entry.file_name();
            let cpu = name.to_str().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            let cpu = cpu.why(format_args!("{} is no CPU's folder", entry.path().display()))?;
            let path = entry.path().join("stats");
            let text = fs::read_to_string(&path).why(format_args!("read {}", path.display()))?;
            let count =
                entries(&text).map_err(|why| Stop::fail(format!("{}: {why}", path.display())))?;
            by_cpu.insert(cpu, count);
        }
        Ok(by_cpu)
    }
}

/// The folder of a trace instance. Dropping it removes the instance, which also
/// disables its events.
#[derive(Debug)]
struct Instance(PathBuf);

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("remove {}: {error}", self.0.display());
        }
    }
}

/// Number of events in one CPU's buffer, from its `stats`.
fn entries(stats: &str) -> Result<u64, String> {
    let number = |name: &str| {
        stats
            .lines()
            .find_map(|line| {
                line.strip_prefix(name)?.strip_prefix(": ")?.trim().parse::<u64>().ok()
            })
            .ok_or_else(|| format!("no {name}"))
    };
    for lost in ["overrun", "commit overrun", "dropped events"] {
        match number(lost)? {
            0 => {}
            count => return Err(format!("{count} events lost ({lost})")),
        }
    }
    number("entries")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "entries: 64\noverrun: 0\ncommit overrun: 0\nbytes: 2304\n\
                         oldest event ts:     1.5\nnow ts:     2.5\ndropped events: 0\n\
                         read events: 3\n";

    #[test]
    fn stats_give_the_number_of_entries() {
        assert_eq!(entries(STATS), Ok(64));
    }

    #[test]
    fn lost_events_are_no_count() {
        for name in ["\noverrun", "commit overrun", "dropped events"] {
            let text = STATS.replacen(&format!("{name}: 0"), &format!("{name}: 2"), 1);
            assert_ne!(text, STATS);
            assert!(entries(&text).unwrap_err().contains("2 events lost"), "{name}");
        }
    }

    #[test]
    fn stats_without_a_line_are_no_zero() {
        for line in STATS.lines().filter(|line| line.ends_with(": 0") || line.starts_with("ent")) {
            assert!(entries(&STATS.replacen(line, "", 1)).is_err(), "{line}");
        }
        assert!(entries("").is_err());
        assert!(entries(&STATS.replacen("64", "-1", 1)).is_err());
    }

    #[test]
    fn an_event_that_no_kernel_has_is_a_skip() {
        let stop = EventCounter::new("kvet", "no_such_event", "").unwrap_err();
        assert!(matches!(stop, Stop::Skip(why) if why.contains("kvet:no_such_event")));
    }
}
