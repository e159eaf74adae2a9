// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the guilty function among everything that a report names.

use super::head::{Find, Head};
use super::helpers::{self, Skip};

/// One function named by a report, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Function without suffixes.
    pub name: String,
    /// Named as the instruction pointer.
    pub pointer: bool,
    /// Not guessed by the unwinder.
    pub reliable: bool,
    /// Added by a decoder for an inlined call.
    pub inline: bool,
    /// Number of the stack it stands in.
    pub stack: u32,
    /// In the dump of a CPU that an RCU stall's report does not call stalled.
    pub other: bool,
}

/// The first name that is not a helper.
///
/// A decoded stack lists inlined functions above the real one that holds them. The real one is
/// taken if there is one, because the same report without a decoder names only that, and the
/// title (and so the fingerprint) must not depend on whether a log was decoded.
fn first<'a>(names: impl Iterator<Item = &'a Named> + Clone, skip: Skip) -> Option<&'a str> {
    let fit = |n: &&Named| !helpers::is_helper(&n.name, skip);
    let real = |n: &&Named| n.reliable && !n.inline;
    let mut tiers = [
        names.clone().filter(real).find(fit),
        names.clone().filter(|n| n.reliable).find(fit),
        names.clone().find(fit),
    ]
    .into_iter();
    tiers.find_map(|n| n).map(|n| n.name.as_str())
}

/// The function of the first instruction pointer. A decoder names inlined functions before it.
fn pointed(names: &[Named], skip: Skip) -> Option<&str> {
    let mut pointers = names.iter().filter(|n| n.pointer);
    let real = pointers.clone().find(|n| !n.inline).or_else(|| pointers.next());
    real.map(|n| n.name.as_str()).filter(|n| !helpers::is_helper(n, skip))
}

/// Chooses by the rule of the report's kind. `origin` is the stack that tells where things began
/// (page owner, lockdep's "which became"); `at` holds the functions of lockdep's `at:` lines.
#[must_use]
pub fn choose(head: &Head, names: &[Named], origin: &[Named], at: &[String]) -> Option<String> {
    let own = head.function.as_deref();
    let of_head = own.filter(|f| !helpers::is_helper(f, head.skip));
    // Frames before any stack was announced are another CPU's.
    let announced = names.iter().any(|n| n.stack > 0);
    let stacks = || names.iter().filter(move |n| n.stack > 0 || n.pointer || !announced);
    let found = match head.find {
        Find::Head => own.or_else(|| first(names.iter(), head.skip)),
        Find::Stack => of_head
            .or_else(|| first(names.iter().filter(|n| !n.pointer), head.skip))
            .or_else(|| first(names.iter(), head.skip)),
        Find::Pointer => of_head
            .filter(|f| !contradicted(f, names))
            .or_else(|| pointed(names, head.skip))
            .or_else(|| first(stacks(), head.skip)),
        Find::At(_) => at
            .iter()
            .map(String::as_str)
            .find(|f| !helpers::is_helper(f, Skip::Work))
            .or_else(|| first(names.iter(), head.skip))
            .or_else(|| at.first().map(String::as_str)),
        Find::StackOrAt(_) => first(names.iter(), head.skip)
            .or_else(|| at.iter().map(String::as_str).find(|f| !helpers::is_helper(f, head.skip))),
        Find::Hung => hung(names),
        Find::Stall => stall(names, head.skip, true),
        Find::Deep => stall(names, head.skip, false).or_else(|| first(names.iter(), head.skip)),
        Find::Origin => first(origin.iter(), Skip::Page)
            .or_else(|| first(names.iter(), Skip::Page))
            .or_else(|| first(names.iter(), head.skip)),
        Find::Became => first(origin.iter(), head.skip)
            .or_else(|| at.first().map(String::as_str))
            .or_else(|| first(names.iter(), head.skip)),
    };
    let any = || {
        let plain = names.iter().find(|n| !helpers::is_reporting(&n.name));
        let common = names.iter().find(|n| !helpers::is_helper(&n.name, Skip::Common));
        common.or(plain).map(|n| n.name.as_str())
    };
    found.or(own).or_else(any).map(|f| helpers::syscall_name(f).to_owned())
}

/// Whether a stack that is complete (it has no instruction pointer and no guessed frames) does not
/// hold the function that the head names, so that the head's is of another inlining.
fn contradicted(function: &str, names: &[Named]) -> bool {
    let complete = names.iter().all(|n| n.reliable && !n.pointer && n.name != function);
    complete && names.first().is_some_and(|n| !helpers::is_helper(&n.name, Skip::Common))
}

/// Tasks hang at a victim's place. Locks and grace periods on which everything hangs name the
/// fault; else the first function that is not itself waiting.
fn hung(names: &[Named]) -> Option<&str> {
    let first = names.first()?.stack;
    let stack: Vec<_> = names.iter().filter(|n| n.stack == first && !n.pointer).collect();
    let sure: Vec<_> = stack.iter().copied().filter(|n| n.reliable && !n.inline).collect();
    for list in [&sure, &stack] {
        let found = list
            .iter()
            .find_map(|n| helpers::hung_on(&n.name))
            .or_else(|| list.iter().map(|n| n.name.as_str()).find(|n| !helpers::is_waiting(n)));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// A stalled CPU loops: the top of its stack is chance, what entered the loop is not. So the
/// function just above the first general dispatcher (a system call's entry, a work item's caller)
/// is taken, except that file operations which only pass on to the code behind a file are stepped
/// over, back towards the top.
///
/// Dumps of CPUs that are not stalled, such as the one where RCU's own thread last ran, count only
/// if nothing else was dumped.
fn stall(names: &[Named], skip: Skip, interrupted: bool) -> Option<&str> {
    let own: Vec<_> = names.iter().filter(|n| !n.other).collect();
    let all = || stall_of(&names.iter().collect::<Vec<_>>(), skip, interrupted);
    stall_of(&own, skip, interrupted).or_else(all)
}

fn stall_of<'a>(names: &[&'a Named], skip: Skip, interrupted: bool) -> Option<&'a str> {
    let mut stacks: Vec<u32> = names.iter().map(|n| n.stack).collect();
    stacks.dedup();
    let mut spare = None;
    for stack in stacks {
        let names: Vec<_> = names.iter().copied().filter(|n| n.stack == stack).collect();
        if names.iter().any(|n| matches!(n.name.as_str(), "rcu_gp_kthread" | "rcu_gp_fqs_loop")) {
            continue;
        }
        let sure: Vec<_> = names.iter().copied().filter(|n| n.reliable && !n.inline).collect();
        let list = if sure.is_empty() { names } else { sure };
        // Below the first entry of an interrupt runs the code that was interrupted; but only if the
        // stack shows the report itself. One taken from the interrupted registers has no such
        // part, and an entry in it is older.
        let entry = list
            .iter()
            .position(|n| helpers::is_interrupt_entry(&n.name))
            .filter(|&i| list[..i].iter().any(|n| helpers::is_watchdog(&n.name)));
        let list = match entry.filter(|_| interrupted) {
            Some(entry) => {
                let pointer = list[entry..].iter().position(|n| n.pointer).map(|i| entry + i);
                &list[pointer.unwrap_or(entry + 1)..]
            }
            None => &list[..],
        };
        let own: Vec<_> = list
            .iter()
            .map(|n| n.name.as_str())
            .filter(|n| !helpers::is_helper(n, skip) || helpers::is_anchor(n))
            .collect();
        spare = spare.or(own.first().copied().filter(|n| !helpers::is_anchor(n)));
        let Some(anchor) = own.iter().position(|n| helpers::is_anchor(n)) else {
            continue;
        };
        // What comes after waiting for other CPUs differs; that one does not answer is the fault.
        if own[anchor].contains("smp_call_function") {
            return Some("smp_call_function");
        }
        if let Some(found) = own[..anchor].iter().rev().find(|n| !helpers::is_dispatch(n)) {
            return Some(found);
        }
        let raw = list.iter().position(|n| n.name == own[anchor]).unwrap_or(0);
        let last = list[..raw]
            .iter()
            .rev()
            .find(|n| !n.name.contains("rcu") && !helpers::is_dispatch(&n.name));
        if let Some(found) = last {
            return Some(&found.name);
        }
        if let Some(found) = own[anchor + 1..].iter().find(|n| !helpers::is_anchor(n)) {
            spare = spare.or(Some(found));
        }
    }
    spare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<Named> {
        list.iter()
            .map(|n| Named {
                name: (*n).to_owned(),
                pointer: false,
                reliable: true,
                inline: false,
                stack: 1,
                other: false,
            })
            .collect()
    }

    #[test]
    fn a_stall_is_called_by_what_entered_the_loop() {
        let stack = names(&["spin_a_while", "frob_ioctl", "vfs_ioctl", "do_vfs_ioctl"]);
        assert_eq!(stall(&stack, Skip::Common, true), Some("frob_ioctl"));
    }

    #[test]
    fn a_stall_behind_a_proc_file_is_not_called_by_the_dispatcher() {
        let stack = names(&["spin_a_while", "frob_write", "proc_reg_write", "vfs_write"]);
        assert_eq!(stall(&stack, Skip::Common, true), Some("frob_write"));
    }

    #[test]
    fn a_hang_on_a_grace_period_is_called_by_it() {
        let stack = names(&["__schedule", "schedule", "synchronize_rcu_expedited", "frob_stop"]);
        assert_eq!(hung(&stack), Some("synchronize_rcu"));
        let stack = names(&["__schedule", "schedule", "mutex_lock", "frob_stop"]);
        assert_eq!(hung(&stack), Some("frob_stop"));
    }
}
