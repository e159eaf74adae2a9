// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heads with no common first word.

use super::bug::leak;
use super::lockdep::lockdep;
use super::{Find, Head, re};
use crate::vm::splat::helpers::Skip;
use crate::vm::splat::kind::SplatKind;
use regex::Regex;
use std::sync::LazyLock;

/// Whether kmemleak says how many leaks a scan has found.
#[must_use]
pub fn counts_leaks(s: &str) -> bool {
    static LEAKS: LazyLock<Regex> =
        LazyLock::new(|| re(r"^kmemleak: \d+ new suspected memory leaks"));
    LEAKS.is_match(s)
}

/// A line of the objects that kmemleak lists in the log itself (`kmemleak.verbose=1`), as its file
/// in debugfs has it. Only the first line of an object is not indented.
#[must_use]
pub fn listed_leak(s: &str) -> Option<&str> {
    let rest = s.strip_prefix("kmemleak: ")?;
    ["  ", "unreferenced object "].iter().any(|p| rest.starts_with(p)).then_some(rest)
}

/// Everything else.
pub(super) fn other(s: &str) -> Option<Head> {
    use SplatKind::*;
    static UBSAN_IN: LazyLock<Regex> = LazyLock::new(|| re(r"^UBSAN: (.{3,60}?) in (\S+?):\d+"));
    static LOCKUP: LazyLock<Regex> = LazyLock::new(|| {
        re(
            r"(?i)^(?:Watchdog )?(?:CPU ?\d+ )?(?:self-)?detected hard LOCKUP|^CPU \d+ (?:(?:self-)?detected )?hard LOCKUP|^Watchdog CPU:\d+ (?:Hard|detected)",
        )
    });
    static IRQ: LazyLock<Regex> = LazyLock::new(|| re(r"^irq \d+: nobody cared"));
    static HUNG: LazyLock<Regex> =
        LazyLock::new(|| re(r"^.{0,48}:\d+ blocked for more than \d+ seconds\.?$"));
    if let Some(m) = UBSAN_IN.captures(s) {
        let flavour = m[1].replace(' ', "-").to_ascii_lowercase();
        let head = Head::new(Ubsan, format!("UBSAN: {flavour}"), Find::Stack).flavour(&flavour);
        return Some(head.skip(Skip::Ubsan));
    }
    if s.starts_with("unregister_netdevice: waiting for ") {
        let stem = "unregister_netdevice: waiting for DEV to become free";
        return Some(Head::new(NetdeviceStuck, stem, Find::Head).bare());
    }
    // rust/kernel/lib.rs panic handler; the message stands on the next line.
    if s.starts_with("rust_kernel: panicked at ") {
        return Some(Head::new(KernelBug, "rust_kernel: panicked", Find::Stack));
    }
    if s.starts_with("VFS: Close: file count is ") {
        let stem = "VFS: Close: file count is zero (use-after-free)";
        return Some(Head::new(Other, stem, Find::Stack).bare());
    }
    if s.starts_with("VFS: Busy inodes after unmount") {
        let stem = "VFS: Busy inodes after unmount (use-after-free)";
        return Some(Head::new(Other, stem, Find::Stack).bare());
    }
    if s.starts_with("unreferenced object ") {
        return Some(leak());
    }
    if counts_leaks(s) {
        return Some(
            Head::new(MemoryLeak, "kmemleak: new suspected memory leaks", Find::Head).bare(),
        );
    }
    if LOCKUP.is_match(s) {
        return Some(Head::new(HardLockup, "BUG: hard lockup", Find::Stall));
    }
    // mm/oom_kill.c __oom_kill_process; a memory cgroup says "Memory cgroup out of memory".
    if s.starts_with("Out of memory: ") && s.contains(" process ") {
        return Some(Head::new(OomKill, "Out of memory", Find::Head).bare());
    }
    if IRQ.is_match(s) {
        return Some(Head::new(IrqNobodyCared, "irq: nobody cared", Find::Stack).bare());
    }
    // kernel/hung_task.c, where the task's name holds a newline.
    if HUNG.is_match(s) {
        let mut head = Head::new(HungTask, "INFO: task hung", Find::Hung);
        head.vague = true;
        return Some(head);
    }
    if s.contains(" still has locks held!") {
        return lockdep(s, "WARNING: ");
    }
    None
}
