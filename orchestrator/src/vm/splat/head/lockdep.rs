// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lockdep's heads.

use super::{Find, Head};
use crate::vm::splat::helpers::Skip;
use crate::vm::splat::kind::SplatKind;

/// Headers of kernel/locking/lockdep.c: `[ INFO: ... ]` and `[ BUG: ... ]` until v4.10,
/// `WARNING: ...` after (commit "locking/lockdep: Use 'WARNING:' ..."), `BUG:` again for some.
pub(super) fn lockdep(r: &str, class: &str) -> Option<Head> {
    use SplatKind::*;
    let dead = |find| Some(Head::new(PossibleDeadlock, "possible deadlock", Find::At(find)));
    let named = |kind, what: &str, find| Some(Head::new(kind, format!("{class}{what}"), find));
    match r {
        r if r.starts_with("possible circular locking") => dead("is trying to acquire lock"),
        r if r.starts_with("possible recursive locking") => dead("is trying to acquire lock"),
        r if r.starts_with("possible irq lock inversion") => dead("just changed the state of lock"),
        r if r.contains("-safe -> ") && r.contains("-unsafe lock order") => {
            Some(Head::new(PossibleDeadlock, "possible deadlock", Find::Became))
        }
        r if r.starts_with("Nested lock was not taken") => named(
            PossibleDeadlock,
            "nested lock was not taken",
            Find::StackOrAt("is trying to lock"),
        ),
        r if r.starts_with("inconsistent lock state") => Some(Head::new(
            InconsistentLockState,
            "inconsistent lock state",
            Find::StackOrAt("takes"),
        )),
        r if r.starts_with("suspicious RCU usage") || r.starts_with("suspicious rcu") => {
            named(SuspiciousRcu, "suspicious RCU usage", Find::Stack).map(|h| h.skip(Skip::Rcu))
        }
        r if r.starts_with("bad unlock balance") => {
            named(BadUnlockBalance, "bad unlock balance", Find::At("is trying to release lock"))
        }
        r if r.starts_with("bad contention detected") => {
            named(BadUnlockBalance, "bad contention", Find::At("is trying to contend lock"))
        }
        r if r.starts_with("held lock freed") => {
            named(HeldLockFreed, "held lock freed", Find::At("is freeing memory"))
        }
        r if r.starts_with("lock held when returning to user space") => {
            named(LockLeft, "lock held when returning to user space", Find::At("still held"))
        }
        r if r.contains("still has locks held") => {
            named(LockLeft, "still has locks held", Find::At("held by"))
        }
        r if r.starts_with("lock held at task exit") => {
            named(LockLeft, "lock held at task exit time", Find::At("still held"))
        }
        // Called like lockdep's other complaints, which some architectures print instead.
        r if r.starts_with("Invalid wait context") => {
            let head = Head::new(
                InvalidWaitContext,
                "WARNING: locking bug",
                Find::StackOrAt("is trying to lock"),
            );
            Some(head.skip(Skip::Locking))
        }
        _ => None,
    }
}
