// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does `process_madvise` do what it says when memory is short?
//!
//! **What it proves.** A gather needs memory for what it collects. If it gets
//! none it flushes early, every few pages, and goes on; nobody but the number of
//! flushes may tell. Nor may it matter whether pages are in memory or in swap.
//! Flushes are logged, not observed: how many there are is not the same twice.
//!
//! **How.**
//! - `failing.*`: allocations that may not wait fail, all of them or half
//!   (`fail_page_alloc`), and only those of this thread during the call.
//! - `swapped.*`: the memory is written to swap on zram, every other page of the
//!   vector is read back, and then the call is made. `left` is what the mapping
//!   still has in swap, in bytes: the two pages beside the vector.
//! - `pressed.*`: another process on another CPU goes round and round in more
//!   memory than there is, so that this one's pages come and go, for some
//!   sixty calls with each advice. Counts the calls that were not as they must be.
//!
//! In each: `returns`, `contents` of the vector's pages, and `neighbours`, the
//! pages beside it.
//!
//! **Controls.**
//! - `failing.injected`: `madvise` over as many pages in one VMA, which gathers
//!   more pages than fit into the gather itself in every kernel, meets failures.
//! - `swapped.out`: all pages were in swap before.
//! - `pressed.swapping`: the kernel has written to swap meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{
    Caller, Contents, OLD, VLENS, Watched, contents_of, number, own_advice, pages, prepare,
};
use crate::harness::failing::FailingPages;
use crate::harness::mapping::PAGE;
use crate::harness::process_madvise::MAX_VLEN;
use crate::harness::swap::Swap;
use crate::harness::{
    Advice, Context, Mapping, Stop, Task, Test, TestResult, VmCounter, cpu, proc,
};

/// Calls until one of them meets a failure. One that fails half of its two
/// allocations or more is missed in all of them with a probability of 4^-40.
const CONTROL_CALLS: usize = 40;

/// The test.
pub const TEST: Test = Test {
    name: "process_madvise_pressure",
    summary: "contents and return values of process_madvise when memory is short",
    parameters: &[],
    run,
};

/// Size of the swap space in bytes.
const SWAP: usize = 256 << 20;

/// How much more memory the other process wants than there is, in bytes.
const TOO_MUCH: u64 = 24 << 20;

/// Most memory that the other process may want, in bytes: what it touches in a
/// few seconds.
const MOST: u64 = 320 << 20;

/// Calls with each kind of advice under pressure.
const CALLS: usize = 60;

/// The lengths of their vectors.
const PRESSED: [usize; 4] = [1, 16, 64, 256];

/// Times that the kernel is asked to write pages to swap.
const ATTEMPTS: usize = 5;

const ADVICE: [Advice; 2] = [Advice::DontNeed, Advice::Free];

fn run(context: &mut Context) -> TestResult {
    let _tunables = prepare(context)?;
    let mut caller = Caller::new()?;
    if !own_advice(context, &caller)? {
        return Ok(());
    }
    failing(context, &mut caller)?;
    let _swap = Swap::on_zram(SWAP)?;
    for vlen in VLENS {
        for advice in ADVICE {
            swapped(context, &mut caller, advice, vlen)?;
        }
    }
    pressed(context, &mut caller)
}

/// Old pages, the last of them and the first beside a vector.
fn memory(vlen: usize) -> TestResult<Mapping> {
    let mapping = Mapping::anonymous((vlen + 2) * PAGE)?;
    mapping.fill(0..mapping.len(), OLD);
    Ok(mapping)
}

fn report(
    context: &mut Context,
    name: &str,
    advice: Advice,
    vlen: usize,
    watched: &Watched,
) -> TestResult {
    let name = format!("{name}.{}", advice.name());
    let inside = contents_of(advice, watched.contents(1..vlen + 1));
    context.observe(&format!("{name}.returns.vlen_{vlen}"), watched.result.clone())?;
    context.observe(&format!("{name}.contents.vlen_{vlen}"), inside)?;
    context.observe(&format!("{name}.neighbours.vlen_{vlen}"), beside(watched, vlen).name())?;
    context.log(format!("{name}: {} flushes at vlen {vlen}", watched.flushes))
}

/// What the pages beside a vector hold.
fn beside(watched: &Watched, vlen: usize) -> Contents {
    watched.contents(0..1).and(watched.contents(vlen + 1..vlen + 2))
}

fn failing(context: &mut Context, caller: &mut Caller) -> TestResult {
    for (name, percent) in [("failing.all", 100), ("failing.half", 50)] {
        let mut failing = match FailingPages::new(percent) {
            Err(Stop::Skip(why)) => return context.skip_part(format!("failing: {why}")),
            other => other?,
        };
        // One call asks for two pages or three, and all of them may be granted.
        let mut injected = false;
        for _ in 0..CONTROL_CALLS {
            let mapping = memory(MAX_VLEN)?;
            let (result, failures) =
                failing.run(|| mapping.advise(Advice::DontNeed, 0..mapping.len()))?;
            result?;
            injected |= failures > 0;
            if injected {
                break;
            }
        }
        context.observe(&format!("{name}.injected"), injected)?;
        for vlen in VLENS {
            for advice in ADVICE {
                let mapping = memory(vlen)?;
                let vector = pages(&mapping, 1..vlen + 1);
                let (watched, failures) = failing
                    .run(|| caller.advise_watched(&vector, advice, &mapping, 0..vlen + 2))?;
                context.log(format!("{failures} allocations failed"))?;
                report(context, name, advice, vlen, &watched?)?;
            }
        }
    }
    Ok(())
}

fn swapped(context: &mut Context, caller: &mut Caller, advice: Advice, vlen: usize) -> TestResult {
    let mapping = memory(vlen)?;
    let swapped = || {
        let start = mapping.address();
        proc::swap_bytes(std::process::id(), start..start + mapping.len())
    };
    let all = mapping.len() as u64;
    for _ in 0..ATTEMPTS {
        mapping.advise(Advice::PageOut, 0..mapping.len())?;
        if swapped()? == all {
            break;
        }
    }
    let name = advice.name();
    context.observe(&format!("swapped.{name}.out.vlen_{vlen}"), swapped()? == all)?;
    let read = super::contents(&mapping, (1..vlen + 1).step_by(2));
    if read != Contents::Old {
        return Err(Stop::fail(format!("pages come back from swap as {}", read.name())));
    }
    let vector = pages(&mapping, 1..vlen + 1);
    let result = caller.advise(&vector, advice);
    let left = swapped()?;
    let after = (0..vlen + 2).map(|page| (page, super::page_contents(&mapping, page))).collect();
    let watched = Watched { result: super::outcome(result)?, flushes: 0, after };
    let inside = contents_of(advice, watched.contents(1..vlen + 1));
    context.observe(&format!("swapped.{name}.returns.vlen_{vlen}"), watched.result.clone())?;
    context.observe(&format!("swapped.{name}.contents.vlen_{vlen}"), inside)?;
    let neighbours = beside(&watched, vlen).name();
    context.observe(&format!("swapped.{name}.neighbours.vlen_{vlen}"), neighbours)?;
    context.observe(&format!("swapped.{name}.left.vlen_{vlen}"), number(left)?)
}

fn pressed(context: &mut Context, caller: &mut Caller) -> TestResult {
    let wanted = proc::meminfo("MemAvailable")? + TOO_MUCH;
    if cpu::online()? < 2 || wanted > MOST {
        return context.skip_part(format!(
            "pressed: needs two CPUs and at most {} MiB of memory",
            MOST >> 20
        ));
    }
    let wanted = usize::try_from(wanted).map_err(|_| Stop::fail("memory beyond all bounds"))?;
    let written = VmCounter::start("pswpout")?;
    let (stop, full) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let hog = scope.spawn(|| hog(wanted.next_multiple_of(PAGE), &stop, &full));
        while !full.load(Ordering::Acquire) && !hog.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let result = ADVICE.iter().try_for_each(|&advice| calls(context, caller, advice));
        stop.store(true, Ordering::Release);
        match hog.join() {
            Ok(ended) => ended.and(result),
            Err(_) => Err(Stop::fail("the thread with the other process panicked")),
        }
    })?;
    context.observe("pressed.swapping", written.added()? > 0)
}

/// Has another process touch `len` bytes again and again; `full` says that it has
/// done so once.
fn hog(len: usize, stop: &AtomicBool, full: &AtomicBool) -> TestResult {
    // Its process is started from here and stays on this CPU, too.
    cpu::pin(1)?;
    let mut task = Task::start("hog", len)?;
    while !stop.load(Ordering::Acquire) {
        // In pieces, so that it soon hears that it is to stop.
        const PIECE: usize = 8 << 20;
        for start in (0..len).step_by(PIECE) {
            task.touch(start..len.min(start + PIECE))?;
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
        }
        full.store(true, Ordering::Release);
    }
    Ok(())
}

fn calls(context: &mut Context, caller: &mut Caller, advice: Advice) -> TestResult {
    let (mut returns, mut inside, mut neighbours) = (0, 0, 0);
    for &vlen in PRESSED.iter().cycle().take(CALLS) {
        let mapping = memory(vlen)?;
        let vector = pages(&mapping, 1..vlen + 1);
        let watched = caller.advise_looking(&vector, advice, &mapping, 0..vlen + 2)?;
        returns += i64::from(watched.result != super::outcome(Ok(vlen * PAGE))?);
        let expected = if advice == Advice::Free { "old_or_zero" } else { "zero" };
        let found = contents_of(advice, watched.contents(1..vlen + 1));
        inside += i64::from(found != expected);
        neighbours += i64::from(beside(&watched, vlen) != Contents::Old);
    }
    let name = format!("pressed.{}", advice.name());
    context.observe(&format!("{name}.wrong_returns"), returns)?;
    context.observe(&format!("{name}.wrong_contents"), inside)?;
    context.observe(&format!("{name}.wrong_neighbours"), neighbours)?;
    let mapping = memory(MAX_VLEN)?;
    let vector = pages(&mapping, 1..MAX_VLEN + 1);
    let watched = caller.advise_watched(&vector, advice, &mapping, [0])?;
    context.log(format!("{name}: {} flushes at vlen {MAX_VLEN}", watched.flushes))
}
