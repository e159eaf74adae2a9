// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far the counters of /proc/vmstat move.

use super::{TestResult, Why, vmstat};

/// One counter at one moment.
#[derive(Debug)]
pub struct VmCounter {
    name: &'static str,
    before: u64,
}

impl VmCounter {
    /// The counter `name` as it is now.
    ///
    /// # Errors
    /// A skip if this kernel does not have the counter.
    pub fn start(name: &'static str) -> TestResult<Self> {
        Ok(Self { name, before: vmstat(name)? })
    }

    /// How much has been added since. What the whole kernel did counts, not only
    /// the caller's part.
    ///
    /// # Errors
    /// The counter cannot be read, or has gone backwards and is none.
    pub fn added(&self) -> TestResult<u64> {
        vmstat(self.name)?
            .checked_sub(self.before)
            .why(format_args!("{} went backwards", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Stop;

    #[test]
    fn faults_are_counted() {
        let faults = VmCounter::start("pgfault").unwrap();
        assert!(faults.added().is_ok());
        assert!(matches!(VmCounter::start("no_such_counter"), Err(Stop::Skip(_))));
    }
}
