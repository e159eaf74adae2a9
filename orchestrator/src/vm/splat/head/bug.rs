// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heads that begin with `BUG`.

use super::lockdep::lockdep;
use super::{Find, Head, in_function, normalise, null_deref, starts, word};
use crate::vm::splat::helpers::Skip;
use crate::vm::splat::kind::SplatKind;

/// Lines that begin with `BUG`.
pub(super) fn bug(s: &str) -> Option<Head> {
    use SplatKind::*;
    if let Some(rest) = s.strip_prefix("BUG ") {
        return slab(rest);
    }
    let rest = s.strip_prefix("BUG:")?.trim();
    if let Some(report) = rest.strip_prefix("KASAN: ") {
        return Some(kasan(report));
    }
    if let Some(report) = rest.strip_prefix("KMSAN: ") {
        let flavour = report.split(" in ").next().unwrap_or(report).trim();
        let head = Head::new(Kmsan, format!("KMSAN: {flavour}"), Find::Stack).flavour(flavour);
        let skip = if flavour.contains("usb") { Skip::Usb } else { Skip::Kmsan };
        return Some(head.function(in_function(report)).skip(skip));
    }
    if let Some(report) = rest.strip_prefix("KCSAN: ") {
        return Some(kcsan(report));
    }
    if let Some(report) = rest.strip_prefix("KFENCE: ") {
        let flavour = report.split(" in ").next().unwrap_or(report).trim();
        let skip = if flavour.contains("invalid free") { Skip::Free } else { Skip::Common };
        let head = Head::new(Kfence, format!("KFENCE: {flavour}"), Find::Stack).flavour(flavour);
        return Some(head.function(in_function(report)).skip(skip));
    }
    if rest.ends_with("messages suppressed") {
        return None;
    }
    let head = match rest {
        // show_fault_oops, arch/x86/mm/fault.c: "unable to handle kernel paging request at"
        // (to v4.20), "page fault for address:" (v5.1). bad_page_fault, arch/powerpc.
        r if null_deref(r) => Head::new(
            NullDereference,
            "BUG: unable to handle kernel NULL pointer dereference",
            Find::Pointer,
        ),
        r if starts(r, &["unable to handle", "Unable to handle"]) => {
            Head::new(PageFault, "BUG: unable to handle kernel paging request", Find::Pointer)
        }
        r if r.starts_with("spinlock ") || r.starts_with("rwlock ") => spinlock(r),
        r if r.starts_with("soft lockup") => Head::new(SoftLockup, "BUG: soft lockup", Find::Stall),
        r if r.starts_with("workqueue lockup") => {
            Head::new(WorkqueueLockup, "BUG: workqueue lockup", Find::Stall)
        }
        r if r.starts_with("workqueue leaked") => {
            Head::new(LockLeft, "BUG: workqueue leaked lock or atomic", Find::Head)
        }
        r if r.starts_with("sleeping function called") => Head::new(
            SleepingInAtomic,
            "BUG: sleeping function called from invalid context",
            Find::Stack,
        ),
        r if r.starts_with("scheduling while atomic") => {
            Head::new(SchedulingWhileAtomic, "BUG: scheduling while atomic", Find::Stack)
                .skip(Skip::Sched)
        }
        r if r.starts_with("using ") && r.contains("in preemptible") => {
            let what = r["using ".len()..].split(" in preemptible").next().unwrap_or("");
            Head::new(Preemptible, format!("BUG: using {what} in preemptible code"), Find::Stack)
                .skip(Skip::Preempt)
        }
        // mm/page_alloc.c bad_page: where the page was allocated says more than where it was
        // found to be bad, if CONFIG_PAGE_OWNER tells.
        r if starts(r, &["Bad page state", "Bad page cache"]) => {
            let kind = if r.starts_with("Bad page state") { BadPageState } else { BadPageMap };
            Head::new(kind, format!("BUG: {}", &r[..14]), Find::Origin)
        }
        r if r.starts_with("Bad page map") => {
            Head::new(BadPageMap, "BUG: Bad page map", Find::Stack).bare()
        }
        r if r.starts_with("Bad rss-counter state") => {
            Head::new(BadMmCounter, "BUG: Bad rss-counter state", Find::Head).bare()
        }
        r if r.starts_with("non-zero ") && r.contains("on freeing mm") => {
            let stem = r.split(':').next().unwrap_or(r);
            Head::new(BadMmCounter, format!("BUG: {}", stem.trim()), Find::Head).bare()
        }
        r if r.starts_with("memory leak") => leak(),
        r if r.contains("stack guard page was hit") => {
            Head::new(StackOverflow, "BUG: stack guard page was hit", Find::Deep)
        }
        r if starts(r, &["MAX_LOCK", "MAX_STACK_TRACE"]) => {
            Head::new(LockdepLimit, format!("BUG: {}", r.trim_end_matches([']', ' '])), Find::Stack)
                .bare()
        }
        r if r.starts_with("Dentry ") && r.contains("still in use") => {
            Head::new(Other, "BUG: Dentry still in use in unmount", Find::Stack).bare()
        }
        // include/asm-generic/bug.h, where the architecture has no trapping BUG():
        // "BUG: failure at FILE:LINE/FUNC()!".
        r if r.starts_with("failure at ") && r.contains('/') => {
            let function = r.rsplit('/').next().map(word);
            Head::new(KernelBug, "kernel BUG", Find::Pointer).skip(Skip::Bug).function(function)
        }
        r if starts(r, &["no syscalls can create", "crashed", "recent printk recursion"]) => {
            return None;
        }
        r => return lockdep(r, "BUG: ").or_else(|| generic_bug(r)),
    };
    Some(head)
}

/// Any other `BUG: ...` of the kernel, with or without a stack.
fn generic_bug(r: &str) -> Option<Head> {
    let r = r.trim_end_matches([' ', ']', '!']);
    if r.len() < 4 || !r.as_bytes()[0].is_ascii_alphanumeric() {
        return None;
    }
    let mut head =
        Head::new(SplatKind::Other, format!("BUG: {}", normalise(r)), Find::Stack).bare();
    head.vague = true;
    Some(head)
}

/// mm/kasan/report.c. "in FUNC at addr" until v4.9, "on address" where there is no object (to
/// v4.4), "double-free or invalid-free" until v6.2.
fn kasan(report: &str) -> Head {
    let report = report.trim();
    let flavour = report.split([' ', ':']).next().unwrap_or(report);
    let free = report.contains("-free in")
        && !report.starts_with("use-after")
        && !report.starts_with("slab-use-after");
    // The kernel could not tell the two apart until v6.2; one title finds them all.
    let stem = if free { "invalid-free" } else { flavour };
    let flavour = if report.starts_with("double-free or") { "invalid-free" } else { flavour };
    let head = Head::new(SplatKind::Kasan, format!("KASAN: {stem}"), Find::Stack);
    let skip = if free { Skip::Free } else { Skip::Common };
    head.flavour(flavour).skip(skip).function(in_function(report))
}

/// kernel/kcsan/report.c: `data-race in A / B`, `data-race in A`, `assert: race in A / B`.
fn kcsan(report: &str) -> Head {
    let (flavour, functions) = report.split_once(" in ").unwrap_or((report, ""));
    let mut names = functions.split(" / ").map(|f| word(f.trim())).filter(|f| !f.is_empty());
    let (first, second) = (names.next(), names.next());
    let mut head = Head::new(SplatKind::Kcsan, format!("KCSAN: {}", flavour.trim()), Find::Head);
    head.also = second.map(str::to_owned);
    head.flavour(flavour.trim()).function(first)
}

/// kernel/locking/spinlock_debug.c: `BUG: spinlock bad magic on CPU#0, comm/pid`.
fn spinlock(r: &str) -> Head {
    let what = r.split(" on CPU").next().unwrap_or(r);
    Head::new(
        SplatKind::Spinlock,
        format!("BUG: {}", normalise(what.split(',').next().unwrap_or(what))),
        Find::Stack,
    )
    .skip(Skip::Lock)
}

/// mm/slub.c slab_bug: `BUG kmalloc-64 (Tainted: G B): Poison overwritten`.
fn slab(rest: &str) -> Option<Head> {
    let (name, rest) = rest.split_once(" (")?;
    let (taint, what) = rest.split_once("): ")?;
    let taint = taint.starts_with("Tainted") || taint.starts_with("Not tainted");
    if !taint || name.contains(' ') && name.len() > 40 || what.starts_with("kasan: bad access") {
        return None;
    }
    let what = what.split_once(": 0x").map_or(what, |(w, _)| w);
    let stem = normalise(what.split(" @").next().unwrap_or(what));
    Some(
        Head::new(SplatKind::SlabCorruption, format!("BUG: {stem}"), Find::Stack)
            .skip(Skip::Free)
            .bare(),
    )
}

pub(super) fn leak() -> Head {
    Head::new(SplatKind::MemoryLeak, "memory leak", Find::Stack).skip(Skip::Leak)
}
