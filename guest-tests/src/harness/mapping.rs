// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private anonymous memory, aligned for huge pages.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::{Stop, TestResult, Why};

/// Size of a small page in bytes.
pub const PAGE: usize = 4096;

/// Alignment of every [`Mapping`] in bytes: the size of a PMD's huge page with
/// 4 KiB pages, on x86-64 and arm64 alike.
pub const ALIGNMENT: usize = 2 << 20;

/// What `madvise` is told about memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_HUGEPAGE`
    Huge,
    /// `MADV_NOHUGEPAGE`
    NoHuge,
    /// `MADV_COLD`
    Cold,
    /// `MADV_FREE`
    Free,
    /// `MADV_DONTNEED`
    DontNeed,
}

impl Advice {
    const NAMES: [(Self, &'static str, rustix::mm::Advice); 5] = [
        (Self::Huge, "hugepage", rustix::mm::Advice::LinuxHugepage),
        (Self::NoHuge, "nohugepage", rustix::mm::Advice::LinuxNoHugepage),
        (Self::Cold, "cold", rustix::mm::Advice::LinuxCold),
        (Self::Free, "free", rustix::mm::Advice::LinuxFree),
        (Self::DontNeed, "dontneed", rustix::mm::Advice::LinuxDontNeed),
    ];

    /// The advice's name in lower case, without `MADV_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The advice of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    fn row(self) -> &'static (Self, &'static str, rustix::mm::Advice) {
        Self::NAMES.iter().find(|row| row.0 == self).expect("NAMES has every advice")
    }
}

/// Private anonymous memory that starts at a multiple of [`ALIGNMENT`]. No
/// reference into it is ever handed out, so advice that changes its contents
/// harms nobody.
#[derive(Debug)]
pub struct Mapping {
    start: *mut c_void,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes, which must be a positive multiple of the page size.
    ///
    /// # Errors
    /// `len` is not such a multiple, or the kernel refuses.
    #[expect(unsafe_code, reason = "maps memory and trims it to the alignment")]
    pub fn anonymous(len: usize) -> TestResult<Self> {
        if len == 0 || !len.is_multiple_of(PAGE) {
            return Err(Stop::fail(format!("map {len} bytes: not a multiple of {PAGE}")));
        }
        let whole = len.checked_add(ALIGNMENT).why("map: length overflows")?;
        // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                whole,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .why(format_args!("map {whole} bytes"))?;
        let before = base.addr().next_multiple_of(ALIGNMENT) - base.addr();
        let after = ALIGNMENT - before;
        let start = base.wrapping_byte_add(before);
        if before > 0 {
            // SAFETY: these bytes lie at the start of the new mapping, before
            // `start`, and nobody knows them yet.
            unsafe { munmap(base, before) }.why("unmap before the aligned part")?;
        }
        if after > 0 {
            // SAFETY: likewise, behind the `len` bytes from `start` on.
            unsafe { munmap(start.wrapping_byte_add(len), after) }
                .why("unmap behind the aligned part")?;
        }
        Ok(Self { start, len })
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> usize {
        self.start.addr()
    }

    /// Writes to one byte of every page that starts in `range`, in bytes from the
    /// mapping's start.
    ///
    /// # Panics
    /// `range` leaves the mapping.
    #[expect(unsafe_code, reason = "writes through a raw pointer, so that every write happens")]
    pub fn touch(&self, range: Range<usize>) {
        self.check(&range);
        for offset in range.step_by(PAGE) {
            // SAFETY: `check` has made sure that the byte is in the mapping, which
            // is writable and to which there are no references.
            unsafe { self.start.cast::<u8>().add(offset).write_volatile(1) };
        }
    }

    /// Gives `advice` on `range`, in bytes from the mapping's start.
    ///
    /// # Errors
    /// The kernel refuses.
    ///
    /// # Panics
    /// `range` leaves the mapping.
    #[expect(unsafe_code, reason = "advice may change the contents of memory")]
    pub fn advise(&self, advice: Advice, range: Range<usize>) -> TestResult {
        self.check(&range);
        let start = self.start.wrapping_byte_add(range.start);
        // SAFETY: the range lies in the mapping, to which there are no references.
        unsafe { madvise(start, range.len(), advice.row().2) }.why(format_args!(
            "madvise {} on {} bytes",
            advice.name(),
            range.len()
        ))
    }

    fn check(&self, range: &Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} leaves a mapping of {} bytes",
            self.len
        );
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "unmaps what the mapping owns")]
    fn drop(&mut self) {
        // SAFETY: the memory belongs to this mapping alone and there are no
        // references to it.
        if let Err(error) = unsafe { munmap(self.start, self.len) } {
            eprintln!("unmap {} bytes: {error}", self.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_aligned_and_writable_to_its_last_page() {
        for len in [PAGE, ALIGNMENT - PAGE, ALIGNMENT, 3 * ALIGNMENT + PAGE] {
            let mapping = Mapping::anonymous(len).unwrap();
            assert!(mapping.address().is_multiple_of(ALIGNMENT));
            mapping.touch(0..len);
            mapping.advise(Advice::DontNeed, 0..len).unwrap();
            mapping.touch(len - PAGE..len);
        }
    }

    #[test]
    fn odd_lengths_are_refused() {
        for len in [0, 1, PAGE + 1, usize::MAX - PAGE + 1] {
            assert!(Mapping::anonymous(len).is_err(), "{len}");
        }
    }

    #[test]
    #[should_panic(expected = "leaves a mapping")]
    fn touching_beyond_the_end_is_refused() {
        Mapping::anonymous(PAGE).unwrap().touch(0..PAGE + 1);
    }

    #[test]
    fn advice_has_names_both_ways() {
        for (advice, name, _) in Advice::NAMES {
            assert_eq!(advice.name(), name);
            assert_eq!(Advice::from_name(name), Some(advice));
        }
        assert_eq!(Advice::from_name("warm"), None);
    }
}
