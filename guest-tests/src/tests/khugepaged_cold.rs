// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does khugepaged put off an address space that was told to be cold?
//!
//! **What it proves.** khugepaged goes through its list of address spaces in
//! order. With the series `khugepaged-cold`, `MADV_COLD` and `MADV_FREE` move
//! the caller's to the list's tail, so that whoever stood behind it gets huge
//! pages earlier. Upstream chose otherwise in 7.x: its scan passes quickly over
//! memory that `MADV_FREE` has marked, and `MADV_COLD` has no effect.
//!
//! **How.** Three tasks, *hot1*, *cold* and *hot2*, come onto the list in this
//! order, each with `pmds` PMD ranges of touched small pages. Then *cold* gives
//! the advice. khugepaged is kicked, one pass of one PMD range at a time (see
//! [`crate::harness::khugepaged`]), until *hot2* has its first huge page; the
//! number of that kick is the observation. In order, *hot1* and *cold* take
//! `pmds` kicks each, so that it is kick 2 * `pmds` + 1; if *cold* is put off,
//! it is kick `pmds` + 1. With the default of 4: 9 and 5.
//!
//! The order of events matters. Advice before *hot2* is on the list, or while
//! khugepaged's cursor is on *cold*, has no effect with the series either. So
//! the test brings the cursor to the list's head first, and gives the advice
//! last, before the first kick.
//!
//! **Controls.**
//! - The same without advice must need 2 * `pmds` + 1 kicks in every kernel;
//!   the test fails if not, for then its kicks do not count what it thinks.
//! - `collapsed_untouched`: advised memory has no recently used pages, and
//!   khugepaged does not collapse it. True without advice, false with it, in
//!   every kernel: shows that the advice was taken.
//! - `collapsed_touched`: *cold* is touched again, and must then get its huge
//!   pages. A kernel that loses *cold* from the list needs few kicks for *hot2*,
//!   too; its `semantics` is `loses-cold`.

use std::ops::Range;

use crate::harness::khugepaged::Khugepaged;
use crate::harness::mapping::PAGE;
use crate::harness::{
    Advice, Context, Default, Parameter, Stop, Task, Test, TestResult, proc, thp,
};

/// The test.
pub const TEST: Test = Test {
    name: "khugepaged_cold",
    summary: "passes of khugepaged until the task behind a cold one has a huge page",
    parameters: &[Parameter {
        name: "pmds",
        summary: "size of each task, in huge pages",
        default: Default::Integer(4),
    }],
    run,
};

/// What one round of the three tasks has shown.
struct Round {
    /// The kick at which hot2 got its first huge page.
    kicks: u32,
    /// Whether all of cold was huge by then.
    collapsed_untouched: bool,
    /// Whether all of cold was huge at last, after it was touched again.
    collapsed_touched: bool,
}

fn run(context: &mut Context) -> TestResult {
    let pmds: u32 = context.integer("pmds")?;
    if !(1..=64).contains(&pmds) {
        return Err(Stop::fail(format!("parameter pmds is {pmds}, not 1 to 64")));
    }
    let huge_page = thp::huge_page_size()?;
    let size = huge_page * pmds as usize;
    // Small and huge pages of three tasks at once, and as much again to spare.
    let needed = 12 * size as u64;
    context.require(
        proc::meminfo("MemAvailable")? >= needed,
        format!("needs {} MiB of free memory", needed >> 20),
    )?;

    let khugepaged = Khugepaged::stop(huge_page / PAGE)?;
    let (mut kicks, mut loses_cold) = (Vec::new(), false);
    for (name, advice) in
        [("none", None), ("cold", Some(Advice::Cold)), ("free", Some(Advice::Free))]
    {
        let round = round(&khugepaged, advice, size, pmds)?;
        context.observe(&format!("kicks.{name}"), round.kicks)?;
        context.observe(&format!("collapsed_untouched.{name}"), round.collapsed_untouched)?;
        context.observe(&format!("collapsed_touched.{name}"), round.collapsed_touched)?;
        kicks.push(round.kicks);
        loses_cold |= !round.collapsed_touched;
    }
    let in_order = 2 * pmds + 1;
    if kicks[0] != in_order {
        return Err(Stop::fail(format!(
            "without advice hot2 has its first huge page at kick {}, not {in_order}",
            kicks[0]
        )));
    }
    let semantics = semantics(kicks[1] < in_order, kicks[2] < in_order, loses_cold);
    context.observe("semantics", semantics)
}

/// Name of what a kernel does, from whether advice makes hot2 faster and whether
/// cold never gets its huge pages.
fn semantics(cold_helps: bool, free_helps: bool, loses_cold: bool) -> &'static str {
    match (cold_helps, free_helps) {
        _ if loses_cold => "loses-cold",
        (false, false) => "unaware",
        (true, true) => "move-to-tail",
        (false, true) => "lazyfree-skip",
        (true, false) => "cold-only",
    }
}

fn round(
    khugepaged: &Khugepaged,
    advice: Option<Advice>,
    size: usize,
    pmds: u32,
) -> TestResult<Round> {
    khugepaged.settle()?;
    let all: Range<usize> = 0..size;
    let hot1 = listed_task("hot1", size)?;
    let mut cold = listed_task("cold", size)?;
    let hot2 = listed_task("hot2", size)?;
    if let Some(advice) = advice {
        cold.advise(advice, all.clone())?;
    }
    for task in [&hot1, &cold, &hot2] {
        if task.huge_bytes()? > 0 {
            return Err(Stop::fail("a task has huge pages before the first kick"));
        }
    }

    // Three times round is more than any order can need.
    let limit = 3 * (3 * pmds + 1);
    let kicks = kick_until(khugepaged, limit, || Ok(hot2.huge_bytes()? > 0))?
        .ok_or_else(|| Stop::fail(format!("hot2 has no huge page after {limit} kicks")))?;
    let collapsed_untouched = cold.huge_bytes()? == size as u64;
    cold.touch(all)?;
    let collapsed_touched =
        kick_until(khugepaged, limit, || Ok(cold.huge_bytes()? == size as u64))?.is_some();
    Ok(Round { kicks, collapsed_untouched, collapsed_touched })
}

/// A task with touched small pages that is the last on khugepaged's list.
fn listed_task(name: &str, size: usize) -> TestResult<Task> {
    let mut task = Task::start(name, size)?;
    task.touch(0..size)?;
    task.advise(Advice::Huge, 0..size)?;
    Ok(task)
}

/// Kicks khugepaged until `done`, and returns how many kicks that took, or
/// `None` if it was not done after `limit`.
fn kick_until(
    khugepaged: &Khugepaged,
    limit: u32,
    done: impl Fn() -> TestResult<bool>,
) -> TestResult<Option<u32>> {
    for kick in 1..=limit {
        khugepaged.kick()?;
        if done()? {
            return Ok(Some(kick));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_has_a_name() {
        assert_eq!(semantics(false, false, false), "unaware");
        assert_eq!(semantics(true, true, false), "move-to-tail");
        assert_eq!(semantics(false, true, false), "lazyfree-skip");
        assert_eq!(semantics(true, false, false), "cold-only");
        assert_eq!(semantics(true, true, true), "loses-cold");
    }
}
