// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does khugepaged pass by an address space whose huge pages are disabled?
//!
//! **What it proves.** `prctl(PR_SET_THP_DISABLE)` keeps khugepaged from making
//! huge pages in a process. The process may be on khugepaged's list already, and
//! then kernels before 6.9 still walk over all of its areas (VMAs), pass after
//! pass, each of which counts against `pages_to_scan`; later ones, and 6.1 with
//! the series `thp-disable-skip`, pass the process by in one step. A correct
//! kernel keeps it on the list, so that it has huge pages again after they have
//! been enabled again.
//!
//! **How.** *front*, six processes with `vmas` areas each, and *eligible* come
//! onto the list in this order; each has one PMD range of touched small pages.
//! Then the six disable huge pages. khugepaged is kicked, one pass of
//! `pages_to_scan` steps at a time (see [`crate::harness::khugepaged`]), until
//! *eligible* has its huge page; the number of that kick is the observation.
//! *front* takes the first. No area and no PMD range of a pass is divided, and a
//! disabled process has no fewer areas than a pass has steps, so that each of the
//! six takes one kick if it is walked: kick 8. If they are passed by, six steps
//! lead to *eligible*: kick 2.
//!
//! **Controls.**
//! - The same with six processes that have not disabled anything, and no other
//!   areas: each takes a kick for its own huge page, so it is kick 8 in every
//!   kernel; the test fails if not, for then its kicks do not count what it
//!   thinks. It also fails if *front* has no huge page after the first kick.
//! - `collapsed.disabled`: no process whose huge pages are disabled may get any.
//! - `collapsed.reenabled`: one of the six, walked or passed by several times,
//!   must get its huge page after `PR_SET_THP_DISABLE` is taken back, without
//!   other advice. A kernel that takes a disabled process off the list is as
//!   quick as a correct one; its `semantics` is `lose`.
//! - `midscan`: huge pages are disabled when half of a process has been
//!   collapsed. The other half follows only after they are enabled again.
//! - `fork` and `execute`: both keep the flag, as `prctl(2)` says, and it belongs
//!   to one address space: the child's does not change the parent's.

mod passes;

use crate::harness::khugepaged::{Khugepaged, listed_task};
use crate::harness::{
    Advice, Context, Default, Parameter, Stop, Task, Test, TestResult, environment, needs, proc,
    thp,
};

pub use passes::MEASURED;

/// Numbers of areas, as in the table with which the change was posted.
const AREAS: [usize; 5] = [50, 100, 200, 400, 800];

/// Processes between front and eligible.
const BETWEEN: u32 = 6;

/// The kick at which eligible gets its huge page if every process takes one.
const IN_ORDER: u32 = BETWEEN + 2;

/// Kicks with which every order is at its end.
const LIMIT: u32 = 3 * IN_ORDER;

/// PMD ranges of the process that is disabled in mid-scan, half of them before.
const MIDSCAN_PMDS: usize = 4;

/// The test.
pub const TEST: Test = Test {
    name: "thp_disable",
    summary: "passes of khugepaged until the process behind disabled ones has a huge page",
    parameters: &[Parameter {
        name: "pages_to_scan",
        summary: "steps of a pass of khugepaged",
        default: Default::Integer(48),
    }],
    run,
};

fn run(context: &mut Context) -> TestResult {
    let pages_to_scan: usize = context.integer("pages_to_scan")?;
    if !(32..=512).contains(&pages_to_scan) {
        let why = format!("parameter pages_to_scan is {pages_to_scan}, not 32 to 512");
        return Err(Stop::fail(why));
    }
    needs::root()?;
    let huge_page = thp::huge_page_size()?;
    // Small and huge pages of all processes at once, and as much again to spare.
    needs::memory(4 * (BETWEEN as usize + 2 + MIDSCAN_PMDS) as u64 * huge_page as u64)?;

    let khugepaged = Khugepaged::stop(pages_to_scan)?;
    environment::log_thp(context)?;
    let test = Disable { khugepaged, huge_page, pages_to_scan };
    test.control(context)?;
    let mut rounds = Vec::new();
    for areas in AREAS {
        let round = test.round(Some(areas))?;
        observe_kicks(context, &format!("kicks.vmas_{areas}"), round.kicks)?;
        context.observe(&format!("collapsed.reenabled.vmas_{areas}"), round.reenabled)?;
        rounds.push(round);
    }
    context.observe("collapsed.disabled", rounds.iter().any(|round| round.collapsed))?;
    context.observe("semantics", semantics(&rounds))?;
    test.midscan(context)?;
    test.fork(context)?;
    test.execute(context)
}

fn observe_kicks(context: &mut Context, name: &str, kicks: Option<u32>) -> TestResult {
    match kicks {
        Some(kicks) => context.observe(name, kicks),
        None => context.observe(name, "never"),
    }
}

/// What one round of the processes has shown.
#[derive(Debug)]
struct Round {
    /// The kick at which eligible got its huge page, if it ever did.
    kicks: Option<u32>,
    /// Whether a process between got a huge page before that.
    collapsed: bool,
    /// Whether one of them got its huge page after it was enabled again.
    reenabled: bool,
}

/// Name of what a kernel does with disabled processes.
fn semantics(rounds: &[Round]) -> &'static str {
    if rounds.iter().any(|round| !round.reenabled || round.kicks.is_none()) {
        return "lose";
    }
    let all = |kicks| rounds.iter().all(|round| round.kicks == Some(kicks));
    match (all(IN_ORDER), all(2)) {
        (true, _) => "walk",
        (_, true) => "skip",
        _ => "other",
    }
}

struct Disable {
    khugepaged: Khugepaged,
    huge_page: usize,
    pages_to_scan: usize,
}

impl Disable {
    /// Runs the round without disabled processes, and checks it.
    fn control(&self, context: &mut Context) -> TestResult {
        let round = self.round(None)?;
        observe_kicks(context, "kicks.enabled", round.kicks)?;
        if round.kicks != Some(IN_ORDER) || !round.collapsed {
            return Err(Stop::fail(format!(
                "past {BETWEEN} processes with huge pages of their own eligible has one at \
                 kick {:?}, not {IN_ORDER}",
                round.kicks
            )));
        }
        Ok(())
    }

    /// One round with processes between that have `disabled` other areas and
    /// disable huge pages, or that have none and do not.
    fn round(&self, disabled: Option<usize>) -> TestResult<Round> {
        self.khugepaged.settle()?;
        let front = listed_task("front", self.huge_page)?;
        let mut between = Vec::new();
        for number in 1..=BETWEEN {
            let mut task = listed_task(&format!("between{number}"), self.huge_page)?;
            if let Some(areas) = disabled {
                task.add_areas(areas)?;
                self.check_areas(&task)?;
            }
            between.push(task);
        }
        let eligible = listed_task("eligible", self.huge_page)?;
        if disabled.is_some() {
            for task in &mut between {
                task.disable_thp(true)?;
            }
        }

        self.khugepaged.kick()?;
        if front.huge_bytes()? == 0 || eligible.huge_bytes()? > 0 {
            return Err(Stop::fail("the first kick does not end at the list's first process"));
        }
        let kicks = self
            .khugepaged
            .kick_until(LIMIT, || Ok(eligible.huge_bytes()? > 0))?
            .map(|kicks| 1 + kicks);
        let mut collapsed = false;
        for task in &between {
            collapsed |= task.huge_bytes()? > 0;
        }
        let task = &mut between[BETWEEN as usize / 2];
        task.disable_thp(false)?;
        let reenabled = self.collapses(task)?;
        Ok(Round { kicks, collapsed, reenabled })
    }

    /// Walking over the task must take a whole pass, and one that is not walked
    /// less than one.
    fn check_areas(&self, task: &Task) -> TestResult {
        let areas = proc::areas(task.pid(), &(0..isize::MAX.unsigned_abs()))?;
        if areas < self.pages_to_scan {
            return Err(Stop::fail(format!(
                "a process has {areas} areas only, fewer than a pass has steps ({}): give a \
                 smaller pages_to_scan",
                self.pages_to_scan
            )));
        }
        Ok(())
    }

    /// Whether all of a task's memory is huge sooner or later.
    fn collapses(&self, task: &mut Task) -> TestResult<bool> {
        task.touch(0..task.len())?;
        let whole = task.len() as u64;
        Ok(self.khugepaged.kick_until(LIMIT, || Ok(task.huge_bytes()? == whole))?.is_some())
    }

    /// Whether any of a task's memory becomes huge within as many kicks as would
    /// do otherwise.
    fn collapses_any(&self, task: &mut Task) -> TestResult<bool> {
        let before = task.huge_bytes()?;
        task.touch(0..task.len())?;
        Ok(self.khugepaged.kick_until(LIMIT, || Ok(task.huge_bytes()? > before))?.is_some())
    }

    fn midscan(&self, context: &mut Context) -> TestResult {
        self.khugepaged.settle()?;
        let mut task = listed_task("midscan", MIDSCAN_PMDS * self.huge_page)?;
        let half = (task.len() / 2) as u64;
        if self.khugepaged.kick_until(LIMIT, || Ok(task.huge_bytes()? >= half))?.is_none()
            || task.huge_bytes()? != half
        {
            return Err(Stop::fail("khugepaged does not stop in the middle of a process"));
        }
        task.disable_thp(true)?;
        context.observe("midscan.collapsed.disabled", self.collapses_any(&mut task)?)?;
        let kept = task.huge_bytes()? == half;
        context.observe("midscan.keeps_huge_pages", kept)?;
        task.disable_thp(false)?;
        context.observe("midscan.collapsed.reenabled", self.collapses(&mut task)?)
    }

    fn fork(&self, context: &mut Context) -> TestResult {
        self.khugepaged.settle()?;
        let mut parent = listed_task("parent", self.huge_page)?;
        let mut earlier = parent.fork("earlier child")?;
        parent.disable_thp(true)?;
        let mut child = parent.fork("child")?;
        observe_flag(context, "fork.earlier_child", &mut earlier)?;
        observe_flag(context, "fork.parent", &mut parent)?;
        observe_flag(context, "fork.child", &mut child)?;
        context.observe("fork.collapsed.child.disabled", self.collapses_any(&mut child)?)?;
        child.disable_thp(false)?;
        observe_flag(context, "fork.child_after_enabling", &mut child)?;
        observe_flag(context, "fork.parent_after_childs_enabling", &mut parent)?;
        context.observe("fork.collapsed.child.reenabled", self.collapses(&mut child)?)?;
        context.observe("fork.collapsed.earlier_child", self.collapses(&mut earlier)?)?;
        context.observe("fork.collapsed.parent", self.collapses_any(&mut parent)?)
    }

    fn execute(&self, context: &mut Context) -> TestResult {
        self.khugepaged.settle()?;
        let mut enabled = listed_task("enabled", self.huge_page)?;
        enabled.execute(self.huge_page)?;
        observe_flag(context, "execute.enabled", &mut enabled)?;
        drop(enabled);

        let mut task = listed_task("disabled", self.huge_page)?;
        task.disable_thp(true)?;
        task.execute(self.huge_page)?;
        observe_flag(context, "execute.disabled", &mut task)?;
        let all = 0..self.huge_page;
        task.touch(all.clone())?;
        task.advise(Advice::Huge, all.clone())?;
        context.observe("execute.collapsed.disabled", self.collapses_any(&mut task)?)?;
        // The new address space is not on the list: it was not eligible when the
        // advice came. Advice that changes something puts it there.
        task.disable_thp(false)?;
        task.advise(Advice::NoHuge, all.clone())?;
        task.advise(Advice::Huge, all)?;
        context.observe("execute.collapsed.reenabled", self.collapses(&mut task)?)
    }
}

/// Reports whether huge pages are disabled in a task: what the task is told, and
/// what everybody is told in /proc/PID/status.
fn observe_flag(context: &mut Context, name: &str, task: &mut Task) -> TestResult {
    let disabled = task.thp_disabled()?;
    context.observe(&format!("{name}.disabled"), disabled)?;
    match proc::thp_enabled(task.pid())? {
        Some(enabled) => context.observe(&format!("{name}.status_enabled"), enabled),
        None => context.skip_part(format!("{name}.status_enabled: no THP_enabled in status")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(kicks: [u32; 3]) -> Vec<Round> {
        let round = |kicks| Round { kicks: Some(kicks), collapsed: false, reenabled: true };
        kicks.map(round).into()
    }

    #[test]
    fn each_kernel_has_a_name() {
        assert_eq!(semantics(&rounds([8, 8, 8])), "walk");
        assert_eq!(semantics(&rounds([2, 2, 2])), "skip");
        assert_eq!(semantics(&rounds([2, 8, 8])), "other");
    }

    #[test]
    fn a_kernel_that_loses_a_process_is_no_good_one() {
        let mut lost = rounds([2, 2, 2]);
        lost[1].reenabled = false;
        assert_eq!(semantics(&lost), "lose");
        let mut lost = rounds([2, 2, 2]);
        lost[2].kicks = None;
        assert_eq!(semantics(&lost), "lose");
    }
}
