// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a test runs.

use rustix::thread::{CpuSet, sched_setaffinity};

use super::{TestResult, Why};

/// Keeps the calling thread, and what it starts, on one CPU from now on.
///
/// # Errors
/// There is no such CPU.
pub fn pin(cpu: usize) -> TestResult {
    (cpu < CpuSet::MAX_CPU).then_some(()).why(format_args!("no CPU {cpu}"))?;
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).why(format_args!("pin to CPU {cpu}"))
}
