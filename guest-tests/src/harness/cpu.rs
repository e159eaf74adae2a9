// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a test runs.

use std::fs;

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

/// Number of CPUs that run, which are numbered from 0 on.
///
/// # Errors
/// The kernel does not say, or has switched some of them off.
pub fn online() -> TestResult<usize> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(PATH).why(format_args!("read {PATH}"))?;
    count(text.trim()).why(format_args!("{PATH} is {text:?}, not one range from 0 on"))
}

/// Number of CPUs in a list such as `0-3`.
fn count(list: &str) -> Option<usize> {
    let last = if list == "0" { list } else { list.strip_prefix("0-")? };
    last.parse::<usize>().ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_is_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3"), Some(4));
        for odd in ["", "1", "0-1,3", "1-3", "0-", "0-18446744073709551615"] {
            assert_eq!(count(odd), None, "{odd:?}");
        }
    }
}
