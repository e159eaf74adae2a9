// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory whose faults a program handles itself (Documentation/admin-guide/mm/
//! userfaultfd.rst).

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use super::mapping::PAGE;
use super::{Mapping, Stop, TestResult, Why};

// Numbers of include/uapi/linux/userfaultfd.h.
const GROUP: u8 = 0xaa;
const API: u64 = 0xaa;
const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
const MODE_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_REMOVE: u8 = 0x15;
const API_OPCODE: Opcode = opcode::read_write::<ApiRequest>(GROUP, 0x3f);
const REGISTER_OPCODE: Opcode = opcode::read_write::<RegisterRequest>(GROUP, 0x00);
const COPY_OPCODE: Opcode = opcode::read_write::<CopyRequest>(GROUP, 0x03);

/// Size of a message in bytes.
const MESSAGE: usize = 32;

#[repr(C)]
struct ApiRequest {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RegisterRequest {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct CopyRequest {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

/// What the kernel tells the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A thread waits for the page at this address.
    Fault(usize),
    /// The contents of these addresses are about to go, and whoever does that
    /// waits until the event has been read.
    Remove(Range<usize>),
}

/// Handles the faults of what is registered with it.
#[derive(Debug)]
pub struct Userfault(OwnedFd);

impl Userfault {
    /// Opens a handler that also hears of removals.
    ///
    /// # Errors
    /// A skip if this kernel has no userfaultfd.
    #[expect(unsafe_code, reason = "a file that changes memory")]
    pub fn open() -> TestResult<Self> {
        // A handler that may block cannot be polled.
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // SAFETY: it is used on mappings to which there are no references.
        let fd = match unsafe { userfaultfd(flags) } {
            Err(Errno::NOSYS) => return Err(Stop::skip("the kernel has no userfaultfd")),
            other => other.why("userfaultfd")?,
        };
        let mut request = ApiRequest { api: API, features: FEATURE_EVENT_REMOVE, ioctls: 0 };
        // SAFETY: the opcode is that of the structure.
        unsafe { ioctl(&fd, Updater::<API_OPCODE, _>::new(&mut request)) }.why("UFFDIO_API")?;
        Ok(Self(fd))
    }

    /// Has the faults of pages that `mapping` does not have sent to the handler.
    ///
    /// # Errors
    /// The kernel refuses.
    #[expect(unsafe_code, reason = "a request of the kernel's own")]
    pub fn register(&self, mapping: &Mapping) -> TestResult {
        let mut request = RegisterRequest {
            start: mapping.address() as u64,
            len: mapping.len() as u64,
            mode: MODE_MISSING,
            ioctls: 0,
        };
        // SAFETY: the opcode is that of the structure.
        unsafe { ioctl(&self.0, Updater::<REGISTER_OPCODE, _>::new(&mut request)) }
            .why("UFFDIO_REGISTER")
    }

    /// The next event, if there is one within `timeout`.
    ///
    /// # Errors
    /// The kernel sends something that was not asked for.
    pub fn next(&self, timeout: Duration) -> TestResult<Option<Event>> {
        let timeout = Timespec::try_from(timeout).why("a time beyond all bounds")?;
        if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)).why("poll")? == 0 {
            return Ok(None);
        }
        let mut message = [0; MESSAGE];
        let count = match rustix::io::read(self.0.as_fd(), &mut message) {
            // Who waited no longer does.
            Err(Errno::AGAIN) => return Ok(None),
            other => other.why("read an event")?,
        };
        if count != MESSAGE {
            return Err(Stop::fail(format!("an event of {count} bytes, not {MESSAGE}")));
        }
        event(&message).why(format_args!("an event of kind {:#x}", message[0])).map(Some)
    }

    /// Fills the page at `address` with `value` and wakes who waits for it.
    ///
    /// # Errors
    /// The kernel refuses.
    #[expect(unsafe_code, reason = "a request of the kernel's own")]
    pub fn fill(&self, address: usize, value: u8) -> TestResult {
        let contents = [value; PAGE];
        let mut request = CopyRequest {
            to: address as u64,
            from: contents.as_ptr().expose_provenance() as u64,
            len: PAGE as u64,
            mode: 0,
            copied: 0,
        };
        // SAFETY: the opcode is that of the structure. The kernel only reads
        // `contents`, and writes only to a page that is not there yet.
        unsafe { ioctl(&self.0, Updater::<COPY_OPCODE, _>::new(&mut request)) }.why("UFFDIO_COPY")
    }
}

/// What a message says (`struct uffd_msg`), if it is of a kind that was asked for.
fn event(message: &[u8; MESSAGE]) -> Option<Event> {
    let word = |at: usize| {
        let bytes = message[at..at + 8].try_into().ok()?;
        usize::try_from(u64::from_ne_bytes(bytes)).ok()
    };
    match message[0] {
        EVENT_PAGEFAULT => Some(Event::Fault(word(16)?)),
        EVENT_REMOVE => Some(Event::Remove(word(8)?..word(16)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_understood() {
        let mut message = [0; MESSAGE];
        message[8..16].copy_from_slice(&4096_u64.to_ne_bytes());
        message[16..24].copy_from_slice(&8192_u64.to_ne_bytes());
        assert_eq!(event(&message), None);
        message[0] = EVENT_PAGEFAULT;
        assert_eq!(event(&message), Some(Event::Fault(8192)));
        message[0] = EVENT_REMOVE;
        assert_eq!(event(&message), Some(Event::Remove(4096..8192)));
    }

    #[test]
    fn requests_have_the_numbers_of_the_kernels_header() {
        assert_eq!(API_OPCODE, 0xc018_aa3f);
        assert_eq!(REGISTER_OPCODE, 0xc020_aa00);
        assert_eq!(COPY_OPCODE, 0xc028_aa03);
    }
}
