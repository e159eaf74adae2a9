// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does khugepaged put off an address space that was told to be cold?
//!
//! **What it proves.** khugepaged goes through its list of address spaces in
//! order. With the series `khugepaged-cold`, `MADV_COLD` and `MADV_FREE` move
//! the caller's to the list's tail, so that whoever stood behind it gets huge
//! pages earlier. Upstream chose otherwise in 7.x, as does `khugepaged-lazyfree`:
//! the scan passes quickly over memory that `MADV_FREE` has marked, and
//! `MADV_COLD` has no effect.
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
//! khugepaged's cursor is on *cold*, does not move *cold*. So the test brings the
//! cursor to the list's head first, and gives the advice last, before the first
//! kick. Other orders have rounds of their own (see [`Order`]), and they tell
//! the two ways of putting off apart; with 4 PMD ranges:
//!
//! | observation | in order | moved to the tail | lazyfree skipped |
//! |---|---|---|---|
//! | `kicks.ADVICE` | 9 | 5 | 5 |
//! | `kicks.ADVICE.part` | 9 | 5 | 7: half of *cold* is scanned |
//! | `kicks.ADVICE.repeated` | 9 | 5 | 5 |
//! | `kicks.ADVICE.early` | 9 | 9: it is at the tail | 5 |
//! | `kicks.ADVICE.at_cursor` | 9 | 9: it is not moved | 6: one range was scanned |
//! | `kicks.ADVICE.forked` | 9 | 5 | 5 |
//!
//! `semantics.ADVICE` names the column.
//!
//! **Controls.**
//! - The same without advice must need 2 * `pmds` + 1 kicks in every kernel;
//!   the test fails if not, for then its kicks do not count what it thinks.
//! - `collapsed_untouched`: advised memory has no recently used pages, and
//!   khugepaged does not collapse it. True without advice, false with it, in
//!   every kernel: shows that the advice was taken.
//! - `collapsed_touched`: *cold* is touched again, and must then get its huge
//!   pages. A kernel that loses *cold* from the list needs few kicks for *hot2*,
//!   too; its `semantics` is `lose`.
//! - `collapsed_rest`: the half of *cold* that was not advised gets its huge
//!   pages without being touched.
//! - `collapsed_child`: so does the child that *cold* forks after its advice,
//!   once it has written to the memory.

mod workload;

use crate::harness::khugepaged::{Khugepaged, listed_task};
use crate::harness::mapping::PAGE;
use crate::harness::{
    Advice, Context, Default, Parameter, Stop, Test, TestResult, Why, environment, needs, thp,
};

pub use workload::MEASURED;

/// The test.
pub const TEST: Test = Test {
    name: "khugepaged_cold",
    summary: "passes of khugepaged until the task behind a cold one has a huge page",
    parameters: &[Parameter {
        name: "pmds",
        summary: "size of each task, in huge pages; even",
        default: Default::Integer(4),
    }],
    run,
};

/// When, and on what, *cold* gives the advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// On all of its memory, last before the first kick.
    Last,
    /// Likewise, but on the first half of its memory.
    Part,
    /// Likewise, three times.
    Repeated,
    /// Before *hot2* is on the list.
    Early,
    /// When khugepaged has scanned the first of *cold*'s PMD ranges.
    AtCursor,
    /// As [`Order::Last`], and then *cold* forks.
    Forked,
}

impl Order {
    const ALL: [(Self, &str); 6] = [
        (Self::Last, ""),
        (Self::Part, ".part"),
        (Self::Repeated, ".repeated"),
        (Self::Early, ".early"),
        (Self::AtCursor, ".at_cursor"),
        (Self::Forked, ".forked"),
    ];
}

/// Sizes of a round.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    huge_page: usize,
    pmds: u32,
}

impl Sizes {
    /// Bytes of `pmds` huge pages.
    fn bytes(self, pmds: u32) -> usize {
        self.huge_page * pmds as usize
    }

    /// Kicks after which *hot2* has a huge page if all is scanned in order.
    fn in_order(self) -> u32 {
        2 * self.pmds + 1
    }

    /// Kicks with which every order is at its end: three times round four tasks.
    fn limit(self) -> u32 {
        3 * (4 * self.pmds + 1)
    }
}

/// What one round of the tasks has shown.
#[derive(Debug)]
struct Round {
    /// The kick at which hot2 got its first huge page, if it ever did.
    kicks: Option<u32>,
    /// Whether all of cold was huge by then.
    collapsed_untouched: bool,
    /// Whether what was not advised became huge without being touched again.
    collapsed_rest: Option<bool>,
    /// Whether all of cold was huge at last, after it was touched again.
    collapsed_touched: bool,
    /// Whether all of cold's child was huge at last, after it was touched.
    collapsed_child: Option<bool>,
}

fn run(context: &mut Context) -> TestResult {
    let pmds: u32 = context.integer("pmds")?;
    if !(2..=64).contains(&pmds) || !pmds.is_multiple_of(2) {
        return Err(Stop::fail(format!("parameter pmds is {pmds}, not even or not 2 to 64")));
    }
    needs::root()?;
    let sizes = Sizes { huge_page: thp::huge_page_size()?, pmds };
    // Small and huge pages of four tasks at once, and as much again to spare.
    needs::memory(16 * sizes.bytes(pmds) as u64)?;

    let khugepaged = Khugepaged::stop(sizes.huge_page / PAGE)?;
    environment::log_thp(context)?;
    let none = round(&khugepaged, sizes, None, Order::Last)?;
    report(context, "none", Order::Last, &none)?;
    if none.kicks != Some(sizes.in_order()) {
        return Err(Stop::fail(format!(
            "without advice hot2 has its first huge page at kick {}, not {}",
            text(none.kicks),
            sizes.in_order()
        )));
    }
    for advice in [Advice::Cold, Advice::Free] {
        let mut rounds = Vec::new();
        for (order, suffix) in Order::ALL {
            let round = round(&khugepaged, sizes, Some(advice), order)?;
            report(context, &format!("{}{suffix}", advice.name()), order, &round)?;
            rounds.push((order, round));
        }
        let semantics = semantics(advice, sizes.in_order(), &rounds);
        context.observe(&format!("semantics.{}", advice.name()), semantics)?;
    }
    Ok(())
}

fn report(context: &mut Context, name: &str, order: Order, round: &Round) -> TestResult {
    match round.kicks {
        Some(kicks) => context.observe(&format!("kicks.{name}"), kicks)?,
        None => context.observe(&format!("kicks.{name}"), "never")?,
    }
    if order == Order::Last {
        let name = format!("collapsed_untouched.{name}");
        context.observe(&name, round.collapsed_untouched)?;
    }
    context.observe(&format!("collapsed_touched.{name}"), round.collapsed_touched)?;
    for (what, value) in
        [("collapsed_rest", round.collapsed_rest), ("collapsed_child", round.collapsed_child)]
    {
        if let Some(value) = value {
            context.observe(&format!("{what}.{name}"), value)?;
        }
    }
    Ok(())
}

fn text(kicks: Option<u32>) -> String {
    kicks.map_or_else(|| "never".to_owned(), |kicks| kicks.to_string())
}

/// Name of what a kernel does at `advice`. Moving helps hot2 only if the advice
/// comes last, skipping at any time.
fn semantics(advice: Advice, in_order: u32, rounds: &[(Order, Round)]) -> &'static str {
    let helps = |wanted: Order| {
        rounds.iter().any(|(order, round)| {
            *order == wanted && round.kicks.is_some_and(|kicks| kicks < in_order)
        })
    };
    if rounds.iter().any(|(_, round)| !round.collapsed_touched || round.kicks.is_none()) {
        return "lose";
    }
    match (helps(Order::Last), helps(Order::Early) || helps(Order::AtCursor)) {
        (false, false) => "none",
        (true, false) => "move_to_tail",
        (true, true) if advice == Advice::Free => "skip_lazyfree",
        (true, true) => "skip_cold",
        (false, true) => "other",
    }
}

fn round(
    khugepaged: &Khugepaged,
    sizes: Sizes,
    advice: Option<Advice>,
    order: Order,
) -> TestResult<Round> {
    let size = sizes.bytes(sizes.pmds);
    let advised = match order {
        Order::Part => 0..size / 2,
        _ => 0..size,
    };
    let times = if order == Order::Repeated { 3 } else { 1 };

    khugepaged.settle()?;
    let hot1 = listed_task("hot1", size)?;
    let mut cold = listed_task("cold", size)?;
    if order == Order::Early
        && let Some(advice) = advice
    {
        cold.advise(advice, advised.clone())?;
    }
    let hot2 = listed_task("hot2", size)?;
    for task in [&hot1, &cold, &hot2] {
        if task.huge_bytes()? > 0 {
            return Err(Stop::fail("a task has huge pages before the first kick"));
        }
    }
    let kicks_before = match order {
        Order::AtCursor => kick_to_cold(khugepaged, sizes, || cold.huge_bytes())?,
        _ => 0,
    };
    if order != Order::Early
        && let Some(advice) = advice
    {
        for _ in 0..times {
            cold.advise(advice, advised.clone())?;
        }
    }
    let child = if order == Order::Forked { Some(cold.fork("child")?) } else { None };

    let whole = size as u64;
    let limit = sizes.limit();
    let kicks = khugepaged
        .kick_until(limit, || Ok(hot2.huge_bytes()? > 0))?
        .map(|kicks| kicks_before + kicks);
    let collapsed_untouched = cold.huge_bytes()? == whole;
    let collapsed_rest = match order {
        Order::Part => {
            let rest = whole - advised.end as u64;
            Some(khugepaged.kick_until(limit, || Ok(cold.huge_bytes()? >= rest))?.is_some())
        }
        _ => None,
    };
    cold.touch(0..size)?;
    let collapsed_touched =
        khugepaged.kick_until(limit, || Ok(cold.huge_bytes()? == whole))?.is_some();
    let collapsed_child = match child {
        Some(mut child) => {
            child.touch(0..size)?;
            Some(khugepaged.kick_until(limit, || Ok(child.huge_bytes()? == whole))?.is_some())
        }
        None => None,
    };
    Ok(Round { kicks, collapsed_untouched, collapsed_rest, collapsed_touched, collapsed_child })
}

/// Kicks until khugepaged has collapsed the first PMD range of cold, on which it
/// stands from then on, and returns the number of kicks.
fn kick_to_cold(
    khugepaged: &Khugepaged,
    sizes: Sizes,
    huge_bytes: impl Fn() -> TestResult<u64>,
) -> TestResult<u32> {
    let kicks = khugepaged
        .kick_until(sizes.limit(), || Ok(huge_bytes()? > 0))?
        .why("khugepaged does not come to cold")?;
    match huge_bytes()? {
        one if one == sizes.bytes(1) as u64 => Ok(kicks),
        more => Err(Stop::fail(format!("cold has {more} bytes of huge pages at once"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_ORDER: u32 = 9;

    /// Rounds in the order of [`Order::ALL`] with these kicks.
    fn rounds(kicks: [u32; 6]) -> Vec<(Order, Round)> {
        let round = |kicks| Round {
            kicks: Some(kicks),
            collapsed_untouched: false,
            collapsed_rest: None,
            collapsed_touched: true,
            collapsed_child: None,
        };
        Order::ALL.into_iter().map(|(order, _)| order).zip(kicks.map(round)).collect()
    }

    #[test]
    fn each_kernel_has_a_name() {
        for (kicks, cold, free) in [
            ([9, 9, 9, 9, 9, 9], "none", "none"),
            ([5, 5, 5, 9, 9, 5], "move_to_tail", "move_to_tail"),
            ([5, 7, 5, 5, 6, 5], "skip_cold", "skip_lazyfree"),
            ([9, 9, 9, 5, 9, 9], "other", "other"),
        ] {
            assert_eq!(semantics(Advice::Cold, IN_ORDER, &rounds(kicks)), cold);
            assert_eq!(semantics(Advice::Free, IN_ORDER, &rounds(kicks)), free);
        }
    }

    #[test]
    fn a_kernel_that_loses_a_task_is_no_good_one() {
        let mut lost = rounds([5, 5, 5, 9, 9, 5]);
        lost[2].1.collapsed_touched = false;
        assert_eq!(semantics(Advice::Cold, IN_ORDER, &lost), "lose");
        let mut lost = rounds([5, 5, 5, 9, 9, 5]);
        lost[4].1.kicks = None;
        assert_eq!(semantics(Advice::Free, IN_ORDER, &lost), "lose");
    }
}
