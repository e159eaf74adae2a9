// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocations of pages that fail on purpose (Documentation/fault-injection).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use super::{Stop, TestResult, Tunables, Why};

/// Where the kernel is told which allocations fail.
const FOLDER: &str = "/sys/kernel/debug/fail_page_alloc";

/// Failures that are allowed at once; how many are left says how many there were.
const ALLOWED: u64 = 1_000_000;

/// Makes allocations fail that may not wait, those of the calling thread only
/// and only while it says so. Dropping it puts the settings back.
#[derive(Debug)]
pub struct FailingPages {
    _tunables: Tunables,
    switch: File,
}

impl FailingPages {
    /// Lets `percent` of the allocations fail.
    ///
    /// # Errors
    /// A skip if this kernel cannot; a failure if it does not take a setting.
    pub fn new(percent: u8) -> TestResult<Self> {
        if !Path::new(FOLDER).exists() {
            return Err(Stop::skip(format!(
                "no {FOLDER}: the kernel lacks CONFIG_FAIL_PAGE_ALLOC (configs/kconfig/faults.config)"
            )));
        }
        let mut tunables = Tunables::default();
        for (name, value) in [
            ("task-filter", "Y"),
            // Those that may wait are to succeed: what they are for could fail.
            ("ignore-gfp-wait", "Y"),
            ("ignore-gfp-highmem", "Y"),
            ("min-order", "0"),
            ("interval", "1"),
            ("space", "0"),
            ("verbose", "0"),
            ("probability", &percent.to_string()),
        ] {
            tunables.set(Path::new(FOLDER).join(name), value)?;
        }
        const SWITCH: &str = "/proc/thread-self/make-it-fail";
        let switch =
            OpenOptions::new().write(true).open(SWITCH).why(format_args!("open {SWITCH}"))?;
        Ok(Self { _tunables: tunables, switch })
    }

    /// Runs `failing` and returns what it returned and how many allocations
    /// failed.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn run<T>(&mut self, failing: impl FnOnce() -> T) -> TestResult<(T, u64)> {
        let times = Path::new(FOLDER).join("times");
        fs::write(&times, ALLOWED.to_string()).why("allow failures")?;
        self.switch.write_all(b"1").why("let allocations fail")?;
        let value = failing();
        self.switch.write_all(b"0").why("let allocations succeed")?;
        let left = fs::read_to_string(&times).why("count failures")?;
        let left: u64 = left.trim().parse().why(format_args!("{} is {left:?}", times.display()))?;
        Ok((value, ALLOWED.checked_sub(left).why("more failures are left than allowed")?))
    }
}
