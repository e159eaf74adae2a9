// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heads that begin with `WARNING:` or `INFO:`.

use super::lockdep::lockdep;
use super::{Find, Head, normalise, re, starts};
use crate::vm::splat::frame::base_name;
use crate::vm::splat::helpers::Skip;
use crate::vm::splat::kind::SplatKind;
use regex::Regex;
use std::sync::LazyLock;

/// kernel/panic.c __warn and lib/bug.c: `WARNING: CPU: 0 PID: 1 at FILE:LINE func+0x1/0x2`
/// (since v3.9), `WARNING: at FILE:LINE func+0x1/0x2()` before; `WARNING: FILE:LINE at
/// func+0x1/0x2, CPU#0: comm/pid` since v6.19, with `[condition]` before the file if configured.
pub(super) fn warning(s: &str) -> Option<Head> {
    static NEW: LazyLock<Regex> = LazyLock::new(|| {
        re(
            r"^(?:\[.{1,200}?\] )?(?P<file>[\w./+-]+):(?P<line>\d+) at (?:(?P<fn>[A-Za-z_.][\w.$]*)\+)?0x",
        )
    });
    let r = s.strip_prefix("WARNING: ")?.trim();
    if let Some((file, function)) = old(r) {
        return Some(warn_family(file, function));
    }
    if let Some(m) = NEW.captures(r).filter(|_| r.contains(" at ")) {
        let function = m.name("fn").map(|f| base_name(f.as_str())).filter(|f| !f.is_empty());
        return Some(warn_family(&m["file"], function));
    }
    if r.starts_with("CPU: ") && r.contains(" PID: ") {
        return Some(Head::new(SplatKind::Warning, "WARNING", Find::Pointer).skip(Skip::Common));
    }
    if let Some(head) = lockdep(r, "WARNING: ") {
        return Some(head);
    }
    if let Some(rest) = r.strip_prefix("kernel stack ") {
        let what = if rest.starts_with("regs") {
            "regs has bad value"
        } else {
            "frame pointer has bad value"
        };
        let stem = match rest.split('\'').nth(1) {
            Some(reg) if rest.starts_with("regs") && !rest.contains("(ptrval)") => {
                format!("WARNING: kernel stack regs has bad '{reg}' value")
            }
            _ => format!("WARNING: kernel stack {what}"),
        };
        return Some(Head::new(SplatKind::Other, stem, Find::Head).bare());
    }
    if starts(r, &["can't dereference", "can't access", "Unprivileged eBPF", "workqueue cpumask"])
        || r.len() < 6
    {
        return None;
    }
    let stem = format!("WARNING: {}", normalise(r));
    Some(Head::new(SplatKind::Other, stem, Find::Stack).bare().tentative())
}

/// `CPU: 0 PID: 1 at FILE:LINE func+0x1/0x2`, or with less of it: the file and the function.
fn old(r: &str) -> Option<(&str, Option<&str>)> {
    let rest = match r.strip_prefix("CPU:") {
        Some(rest) => {
            let place = rest.find(" at ")?;
            let numbers = rest[..place].replace(" PID:", "");
            if !numbers.bytes().all(|b| b == b' ' || b.is_ascii_digit()) {
                return None;
            }
            &rest[place + 4..]
        }
        None => r.strip_prefix("at ")?,
    };
    let (place, function) = match rest.split_once(' ') {
        Some((place, function)) => (place, Some(function)),
        None => (rest, None),
    };
    let (file, line) = place.split_once(':')?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_./+-".contains(&b);
    if file.is_empty()
        || !file.bytes().all(plain)
        || !line.starts_with(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    let function = function.and_then(|f| {
        let end =
            f.find(|c: char| !(c.is_ascii_alphanumeric() || "_.$".contains(c))).unwrap_or(f.len());
        let follows =
            f[end..].is_empty() || ["+0x", "(", " ("].iter().any(|p| f[end..].starts_with(p));
        let name = base_name(&f[..end]);
        (follows && !name.is_empty()).then_some(name)
    });
    Some((file, function))
}

fn warn_family(file: &str, function: Option<&str>) -> Head {
    use SplatKind::*;
    static KMALLOC: LazyLock<Regex> = LazyLock::new(|| re(r"^k?.?malloc"));
    let f = function.unwrap_or("");
    let ends = |name: &str| file.ends_with(name);
    let (kind, stem, skip) = if ends("lib/debugobjects.c") {
        (Odebug, "WARNING: ODEBUG bug", Skip::Odebug)
    } else if ends("mm/usercopy.c") {
        (BadUsercopy, "WARNING: bad usercopy", Skip::Usercopy)
    } else if ends("lib/kobject.c") {
        (Warning, "WARNING: kobject bug", Skip::Kobject)
    } else if ends("fs/proc/generic.c") && (f.is_empty() || f.starts_with("proc_register")) {
        (Warning, "WARNING: proc registration bug", Skip::Proc)
    } else if ends("lib/refcount.c") || ends("include/linux/refcount.h") {
        (Refcount, "WARNING: refcount bug", Skip::Refcount)
    } else if ends("kernel/locking/lockdep.c") {
        (LockingBug, "WARNING: locking bug", Skip::Locking)
    } else if ends("lib/list_debug.c") {
        (ListCorruption, "WARNING: corrupted list", Skip::Common)
    } else if file.contains("mm/") && KMALLOC.is_match(f) {
        (Warning, "WARNING: kmalloc bug", Skip::Kmalloc)
    } else if ends("mm/vmalloc.c") && f.starts_with("__vmalloc_node") {
        (Warning, "WARNING: zero-size vmalloc", Skip::Common)
    } else if f == "usb_submit_urb" {
        (Warning, "WARNING", Skip::Usb)
    } else {
        (Warning, "WARNING", Skip::Common)
    };
    let mut head = Head::new(kind, stem, Find::Pointer).skip(skip).function(function);
    head.slub = ends("mm/slub.c");
    if f == "usb_submit_urb" {
        head.also = Some(f.to_owned());
    }
    head
}

/// Lines that begin with `INFO:`.
pub(super) fn info(s: &str) -> Option<Head> {
    use SplatKind::*;
    static STALL: LazyLock<Regex> = LazyLock::new(|| {
        re(
            r"^rcu\w* (?:self-)?detected (?:expedited )?stall|^rcu_tasks\w* detected stalls|^rcu_\w+ self-detected",
        )
    });
    static HUNG: LazyLock<Regex> =
        LazyLock::new(|| re(r"^task .+ blocked (?:in I/O wait )?for more than \d+ seconds"));
    let r = s.strip_prefix("INFO: ")?.trim();
    if STALL.is_match(r) {
        return Some(Head::new(RcuStall, "INFO: rcu detected stall", Find::Stall).skip(Skip::Rcu));
    }
    if HUNG.is_match(r) {
        return Some(Head::new(HungTask, "INFO: task hung", Find::Hung));
    }
    if r.starts_with("task ") && r.contains(" can't die for more than ") {
        return Some(Head::new(HungTask, "INFO: task can't die", Find::Stack).skip(Skip::Sched));
    }
    if r.starts_with("trying to register non-static key") {
        return Some(
            Head::new(NonStaticKey, "INFO: trying to register non-static key", Find::Stack)
                .skip(Skip::Key),
        );
    }
    lockdep(r, "INFO: ")
}
