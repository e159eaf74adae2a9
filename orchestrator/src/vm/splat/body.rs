// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines below a splat's head: which belong to it, and what they say.

use super::frame;
use regex::Regex;
use std::sync::LazyLock;

/// What a line does to the report it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The stack of the code at fault begins.
    Stack,
    /// Another CPU's or task's dump begins.
    Dump,
    /// A stack begins that tells of something else (who allocated, who freed, how locks came to
    /// depend on each other).
    Aside,
    /// The report ends with this line.
    End,
    /// Any other line that belongs to a report.
    Part,
    /// A line that does not look like part of one.
    Foreign,
}

const STACK: &[&str] = &[
    "Call Trace:",
    "Call trace:",
    "Backtrace:",
    "backtrace",
    "stack backtrace:",
    "Stack backtrace:",
    "Call Trace (",
    "CPU BackTrace",
];
const DUMP: &[&str] = &[
    "NMI backtrace for cpu",
    "Task dump for CPU",
    "task:",
    "Sending NMI",
    "rcu: RCU grace-period kthread stack dump",
    "RCU grace-period kthread stack dump",
    "rcu: Stack dump where RCU",
    "Stack dump where RCU",
    "Backtrace for CPU",
];
const ASIDE: &[&str] = &[
    "Allocated by task",
    "Allocated:",
    "Freed by task",
    "Freed:",
    "allocated by task",
    "freed by task",
    "INFO: Allocated in",
    "INFO: Freed in",
    "Allocated in ",
    "Freed in ",
    "Uninit was",
    "Local variable",
    "Last potentially related",
    "Second to last",
    "Last call_rcu",
    "Last kvfree",
    "Origin:",
    "origin:",
    "The buggy address",
    "kfence-#",
    "-> #",
    "the existing dependency chain",
    "but this lock took",
    "and this task is already",
    "but this new dependency",
    "the dependencies between",
    "the second lock's",
    "the first lock's",
    "the shortest dependencies",
    "to a HARDIRQ",
    "to a SOFTIRQ",
    "... which became",
    "Showing all locks held",
    "page last allocated",
    "page last free",
    "page allocated via",
    "page_owner",
    "last function:",
    "Preemption disabled at",
    "Showing busy workqueues",
    "Showing backtraces of running",
    "Mem-Info:",
    "chained request",
    "value changed",
    "Reported by Kernel",
    "irq event stamp",
    "which lock already",
];

static PART: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?x)^(?:
          [A-Z][A-Z0-9_]{1,7}\ ?[:=]\ ?[0-9a-fx]{2}      # RAX: 0000, CR2: 0000, ESI: 0000
        | [a-z][a-z0-9]{0,3}\ *[:=]?\ *\[?<?[0-9a-f]{8}  # x29: ..., sp : ..., ra : ...
        | R\d\d?:\ |GPR\d\d|LR\ |NIP|MSR|CFAR|XER|XMM|Krnl|lr\ :|pc\ :|sp\ :|pstate|x\d\d?\ *:|r\d\d?\ *:|gp\ :|tp\ :|t\d\ :|s\d\ :|a\d\ :
        | \#\d+:\ |\d+\ locks?\ held\ by|no\ locks\ held
        | \(?[\w&>.:\-\[\]()*]+\)?\{.{4,12}\}             # lock classes
        | [0-9a-f]{8,16}:?\ |>[0-9a-f]{8,16}:
        | \.\.\.|CPU0\ +CPU1|----\ +----|lock\(|unlock\(|rlock\(|<Interrupt>|\*\*\*\ DEADLOCK
        | (?:Read|Write|read|write|Free|race)\ (?:of|at|to)
    )").expect("a fixed pattern")
});

const PARTS: &[&str] = &[
    "CPU:",
    "CPU ",
    "PID:",
    "Comm:",
    "Hardware name",
    "Modules linked in",
    "Tainted",
    "Not tainted",
    "Workqueue:",
    "Code:",
    "Code ",
    "Stack:",
    "RIP",
    "RSP",
    "EIP",
    "ESP",
    "IP:",
    "PGD",
    "*pde",
    "*pdpt",
    "pgd =",
    "[<",
    "FS:",
    "CS:",
    "DR0",
    "DR3",
    "DR6",
    "PKRU",
    "ORIG_RAX",
    "CR2",
    "Oops",
    "#PF",
    "Mem abort",
    "Data abort",
    "ESR",
    "ISV",
    "CM ",
    "EC ",
    "SET ",
    "EA ",
    "FSC",
    "Internal error",
    "swapper pgtable",
    "user pgtable",
    "Dumping ftrace",
    "(ftrace buffer",
    "note: ",
    "Fixing recursive",
    "BUG: ",
    "WARNING: ",
    "<TASK>",
    "</TASK>",
    "<IRQ>",
    "</IRQ>",
    "<NMI>",
    "</NMI>",
    "<EOI>",
    "<EOE>",
    "<#",
    "<UNK>",
    "</",
    "===",
    "---",
    "other info",
    "Possible unsafe",
    "Chain exists",
    "hardirqs last",
    "softirqs last",
    "possible reason",
    "1 lock held",
    "2 locks held",
    "3 locks held",
    "stack is not",
    "(stack is not",
    "which belongs to",
    "The buggy",
    "Memory state",
    "page:",
    "raw:",
    "flags:",
    "head:",
    "ffff",
    "anon ",
    "addr",
    "page dumped",
    "page_owner",
    "Disabling lock",
    "Kernel Offset",
    "Rebooting in",
    "Kernel panic",
    "Process ",
    "Thread overran",
    "Exception stack",
    "irq event",
    "echo 0",
    "\"echo 0",
    "in_atomic()",
    "preempt_count",
    "RCU nest",
    "rcu_scheduler_active",
    "rcu: ",
    "(detected by",
    "(t=",
    "INFO: Object",
    "INFO: Slab",
    "INFO: Allocated",
    "INFO: Freed",
    "Slab ",
    "Object ",
    "Redzone",
    "Padding",
    "Bytes b4",
    "FIX ",
    "comm ",
    "hex dump",
    "shift exponent",
    "index ",
    "signed integer",
    "unsigned integer",
    "member access",
    "load of",
    "load address",
    "negation of",
    "division",
    "is trying",
    "but task",
    "but there",
    "already holding",
    "which",
    "and this",
    "the code",
    "turning off",
    "you didn't",
    "INFO: lockdep",
    "last disabled",
    "Bytes ",
    "value changed",
    "no locks",
    "DEBUG_LOCKS",
    "task:",
    "Showing",
    "Call",
    "lr :",
    "LR is at",
    "PC is at",
    "sp :",
    "ip :",
    "Control:",
    "Flags:",
    "Table:",
    "Register ",
    "Stack",
    "Instruction dump",
    "epc",
    "status:",
    "cause",
    "badaddr",
    "gp :",
    "ra ",
    "$",
    "Hi",
    "Lo",
    "Status",
    "Cause",
    "PrId",
    "BadVA",
    "Krnl",
    "Last Breaking-Event",
    "[  T",
    "Killed process",
    "oom-kill:",
    "Mem-Info",
    "active_anon",
    "Node ",
    "DMA",
    "Normal",
    "lowmem",
    "Tasks state",
    "[ pid",
    "Out of memory",
    "CPU#",
    "Unable to handle",
];

/// Reads one line below a head.
#[must_use]
pub fn read(text: &str) -> Body {
    let t = text.trim();
    if t.is_empty() {
        return Body::Part;
    }
    if t == "?" {
        return Body::Part;
    }
    if t.starts_with("---[ end") {
        return Body::End;
    }
    if STACK.iter().any(|p| t.starts_with(p)) {
        return Body::Stack;
    }
    if t.starts_with("NMI backtrace") && t.contains("skipped") {
        return Body::Aside;
    }
    if DUMP.iter().any(|p| t.starts_with(p)) {
        return Body::Dump;
    }
    if ASIDE.iter().any(|p| t.starts_with(p)) {
        return Body::Aside;
    }
    if frame::parse(t).is_some() || PARTS.iter().any(|p| t.starts_with(p)) || PART.is_match(t) {
        return Body::Part;
    }
    Body::Foreign
}

/// Facts of the line `CPU: 1 PID: 123 [UID: 0] Comm: name Tainted: G W 6.1.0` and its relatives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// CPU number.
    pub cpu: Option<u32>,
    /// Process (thread) id.
    pub pid: Option<u32>,
    /// Command name.
    pub comm: Option<String>,
    /// Taint letters, `GWO` for "Tainted: G        W  O"; none if not tainted.
    pub taint: Option<String>,
}

impl Facts {
    /// Takes what `text` says and is not yet known.
    pub fn learn(&mut self, text: &str) {
        static NEW: LazyLock<Regex> = LazyLock::new(|| re(r"CPU#\d+: (.{1,32})/(\d{1,10})$"));
        static TASK: LazyLock<Regex> = LazyLock::new(|| re(r"INFO: task (.{1,32}):(\d{1,10}) "));
        static TAINT: LazyLock<Regex> =
            LazyLock::new(|| re(r"Tainted: ((?:[A-Z] *){1,20})(?: |$)"));
        if !(text.contains("CPU")
            || text.contains("PID")
            || text.contains("ainted")
            || text.contains("INFO: task"))
        {
            return;
        }
        let mut set = |pid: &str, comm: Option<&str>| {
            self.pid = self.pid.or(pid.parse().ok());
            if self.comm.is_none() {
                self.comm = comm.map(str::to_owned);
            }
        };
        let task = || TASK.captures(text).filter(|_| text.contains("INFO: task"));
        let new = || NEW.captures(text).filter(|_| text.contains("CPU#"));
        if let Some(m) = task().or_else(new) {
            set(&m[2], Some(&m[1]));
        } else if let Some((pid, rest)) = number(text, "PID:") {
            set(pid, comm(rest));
        }
        if self.cpu.is_none() {
            let cpu = number(text, "CPU:").or_else(|| number(text, "CPU#"));
            self.cpu = cpu.and_then(|(n, _)| n.parse().ok());
        }
        if self.taint.is_none() && text.contains("Tainted: ") {
            self.taint = TAINT
                .captures(text)
                .map(|m| m[1].chars().filter(|c| c.is_ascii_uppercase()).collect());
        }
    }
}

/// The CPU whose dump begins with this line.
#[must_use]
pub fn cpu(text: &str) -> Option<u32> {
    let t = text.trim_start();
    let found = if t.starts_with("CPU: ") && t.contains(" PID: ") {
        number(t, "CPU:")
    } else if t.starts_with("NMI backtrace for cpu ") {
        number(t, "for cpu")
    } else if t.starts_with("Task dump for CPU ") {
        number(t, "for CPU")
    } else {
        None
    };
    found.and_then(|(n, _)| n.parse().ok())
}

/// The CPUs that a line of an RCU stall's report calls stalled: `1-...!: (627 ticks this GP)` one
/// a line, or `{ 1-...D 3-.... P123 }` among tasks (expedited, and all before v3.10).
#[must_use]
pub fn stalled(text: &str) -> Vec<u32> {
    static ONE: LazyLock<Regex> = LazyLock::new(|| re(r"^(\d{1,5})(?:-[\w.!?]{1,8})?: \("));
    static LIST: LazyLock<Regex> =
        LazyLock::new(|| re(r"detected .*stalls? on CPU.*\{([^{}]{1,2000})\}"));
    static LISTED: LazyLock<Regex> = LazyLock::new(|| re(r"^(\d{1,5})(?:-[\w.!?]{1,8})?$"));
    let t = text.trim_start();
    let t = t.strip_prefix("rcu:").unwrap_or(t).trim_start();
    let words = LIST.captures(t).map(|m| m.get(1).map_or("", |m| m.as_str())).unwrap_or("");
    let listed = words.split_ascii_whitespace().filter_map(|w| LISTED.captures(w));
    ONE.captures(t).into_iter().chain(listed).filter_map(|m| m[1].parse().ok()).collect()
}

/// The number behind a mark, and what follows it.
fn number<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = text.split_once(mark)?;
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    (1..=10).contains(&digits).then(|| (&rest[..digits], &rest[digits..]))
}

/// The command name in what follows a pid: ` UID: 0, comm: NAME Not tainted`.
fn comm(rest: &str) -> Option<&str> {
    let rest = match rest.strip_prefix(" UID:") {
        Some(rest) => rest.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()),
        None => rest,
    };
    let rest = rest.trim_start_matches([' ', ',']);
    let rest = rest.strip_prefix("Comm: ").or_else(|| rest.strip_prefix("comm: "))?;
    let end = [" Not tainted", " Tainted"]
        .iter()
        .filter_map(|e| rest.find(e))
        .min()
        .unwrap_or(rest.len());
    let name = &rest[..end];
    (!name.is_empty() && name.chars().count() <= 32).then_some(name)
}

fn re(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed pattern")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_every_shape() {
        let mut facts = Facts::default();
        facts.learn("CPU: 1 UID: 0 PID: 123 Comm: a b Tainted: G    B   W  OE      6.12.0 #1");
        assert_eq!(
            (facts.cpu, facts.pid, facts.comm.as_deref()),
            (Some(1), Some(123), Some("a b"))
        );
        let mut facts = Facts::default();
        facts.learn("CPU: 1 PID: 123 Comm: a b Tainted: G    B   W  OE      6.12.0 #1");
        assert_eq!(
            (facts.cpu, facts.pid, facts.comm.as_deref()),
            (Some(1), Some(123), Some("a b"))
        );
        assert_eq!(facts.taint.as_deref(), Some("GBWOE"));
        let mut facts = Facts::default();
        facts.learn("WARNING: mm/x.c:1 at f+0x1/0x2, CPU#3: init/1");
        assert_eq!((facts.cpu, facts.pid, facts.comm.as_deref()), (Some(3), Some(1), Some("init")));
    }

    #[test]
    fn stalled_cpus_are_read_from_every_shape() {
        for (text, cpus) in [
            ("rcu: \t1-...!: (627 ticks this GP) idle=23b4/1/0x4", &[1][..]),
            ("\t12-....: (20999 ticks this GP) idle=23b4/1/0", &[12]),
            ("\t3: (1 GPs behind) idle=1/1/0", &[3]),
            (
                "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 0-.... P33 2-...D } 21 jiffies",
                &[0, 2],
            ),
            ("INFO: rcu_sched self-detected stall on CPU { 1}  (t=2100 jiffies)", &[1]),
            ("rcu: \t(t=750 jiffies g=-1143 q=3 ncpus=2)", &[]),
            ("rcu: \t(detected by 1, t=750 jiffies, g=5, q=3)", &[]),
        ] {
            assert_eq!(stalled(text), cpus, "{text}");
        }
        assert_eq!(cpu("CPU: 3 UID: 0 PID: 36 Comm: x Not tainted"), Some(3));
        assert_eq!(cpu("NMI backtrace for cpu 2"), Some(2));
        assert_eq!(cpu("CPU: 3 PID of nobody"), None);
    }
}
