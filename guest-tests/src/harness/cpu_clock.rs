// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU time of another task, which in a counted guest is the number of
//! instructions that it executed.

use std::io;

use super::{TestResult, Why};

/// The kernel's `CPUCLOCK_SCHED`, the clock of all CPU time of a process
/// (include/linux/posix-timers.h).
const SCHED: i32 = 2;

/// The clock of one process.
#[derive(Debug, Clone, Copy)]
pub struct CpuClock(i32);

impl CpuClock {
    /// The clock of process `pid`, a kernel thread or other.
    ///
    /// # Errors
    /// No process can have that id.
    pub fn of(pid: u32) -> TestResult<Self> {
        // As MAKE_PROCESS_CPUCLOCK of include/linux/posix-timers.h.
        let pid = i32::try_from(pid).ok().filter(|&pid| pid > 0 && pid < 1 << 22);
        Ok(Self((!pid.why("no process id")? << 3) | SCHED))
    }

    /// CPU time in nanoseconds.
    ///
    /// # Errors
    /// The process is gone.
    #[expect(unsafe_code, reason = "rustix has no such clocks")]
    pub fn read(self) -> TestResult<u64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes one timespec.
        let result = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        if result != 0 {
            return Err(io::Error::last_os_error()).why("read a CPU clock");
        }
        let nanoseconds = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        u64::try_from(nanoseconds).why("a CPU clock shows a negative time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_clock_goes_on() {
        let clock = CpuClock::of(std::process::id()).unwrap();
        let before = clock.read().unwrap();
        std::hint::black_box((0..1_000_000u64).fold(0, |sum, one| sum ^ std::hint::black_box(one)));
        assert!(clock.read().unwrap() > before);
        assert!(CpuClock::of(0).is_err());
    }
}
