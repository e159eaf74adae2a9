// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does the kernel lose memory while other tests run?
//!
//! **What it proves.** What a kernel allocates and forgets while the named tests
//! exercise it is listed by kmemleak on the console, where kvet reads it.
//!
//! **How.** kmemleak tells an object only when two scans in a row find it without a
//! reference and unchanged, and leaves alone what is younger than five seconds. What
//! was lost before the tests, in the boot, is told by a kernel without a series, too,
//! so that only the difference counts.
//!
//! **Controls.**
//! - `kvet selftest` has a kernel that leaks on demand (row `leak`) and a kernel that
//!   does not (row `clean_kmemleak`), looked at by the same scans.
//! - A kernel without kmemleak skips the test instead of finding nothing.
//!
//! Needs `kmemleak.verbose=1` on the command line, without which kmemleak only counts.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use kvet_records::Parameters;

use crate::harness::{Context, Default, Parameter, Stop, Test, TestResult, Why};

/// kmemleak's commands and findings.
const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// kmemleak leaves memory alone that is younger than 5 s (`MSECS_MIN_AGE` in
/// mm/kmemleak.c); a second more, since its clock ticks coarsely.
const LEAK_AGE: Duration = Duration::from_secs(6);

/// The test.
pub const TEST: Test = Test {
    name: "kmemleak_scan",
    summary: "looks for lost memory after other tests",
    parameters: &[
        Parameter {
            name: "tests",
            summary: "the tests that run first, with their default parameters",
            default: Default::Text("selftest_pass"),
        },
        Parameter {
            name: "scans",
            summary: "how often kmemleak looks; it tells a leak at the second",
            default: Default::Integer(2),
        },
    ],
    run,
};

fn run(context: &mut Context) -> TestResult {
    let there = Path::new(KMEMLEAK).exists();
    context.require(there, "this kernel has no kmemleak (CONFIG_DEBUG_KMEMLEAK)")?;
    for name in context.words("tests")? {
        let test = super::find(&name).why(format_args!("no test {name:?}"))?;
        // What it observes is the business of the boots in which it runs alone.
        let mut inner = Context::new(defaults(test), Box::new(std::io::sink()));
        match (test.run)(&mut inner) {
            Ok(()) => context.log(format!("{name} ran"))?,
            Err(Stop::Skip(why)) => context.skip_part(format!("{name}: {why}"))?,
            Err(Stop::Fail(why)) => return Err(Stop::fail(format!("{name}: {why}"))),
        }
    }
    let scans = context.integer("scans")?;
    scan(scans)?;
    context.observe("scanned", true)
}

fn defaults(test: &Test) -> Parameters {
    let value = |parameter: &Parameter| (parameter.name.to_owned(), parameter.default.to_value());
    test.parameters.iter().map(value).collect()
}

/// Has kmemleak look `scans` times; whether it lists anything then.
pub(super) fn scan(scans: u32) -> TestResult<bool> {
    for scan in 0..scans {
        if scan == 0 {
            sleep(LEAK_AGE);
        }
        fs::write(KMEMLEAK, "scan").why(format_args!("write {KMEMLEAK}"))?;
    }
    let found = fs::read_to_string(KMEMLEAK).why(format_args!("read {KMEMLEAK}"))?;
    Ok(found.contains("unreferenced object"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_of_the_inner_test_is_given() {
        let given = defaults(&crate::tests::khugepaged_cold::TEST);
        assert_eq!(given.keys().collect::<Vec<_>>(), ["pmds"]);
    }

    #[test]
    fn a_kernel_without_kmemleak_skips() {
        if Path::new(KMEMLEAK).exists() {
            println!("not run: this kernel has kmemleak");
            return;
        }
        let mut context = Context::new(defaults(&TEST), Box::new(std::io::sink()));
        assert!(matches!(run(&mut context), Err(Stop::Skip(_))));
    }
}
