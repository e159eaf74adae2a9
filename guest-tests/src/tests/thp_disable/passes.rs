// SPDX-License-Identifier: MIT OR Apache-2.0
//! What does a pass of khugepaged cost that meets an address space whose huge pages
//! are disabled?
//!
//! As in the table with which the change was posted: a process with `vmas` areas comes
//! onto khugepaged's list and then disables its huge pages. khugepaged is kicked
//! `passes` times, each time once round its list, and its own CPU clock says what each
//! pass took; the least of them has no timer tick in it.
//!
//! - `pass`: instructions of the cheapest pass. `vmas` 0 is the empty pass, with
//!   nothing on the list but the sentinel.
//! - `walk`: the same less the empty pass: what meeting the process costs.

use std::collections::BTreeMap;

use kvet_records::{Better, Parameters, Value};

use crate::harness::khugepaged::{Khugepaged, listed_task};
use crate::harness::{
    Context, Counted, Default, Measured, Parameter, Stop, TestResult, Why, needs, thp,
};

/// What the test measures.
pub const MEASURED: Measured = Measured {
    test: "thp_disable",
    parameters: &[
        Parameter {
            name: "vmas",
            summary: "numbers of areas",
            default: Default::Text("50,100,200,400,800"),
        },
        Parameter {
            name: "passes",
            summary: "passes of which the cheapest counts",
            default: Default::Integer(30),
        },
    ],
    run,
};

/// Steps of a pass: more than there are areas, so that each pass is a whole round.
const PAGES_TO_SCAN: usize = 1 << 20;

fn run(context: &mut Context, counted: &mut Counted) -> TestResult {
    let vmas: Vec<usize> = context.integers("vmas")?;
    let passes: usize = context.integer("passes")?;
    if passes == 0 || passes > 1000 || vmas.iter().any(|&areas| !(1..=10_000).contains(&areas)) {
        return Err(Stop::fail("1 to 1000 passes over 1 to 10000 areas are possible"));
    }
    needs::root()?;
    let huge_page = thp::huge_page_size()?;
    let khugepaged = Khugepaged::stop(PAGES_TO_SCAN)?;
    let empty = least(&khugepaged, counted, passes)?;
    report(context, "pass", 0, empty, passes)?;
    for areas in vmas {
        let mut task = listed_task("disabled", huge_page)?;
        task.add_areas(areas)?;
        task.disable_thp(true)?;
        let pass = least(&khugepaged, counted, passes)?;
        if task.huge_bytes()? > 0 {
            return Err(Stop::fail("a process whose huge pages are disabled has one"));
        }
        report(context, "pass", areas, pass, passes)?;
        let walk = pass.checked_sub(empty).why("a pass with a process costs less than without")?;
        report(context, "walk", areas, walk, passes)?;
    }
    Ok(())
}

/// The least that a pass takes, of `passes`, after a first that may find things new.
fn least(khugepaged: &Khugepaged, counted: &mut Counted, passes: usize) -> TestResult<u64> {
    khugepaged.settle()?;
    counted.wait()?;
    let clock = khugepaged.cpu_clock()?;
    let mut least = u64::MAX;
    for _ in 0..passes {
        let before = clock.read()?;
        khugepaged.kick()?;
        least = least.min(clock.read()?.checked_sub(before).why("a CPU clock went backwards")?);
    }
    Ok(least)
}

fn report(
    context: &mut Context,
    metric: &str,
    areas: usize,
    instructions: u64,
    passes: usize,
) -> TestResult {
    let integer = |count: usize| i64::try_from(count).why("a count");
    let parameters = Parameters::from([("vmas".to_owned(), Value::from(integer(areas)?))]);
    let beside = BTreeMap::from([("passes".to_owned(), integer(passes)?)]);
    let value = instructions as f64;
    context.sample_beside(metric, value, "instructions", Better::Lower, &parameters, &beside)
}
