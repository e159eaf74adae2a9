// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heads of exceptions and panics.

use super::{Find, Head, normalise, null_deref, re, starts, word};
use crate::vm::splat::frame;
use crate::vm::splat::helpers::Skip;
use crate::vm::splat::kind::SplatKind;
use regex::Regex;
use std::sync::LazyLock;

/// Exceptions of every architecture.
pub(super) fn oops(s: &str) -> Option<Head> {
    use SplatKind::*;
    let pointer = |kind, stem: &str| Some(Head::new(kind, stem, Find::Pointer));
    // die, arch/x86/kernel/dumpstack.c: since v6.10 the exception's name stands behind "Oops: ".
    let r = s.strip_prefix("Oops: ").unwrap_or(s);
    let behind = |r: &str, name: &str| {
        r.strip_prefix(name).is_some_and(|t| {
            t.is_empty()
                || t.starts_with([':', ',', ' ']) && !t.contains(" ip:") && !t.contains("[ip]")
        })
    };
    if behind(r, "general protection fault") && (r.contains("fault:") || r.contains("fault,")) {
        return pointer(GeneralProtection, "general protection fault");
    }
    for (name, kind, stem) in [
        ("stack segment", StackSegment, "stack segment fault"),
        ("divide error", DivideError, "divide error"),
        // The name had an underscore in some versions (commit 9d06c4027f21, v5.8).
        ("divide_error", DivideError, "divide error"),
        ("invalid opcode", InvalidOpcode, "invalid opcode"),
        ("double fault", DoubleFault, "PANIC: double fault"),
        ("segment not present", Oops, "segment not present"),
        ("invalid TSS", Oops, "invalid TSS"),
        ("alignment check", Oops, "alignment check"),
        ("control protection fault", Oops, "control protection fault"),
        ("int3", Oops, "int3"),
        ("bounds", Oops, "bounds"),
    ] {
        if r.strip_prefix(name).is_some_and(|t| t.starts_with(':')) {
            return pointer(kind, stem);
        }
    }
    // The panics of OpenZFS (module/os/linux/spl/spl-err.c) stop one thread.
    if let Some(place) = s.strip_prefix("PANIC at ") {
        let function = place.trim_end().strip_suffix("()")?.rsplit(':').next()?;
        let head = Head::new(Other, "PANIC", Find::Head).function(Some(function));
        return Some(head.tentative());
    }
    if let Some(rest) = s.strip_prefix("PANIC: ") {
        return match rest {
            r if r.starts_with("double fault") => pointer(DoubleFault, "PANIC: double fault"),
            r if r.starts_with("early exception") => {
                pointer(EarlyException, "PANIC: early exception")
            }
            _ => None,
        };
    }
    if r.starts_with("kernel stack overflow")
        || s.starts_with("Insufficient stack space to handle exception")
        || s.starts_with("Kernel stack overflow")
    {
        return Some(
            Head::new(StackOverflow, "kernel stack overflow", Find::Deep).skip(Skip::Stack),
        );
    }
    // die_kernel_fault on arm, arm64, riscv, mips, loongarch, s390, sparc.
    if let Some(rest) = s.strip_prefix("Unable to handle kernel ") {
        return if null_deref(rest) {
            pointer(NullDereference, "BUG: unable to handle kernel NULL pointer dereference")
        } else if rest.starts_with("access to user memory") {
            pointer(PageFault, "BUG: unable to handle kernel access to user memory")
        } else {
            pointer(PageFault, "BUG: unable to handle kernel paging request")
        };
    }
    if let Some(rest) = s.strip_prefix("Internal error: ").filter(|r| r.contains("[#")) {
        if let Some(ubsan) = rest.strip_prefix("UBSAN: ") {
            let flavour = ubsan.split(':').next().unwrap_or(ubsan).trim().replace(' ', "-");
            let head = Head::new(Ubsan, format!("UBSAN: {flavour}"), Find::Pointer);
            return Some(head.flavour(&flavour));
        }
        let what = if rest.contains("stack overflow") { StackOverflow } else { Oops };
        return pointer(
            what,
            if what == Oops { "Internal error" } else { "kernel stack overflow" },
        );
    }
    if let Some(rest) =
        s.strip_prefix("kernel BUG at ").or_else(|| s.strip_prefix("Kernel BUG at "))
    {
        let file = rest.split(':').next().unwrap_or(rest);
        let (kind, stem, skip, find) = if file.ends_with("mm/usercopy.c") {
            (BadUsercopy, "BUG: bad usercopy", Skip::Usercopy, Find::Pointer)
        } else if file.ends_with("lib/list_debug.c") {
            (ListCorruption, "BUG: corrupted list", Skip::Common, Find::Pointer)
        } else {
            (KernelBug, "kernel BUG", Skip::Bug, Find::Pointer)
        };
        let head = Head::new(kind, stem, find).skip(skip);
        // powerpc: "kernel BUG at func+0x1/0x2"? Only when no file stands there.
        return Some(head.function(frame::anywhere(rest)));
    }
    if starts(s, &["Kernel BUG", "Kernel bug detected"]) || s.trim_end() == "kernel BUG at" {
        return pointer(KernelBug, "kernel BUG");
    }
    if s.starts_with("Unhandled fault: ") && !s.contains("(0x") {
        return None;
    }
    if starts(
        s,
        &[
            "SError Interrupt on CPU",
            "Bad mode in ",
            "Unhandled fault: ",
            "Unhandled prefetch abort",
            "illegal operation: 0",
            "specification exception: 0",
            "Unhandled kernel unaligned",
            "Alignment trap: not handling",
        ],
    ) {
        let stem = s.split([':', '[']).next().unwrap_or(s);
        let stem = stem.split(" detected").next().unwrap_or(stem);
        return pointer(Oops, &normalise(stem.split(" on CPU").next().unwrap_or(stem)));
    }
    static OOPS: LazyLock<Regex> = LazyLock::new(|| {
        re(r"^Oops(?: - [\w ]+)?(?:: .*)?\s*\[?#\d+\]?|^Oops: [Kk]ernel access of bad area")
    });
    if OOPS.is_match(s) {
        return pointer(Oops, "Oops");
    }
    None
}

static DERIVED: &[&str] = &[
    "Fatal exception",
    "panic_on_warn set",
    "hung_task: blocked",
    "softlockup: hung",
    "Hard LOCKUP",
    "RCU Stall",
    "Oops: ",
    "Oops - ",
    "Aiee, killing interrupt",
    "Attempted to kill the idle",
    "Machine halted",
    "kasan.fault=",
    "scheduling while atomic",
    "Watchdog detected hard LOCKUP",
    "BUG!",
    "Fatal hardware error",
    "bad_page",
];

/// kernel/panic.c vpanic.
pub(super) fn panic(s: &str) -> Option<Head> {
    let rest = s.strip_prefix("Kernel panic - not syncing")?;
    let why = rest.trim_start_matches([':', ' ']).trim();
    if let Some(place) = why.strip_prefix("stack-protector: Kernel stack is corrupted in: ") {
        let function = frame::anywhere(place).or_else(|| {
            let name = word(place);
            (!name.bytes().all(|b| b.is_ascii_hexdigit())).then_some(name)
        });
        let head = Head::new(SplatKind::Panic, "kernel panic: stack is corrupted", Find::Stack);
        return Some(head.function(function).skip(Skip::Stack));
    }
    if why.starts_with("kernel stack overflow") {
        let head = Head::new(SplatKind::StackOverflow, "kernel stack overflow", Find::Deep);
        return Some(Head { derived: true, ..head.skip(Skip::Stack) });
    }
    if why.starts_with("corrupted stack end") {
        let head = Head::new(SplatKind::Panic, "kernel panic: corrupted stack end", Find::Deep);
        return Some(head.skip(Skip::Stack));
    }
    let short = [
        "Attempted to kill init!",
        "Attempted to kill the idle task!",
        "Couldn't open N_TTY ldisc",
        "hung_task: blocked tasks",
        "panic_on_warn set",
        "System is deadlocked on memory",
    ];
    let why = short.iter().find(|p| why.contains(**p)).copied().unwrap_or(why);
    let mut head = Head::new(
        SplatKind::Panic,
        format!("kernel panic: {}", super::numbers(&normalise(why))),
        Find::Stack,
    )
    .bare();
    head.derived =
        DERIVED.iter().any(|d| why.contains(d)) || why.starts_with("Attempted to kill init");
    Some(head)
}
