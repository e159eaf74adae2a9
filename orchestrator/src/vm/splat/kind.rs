// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of splat, named as they appear in `result.json`.

use serde::{Deserialize, Serialize};

/// What a splat is. The names in JSON are the variants in snake case.
///
/// The flavour of a sanitizer report (`slab-use-after-free`, `data-race`, `shift-out-of-bounds`)
/// is not a kind of its own: it stands in [`Splat::flavour`](super::Splat::flavour) and in the
/// title, because the kernel adds flavours in almost every release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SplatKind {
    /// `BUG: KASAN: ...`, mm/kasan/report.c.
    Kasan,
    /// `BUG: KMSAN: ...`, mm/kmsan/report.c.
    Kmsan,
    /// `BUG: KCSAN: ...`, kernel/kcsan/report.c.
    Kcsan,
    /// `BUG: KFENCE: ...`, mm/kfence/report.c.
    Kfence,
    /// `UBSAN: ...`, lib/ubsan.c, and its trapping form on arm64 and x86.
    Ubsan,
    /// `WARNING: ... at FILE:LINE`, kernel/panic.c and lib/bug.c.
    Warning,
    /// A `WARNING` of lib/refcount.c.
    Refcount,
    /// A `WARNING` of lib/debugobjects.c.
    Odebug,
    /// A `WARNING` of kernel/locking/lockdep.c itself (`DEBUG_LOCKS_WARN_ON`).
    LockingBug,
    /// A `WARNING` or `kernel BUG` of lib/list_debug.c.
    ListCorruption,
    /// A `WARNING` or `kernel BUG` of mm/usercopy.c.
    BadUsercopy,
    /// `kernel BUG at FILE:LINE!`.
    KernelBug,
    /// A kernel access to an address that is not mapped.
    PageFault,
    /// A kernel access to address 0 and a little above.
    NullDereference,
    /// `general protection fault`, x86.
    GeneralProtection,
    /// `divide error`, x86.
    DivideError,
    /// `invalid opcode` without a `kernel BUG` before it.
    InvalidOpcode,
    /// `stack segment`, x86.
    StackSegment,
    /// A stack that grew into its guard page, on any architecture.
    StackOverflow,
    /// `PANIC: double fault`, arch/x86/kernel/traps.c.
    DoubleFault,
    /// `PANIC: early exception`, arch/x86/mm/extable.c.
    EarlyException,
    /// Any other oops (`Internal error: ...`, `Oops: ...`, alignment, SError, machine check).
    Oops,
    /// `BUG: scheduling while atomic`, kernel/sched/core.c.
    SchedulingWhileAtomic,
    /// `BUG: sleeping function called from invalid context`, kernel/sched/core.c.
    SleepingInAtomic,
    /// `BUG: using smp_processor_id() in preemptible`, lib/smp_processor_id.c.
    Preemptible,
    /// `BUG: Bad page state`, mm/page_alloc.c.
    BadPageState,
    /// `BUG: Bad page map` and `Bad page cache`, mm/memory.c and mm/filemap.c.
    BadPageMap,
    /// `BUG: Bad rss-counter state`, `non-zero pgtables_bytes`, kernel/fork.c.
    BadMmCounter,
    /// Possible circular, recursive or interrupt-unsafe locking, kernel/locking/lockdep.c.
    PossibleDeadlock,
    /// `inconsistent lock state`.
    InconsistentLockState,
    /// `suspicious RCU usage`.
    SuspiciousRcu,
    /// `bad unlock balance detected!`.
    BadUnlockBalance,
    /// `held lock freed!`.
    HeldLockFreed,
    /// A lock held where none may be: return to user space, exit, a work item's end.
    LockLeft,
    /// `Invalid wait context`.
    InvalidWaitContext,
    /// `INFO: trying to register non-static key.`
    NonStaticKey,
    /// One of lockdep's tables is full (`MAX_LOCKDEP_ENTRIES too low!`); lockdep is off from here.
    LockdepLimit,
    /// `BUG: spinlock ...` and `BUG: rwlock ...`, kernel/locking/spinlock_debug.c.
    Spinlock,
    /// `BUG: workqueue lockup`, kernel/workqueue.c.
    WorkqueueLockup,
    /// An RCU stall, kernel/rcu/tree_stall.h, tree_exp.h and tasks.h.
    RcuStall,
    /// `BUG: soft lockup`, kernel/watchdog.c.
    SoftLockup,
    /// `Watchdog detected hard LOCKUP`, kernel/watchdog.c and arch/powerpc/kernel/watchdog.c.
    HardLockup,
    /// `INFO: task X blocked for more than N seconds`, kernel/hung_task.c.
    HungTask,
    /// kmemleak's `unreferenced object` and its count, mm/kmemleak.c.
    MemoryLeak,
    /// `BUG kmalloc-64 (...): ...`, mm/slub.c.
    SlabCorruption,
    /// The global OOM killer killed a process, mm/oom_kill.c. A memory cgroup at its own limit is
    /// not a splat.
    OomKill,
    /// `Kernel panic - not syncing`, when nothing before it explains it.
    Panic,
    /// `unregister_netdevice: waiting for DEV to become free`, net/core/dev.c.
    NetdeviceStuck,
    /// `irq N: nobody cared`, kernel/irq/spurious.c.
    IrqNobodyCared,
    /// The kernel started again without having been asked to.
    UnexpectedReboot,
    /// Any other line that begins with `BUG:`, or a `WARNING:` with a stack.
    Other,
}

impl SplatKind {
    /// Whether a kernel that printed this cannot be trusted to go on: an oops leaves locks held
    /// and a task dead in the middle of its work.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        use SplatKind::*;
        matches!(
            self,
            BadUsercopy
                | KernelBug
                | PageFault
                | NullDereference
                | GeneralProtection
                | DivideError
                | InvalidOpcode
                | StackSegment
                | StackOverflow
                | DoubleFault
                | EarlyException
                | Oops
                | Panic
                | UnexpectedReboot
        )
    }

    /// Whether a whole report of this kind always has a stack, so that one without a function was
    /// cut off.
    pub(super) fn names_function(self) -> bool {
        use SplatKind::*;
        self.is_fatal() && !matches!(self, Panic | UnexpectedReboot)
            || matches!(self, Kasan | RcuStall | SoftLockup | HardLockup | HungTask)
    }

    /// Lockdep reports that name the guilty code in an `at:` line.
    pub(super) fn is_lockdep(self) -> bool {
        use SplatKind::*;
        matches!(
            self,
            PossibleDeadlock
                | InconsistentLockState
                | BadUnlockBalance
                | HeldLockFreed
                | LockLeft
                | InvalidWaitContext
        )
    }
}
