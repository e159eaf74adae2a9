// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often does `process_madvise` flush the TLB, and does it still do what it
//! says?
//!
//! **What it proves.** `MADV_DONTNEED` and `MADV_FREE` must flush what the TLB
//! holds of the memory that they take. A kernel flushes for each range of the
//! vector, and for each VMA of one `madvise`; with the series
//! `madvise-batch-tlb` once for a whole call. Return values and the contents of
//! memory must not change with that, above all where a call stops midway.
//!
//! **How.** The kernel has the trace event `tlb:tlb_flush`. Reason 3 is a flush
//! of the caller's own address space on its own CPU (its name changes between
//! versions, its number does not). The test counts those of its own process
//! while one call runs, for vectors of one to 1024 ranges, each a touched small
//! page: `flushes.ADVICE.vlen_N`. The test stays on one CPU, memory has to be
//! free in plenty, since a gather that gets no memory flushes early, and the
//! pages are small. Contents are read right before and right after a call, on
//! the same CPU and with no other process in between, so that a translation that
//! should have been flushed shows old contents.
//!
//! Linux before 6.13 takes neither advice in `process_madvise`, not even for the
//! caller's own memory. The test skips there, unless the prerequisite
//! `madvise-self` has been applied.
//!
//! **Controls.**
//! - `flushes.ADVICE.single_calls_64`: 64 calls of `madvise` flush 64 times in
//!   every kernel; the test fails if not, for then it does not count what it
//!   thinks.
//! - `flushes.cold.vlen_64`: `MADV_COLD` is not batched by the series.
//! - `flushes.ADVICE.vlen_1`: one range has nothing to be batched with.
//! - `marked.free.vlen_N`: pages that `MADV_FREE` has put aside by the kernel's
//!   own counter. A kernel that flushes less because it does less shows here.
//! - `rewritten.free.vlen_N`, `dropped.free.vlen_N`: what is written after the
//!   call stays when the kernel is told to take the pages (`MADV_PAGEOUT`), and
//!   pages that are not written again it takes. Without a flush, the CPU would
//!   write through a translation that hides the write from the kernel.
//! - `neighbours.*`: pages next to a vector keep their contents.
//! - [`semantics`], [`kinds`] and [`userfault`] hold what must be the same in
//!   every kernel.
//!
//! [`smp`] looks at other CPUs, [`pressure`] at what happens when memory is short.

mod kinds;
mod latency;
pub mod pressure;
mod semantics;
pub mod smp;
mod userfault;

use std::ops::Range;
use std::os::fd::OwnedFd;

use kvet_records::Value;
use rustix::io::Errno;

use crate::harness::mapping::PAGE;
use crate::harness::process_madvise::{self, MAX_VLEN, Vector, error_name, pidfd};
use crate::harness::{
    Advice, Context, EventCounter, Mapping, Stop, Test, TestResult, Tunables, VmCounter, Why, cpu,
    proc, thp,
};

pub use latency::MEASURED;

/// The test.
pub const TEST: Test = Test {
    name: "process_madvise",
    summary: "TLB flushes, contents and return values of process_madvise",
    parameters: &[],
    run,
};

/// The lengths of the vectors.
const VLENS: [usize; 5] = [1, 2, 16, 64, MAX_VLEN];

/// Number of calls, or of VMAs, in what is compared with a vector.
const SINGLES: usize = 64;

/// Free memory in bytes with which no gather runs short: a few times what the
/// longest vector takes, with room for the kernel's own reserves.
const FREE_MEMORY: u64 = 64 << 20;

/// `TLB_LOCAL_MM_SHOOTDOWN` of include/linux/mm_types.h.
const LOCAL_FLUSH: u32 = 3;

/// What memory holds before advice; neither zero nor a value that
/// [`Mapping::touch`] writes.
const OLD: u8 = 0xa5;

/// What is written after advice.
const NEW: u8 = 0x5a;

/// The same for eight bytes at the start of a page.
const OLD_WORD: u64 = u64::from_ne_bytes([OLD; 8]);
const NEW_WORD: u64 = u64::from_ne_bytes([NEW; 8]);

/// The caller's side of the system call, and what counts its flushes.
struct Caller {
    own: OwnedFd,
    flushes: EventCounter,
}

impl Caller {
    fn new() -> TestResult<Self> {
        let pid = std::process::id();
        let filter = format!("reason == {LOCAL_FLUSH} && common_pid == {pid}");
        Ok(Self { own: pidfd(pid)?, flushes: EventCounter::new("tlb", "tlb_flush", &filter)? })
    }

    /// `process_madvise` on the caller's own memory.
    fn advise(&self, vector: &Vector, advice: Advice) -> Result<usize, Errno> {
        self.call(vector, advice.number(), 0)
    }

    /// The same with any number as advice and any flags.
    #[expect(unsafe_code, reason = "advice may change the contents of memory")]
    fn call(&self, vector: &Vector, advice: i32, flags: u32) -> Result<usize, Errno> {
        // SAFETY: every vector of this test consists of ranges that lie in its
        // own mappings, to which there are no references, or that the kernel has
        // to refuse. A kernel that does not ends the test, which is a result.
        unsafe { process_madvise::process_madvise(&self.own, vector, advice, flags) }
    }

    /// The same as [`Caller::advise`], with a close look at the pages `which` of
    /// `mapping`; counts the flushes.
    fn advise_watched(
        &mut self,
        vector: &Vector,
        advice: Advice,
        mapping: &Mapping,
        which: impl IntoIterator<Item = usize>,
    ) -> TestResult<Watched> {
        let mut pages = Pages::new(mapping, which);
        let own = &self.own;
        let (result, flushes) = self.flushes.count(|| pages.look(own, vector, advice))?;
        Ok(Watched { result: outcome(result)?, flushes: number(flushes)?, after: pages.after })
    }

    /// The same without counting, which waits for all CPUs.
    fn advise_looking(
        &self,
        vector: &Vector,
        advice: Advice,
        mapping: &Mapping,
        which: impl IntoIterator<Item = usize>,
    ) -> TestResult<Watched> {
        let mut pages = Pages::new(mapping, which);
        let result = pages.look(&self.own, vector, advice);
        Ok(Watched { result: outcome(result)?, flushes: 0, after: pages.after })
    }
}

/// Pages that are read right before and right after a call, with nothing in
/// between that could make the CPU forget its translations: one that should have
/// been flushed is still there, and shows what was.
struct Pages<'a> {
    mapping: &'a Mapping,
    which: Vec<usize>,
    /// Numbers and contents afterwards.
    after: Vec<(usize, Contents)>,
}

impl<'a> Pages<'a> {
    fn new(mapping: &'a Mapping, which: impl IntoIterator<Item = usize>) -> Self {
        let which: Vec<usize> = which.into_iter().collect();
        let after = Vec::with_capacity(which.len());
        Self { mapping, which, after }
    }

    #[expect(unsafe_code, reason = "advice may change the contents of memory")]
    fn look(&mut self, own: &OwnedFd, vector: &Vector, advice: Advice) -> Result<usize, Errno> {
        let Self { mapping, which, after } = self;
        for &page in which.iter() {
            page_contents(mapping, page);
        }
        // SAFETY: as in `Caller::call`.
        let result = unsafe { process_madvise::process_madvise(own, vector, advice.number(), 0) };
        after.extend(which.iter().map(|&page| (page, page_contents(mapping, page))));
        result
    }
}

/// What one call has done.
struct Watched {
    result: Value,
    flushes: i64,
    /// Numbers and contents of the pages that were looked at.
    after: Vec<(usize, Contents)>,
}

impl Watched {
    /// What those pages that lie in `range` hold.
    fn contents(&self, range: Range<usize>) -> Contents {
        let inside = self.after.iter().filter(|(page, _)| range.contains(page));
        all(inside.map(|&(_, contents)| contents))
    }
}

/// Stays on one CPU, sees to small pages until what it returns is dropped, and
/// skips if memory is short.
fn prepare(context: &Context) -> TestResult<Tunables> {
    cpu::pin(0)?;
    let mut tunables = Tunables::default();
    match thp::start_state(&mut tunables) {
        // Without transparent huge pages all pages are small.
        Ok(()) | Err(Stop::Skip(_)) => {}
        Err(failure) => return Err(failure),
    }
    context.require(
        proc::meminfo("MemAvailable")? >= FREE_MEMORY,
        format!("needs {} MiB of free memory", FREE_MEMORY >> 20),
    )?;
    Ok(tunables)
}

fn run(context: &mut Context) -> TestResult {
    let _tunables = prepare(context)?;
    let mut caller = Caller::new()?;
    for advice in [Advice::DontNeed, Advice::Free] {
        single_calls(context, &mut caller, advice)?;
        one_call(context, &mut caller, advice)?;
    }
    if !own_advice(context, &caller)? {
        return Ok(());
    }
    for vlen in VLENS {
        for advice in [Advice::DontNeed, Advice::Free] {
            vector(context, &mut caller, advice, vlen)?;
        }
    }
    cold(context, &mut caller)?;
    semantics::observe(context, &mut caller)?;
    kinds::observe(context, &mut caller)?;
    userfault::observe(context, &caller)
}

/// Observes whether this kernel takes destructive advice for the caller itself in
/// `process_madvise`; where not, says that the rest is skipped.
fn own_advice(context: &mut Context, caller: &Caller) -> TestResult<bool> {
    let mapping = Mapping::anonymous(PAGE)?;
    mapping.touch(0..PAGE);
    match caller.advise(&pages(&mapping, 0..1), Advice::Cold) {
        Ok(_) => {}
        Err(error) => {
            return Err(Stop::skip(format!("process_madvise() with MADV_COLD: {error}")));
        }
    }
    let result = caller.advise(&pages(&mapping, 0..1), Advice::DontNeed);
    let taken = result != Err(Errno::INVAL);
    context.observe("own_advice", taken)?;
    if taken {
        result.map(drop).why("process_madvise() with MADV_DONTNEED")?;
    } else {
        context.skip_part(
            "all of vectors: process_madvise() takes no MADV_DONTNEED for the caller's own \
             memory (Linux 6.13 does, or an older one with the prerequisite madvise-self)",
        )?;
    }
    Ok(taken)
}

/// Control: `madvise` page by page.
fn single_calls(context: &mut Context, caller: &mut Caller, advice: Advice) -> TestResult {
    let mapping = Mapping::anonymous(SINGLES * PAGE)?;
    mapping.touch(0..mapping.len());
    let (result, flushes) = caller.flushes.count(|| {
        (0..SINGLES).try_for_each(|page| mapping.advise(advice, page * PAGE..(page + 1) * PAGE))
    })?;
    result?;
    let name = advice.name();
    context.observe(&format!("flushes.{name}.single_calls_{SINGLES}"), number(flushes)?)?;
    if flushes != SINGLES as u64 {
        return Err(Stop::fail(format!(
            "{SINGLES} calls of madvise() with {name} show {flushes} flushes by tlb:tlb_flush"
        )));
    }
    Ok(())
}

/// One `madvise` over many VMAs, which are made different by a flag.
fn one_call(context: &mut Context, caller: &mut Caller, advice: Advice) -> TestResult {
    let mapping = Mapping::anonymous(SINGLES * PAGE)?;
    for page in (0..SINGLES).step_by(2) {
        mapping.advise(Advice::DontDump, page * PAGE..(page + 1) * PAGE)?;
    }
    mapping.fill(0..mapping.len(), OLD);
    let range = mapping.address()..mapping.address() + mapping.len();
    let areas = proc::areas(std::process::id(), &range)?;
    if areas != SINGLES {
        return Err(Stop::fail(format!("{SINGLES} pages with other flags make {areas} VMAs")));
    }
    let ((result, after), flushes) = caller.flushes.count(|| {
        contents(&mapping, 0..SINGLES);
        let result = mapping.advise(advice, 0..mapping.len());
        (result, contents(&mapping, 0..SINGLES))
    })?;
    result?;
    let name = advice.name();
    context.observe(&format!("flushes.{name}.one_call_{SINGLES}_vmas"), number(flushes)?)?;
    let after = contents_of(advice, after);
    context.observe(&format!("contents.{name}.one_call_{SINGLES}_vmas"), after)
}

/// One vector of `vlen` pages, with a page of the same VMA on either side.
fn vector(context: &mut Context, caller: &mut Caller, advice: Advice, vlen: usize) -> TestResult {
    let (name, last) = (advice.name(), vlen + 1);
    let mapping = Mapping::anonymous((vlen + 2) * PAGE)?;
    mapping.fill(0..mapping.len(), OLD);
    let marked = VmCounter::start("pglazyfree")?;
    let watched =
        caller.advise_watched(&pages(&mapping, 1..last), advice, &mapping, 0..vlen + 2)?;
    context.observe(&format!("flushes.{name}.vlen_{vlen}"), watched.flushes)?;
    context.observe(&format!("returns.{name}.vlen_{vlen}"), watched.result.clone())?;
    let inside = contents_of(advice, watched.contents(1..last));
    context.observe(&format!("contents.{name}.vlen_{vlen}"), inside)?;
    let beside = watched.contents(0..1).and(watched.contents(last..last + 1));
    context.observe(&format!("neighbours.{name}.vlen_{vlen}"), beside.name())?;
    if advice == Advice::Free {
        drain(caller)?;
        context.observe(&format!("marked.free.vlen_{vlen}"), number(marked.added()?)?)?;
        reclaimed(context, caller, vlen)?;
    }
    Ok(())
}

/// What is written after `MADV_FREE` takes a page back; what is not written, the
/// kernel takes when it is told to. The CPU's translations say that it has
/// written to the pages before. If they are not flushed, the kernel does not
/// hear of the later write.
fn reclaimed(context: &mut Context, caller: &Caller, vlen: usize) -> TestResult {
    let mapping = Mapping::anonymous(2 * vlen * PAGE)?;
    let vector = |half: usize| pages(&mapping, half * vlen..(half + 1) * vlen);
    let (written, left) = (vector(0), vector(1));
    let (first, all) = (0..vlen * PAGE, 0..2 * vlen * PAGE);
    mapping.mark(all.clone(), OLD_WORD);
    let result = caller.advise(&left, Advice::Free);
    result.map(drop).why("process_madvise() with MADV_FREE")?;
    mapping.mark(first.clone(), OLD_WORD);
    let result = caller.advise(&written, Advice::Free);
    mapping.mark(first, NEW_WORD);
    result.map(drop).why("process_madvise() with MADV_FREE")?;
    mapping.advise(Advice::PageOut, all)?;
    let kept = (0..vlen).all(|page| mapping.word(page * PAGE) == NEW_WORD);
    let dropped = (vlen..2 * vlen).all(|page| mapping.word(page * PAGE) == 0);
    context.observe(&format!("rewritten.free.vlen_{vlen}"), kept)?;
    context.observe(&format!("dropped.free.vlen_{vlen}"), dropped)
}

/// The kernel puts pages aside a few at a time and counts them then; any advice
/// makes it finish those of this CPU first.
fn drain(caller: &Caller) -> TestResult {
    let mapping = Mapping::anonymous(PAGE)?;
    mapping.touch(0..PAGE);
    caller.advise(&pages(&mapping, 0..1), Advice::Cold).map(drop).why("drain with MADV_COLD")
}

/// Control: advice that the series leaves alone.
fn cold(context: &mut Context, caller: &mut Caller) -> TestResult {
    let mapping = Mapping::anonymous(SINGLES * PAGE)?;
    mapping.fill(0..mapping.len(), OLD);
    let vector = pages(&mapping, 0..SINGLES);
    let watched = caller.advise_watched(&vector, Advice::Cold, &mapping, 0..SINGLES)?;
    context.observe(&format!("flushes.cold.vlen_{SINGLES}"), watched.flushes)?;
    context.observe(&format!("returns.cold.vlen_{SINGLES}"), watched.result.clone())?;
    let contents = watched.contents(0..SINGLES);
    context.observe(&format!("contents.cold.vlen_{SINGLES}"), contents.name())
}

/// A vector with a range for each of some pages of a mapping.
fn pages(mapping: &Mapping, which: impl IntoIterator<Item = usize>) -> Vector {
    let at = mapping.address();
    which.into_iter().map(|page| (at + page * PAGE, PAGE)).collect()
}

/// What is in some pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    Zero,
    Old,
    /// Whole pages of both kinds.
    Mixed,
    /// Something that was never there.
    Foreign,
}

impl Contents {
    fn name(self) -> &'static str {
        match self {
            Self::Zero => "zero",
            Self::Old => "old",
            Self::Mixed => "mixed",
            Self::Foreign => "foreign",
        }
    }

    /// Of these pages and of others.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Foreign, _) | (_, Self::Foreign) => Self::Foreign,
            _ if self == other => self,
            _ => Self::Mixed,
        }
    }
}

/// What the pages `which` of a mapping hold.
fn contents(mapping: &Mapping, which: impl IntoIterator<Item = usize>) -> Contents {
    all(which.into_iter().map(|page| page_contents(mapping, page)))
}

fn page_contents(mapping: &Mapping, page: usize) -> Contents {
    match mapping.page_value(page * PAGE) {
        Some(0) => Contents::Zero,
        Some(OLD) => Contents::Old,
        _ => Contents::Foreign,
    }
}

/// Contents of several pages; foreign if there is none, which must not pass.
fn all(contents: impl Iterator<Item = Contents>) -> Contents {
    contents.reduce(Contents::and).unwrap_or(Contents::Foreign)
}

/// Contents as an observation. When the kernel takes the pages of `MADV_FREE` is
/// its own affair, so old contents and none are the same there.
fn contents_of(advice: Advice, contents: Contents) -> &'static str {
    match (advice, contents) {
        (Advice::Free, Contents::Zero | Contents::Old | Contents::Mixed) => "old_or_zero",
        _ => contents.name(),
    }
}

/// What a call returned: a number of bytes, or the name of an error.
fn outcome(result: Result<usize, Errno>) -> TestResult<Value> {
    match result {
        Ok(bytes) => number(bytes).map(Value::from),
        Err(error) => Ok(error_name(error).into()),
    }
}

fn number<T: TryInto<i64>>(count: T) -> TestResult<i64> {
    count.try_into().ok().why("a count beyond all bounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_told_apart() {
        let mapping = Mapping::anonymous(4 * PAGE).unwrap();
        mapping.fill(PAGE..2 * PAGE, OLD);
        mapping.fill(2 * PAGE..3 * PAGE, NEW);
        mapping.fill(3 * PAGE..3 * PAGE + 1, OLD);
        assert_eq!(contents(&mapping, [0]), Contents::Zero);
        assert_eq!(contents(&mapping, [1]), Contents::Old);
        assert_eq!(contents(&mapping, [0, 1]), Contents::Mixed);
        assert_eq!(contents(&mapping, [1, 0, 1, 1]), Contents::Mixed);
        assert_eq!(contents(&mapping, [0, 1, 2]), Contents::Foreign);
        assert_eq!(contents(&mapping, [3]), Contents::Foreign);
        assert_eq!(contents(&mapping, []), Contents::Foreign);
    }

    #[test]
    fn only_free_may_leave_either() {
        assert_eq!(contents_of(Advice::Free, Contents::Mixed), "old_or_zero");
        assert_eq!(contents_of(Advice::Free, Contents::Foreign), "foreign");
        assert_eq!(contents_of(Advice::DontNeed, Contents::Mixed), "mixed");
        assert_eq!(contents_of(Advice::DontNeed, Contents::Zero), "zero");
    }

    #[test]
    fn results_are_bytes_or_names() {
        assert_eq!(outcome(Ok(4096)), Ok(Value::Integer(4096)));
        assert_eq!(outcome(Err(Errno::INVAL)), Ok(Value::Text("einval".into())));
        assert!(outcome(Ok(usize::MAX)).is_err());
    }
}
