// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors that are refused, or that end before their last range.
//!
//! Ranges are advised in order, up to the first that cannot be; the bytes of
//! those before it are returned, or its error if it is the first. What comes
//! before must have been advised, what comes after must be untouched.
//!
//! - `partial.*`: a hole in the middle of vectors of every length, and in
//!   `flushes.partial.ADVICE.vlen_N` the flushes for the ranges before it.
//! - `hole_across.*`: a hole in the middle of one range; the pages on both
//!   sides are advised and the range still counts as refused.
//! - `unaligned.*`, `overflow.*`, `zero.*`, `too_long.*`, `arguments.*`: the rest
//!   of what a caller may get wrong.

use rustix::io::Errno;

use super::{Caller, OLD, SINGLES, VLENS, contents, contents_of, outcome, pages, process_madvise};
use crate::harness::mapping::PAGE;
use crate::harness::process_madvise::{MAX_VLEN, Vector, error_name, pidfd};
use crate::harness::{Advice, Context, Mapping, Task, TestResult};

/// A page of user space below `vm.mmap_min_addr`, so that nothing is mapped there.
const LOW_PAGE: usize = PAGE;

/// An address of the kernel.
const KERNEL: usize = 0xffff_8880_0000_0000;

/// A number that is no advice.
const NO_ADVICE: i32 = 12_345;

pub(super) fn observe(context: &mut Context, caller: &mut Caller) -> TestResult {
    for vlen in VLENS {
        partial(context, caller, vlen)?;
    }
    hole_across(context, caller)?;
    unaligned(context, caller)?;
    overflow(context, caller)?;
    zero(context, caller)?;
    too_long(context, caller)?;
    arguments(context, caller)
}

/// A mapping of some pages with old contents.
fn filled(pages: usize) -> TestResult<Mapping> {
    let mapping = Mapping::anonymous(pages * PAGE)?;
    mapping.fill(0..mapping.len(), OLD);
    Ok(mapping)
}

fn partial(context: &mut Context, caller: &mut Caller, vlen: usize) -> TestResult {
    let hole = vlen / 2;
    for advice in [Advice::DontNeed, Advice::Free] {
        let name = advice.name();
        let mut mapping = filled(vlen)?;
        let vector = pages(&mapping, 0..vlen);
        mapping.punch(hole * PAGE..(hole + 1) * PAGE)?;
        let mapped = (0..vlen).filter(|&page| page != hole);
        let watched = caller.advise_watched(&vector, advice, &mapping, mapped)?;
        context.observe(&format!("partial.{name}.returns.vlen_{vlen}"), watched.result.clone())?;
        context.observe(&format!("flushes.partial.{name}.vlen_{vlen}"), watched.flushes)?;
        if hole > 0 {
            let before = contents_of(advice, watched.contents(0..hole));
            context.observe(&format!("partial.{name}.before.vlen_{vlen}"), before)?;
        }
        if hole + 1 < vlen {
            let after = watched.contents(hole + 1..vlen);
            context.observe(&format!("partial.{name}.after.vlen_{vlen}"), after.name())?;
        }
    }
    Ok(())
}

fn hole_across(context: &mut Context, caller: &Caller) -> TestResult {
    let mut mapping = filled(4)?;
    mapping.punch(PAGE..2 * PAGE)?;
    let at = mapping.address();
    let vector = [(at, 3 * PAGE), (at + 3 * PAGE, PAGE)].into_iter().collect();
    let result = caller.advise(&vector, Advice::DontNeed);
    let (inside, after) = (contents(&mapping, [0, 2]), contents(&mapping, [3]));
    context.observe("hole_across.returns", outcome(result)?)?;
    context.observe("hole_across.inside", inside.name())?;
    context.observe("hole_across.after", after.name())
}

fn unaligned(context: &mut Context, caller: &Caller) -> TestResult {
    let mapping = filled(4)?;
    let at = mapping.address();
    let start = [(at, PAGE), (at + PAGE + 1, PAGE)].into_iter().collect();
    let result = caller.advise(&start, Advice::DontNeed);
    let inside = contents(&mapping, [1, 2]);
    context.observe("unaligned.start.returns", outcome(result)?)?;
    context.observe("unaligned.start.inside", inside.name())?;

    let mapping = filled(4)?;
    let at = mapping.address();
    // Rounded up to two pages, but counted as asked for.
    let length = [(at, PAGE + 100), (at + 3 * PAGE, 1)].into_iter().collect();
    let result = caller.advise(&length, Advice::DontNeed);
    let (inside, between) = (contents(&mapping, [0, 1, 3]), contents(&mapping, [2]));
    context.observe("unaligned.length.returns", outcome(result)?)?;
    context.observe("unaligned.length.inside", inside.name())?;
    context.observe("unaligned.length.between", between.name())
}

fn overflow(context: &mut Context, caller: &Caller) -> TestResult {
    let mapping = filled(2)?;
    let at = mapping.address();
    for (name, range) in [
        // A negative size, which is refused before any range is looked at.
        ("negative", (at + PAGE, usize::MAX)),
        ("kernel", (KERNEL, PAGE)),
        ("unmapped", (LOW_PAGE, PAGE)),
    ] {
        for (place, vector) in [
            ("alone", [range].into_iter().collect::<Vector>()),
            ("second", [(at, PAGE), range].into_iter().collect()),
        ] {
            let result = caller.advise(&vector, Advice::DontNeed);
            context.observe(&format!("overflow.{name}.{place}"), outcome(result)?)?;
        }
    }
    context.observe("overflow.contents", contents(&mapping, [1]).name())?;
    // Sizes that process_madvise() never passes on: rounded up they are nothing,
    // or end below their start.
    for (name, len) in [("rounds_to_zero", usize::MAX), ("wraps", usize::MAX - 2 * PAGE)] {
        #[expect(unsafe_code, reason = "advice may change the contents of memory")]
        // SAFETY: the kernel has to refuse. One that does not ends the test,
        // which is a result.
        let result = unsafe { process_madvise::madvise(at + PAGE, len, Advice::DontNeed.number()) };
        context.observe(&format!("overflow.madvise.{name}"), done_or_error(result))?;
    }
    Ok(())
}

fn done_or_error(result: Result<(), Errno>) -> String {
    match result {
        Ok(()) => "done".to_owned(),
        Err(error) => error_name(error),
    }
}

fn zero(context: &mut Context, caller: &Caller) -> TestResult {
    let mapping = filled(3)?;
    let at = mapping.address();
    for (name, vector) in [
        ("no_range", vec![]),
        ("alone", vec![(at, 0)]),
        ("unaligned_first", vec![(at + 1, 0), (at, PAGE)]),
        ("between", vec![(at, PAGE), (at + PAGE, 0), (at + 2 * PAGE, PAGE)]),
    ] {
        let result = caller.advise(&vector.into_iter().collect(), Advice::DontNeed);
        context.observe(&format!("zero.{name}"), outcome(result)?)?;
    }
    context.observe("zero.others", contents(&mapping, [0, 2]).name())?;
    context.observe("zero.untouched", contents(&mapping, [1]).name())
}

fn too_long(context: &mut Context, caller: &Caller) -> TestResult {
    let mapping = filled(MAX_VLEN + 1)?;
    let vector = pages(&mapping, 0..MAX_VLEN + 1);
    for advice in [Advice::DontNeed, Advice::Free, Advice::Cold] {
        let result = caller.advise(&vector, advice);
        let name = advice.name();
        context.observe(&format!("too_long.{name}.vlen_{}", vector.len()), outcome(result)?)?;
    }
    context.observe("too_long.contents", contents(&mapping, 0..=MAX_VLEN).name())
}

/// Wrong arguments other than the ranges, and the memory of another process.
fn arguments(context: &mut Context, caller: &Caller) -> TestResult {
    let mapping = filled(1)?;
    let vector = pages(&mapping, 0..1);
    let dontneed = Advice::DontNeed.number();
    context.observe("arguments.flags", outcome(caller.call(&vector, dontneed, 1))?)?;
    context.observe("arguments.advice", outcome(caller.call(&vector, NO_ADVICE, 0))?)?;
    let empty = Vector::default();
    context.observe("arguments.advice_no_range", outcome(caller.call(&empty, NO_ADVICE, 0))?)?;
    context.observe("arguments.contents", contents(&mapping, [0]).name())?;

    // Another process keeps its memory, whatever this one may do to its own.
    let mut other = Task::start("other", SINGLES * PAGE)?;
    other.touch(0..other.len())?;
    let fd = pidfd(other.pid())?;
    let vector = [(other.address(), PAGE)].into_iter().collect();
    for advice in [Advice::DontNeed, Advice::Free, Advice::Cold] {
        #[expect(unsafe_code, reason = "advice may change the contents of memory")]
        // SAFETY: the memory is that of the other process.
        let result = unsafe { process_madvise::process_madvise(&fd, &vector, advice.number(), 0) };
        context.observe(&format!("arguments.other_process.{}", advice.name()), outcome(result)?)?;
    }
    Ok(())
}
