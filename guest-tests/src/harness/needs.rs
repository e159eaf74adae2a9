// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test needs. Each function skips the test with a reason if it is not
//! there.

use std::fs;
use std::path::Path;

use super::{Stop, TestResult, Why, proc};

/// At least `bytes` of memory that can be had without swapping.
///
/// # Errors
/// The skip, or /proc/meminfo cannot be read.
pub fn memory(bytes: u64) -> TestResult {
    let there = proc::meminfo("MemAvailable")?;
    unless(there >= bytes, || {
        format!("needs {} MiB of free memory, there are {}", bytes >> 20, there >> 20)
    })
}

/// At least `count` CPUs.
///
/// # Errors
/// The skip, or the number of CPUs is not known.
pub fn cpus(count: usize) -> TestResult {
    let there = std::thread::available_parallelism().why("count the CPUs")?.get();
    unless(there >= count, || format!("needs {count} CPUs, there are {there}"))
}

/// The rights of the superuser.
///
/// # Errors
/// The skip.
pub fn root() -> TestResult {
    unless(rustix::process::geteuid().is_root(), || "needs to run as root".to_owned())
}

/// The setting `path` of the kernel, and the right to change it.
///
/// # Errors
/// The skip.
pub fn tunable(path: impl AsRef<Path>) -> TestResult {
    let path = path.as_ref();
    match fs::OpenOptions::new().write(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Stop::skip(format!("needs {}: {error}", path.display()))),
    }
}

/// The function or variable `name` in the kernel.
///
/// # Errors
/// The skip, or the kernel has no /proc/kallsyms.
pub fn symbol(name: &str) -> TestResult {
    let text = fs::read_to_string("/proc/kallsyms").why("read /proc/kallsyms")?;
    unless(has_symbol(&text, name), || format!("needs a kernel with {name}"))
}

fn has_symbol(kallsyms: &str, name: &str) -> bool {
    kallsyms.lines().any(|line| line.split_whitespace().nth(2) == Some(name))
}

fn unless(there: bool, reason: impl FnOnce() -> String) -> TestResult {
    if there { Ok(()) } else { Err(Stop::Skip(reason())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_a_skip_that_names_it() {
        let reason = |result: TestResult| match result {
            Err(Stop::Skip(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(memory(u64::MAX)).contains("MiB of free memory"));
        assert!(reason(cpus(1 << 20)).contains("1048576 CPUs"));
        assert!(reason(tunable("/proc/no_such_setting")).contains("/proc/no_such_setting"));
        assert_eq!(memory(1), Ok(()));
        assert_eq!(cpus(1), Ok(()));
    }

    #[test]
    fn symbols_are_found_by_their_whole_name() {
        let text = "ffffffff81000000 T _stext\nffffffff81000010 t scan\t[mod]\n";
        assert!(has_symbol(text, "_stext") && has_symbol(text, "scan"));
        assert!(!has_symbol(text, "stext") && !has_symbol(text, "[mod]"));
    }
}
