// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driving khugepaged one pass at a time.
//!
//! khugepaged sleeps `scan_sleep_millisecs` between two passes over its list of
//! address spaces; here that is an hour. Writing the setting, even the same
//! value, wakes it for one pass (a *kick*). A kick while a pass is under way is
//! lost, so each waits for khugepaged to sleep again.
//!
//! An address space that comes onto an empty list wakes khugepaged too. A
//! sentinel without memory therefore stays on the list all the time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::cpu_clock::CpuClock;
use super::mapping::ALIGNMENT;
use super::proc::{Status, kernel_thread, vmstat};
use super::{Advice, Stop, Task, TestResult, Tunables, Why, thp, tunable, wait_until};

/// An hour in milliseconds, longer than any test.
const SLEEP_MS: &str = "3600000";

/// Longest wait for a pass. A pass over one PMD takes milliseconds; khugepaged
/// has the lowest priority and may have to wait for the CPU.
const DEADLINE: Duration = Duration::from_secs(20);

/// Passes within which khugepaged must have been once through a list with
/// nothing on it but the sentinel and what has just ended.
const MAX_SETTLE_KICKS: u32 = 8;

/// khugepaged under control. Dropping it puts all settings back.
#[derive(Debug)]
pub struct Khugepaged {
    pid: u32,
    failed_allocations: u64,
    // Dropped in this order: the sentinel leaves before khugepaged runs freely.
    _sentinel: Task,
    _tunables: Tunables,
}

impl Khugepaged {
    /// Puts all settings of huge pages into their start state and stops
    /// khugepaged, which from now on looks at `pages_to_scan` pages per kick.
    ///
    /// # Errors
    /// A skip without transparent huge pages; a failure if khugepaged does not
    /// come to rest.
    pub fn stop(pages_to_scan: usize) -> TestResult<Self> {
        let mut tunables = Tunables::default();
        tunables_for_stepping(&mut tunables, pages_to_scan)?;
        let pid = wait_until("khugepaged to run", DEADLINE, || kernel_thread("khugepaged"))?;
        let mut sentinel = Task::start("sentinel", ALIGNMENT)?;
        sentinel.touch(0..ALIGNMENT)?;
        sentinel.advise(Advice::Huge, 0..ALIGNMENT)?;
        sentinel.unmap()?;
        let failed_allocations = vmstat("thp_collapse_alloc_failed")?;
        let this = Self { pid, failed_allocations, _sentinel: sentinel, _tunables: tunables };
        this.wait_for_rest(0)?;
        this.settle()?;
        Ok(this)
    }

    /// Lets khugepaged make one pass and waits for its end.
    ///
    /// # Errors
    /// The pass does not end, or khugepaged found no huge page to use: it then
    /// scans other memory than the test thinks.
    pub fn kick(&self) -> TestResult {
        self.wait_for_rest(0)?;
        let before = Status::read(self.pid)?.voluntary_switches;
        let path = setting("scan_sleep_millisecs");
        fs::write(&path, SLEEP_MS).why(format_args!("write {}", path.display()))?;
        self.wait_for_rest(before + 1)?;
        if vmstat("thp_collapse_alloc_failed")? != self.failed_allocations {
            return Err(Stop::fail("khugepaged could not allocate a huge page"));
        }
        Ok(())
    }

    /// Kicks until `done`, and returns how many kicks that took, or `None` if it
    /// was not done after `limit`.
    ///
    /// # Errors
    /// As for [`Khugepaged::kick`], or the error of `done`.
    pub fn kick_until(
        &self,
        limit: u32,
        mut done: impl FnMut() -> TestResult<bool>,
    ) -> TestResult<Option<u32>> {
        for kick in 1..=limit {
            self.kick()?;
            if done()? {
                return Ok(Some(kick));
            }
        }
        Ok(None)
    }

    /// Kicks until khugepaged has been through its whole list, on which there
    /// must be nothing to collapse. Its next pass starts at the list's head.
    ///
    /// # Errors
    /// The list has no end.
    pub fn settle(&self) -> TestResult {
        for _ in 0..MAX_SETTLE_KICKS {
            let before = full_scans()?;
            self.kick()?;
            // The first time round may have begun in the middle.
            if full_scans()? > before {
                return Ok(());
            }
        }
        Err(Stop::fail(format!(
            "khugepaged was not once through its list in {MAX_SETTLE_KICKS} passes"
        )))
    }

    /// The clock of khugepaged's CPU time.
    ///
    /// # Errors
    /// It has none.
    pub fn cpu_clock(&self) -> TestResult<CpuClock> {
        CpuClock::of(self.pid)
    }

    /// Number of huge pages that khugepaged has made since the boot.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn collapsed(&self) -> TestResult<u64> {
        let text = tunable::read(&setting("pages_collapsed"))?;
        text.parse().why(format_args!("pages_collapsed is {text:?}"))
    }

    /// Lets khugepaged make one pass after another, `pause` apart, until what is
    /// returned is dropped.
    ///
    /// # Errors
    /// The setting cannot be made.
    pub fn run_freely(&self, pause: Duration) -> TestResult<Tunables> {
        let mut tunables = Tunables::default();
        let sleep = setting("scan_sleep_millisecs");
        tunables.set(sleep, &pause.as_millis().to_string())?;
        Ok(tunables)
    }

    /// Waits until khugepaged sleeps and has gone to sleep `switches` times or
    /// more. Inside a pass it waits without being interruptible, which is
    /// another state, so a sleeping khugepaged is between two passes.
    fn wait_for_rest(&self, switches: u64) -> TestResult {
        wait_until("khugepaged to come to rest", DEADLINE, || {
            let status = Status::read(self.pid)?;
            let rests = status.state == 'S' && status.voluntary_switches >= switches;
            Ok(rests.then_some(()))
        })
    }
}

/// A task with `size` bytes of touched small pages that is the last on
/// khugepaged's list.
///
/// # Errors
/// The task cannot be started or does not answer.
pub fn listed_task(name: &str, size: usize) -> TestResult<Task> {
    let mut task = Task::start(name, size)?;
    task.touch(0..size)?;
    task.advise(Advice::Huge, 0..size)?;
    Ok(task)
}

/// How often khugepaged has been through its whole list.
///
/// # Errors
/// The kernel does not say.
pub fn full_scans() -> TestResult<u64> {
    let text = tunable::read(&setting("full_scans"))?;
    text.parse().why(format_args!("full_scans is {text:?}"))
}

fn tunables_for_stepping(tunables: &mut Tunables, pages_to_scan: usize) -> TestResult {
    // The sleep first: what follows may start or wake khugepaged.
    if setting("scan_sleep_millisecs").exists() {
        tunables.set(setting("scan_sleep_millisecs"), SLEEP_MS)?;
    }
    thp::start_state(tunables)?;
    tunables.set(setting("pages_to_scan"), &pages_to_scan.to_string())
}

fn setting(name: &str) -> PathBuf {
    PathBuf::from(thp::FOLDER).join("khugepaged").join(name)
}
