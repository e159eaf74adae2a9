// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kvet exits with when `git bisect run` calls it.

use super::step::Finding;
use crate::fault::{Blame, Fault};

/// git: "the current source code cannot be tested".
const SKIP: u8 = 125;
/// git ends a bisection at 128 and above: the state of the search is kept. 3 is the
/// exit code of an infra fault elsewhere, 2 that of a plan fault.
const ABORT_INFRA: u8 = 128 + 3;
const ABORT_PLAN: u8 = 128;
/// Interrupted, as everywhere in kvet; also a code at which git ends.
const ABORT_INTERRUPTED: u8 = 130;

/// The exit code of one trial for `git bisect run` (git-bisect(1), "Bisect run"): 0
/// for good, 1 for bad, 125 to skip, 128 and above to end the bisection. A fault of
/// the series, the kernel or the test says nothing of what is searched for: it skips.
#[must_use]
pub fn git_bisect_run(result: &Result<Finding, Fault>) -> u8 {
    match result {
        Ok(Finding::Good) => 0,
        Ok(Finding::Bad) => 1,
        Ok(Finding::Skip { .. }) => SKIP,
        Err(fault) => match fault.blame {
            Blame::Series | Blame::Kernel | Blame::Test => SKIP,
            Blame::Infra => ABORT_INFRA,
            Blame::Plan => ABORT_PLAN,
            Blame::Interrupt => ABORT_INTERRUPTED,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_skips_what_says_nothing_and_ends_where_nothing_can_be_tried() {
        let code = |fault| git_bisect_run(&Err(fault));
        assert_eq!(git_bisect_run(&Ok(Finding::Good)), 0);
        assert_eq!(git_bisect_run(&Ok(Finding::Bad)), 1);
        assert_eq!(git_bisect_run(&Ok(Finding::Skip { reason: "x".into() })), 125);
        for fault in [Fault::series("x"), Fault::kernel("x"), Fault::test("x")] {
            assert_eq!(code(fault), 125);
        }
        for fault in [Fault::infra("x"), Fault::plan("x"), Fault::interrupted()] {
            assert!(code(fault) >= 128);
        }
    }
}
