// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of one kind or another, aligned for huge pages.

use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};

use super::{Stop, TestResult, Why};

/// Size of a small page in bytes.
pub const PAGE: usize = 4096;

/// Alignment of every [`Mapping`] in bytes: the size of a PMD's huge page with
/// 4 KiB pages, on x86-64 and arm64 alike.
pub const ALIGNMENT: usize = 2 << 20;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

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
    /// `MADV_DONTNEED_LOCKED`
    DontNeedLocked,
    /// `MADV_DONTDUMP`
    DontDump,
    /// `MADV_POPULATE_WRITE`
    PopulateWrite,
    /// `MADV_PAGEOUT`
    PageOut,
}

impl Advice {
    const NAMES: [(Self, &'static str, rustix::mm::Advice); 9] = [
        (Self::Huge, "hugepage", rustix::mm::Advice::LinuxHugepage),
        (Self::NoHuge, "nohugepage", rustix::mm::Advice::LinuxNoHugepage),
        (Self::Cold, "cold", rustix::mm::Advice::LinuxCold),
        (Self::Free, "free", rustix::mm::Advice::LinuxFree),
        (Self::DontNeed, "dontneed", rustix::mm::Advice::LinuxDontNeed),
        (Self::DontNeedLocked, "dontneed_locked", rustix::mm::Advice::LinuxDontneedLocked),
        (Self::DontDump, "dontdump", rustix::mm::Advice::LinuxDontDump),
        (Self::PopulateWrite, "populate_write", rustix::mm::Advice::LinuxPopulateWrite),
        (Self::PageOut, "pageout", rustix::mm::Advice::LinuxPageOut),
    ];

    /// The advice's name in lower case, without `MADV_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The advice's number in the kernel.
    #[must_use]
    pub fn number(self) -> i32 {
        self.row().2 as i32
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

/// Memory that starts at a multiple of [`ALIGNMENT`]. No reference into it is
/// ever handed out, so advice that changes its contents harms nobody.
#[derive(Debug)]
pub struct Mapping {
    start: *mut c_void,
    len: usize,
    holes: Vec<Range<usize>>,
}

#[expect(unsafe_code, reason = "memory belongs to a process, not to a thread")]
// SAFETY: a mapping may be used and unmapped by any thread, one at a time.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of private anonymous memory; they must be a positive
    /// multiple of the page size.
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
        let base = unsafe { mmap_anonymous(ptr::null_mut(), whole, READ_WRITE, MapFlags::PRIVATE) }
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
        Ok(Self { start, len, holes: Vec::new() })
    }

    /// Maps `len` bytes of anonymous memory that children share.
    ///
    /// # Errors
    /// As for [`Mapping::anonymous`].
    pub fn shared(len: usize) -> TestResult<Self> {
        Self::anonymous(len)?.replace_anonymous(MapFlags::SHARED, "shared memory")
    }

    /// Maps `len` bytes of private memory from the pool of reserved huge pages;
    /// they must be a multiple of the default size of these.
    ///
    /// # Errors
    /// As for [`Mapping::anonymous`], or the pool does not have that much.
    pub fn hugetlb(len: usize) -> TestResult<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
        Self::anonymous(len)?.replace_anonymous(flags, "reserved huge pages")
    }

    /// Maps the first `len` bytes of `file`, writes to which change the file if
    /// `shared` and nothing else otherwise.
    ///
    /// # Errors
    /// As for [`Mapping::anonymous`].
    #[expect(unsafe_code, reason = "maps a file over memory of our own")]
    pub fn file(file: &File, len: usize, shared: bool) -> TestResult<Self> {
        let this = Self::anonymous(len)?;
        let flags = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        // SAFETY: what is replaced belongs to `this`, and nobody knows it yet.
        unsafe { mmap(this.start, len, READ_WRITE, flags | MapFlags::FIXED, file, 0) }
            .why(format_args!("map {len} bytes of a file"))?;
        Ok(this)
    }

    #[expect(unsafe_code, reason = "maps memory over memory of our own")]
    fn replace_anonymous(self, flags: MapFlags, what: &str) -> TestResult<Self> {
        // SAFETY: what is replaced belongs to `self`, and nobody knows it yet.
        unsafe { mmap_anonymous(self.start, self.len, READ_WRITE, flags | MapFlags::FIXED) }
            .why(format_args!("map {} bytes of {what}", self.len))?;
        Ok(self)
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
        self.start.expose_provenance()
    }

    /// Writes to one byte of every page that starts in `range`, in bytes from the
    /// mapping's start.
    ///
    /// # Panics
    /// `range` leaves the mapping or touches a hole.
    #[expect(unsafe_code, reason = "writes through a raw pointer, so that every write happens")]
    pub fn touch(&self, range: Range<usize>) {
        self.check_mapped(&range);
        for offset in range.step_by(PAGE) {
            // SAFETY: `check` has made sure that the byte is in the mapping, which
            // is writable and to which there are no references.
            unsafe { self.start.cast::<u8>().add(offset).write_volatile(1) };
        }
    }

    /// Writes `value` to every byte of `range`, in bytes from the mapping's start.
    ///
    /// # Panics
    /// `range` leaves the mapping or touches a hole.
    #[expect(unsafe_code, reason = "writes through a raw pointer")]
    pub fn fill(&self, range: Range<usize>, value: u8) {
        self.check_mapped(&range);
        // SAFETY: `check_mapped` has made sure that all bytes are in the mapping,
        // which is writable and to which there are no references.
        unsafe { self.start.cast::<u8>().add(range.start).write_bytes(value, range.len()) };
    }

    /// The value that every byte of the page at `offset` has, or `None` if they
    /// differ.
    ///
    /// # Panics
    /// `offset` is not that of a page, or the page is a hole.
    #[expect(unsafe_code, reason = "reads through a raw pointer, so that every read happens")]
    #[must_use]
    pub fn page_value(&self, offset: usize) -> Option<u8> {
        assert!(offset.is_multiple_of(PAGE), "{offset} is not at a page");
        self.check_mapped(&(offset..offset + PAGE));
        let words = self.start.wrapping_byte_add(offset).cast::<u64>();
        // SAFETY: all words are in the mapping, which is readable, aligned to
        // pages, and to which there are no references.
        let word = |index| unsafe { words.add(index).read_volatile() };
        let first = word(0);
        let value = first.to_ne_bytes()[0];
        let same = first == u64::from_ne_bytes([value; 8])
            && (1..PAGE / 8).all(|index| word(index) == first);
        same.then_some(value)
    }

    /// The eight bytes at `offset`, which is a multiple of eight.
    ///
    /// # Panics
    /// `offset` is no such multiple, leaves the mapping or is in a hole.
    #[expect(unsafe_code, reason = "reads through a raw pointer, so that every read happens")]
    #[must_use]
    pub fn word(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8), "{offset} is not at a word");
        self.check_mapped(&(offset..offset + 8));
        // SAFETY: the word is in the mapping, which is readable, is aligned, and
        // there are no references to it.
        unsafe { self.start.wrapping_byte_add(offset).cast::<u64>().read_volatile() }
    }

    /// Writes to the first eight bytes of every page that starts in `range`, in
    /// bytes from the mapping's start.
    ///
    /// # Panics
    /// `range` leaves the mapping or touches a hole.
    #[expect(unsafe_code, reason = "writes through a raw pointer, so that every write happens")]
    pub fn mark(&self, range: Range<usize>, value: u64) {
        self.check_mapped(&range);
        for offset in range.step_by(PAGE) {
            // SAFETY: as for `word`; the mapping is writable.
            unsafe { self.start.wrapping_byte_add(offset).cast::<u64>().write_volatile(value) };
        }
    }

    /// Unmaps `range`, in bytes from the mapping's start, and leaves a hole.
    ///
    /// # Errors
    /// The kernel refuses.
    ///
    /// # Panics
    /// `range` leaves the mapping or touches another hole.
    #[expect(unsafe_code, reason = "unmaps a part of the mapping")]
    pub fn punch(&mut self, range: Range<usize>) -> TestResult {
        self.check_mapped(&range);
        // SAFETY: the range lies in the mapping, to which there are no references,
        // and is never used again.
        unsafe { munmap(self.start.wrapping_byte_add(range.start), range.len()) }
            .why(format_args!("unmap {} bytes", range.len()))?;
        self.holes.push(range);
        self.holes.sort_by_key(|hole| hole.start);
        Ok(())
    }

    /// Locks `range`, in bytes from the mapping's start, into memory.
    ///
    /// # Errors
    /// The kernel refuses.
    ///
    /// # Panics
    /// `range` leaves the mapping or touches a hole.
    #[expect(unsafe_code, reason = "a system call on a part of the mapping")]
    pub fn lock(&self, range: &Range<usize>) -> TestResult {
        self.check_mapped(range);
        // SAFETY: the range lies in the mapping; locking changes no contents.
        unsafe { mlock(self.start.wrapping_byte_add(range.start), range.len()) }
            .why(format_args!("lock {} bytes", range.len()))
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

    fn check_mapped(&self, range: &Range<usize>) {
        self.check(range);
        for hole in &self.holes {
            assert!(
                range.end <= hole.start || hole.end <= range.start,
                "{range:?} touches the hole {hole:?}"
            );
        }
    }

    /// What is mapped: all but the holes.
    fn pieces(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(0).chain(self.holes.iter().map(|hole| hole.end));
        let ends = self.holes.iter().map(|hole| hole.start).chain(std::iter::once(self.len));
        starts.zip(ends).map(|(start, end)| start..end).filter(|piece| !piece.is_empty())
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "unmaps what the mapping owns")]
    fn drop(&mut self) {
        for piece in self.pieces() {
            let start = self.start.wrapping_byte_add(piece.start);
            // SAFETY: the memory belongs to this mapping alone and there are no
            // references to it. Holes may belong to somebody else by now.
            if let Err(error) = unsafe { munmap(start, piece.len()) } {
                eprintln!("unmap {} bytes: {error}", piece.len());
            }
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
    fn pages_are_filled_and_read_back() {
        for mapping in [Mapping::anonymous(3 * PAGE), Mapping::shared(3 * PAGE)] {
            let mapping = mapping.unwrap();
            mapping.fill(PAGE..3 * PAGE, 7);
            assert_eq!(mapping.page_value(0), Some(0));
            assert_eq!(mapping.page_value(2 * PAGE), Some(7));
            mapping.fill(2 * PAGE + 4000..2 * PAGE + 4001, 8);
            assert_eq!(mapping.page_value(2 * PAGE), None);
            mapping.lock(&(0..PAGE)).unwrap();
        }
    }

    #[test]
    fn a_hole_stays_out_of_what_is_mapped() {
        let mut mapping = Mapping::anonymous(6 * PAGE).unwrap();
        mapping.punch(4 * PAGE..5 * PAGE).unwrap();
        mapping.punch(0..PAGE).unwrap();
        let pieces: Vec<_> = mapping.pieces().collect();
        assert_eq!(pieces, [PAGE..4 * PAGE, 5 * PAGE..6 * PAGE]);
        mapping.fill(PAGE..4 * PAGE, 1);
    }

    #[test]
    #[should_panic(expected = "touches the hole")]
    fn touching_a_hole_is_refused() {
        let mut mapping = Mapping::anonymous(2 * PAGE).unwrap();
        mapping.punch(PAGE..2 * PAGE).unwrap();
        mapping.touch(0..2 * PAGE);
    }

    #[test]
    fn a_private_file_mapping_leaves_the_file_alone() {
        let mut file = tempfile();
        std::io::Write::write_all(&mut file, &[5; 2 * PAGE]).unwrap();
        let private = Mapping::file(&file, 2 * PAGE, false).unwrap();
        let shared = Mapping::file(&file, 2 * PAGE, true).unwrap();
        private.fill(0..PAGE, 6);
        shared.fill(PAGE..2 * PAGE, 7);
        assert_eq!(private.page_value(0), Some(6));
        assert_eq!(shared.page_value(0), Some(5));
        assert_eq!(private.page_value(PAGE), Some(7));
    }

    fn tempfile() -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create("kvet", flags).unwrap().into()
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
