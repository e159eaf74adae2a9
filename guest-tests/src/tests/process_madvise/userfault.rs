// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory whose faults a program handles (userfaultfd).
//!
//! Whoever removes contents of such memory gives up the mmap_lock in the middle
//! of the call and waits until the handler has heard of it. A batch that is open
//! then must survive what the handler does meanwhile. The memory stands between
//! two ordinary pages in one vector.
//!
//! - `userfaultfd.ADVICE.removed`: the handler has heard of just this page.
//! - `userfaultfd.ADVICE.inside`: what is read there afterwards; `handler` if
//!   the page came from the handler, as it has to after `MADV_DONTNEED`.
//! - `userfaultfd.unmaps.*`: the handler unmaps the last page of the vector
//!   meanwhile. The call ends there, or has been there before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::kinds::old_page;
use super::{Caller, NEW, OLD, contents, contents_of, outcome};
use crate::harness::mapping::PAGE;
use crate::harness::userfault::{Event, Userfault};
use crate::harness::{Advice, Context, Mapping, Stop, TestResult};

/// How often the handler looks whether it is still needed.
const INTERVAL: Duration = Duration::from_millis(50);

pub(super) fn observe(context: &mut Context, caller: &Caller) -> TestResult {
    match Userfault::open() {
        Ok(_) => {}
        Err(Stop::Skip(why)) => return context.skip_part(format!("userfaultfd: {why}")),
        Err(failure) => return Err(failure),
    }
    for advice in [Advice::DontNeed, Advice::Free] {
        between(context, caller, advice)?;
    }
    unmaps(context, caller)
}

/// Handles faults with pages of new contents until `stop`, and drops `unmapped`
/// at the first removal. Returns the removals.
fn handle(
    handler: &Userfault,
    stop: &AtomicBool,
    mut unmapped: Option<Mapping>,
) -> TestResult<Vec<std::ops::Range<usize>>> {
    let mut removals = Vec::new();
    while !stop.load(Ordering::Acquire) {
        match handler.next(INTERVAL)? {
            None => {}
            Some(Event::Fault(address)) => handler.fill(address, NEW)?,
            Some(Event::Remove(range)) => {
                removals.push(range);
                drop(unmapped.take());
            }
        }
    }
    Ok(removals)
}

/// Runs `advise` with a handler of its own thread.
fn handled<T>(
    handler: &Userfault,
    unmapped: Option<Mapping>,
    advise: impl FnOnce() -> T,
) -> TestResult<(T, Vec<std::ops::Range<usize>>)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| handle(handler, &stop, unmapped));
        let value = advise();
        stop.store(true, Ordering::Release);
        match thread.join() {
            Ok(removals) => Ok((value, removals?)),
            Err(_) => Err(Stop::fail("the handler of faults panicked")),
        }
    })
}

/// A page with old contents whose faults `handler` gets from now on.
fn registered(handler: &Userfault) -> TestResult<Mapping> {
    let page = old_page()?;
    handler.register(&page)?;
    Ok(page)
}

fn between(context: &mut Context, caller: &Caller, advice: Advice) -> TestResult {
    let handler = Userfault::open()?;
    let (first, last) = (old_page()?, old_page()?);
    let middle = registered(&handler)?;
    let vector =
        [&first, &middle, &last].map(|mapping| (mapping.address(), PAGE)).into_iter().collect();
    let ((result, inside), removals) = handled(&handler, None, || {
        let result = caller.advise(&vector, advice);
        (result, middle.page_value(0))
    })?;
    let name = format!("userfaultfd.{}", advice.name());
    let inside = match (inside, advice) {
        (Some(NEW), _) => "handler",
        (Some(0 | OLD), Advice::Free) => "old_or_zero",
        (Some(0), _) => "zero",
        (Some(OLD), _) => "old",
        _ => "foreign",
    };
    let (before, after) = (contents(&first, [0]), contents(&last, [0]));
    let page = middle.address()..middle.address() + PAGE;
    context.observe(&format!("{name}.returns"), outcome(result)?)?;
    context.observe(&format!("{name}.removed"), removals == [page])?;
    context.observe(&format!("{name}.inside"), inside)?;
    context.observe(&format!("{name}.before"), contents_of(advice, before))?;
    context.observe(&format!("{name}.after"), contents_of(advice, after))
}

fn unmaps(context: &mut Context, caller: &Caller) -> TestResult {
    let handler = Userfault::open()?;
    let (first, last) = (old_page()?, old_page()?);
    let middle = registered(&handler)?;
    let vector =
        [&first, &middle, &last].map(|mapping| (mapping.address(), PAGE)).into_iter().collect();
    let (result, removals) =
        handled(&handler, Some(last), || caller.advise(&vector, Advice::DontNeed))?;
    let before = contents(&first, [0]);
    // The call goes on as soon as the handler has heard of the removal: it may or
    // may not come to the last page before the handler does.
    let pages = result.map(|bytes| bytes / PAGE);
    context.log(format!("userfaultfd.unmaps: {pages:?} pages"))?;
    context.observe("userfaultfd.unmaps.two_or_three", matches!(pages, Ok(2 | 3)))?;
    context.observe("userfaultfd.unmaps.removals", super::number(removals.len())?)?;
    context.observe("userfaultfd.unmaps.before", before.name())
}
