// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which functions in a stack are helpers, and so never the guilty one.
//!
//! A helper reports (`kasan_report`), locks (`mutex_lock`), copies (`memcpy`), allocates
//! (`kmalloc`), counts (`refcount_inc`) or brings the CPU to where the fault was noticed
//! (`asm_exc_page_fault`): it stands in the stacks of a thousand unrelated faults. The choice
//! follows what syzkaller's reports and the mailing lists call a fault by, so that a title can be
//! searched for.
//!
//! Names are compared without leading underscores, so that one entry serves `kfree` and
//! `__kfree`, `raw_spin_lock` and `_raw_spin_lock`.

use super::lists::{
    ALLOCATOR, ANCHOR_STARTS, ANCHORS, CONTAINS, DISPATCH, EXACT, HUNG, PREFIX, SYSCALL,
};
use regex::Regex;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Families of reports that skip more than the common helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Skip {
    /// Only what is common.
    #[default]
    Common,
    /// `kernel BUG`: the helpers of socket buffers check, their callers are wrong.
    Bug,
    /// Lockdep's `at:` lines: work queues lock in the name of their work items.
    Work,
    /// KMSAN: where data is read without being judged.
    Kmsan,
    /// Freeing twice or freeing what is no object: the frees are helpers.
    Free,
    /// A lock primitive complaining of its lock.
    Lock,
    /// Page owner's stack of the last allocation.
    Page,
    /// Reference counts: `kobject_put` and the like only pass the misuse on.
    Refcount,
    /// lib/debugobjects.c: every user of a tracked object between the caller and the check.
    Odebug,
    /// A size that is too large for kmalloc.
    Kmalloc,
    /// mm/usercopy.c.
    Usercopy,
    /// lib/kobject.c.
    Kobject,
    /// fs/proc/generic.c.
    Proc,
    /// Lockdep complaining of itself.
    Locking,
    /// `suspicious RCU usage`.
    Rcu,
    /// A USB request from a driver.
    Usb,
    /// kmemleak: the allocation's wrappers.
    Leak,
    /// lib/smp_processor_id.c.
    Preempt,
    /// A key that was never registered.
    Key,
    /// The scheduler, which notices what another did.
    Sched,
    /// UBSAN.
    Ubsan,
    /// A corrupted stack, noticed by the scheduler or on return.
    Stack,
}

/// One expression for a whole list, so that a name is read once and not once per word.
struct Words(LazyLock<Regex>);

impl Words {
    const fn new(build: fn() -> Regex) -> Self {
        Words(LazyLock::new(build))
    }
    fn fit(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

fn any_of(before: &str, lists: &[&'static str]) -> Regex {
    let words: Vec<_> = lists.iter().flat_map(|l| words(l)).map(regex::escape).collect();
    Regex::new(&format!("{before}(?:{})", words.join("|"))).expect("fixed words")
}

static HELPS: Words = Words::new(|| any_of("^", &[PREFIX, ALLOCATOR]));
static WATCHES: Words = Words::new(|| any_of("", &[CONTAINS]));
static ANCHORED: Words = Words::new(|| any_of("", &[ANCHORS]));
static ANCHORS_START: Words = Words::new(|| any_of("^", &[ANCHOR_STARTS]));
static WAITS: Words = Words::new(|| any_of("", &[HUNG]));
static REPORTS: Words = Words::new(|| {
    any_of("^", &["dump_ show_ print_ report_ check_preemption debug_smp warn die panic"])
});

static EXACT_SET: LazyLock<HashSet<&str>> = LazyLock::new(|| words(EXACT).collect());
static DISPATCH_SET: LazyLock<HashSet<&str>> = LazyLock::new(|| words(DISPATCH).collect());

fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_ascii_whitespace()
}

fn starts(name: &str, list: &[&str]) -> bool {
    list.iter().any(|p| name.starts_with(p))
}

fn has(name: &str, list: &[&str]) -> bool {
    list.iter().any(|p| name.contains(p))
}

/// Whether `function` is a helper in reports of the family `skip`.
#[must_use]
pub fn is_helper(function: &str, skip: Skip) -> bool {
    let name = function.trim_start_matches('_');
    if EXACT_SET.contains(name) || HELPS.fit(name) || WATCHES.fit(function) {
        return true;
    }
    if function.starts_with("__warn") || function.starts_with("__die") || name.ends_with("_panic") {
        return true;
    }
    match skip {
        Skip::Common => false,
        Skip::Bug => name.starts_with("skb_"),
        Skip::Work => matches!(
            name,
            "process_one_work" | "flush_workqueue" | "drain_workqueue" | "destroy_workqueue"
        ),
        Skip::Kmsan => {
            starts(name, &["netlink_ack", "netlink_rcv_skb", "crypto_", "cipher_", "drbg_", "rng_"])
                || name.contains("alloc_skb")
                || name.ends_with("_encrypt")
        }
        Skip::Locking => matches!(name, "lock_sock" | "lock_sock_nested" | "release_sock"),
        Skip::Ubsan => has(name, &["ubsan", "overflow"]),
        Skip::Free => {
            starts(name, &["free_pages", "free_frozen", "free_unref", "put_page", "folio_put"])
        }
        Skip::Refcount => {
            has(name, &["refcount"])
                || starts(name, &["kobject_", "kref_", "sock_put", "put_device"])
        }
        Skip::Odebug => has(
            function,
            &[
                "debug_", "rcu", "hrtimer_", "timer_", "work_", "percpu_", "vunmap", "vfree",
                "__free_", "kobject_",
            ],
        ),
        Skip::Kmalloc => has(
            name,
            &[
                "kmalloc",
                "kcalloc",
                "kzalloc",
                "krealloc",
                "vmalloc",
                "slab",
                "kmem",
                "alloc_pages",
                "alloc_frozen_pages",
                "kvmalloc",
            ],
        ),
        Skip::Usercopy => {
            has(name, &["usercopy"])
                || starts(name, &["check_object_size", "check_heap_object", "check_"])
        }
        Skip::Kobject => starts(name, &["kobject_"]),
        Skip::Proc => starts(name, &["proc_"]),
        Skip::Rcu => {
            has(name, &["rcu", "kmem", "slab", "kmalloc", "vmalloc", "kcalloc", "kzalloc"])
                || starts(name, &["schedule", "might_"])
        }
        Skip::Usb => starts(
            name,
            &[
                "usb_submit_urb",
                "usb_start_wait_urb",
                "usb_bulk_msg",
                "usb_interrupt_msg",
                "usb_control_msg",
            ],
        ),
        Skip::Leak => has(
            name,
            &[
                "kmemleak",
                "kmalloc",
                "kcalloc",
                "kzalloc",
                "vmalloc",
                "mmap",
                "kmem",
                "slab",
                "alloc",
                "create_object",
                "idr_get",
                "list_lru_init",
                "kasprintf",
                "kvasprintf",
                "pcpu_create",
                "strdup",
                "strndup",
                "memdup",
                "krealloc",
                "getname_flags",
            ],
        ),
        Skip::Preempt => has(name, &["preempt", "processor_id", "this_cpu", "debug_"]),
        Skip::Key => has(name, &["stack", "lock", "IRQ"]),
        Skip::Sched => has(name, &["schedule"]),
        Skip::Lock => has(name, &["spin_", "_lock", "_unlock"]),
        Skip::Page => {
            has(
                name,
                &[
                    "free_page",
                    "free_pcp",
                    "put_page",
                    "get_page",
                    "update_page",
                    "release_page",
                    "free_unref",
                    "truncate_inode_pages",
                    "page_frag_free",
                    "alloc",
                    "vmap",
                    "page_owner",
                    "prep_new_page",
                ],
            ) || name.starts_with("folio")
        }
        Skip::Stack => has(name, &["stack_chk", "schedule", "retint_kernel", "bad_stack"]),
    }
}

const ANCHOR_EXACT: &[&str] = &["kthread", "page_fault", "setsockopt", "listen", "accept"];

/// A system call's function by one name: `__se_sys_mmap`, `SyS_mmap` and `mmap` are the same.
#[must_use]
pub fn syscall_name(function: &str) -> &str {
    let fits = words(SYSCALL).filter(|p| function.starts_with(p)).max_by_key(|p| p.len());
    match fits.map(|p| &function[p.len()..]) {
        Some(rest) if !rest.is_empty() => rest,
        _ => function,
    }
}

/// Whether a stack below this function is the same for everything that enters the kernel there.
#[must_use]
pub fn is_anchor(function: &str) -> bool {
    let name = syscall_name(function);
    ANCHORED.fit(name) || ANCHORS_START.fit(name) || ANCHOR_EXACT.contains(&name)
}

/// Whether a file operation only dispatches to the code behind a file.
#[must_use]
pub fn is_dispatch(function: &str) -> bool {
    DISPATCH_SET.contains(function)
}

/// Whether this function of a hung task's stack is part of how it waits.
#[must_use]
pub fn is_waiting(function: &str) -> bool {
    WAITS.fit(function) || is_helper(function, Skip::Common)
}

/// Locks and grace periods on which anything can hang: a hang on them is called by them.
#[must_use]
pub fn hung_on(function: &str) -> Option<&str> {
    if function.starts_with("rtnl_lock") {
        return Some(function);
    }
    ["synchronize_rcu", "synchronize_srcu", "synchronize_net", "synchronize_sched"]
        .iter()
        .any(|p| function.trim_start_matches('_').starts_with(p))
        .then_some("synchronize_rcu")
}

/// Whether a function only watches what others do, or prints what it saw.
#[must_use]
pub fn is_reporting(function: &str) -> bool {
    WATCHES.fit(function) || REPORTS.fit(function.trim_start_matches('_'))
}

/// What stands in the stack of a watchdog's own interrupt, above what it interrupted.
#[must_use]
pub fn is_watchdog(function: &str) -> bool {
    has(
        function,
        &["rcu", "nmi", "dump", "update_process_times", "tick_", "hrtimer_interrupt", "show_task"],
    )
}

/// Entry of an interrupt: what lies above it in a stack ran in the interrupt.
#[must_use]
pub fn is_interrupt_entry(function: &str) -> bool {
    matches!(
        function,
        "apic_timer_interrupt"
            | "reschedule_interrupt"
            | "common_interrupt"
            | "ret_from_intr"
            | "call_function_interrupt"
            | "call_function_single_interrupt"
            | "el1_irq"
            | "el1h_64_irq"
            | "__irq_svc"
            | "nmi"
            | "end_repeat_nmi"
            | "ret_from_exception"
            | "handle_exception"
            | "retint_kernel"
            | "irq_work_interrupt"
    ) || function.contains("apic_timer_interrupt")
        || function.starts_with("asm_sysvec_")
        || function.starts_with("asm_common_interrupt")
        || function.starts_with("asm_exc_nmi")
}
