// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page faults of this process alone.

use super::{TestResult, Why};

/// The page faults of this process up to one moment.
#[derive(Debug)]
pub struct PageFaults {
    before: i64,
}

impl PageFaults {
    /// Begins to count.
    ///
    /// # Errors
    /// The kernel refuses to say.
    pub fn start() -> TestResult<Self> {
        Ok(Self { before: minor_faults()? })
    }

    /// Faults since then that found what they needed in memory (minor ones), also
    /// those that system calls took on behalf of the process (`mm_account_fault`
    /// in the kernel's mm/memory.c counts both).
    ///
    /// # Errors
    /// The kernel refuses to say.
    pub fn added(&self) -> TestResult<i64> {
        Ok(minor_faults()? - self.before)
    }
}

#[expect(unsafe_code, reason = "neither rustix nor std has getrusage(2)")]
fn minor_faults() -> TestResult<i64> {
    // SAFETY: all bytes zero are a valid `rusage`, which holds numbers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live `rusage` of our own.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0;
    if failed {
        return Err(std::io::Error::last_os_error()).why("count page faults");
    }
    Ok(usage.ru_minflt)
}

#[cfg(test)]
mod tests {
    use super::super::{Advice, Mapping};
    use super::*;

    #[test]
    fn every_first_touch_of_a_small_page_is_a_fault() {
        let memory = Mapping::anonymous(64 * 4096).unwrap();
        memory.advise(Advice::NoHuge, 0..memory.len()).unwrap();
        let faults = PageFaults::start().unwrap();
        memory.touch(0..memory.len());
        assert!(faults.added().unwrap() >= 64);
    }
}
