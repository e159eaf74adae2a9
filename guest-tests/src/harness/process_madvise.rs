// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system call `process_madvise`, with vectors that make no sense, too.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{TestResult, Why};

/// Longest vector that the kernel takes: `UIO_MAXIOV` of include/uapi/linux/uio.h.
pub const MAX_VLEN: usize = 1024;

/// Opens a pidfd of process `pid`.
///
/// # Errors
/// There is no such process, or the kernel is older than 5.3.
pub fn pidfd(pid: u32) -> TestResult<OwnedFd> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = raw.why(format_args!("{pid} is no process id"))?;
    pidfd_open(pid, PidfdFlags::empty()).why(format_args!("pidfd_open of {}", pid.as_raw_pid()))
}

/// Ranges of addresses, in the form in which the kernel reads them.
#[derive(Debug, Clone, Default)]
pub struct Vector(Vec<libc::iovec>);

impl Vector {
    /// No ranges yet, and room for `ranges`.
    #[must_use]
    pub fn with_capacity(ranges: usize) -> Self {
        Self(Vec::with_capacity(ranges))
    }

    /// Holds these ranges, addresses and lengths in bytes, instead of its own.
    pub fn refill(&mut self, ranges: impl IntoIterator<Item = (usize, usize)>) {
        self.0.clear();
        self.0.extend(ranges.into_iter().map(range));
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no range at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// From addresses and lengths in bytes.
impl FromIterator<(usize, usize)> for Vector {
    fn from_iter<T: IntoIterator<Item = (usize, usize)>>(ranges: T) -> Self {
        Self(ranges.into_iter().map(range).collect())
    }
}

fn range((address, len): (usize, usize)) -> libc::iovec {
    libc::iovec { iov_base: ptr::without_provenance_mut(address), iov_len: len }
}

/// Calls `process_madvise` and returns the number of bytes that were advised.
/// `advice` is the number of a `MADV_` constant.
///
/// # Errors
/// What the kernel says.
///
/// # Safety
/// If `pidfd` means the caller: advice may change the contents of whatever lies
/// in the ranges, so there must be no reference into them.
#[expect(unsafe_code, reason = "a system call that the libraries do not have")]
pub unsafe fn process_madvise(
    pidfd: &OwnedFd,
    vector: &Vector,
    advice: i32,
    flags: u32,
) -> Result<usize, Errno> {
    // SAFETY: the kernel only reads the vector, which outlives the call; what
    // it does to the ranges is the caller's business.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            vector.0.as_ptr(),
            vector.0.len(),
            advice,
            flags,
        )
    };
    usize::try_from(result).map_err(|_| last_error())
}

/// Calls `madvise` with any range at all.
///
/// # Errors
/// What the kernel says.
///
/// # Safety
/// As for [`process_madvise`].
#[expect(unsafe_code, reason = "rustix takes no range that cannot be one")]
pub unsafe fn madvise(address: usize, len: usize, advice: i32) -> Result<(), Errno> {
    let start: *mut c_void = ptr::without_provenance_mut(address);
    // SAFETY: as the caller promises.
    match unsafe { libc::madvise(start, len, advice) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).expect("the error is one of the system")
}

/// Name of an error in lower case, as an observation's value.
#[must_use]
pub fn error_name(error: Errno) -> String {
    const NAMES: [(Errno, &str); 10] = [
        (Errno::AGAIN, "eagain"),
        (Errno::BADF, "ebadf"),
        (Errno::FAULT, "efault"),
        (Errno::INTR, "eintr"),
        (Errno::INVAL, "einval"),
        (Errno::IO, "eio"),
        (Errno::NOMEM, "enomem"),
        (Errno::NOSYS, "enosys"),
        (Errno::PERM, "eperm"),
        (Errno::SRCH, "esrch"),
    ];
    match NAMES.iter().find(|row| row.0 == error) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("errno_{}", error.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::mapping::PAGE;
    use crate::harness::{Advice, Mapping, Stop};

    #[test]
    fn errors_have_names() {
        assert_eq!(error_name(Errno::INVAL), "einval");
        assert_eq!(error_name(Errno::XDEV), "errno_18");
    }

    #[test]
    fn cold_advice_goes_through_and_errors_come_back() {
        let mapping = Mapping::anonymous(4 * PAGE).unwrap();
        mapping.touch(0..4 * PAGE);
        let own = pidfd(std::process::id()).unwrap();
        let call = |vector: &[(usize, usize)], flags| {
            let vector = vector.iter().copied().collect();
            #[expect(unsafe_code, reason = "a system call on the mapping above")]
            // SAFETY: nothing has references into the mapping.
            unsafe {
                process_madvise(&own, &vector, Advice::Cold.number(), flags)
            }
        };
        let at = mapping.address();
        assert_eq!(call(&[(at, PAGE), (at + 2 * PAGE, PAGE)], 0), Ok(2 * PAGE));
        assert_eq!(call(&[], 0), Ok(0));
        assert_eq!(call(&[(at + 1, PAGE)], 0), Err(Errno::INVAL));
        assert_eq!(call(&[(at, PAGE)], 1), Err(Errno::INVAL));
    }

    #[test]
    fn a_range_that_wraps_round_is_an_error() {
        let mapping = Mapping::anonymous(PAGE).unwrap();
        #[expect(unsafe_code, reason = "a system call that must fail")]
        // SAFETY: the length rounds up to zero, which the kernel refuses.
        let result = unsafe { madvise(mapping.address(), usize::MAX, Advice::Cold.number()) };
        assert_eq!(result, Err(Errno::INVAL));
    }

    #[test]
    fn there_is_no_process_zero() {
        assert!(matches!(pidfd(0), Err(Stop::Fail(_))));
        assert!(matches!(pidfd(u32::MAX), Err(Stop::Fail(_))));
    }
}
