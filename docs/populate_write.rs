// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proves that MADV_POPULATE_WRITE takes one page fault for each page, and that
//! the writes after it take none. The control: a first touch of as many pages that
//! were not populated takes as many faults, too (the test that `kvet new-test`
//! writes).

use crate::harness::mapping::PAGE;
use crate::harness::{Advice, Context, Mapping, PageFaults, Test, TestResult};

/// See the module.
pub const TEST: Test = Test {
    name: "populate_write",
    summary: "page faults of MADV_POPULATE_WRITE and of the writes after it",
    parameters: &[],
    run,
};

fn run(context: &mut Context) -> TestResult {
    let memory = Mapping::anonymous(64 * PAGE)?;
    memory.advise(Advice::NoHuge, 0..memory.len())?;
    let faults = PageFaults::start()?;
    memory.advise(Advice::PopulateWrite, 0..memory.len())?;
    context.observe("faults.populate", faults.added()?)?;
    let faults = PageFaults::start()?;
    memory.touch(0..memory.len());
    context.observe("faults.touch", faults.added()?)
}
