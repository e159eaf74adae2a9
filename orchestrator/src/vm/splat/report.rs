// SPDX-License-Identifier: MIT OR Apache-2.0
//! A splat while its lines come in, and how it is finished.

use super::body::{self, Body, Facts};
use super::frame::{self, Pointer};
use super::guilty::{self, Named};
use super::head::{Find, Head};
use super::kind::SplatKind;
use super::line::Caller;
use super::{Splat, fingerprint};

/// Bytes of text kept of one splat.
pub const TEXT_MAX: usize = 256 * 1024;
/// Functions remembered of one splat; stacks are cut far above this by nobody.
const NAMES_MAX: usize = 1024;
/// Stalled CPUs remembered; a line names a few.
const STALLED_MAX: usize = 256;
/// Lines in a row that do not belong, after which a splat with a stack is over.
const FOREIGN_WITH_STACK: usize = 30;
/// The same before a stack was seen.
const FOREIGN_WITHOUT_STACK: usize = 60;
/// Lines after which a splat is over in any case (all CPUs' backtraces of a large machine).
const LINES_MAX: usize = 6000;

/// A splat that is being read.
#[derive(Debug)]
pub struct Report {
    pub head: Head,
    pub caller: Caller,
    /// Whether its lines carry timestamps, so that lines without are others'.
    pub stamped: bool,
    /// Whether the line last read as the head is a decoder's, for an inlined function.
    pub decoded: bool,
    pub first_line: usize,
    last_line: usize,
    text: String,
    /// Length of the text up to the last line that belongs.
    keep: usize,
    names: Vec<Named>,
    origin: Vec<Named>,
    in_origin: bool,
    stack: u32,
    /// Whether a stack was announced.
    stacked: bool,
    aside: bool,
    guess: bool,
    above: String,
    at: Vec<String>,
    at_open: bool,
    facts: Facts,
    access: Option<&'static str>,
    what: Option<String>,
    /// Whether `what` is what a stalled worker does.
    worker: bool,
    lines: usize,
    foreign: usize,
    /// CPUs that an RCU stall's report calls stalled.
    stalled: Vec<u32>,
    /// CPU whose dump is being read.
    cpu: Option<u32>,
    /// Another CPU was asked for its stack: its lines belong too.
    pub all_cpus: bool,
    ended: bool,
    pub fatal: bool,
}

impl Report {
    /// Starts a report at `line`; `before` are the lines just above that belong to it.
    pub fn new(
        head: Head,
        caller: Caller,
        stamped: bool,
        line: usize,
        text: &str,
        before: &[(usize, String)],
    ) -> Self {
        let mut report = Report {
            fatal: head.kind.is_fatal(),
            head,
            caller,
            stamped,
            decoded: text.ends_with("[inline]"),
            first_line: before.first().map_or(line, |b| b.0),
            last_line: line,
            text: String::new(),
            keep: 0,
            names: Vec::new(),
            origin: Vec::new(),
            in_origin: false,
            stack: 0,
            stacked: false,
            aside: false,
            guess: false,
            above: String::new(),
            at: Vec::new(),
            at_open: false,
            facts: Facts::default(),
            access: None,
            what: None,
            worker: false,
            lines: 0,
            foreign: 0,
            stalled: Vec::new(),
            cpu: None,
            all_cpus: false,
            ended: false,
        };
        for (_, text) in before {
            report.append(text);
        }
        report.append(text);
        report.keep = report.text.len();
        report.facts.learn(text);
        report.dumped(text, &Body::Part);
        // A report that was pasted as one line.
        if let Some((_, rest)) = text.split_once("IP is at ") {
            report.name(&format!("EIP is at {rest}"));
        }
        report
    }

    fn append(&mut self, text: &str) {
        if self.text.len() + text.len() < TEXT_MAX {
            self.text.push_str(text);
            self.text.push('\n');
        }
    }

    /// Whether a stack has been seen.
    pub fn has_stack(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether it tells of a slab and its stack is still to come, by a WARN (since v6.12).
    pub fn lacks_stack_of_slab(&self) -> bool {
        self.head.kind == SplatKind::SlabCorruption && !self.has_stack()
    }

    /// Whether nothing more can belong to it.
    pub fn is_over(&self) -> bool {
        let limit = if self.names.iter().any(|n| !n.pointer) {
            FOREIGN_WITH_STACK
        } else {
            FOREIGN_WITHOUT_STACK
        };
        let limit = if self.head.tentative { 2 } else { limit };
        self.ended || self.foreign > limit || self.lines > LINES_MAX
    }

    /// Lines read since the head.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Reads a line below the head.
    pub fn push(&mut self, line: usize, text: &str) {
        self.lines += 1;
        self.append(text);
        let joined = self.join(text);
        let text = joined.as_deref().unwrap_or(text);
        let body = body::read(text);
        self.details(text);
        if body == Body::Foreign && !self.expects(text) {
            self.foreign += 1;
            return;
        }
        self.foreign = 0;
        self.keep = self.text.len();
        self.last_line = line;
        self.facts.learn(text);
        self.dumped(text, &body);
        match body {
            Body::End => self.ended = true,
            Body::Stack | Body::Dump => {
                // An instruction pointer belongs to the stack that follows it.
                let here = self.names.iter().rev().take_while(|n| n.stack == self.stack);
                let begun = here.clone().any(|n| !n.pointer || body == Body::Dump);
                if begun || self.stack == 0 && self.names.is_empty() {
                    self.stack += 1;
                }
                self.aside = false;
                self.stacked = true;
                self.in_origin = false;
                if body == Body::Dump {
                    self.all_cpus = true;
                }
            }
            Body::Aside => {
                self.aside = true;
                self.in_origin = self.origin.is_empty() && self.begins_origin(text);
            }
            Body::Part | Body::Foreign => self.name(text),
        }
        if text.starts_with("====") && self.head.kind == SplatKind::Kasan && self.has_stack() {
            self.ended = true;
        }
    }

    /// Keeps track of which CPUs are stalled and whose stack comes next.
    fn dumped(&mut self, text: &str, body: &Body) {
        if self.head.kind != SplatKind::RcuStall {
            return;
        }
        if self.names.is_empty() && self.stalled.len() < STALLED_MAX {
            self.stalled.extend(body::stalled(text));
        }
        match body::cpu(text) {
            Some(cpu) => {
                // The instruction pointer above a stack is no part of the stack before.
                if self.names.last().is_some_and(|n| n.stack == self.stack && !n.pointer) {
                    self.stack += 1;
                }
                self.cpu = Some(cpu);
            }
            None if *body == Body::Dump => self.cpu = None,
            None => {}
        }
    }

    /// Lines that only this kind of report has.
    fn expects(&self, text: &str) -> bool {
        match self.head.find {
            Find::At(mark) | Find::StackOrAt(mark) => {
                text.contains(mark) || text.contains("lock") || text.contains(" at: ")
            }
            _ => false,
        }
    }

    /// Whether the stack that tells where things began stands below this line.
    fn begins_origin(&self, text: &str) -> bool {
        match self.head.find {
            Find::Origin => text.contains("page last allocated"),
            Find::Became => text.contains("which became"),
            _ => false,
        }
    }

    /// A decoder's position that a mail program put on the next line belongs to the name above.
    fn join(&mut self, text: &str) -> Option<String> {
        let above = std::mem::take(&mut self.above);
        if text.starts_with('(') && !above.is_empty() {
            return Some(format!("{above} {text}"));
        }
        let word = text.rsplit([' ', ':']).next().unwrap_or(text);
        let lone = !word.is_empty()
            && text.len() < 100
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
        if lone {
            self.above = text.to_owned();
        }
        None
    }

    fn name(&mut self, text: &str) {
        if self.in_origin && self.origin.len() < 64 {
            if let Some(f) = frame::parse(text) {
                self.origin.push(named(f, false, 0));
            }
            return;
        }
        if let Find::At(mark) | Find::StackOrAt(mark) = self.head.find {
            if self.at_open {
                let found = frame::at(text).or_else(|| frame::parse(text));
                if let Some(f) = found.filter(|f| self.at.len() < 8 && !f.inline) {
                    self.at.push(f.name.to_owned());
                }
            } else if text.contains(mark) {
                self.at_open = true;
                if let Some(f) = frame::at(text) {
                    self.at.push(f.name.to_owned());
                }
                return;
            }
        }
        // On arm nothing announces the stack behind "Preemption disabled at".
        if self.aside
            && ["unwind_backtrace", "show_stack", "dump_stack"].iter().any(|f| text.contains(f))
        {
            self.aside = false;
        }
        if self.names.len() >= NAMES_MAX || self.aside {
            return;
        }
        // Lockdep prints many stacks; only the one that it announces as its own counts.
        if self.head.kind.is_lockdep() && !self.stacked {
            return;
        }
        // A mail program may break a line behind the mark of a guessed frame.
        if text.trim() == "?" {
            self.guess = true;
            return;
        }
        match frame::pointer(text) {
            Some(Pointer::At(f)) => self.remember(f, true),
            Some(Pointer::User | Pointer::Nowhere) => {}
            None => {
                if let Some(f) = frame::parse(text) {
                    self.remember(f, false);
                }
            }
        }
    }

    fn remember(&mut self, f: frame::Frame<'_>, pointer: bool) {
        let mut name = named(f, pointer, self.stack);
        name.other =
            !self.stalled.is_empty() && self.cpu.is_some_and(|cpu| !self.stalled.contains(&cpu));
        name.reliable &= !std::mem::take(&mut self.guess);
        self.names.push(name);
    }

    /// What the lines below the head add to the title.
    fn details(&mut self, text: &str) {
        let t = text.trim_start();
        match self.head.kind {
            SplatKind::Kasan if self.access.is_none() => {
                if t.contains("Read of size") || t.starts_with("Read at addr") {
                    self.access = Some("Read");
                } else if t.contains("Write of size") || t.starts_with("Write at addr") {
                    self.access = Some("Write");
                }
            }
            SplatKind::KernelBug
                if self.lines == 1 && self.head.stem.starts_with("rust_kernel") =>
            {
                self.head.stem = super::head::normalise(t);
            }
            SplatKind::WorkqueueLockup if t.starts_with("Workqueue: ") => {
                let work = t.split_ascii_whitespace().nth(2).filter(|_| !self.worker);
                if let Some(work) = work {
                    self.what = Some(frame::base_name(work).to_owned());
                    self.worker = true;
                }
            }
            SplatKind::WorkqueueLockup if self.what.is_none() => {
                let work = t.strip_prefix("in-flight: ").and_then(|w| w.split_once(':'));
                if let Some((_, work)) = work {
                    let end = work.find([' ', ',']).unwrap_or(work.len());
                    self.what = Some(frame::base_name(&work[..end]).to_owned());
                }
            }
            SplatKind::LockLeft if self.what.is_none() => {
                let name = t.split_once("last function: ").or_else(|| t.split_once("workfn="));
                if let Some((_, name)) = name {
                    let name = name.split_ascii_whitespace().next().unwrap_or(name);
                    self.what = Some(frame::base_name(name).to_owned());
                }
            }
            _ => {}
        }
    }

    /// Whether it turned out to be a splat.
    pub fn counts(&self) -> bool {
        !self.head.tentative || self.has_stack()
    }

    /// Chooses the function, words the title, takes the fingerprint.
    pub fn finish(mut self) -> Splat {
        self.text.truncate(self.keep.min(self.text.len()));
        let mut head = self.head;
        if self.what.is_some() {
            head.function.clone_from(&self.what);
        }
        // Without the workers' stacks the work in flight is a suspect, not found guilty.
        if head.kind == SplatKind::WorkqueueLockup && self.names.is_empty() {
            head.named = false;
        }
        let function = guilty::choose(&head, &self.names, &self.origin, &self.at);
        let mut stem = head.stem.clone();
        if let Some(access) = self.access.filter(|_| !stem.ends_with("invalid-free")) {
            stem = format!("{stem} {access}");
        }
        let title = match (&function, &head.also) {
            (Some(f), Some(also)) if head.kind == SplatKind::Kcsan => {
                format!("{stem} in {f} / {also}")
            }
            (Some(f), Some(also)) if head.named && f != also => format!("{stem} in {f}/{also}"),
            (Some(f), _) if head.named => format!("{stem} in {f}"),
            _ => stem,
        };
        let also = head.also.filter(|_| head.kind == SplatKind::Kcsan);
        Splat {
            kind: head.kind,
            flavour: head.flavour,
            fingerprint: fingerprint::of(head.kind, &title, function.as_deref()),
            title,
            function,
            also,
            taint: self.facts.taint,
            cpu: self.facts.cpu,
            pid: self.facts.pid,
            comm: self.facts.comm,
            text: self.text,
            first_line: self.first_line,
            last_line: self.last_line,
            count: 1,
            fatal: self.fatal,
        }
    }
}

fn named(f: frame::Frame<'_>, pointer: bool, stack: u32) -> Named {
    Named {
        name: f.name.to_owned(),
        pointer,
        reliable: f.reliable,
        inline: f.inline,
        stack,
        other: false,
    }
}
