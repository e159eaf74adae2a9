// SPDX-License-Identifier: MIT OR Apache-2.0
//! Switches off what a kernel does by itself from time to time, so that nothing but
//! the measured work happens in a window.

use std::path::Path;

use super::{TestResult, Tunables, thp};

/// Files and their values; a kernel without a file does not do that.
///
/// The statistics of memory are gathered every second by default, half a million
/// instructions each; the others look at something or clean up now and then.
pub(super) const SETTINGS: [(&str, &str); 9] = [
    ("/proc/sys/vm/stat_interval", "100000"),
    ("/proc/sys/vm/compaction_proactiveness", "0"),
    ("/proc/sys/vm/dirty_writeback_centisecs", "0"),
    ("/proc/sys/vm/swappiness", "0"),
    ("/proc/sys/vm/watermark_boost_factor", "0"),
    ("/proc/sys/kernel/watchdog", "0"),
    ("/proc/sys/kernel/hung_task_timeout_secs", "0"),
    ("/proc/sys/kernel/numa_balancing", "0"),
    ("/sys/kernel/mm/ksm/run", "0"),
];

/// Makes the settings, and brings those of huge pages into their start state.
///
/// # Errors
/// A setting cannot be made.
pub fn quiet(settings: &mut Tunables) -> TestResult {
    for (path, value) in SETTINGS {
        if Path::new(path).exists() {
            settings.set(path, value)?;
        }
    }
    if Path::new(thp::FOLDER).exists() {
        // khugepaged first: it is not to do anything while the rest is set.
        let sleep = Path::new(thp::FOLDER).join("khugepaged/scan_sleep_millisecs");
        if sleep.exists() {
            settings.set(sleep, "3600000")?;
        }
        thp::start_state(settings)?;
    }
    Ok(())
}
