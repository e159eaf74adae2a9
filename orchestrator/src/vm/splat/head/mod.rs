// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first line of a splat: which lines begin one, and what they already say.
//!
//! Every rule names the kernel function that prints the line. Lines of programs, and lines that
//! only look alike (`ACPI BIOS Error (bug)`, `Spectre V2 : WARNING: ...`, `traps: prog[1] general
//! protection fault`, `INFO: lockdep is turned off.`), begin none.

mod bug;
mod lockdep;
mod oops;
mod other;
mod warning;

pub use other::{counts_leaks, listed_leak};

use super::frame::base_name;
use super::helpers::Skip;
use super::kind::SplatKind;
use regex::Regex;
use std::sync::LazyLock;

/// Where the guilty function is found in what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// The function of the head, the instruction pointer, then the stack.
    Pointer,
    /// The function of the head, then the stack.
    Stack,
    /// The head names it, whatever it is.
    Head,
    /// Lockdep's `at:` lines behind a line that contains the text.
    At(&'static str),
    /// The stack, or else the same.
    StackOrAt(&'static str),
    /// A hung task: below the waiting.
    Hung,
    /// A stalled CPU: deep in the interrupted stack.
    Stall,
    /// Deep in the stack, which overflowed or whose end was overwritten.
    Deep,
    /// Page owner's stack of the last allocation.
    Origin,
    /// Lockdep's stack of how a lock "became" unsafe.
    Became,
}

/// What the first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Kind of splat.
    pub kind: SplatKind,
    /// Flavour of a sanitizer report.
    pub flavour: Option<String>,
    /// Title before ` in FUNCTION`.
    pub stem: String,
    /// Whether the title names the function.
    pub named: bool,
    /// Whether it is a WARN of mm/slub.c, which may only give the stack of a report above it.
    pub slub: bool,
    /// Function on the line itself.
    pub function: Option<String>,
    /// Second function of a data race.
    pub also: Option<String>,
    /// Where to find the function.
    pub find: Find,
    /// What to skip on the way.
    pub skip: Skip,
    /// Only a splat if a stack follows.
    pub tentative: bool,
    /// Words that a program may print as well: only a splat on a line that the kernel printed.
    pub vague: bool,
    /// A panic that only says what another splat led to.
    pub derived: bool,
}

impl Head {
    fn new(kind: SplatKind, stem: impl Into<String>, find: Find) -> Self {
        Head {
            kind,
            flavour: None,
            stem: stem.into(),
            named: true,
            slub: false,
            function: None,
            also: None,
            find,
            skip: Skip::Common,
            tentative: false,
            vague: false,
            derived: false,
        }
    }
    fn bare(mut self) -> Self {
        self.named = false;
        self
    }
    fn skip(mut self, skip: Skip) -> Self {
        self.skip = skip;
        self
    }
    fn function(mut self, function: Option<&str>) -> Self {
        self.function = function.map(str::to_owned);
        self
    }
    fn flavour(mut self, flavour: &str) -> Self {
        self.flavour = Some(flavour.to_owned());
        self
    }
    fn tentative(mut self) -> Self {
        self.tentative = true;
        self
    }
}

fn re(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed pattern")
}

/// One pass over a line with this decides for almost every line that nothing begins here.
static TRIGGER: LazyLock<Regex> = LazyLock::new(|| {
    re(
        r"BUG|WARNING: |INFO: |UBSAN: |Unable to handle|nternal error|eneral protection fault|stack segment|divide error|nvalid opcode|double fault|ernel panic|PANIC: |PANIC at |Oops|LOCKUP|Out of memory: |unreferenced object|kmemleak: |unregister_netdevice: |nobody cared|Bad mode in|Insufficient stack space|stack overflow|SError|unaligned|alignment|Kernel bug detected|illegal operation|exception: |control protection fault|segment not present|invalid TSS|int3: |int 3: |bounds: |still has locks held|WARN: |Unhandled |nhandled fault|Linux version |rust_kernel: panicked|VFS: |divide_error|Alignment trap|Booting the kernel|tack recursion|blocked for more than",
    )
});

/// Titles must be the same in every boot: addresses, long numbers and task numbers go.
#[must_use]
pub fn normalise(title: &str) -> String {
    static ADDR: LazyLock<Regex> = LazyLock::new(|| re(r"\b(?:0x[0-9a-fA-F]+|[0-9a-f]{8,16})\b"));
    static IPV6: LazyLock<Regex> = LazyLock::new(|| {
        re(
            r"\b(?:[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){4,7}\b|(?:[0-9a-f]{1,4}:){1,6}:(?:[0-9a-f]{1,4}\b)?)",
        )
    });
    static TASK: LazyLock<Regex> = LazyLock::new(|| re(r"\b(syz-[a-z]+?|[\w-]+)[:/]\d+\b"));
    static NUM: LazyLock<Regex> = LazyLock::new(|| re(r"\b\d{3,}\b"));
    let title = title.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let title = IPV6.replace_all(&title, "IPV6ADDR");
    let title = ADDR.replace_all(&title, "ADDR");
    let title = TASK.replace_all(&title, "$1");
    let title = NUM.replace_all(&title, "NUM");
    let mut title = title.trim().to_owned();
    if title.len() > 160 {
        let end = (0..=160).rev().find(|&i| title.is_char_boundary(i)).unwrap_or(0);
        title.truncate(end);
    }
    title
}

/// Replaces every number that stands alone.
fn numbers(title: &str) -> String {
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| re(r"\b\d+\b"));
    NUMBER.replace_all(title, "NUM").into_owned()
}

/// Finds the beginning of a splat in a line without prefixes.
#[must_use]
pub fn recognise(text: &str) -> Option<Head> {
    if !TRIGGER.is_match(text) || text.starts_with("---[ end") {
        return None;
    }
    let s = anchor(text);
    bug::bug(s)
        .or_else(|| warning::warning(s))
        .or_else(|| warning::info(s))
        .or_else(|| oops::oops(s))
        .or_else(|| oops::panic(s))
        .or_else(|| other::other(s))
}

/// Phrases so particular that they count wherever they stand in a line, when another console
/// writer's unfinished line stands before them.
static ANYWHERE: LazyLock<Regex> = LazyLock::new(|| {
    re(
        r"(?:BUG: K[AM]SAN: |BUG: KCSAN: |BUG: KFENCE: |BUG: unable to handle |BUG: kernel NULL pointer|BUG: sleeping function called|BUG: scheduling while atomic|BUG: soft lockup|Kernel panic - not syncing|kernel BUG at |WARNING: CPU: \d|general protection fault(?:: 0000|, )|INFO: task \S+ blocked for more|INFO: rcu_\w+ (?:self-)?detected|UBSAN: \S+ in |Unable to handle kernel |Internal error: |PANIC: double fault|watchdog: BUG: |WARNING: possible |WARNING: suspicious RCU|unregister_netdevice: waiting)",
    )
});

/// Cuts what may stand before the words that matter: a subsystem's name, the brackets of old
/// lockdep headers, another writer's unfinished line.
fn anchor(text: &str) -> &str {
    let mut s = text.trim_start_matches(['[', ' ', '\t', '*', '=', '-']);
    for prefix in [
        "NMI watchdog: ",
        "watchdog: ",
        "rcu: ",
        "traps: ",
        "workqueue: ",
        "kernel: ",
        "debug: ",
        "x86/fault: ",
        "kmemleak: BUG",
        "smp: ",
        "ubsan: ",
        "kernel:",
        "CPU 0 ",
        "CPU 1 ",
        "CPU 2 ",
        "CPU 3 ",
    ] {
        if let Some(rest) = s.strip_prefix(prefix) {
            s = rest.trim_start();
        }
    }
    if starts(s, &["BUG", "WARNING", "INFO", "Oops", "Kernel", "kernel", "UBSAN"]) {
        return s;
    }
    if let Some((_, rest)) = s.split_once(": BUG: ") {
        let at = s.len() - rest.len() - "BUG: ".len();
        if at <= 40 && !s[..at].contains(['"', '\'', '`']) {
            return &s[at..];
        }
    }
    match ANYWHERE.find(s) {
        Some(m) if m.start() > 0 && !quoted(&s[..m.start()]) => &s[m.start()..],
        _ => s,
    }
}

fn quoted(before: &str) -> bool {
    before.ends_with(['"', '\'', '`', '=', '/', '_'])
        || before.ends_with(|c: char| c.is_ascii_alphabetic())
}

fn starts(s: &str, list: &[&str]) -> bool {
    list.iter().any(|p| s.starts_with(p))
}

fn word(s: &str) -> &str {
    let end = s
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')))
        .unwrap_or(s.len());
    base_name(&s[..end])
}

/// The function of `... in func+0x1/0x2 ...`, with or without the offset.
fn in_function(s: &str) -> Option<&str> {
    let (_, rest) = s.split_once(" in ")?;
    let rest = rest.trim_start_matches(' ').trim_start_matches("[<");
    let rest = match rest.split_once(">] ") {
        Some((addr, rest)) if addr.bytes().all(|b| b.is_ascii_hexdigit()) => rest,
        _ => rest,
    };
    let name = word(rest);
    (!name.is_empty() && !name.as_bytes()[0].is_ascii_digit()).then_some(name)
}

fn null_deref(r: &str) -> bool {
    r.find("NULL pointer dereference").is_some_and(|at| at < 100)
}

/// Whether a kernel starts here: its decompressor's last word or its banner.
#[must_use]
pub fn boots(text: &str) -> bool {
    text.starts_with("Linux version ")
        || text.ends_with("Booting the kernel.")
        || text.contains("Booting the kernel (entry_offset")
}

/// The head of a reboot nobody asked for.
#[must_use]
pub fn reboot() -> Head {
    Head::new(SplatKind::UnexpectedReboot, "unexpected kernel reboot", Find::Head).bare()
}
