// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a console line by line, in bounded memory, and says at once when something breaks.

use super::Splat;
use super::frame;
use super::head::{self, Head};
use super::helpers::Skip;
use super::kind::SplatKind;
use super::line::{self, Caller};
use super::report::Report;
use std::collections::{HashMap, VecDeque};

/// Distinct splats kept; more are only counted.
pub const SPLATS_MAX: usize = 500;
/// Bytes of text kept over all splats.
const TEXT_TOTAL_MAX: usize = 8 * 1024 * 1024;
/// Splats read at the same time, each printed by another task or CPU.
const OPEN_MAX: usize = 16;
/// Lines remembered for what stands above a head.
const BEFORE: usize = 24;
/// Lines of a report that was cut off at its beginning.
const BEGINNING: usize = 60;
/// Lines between two CPUs' reports of one fault.
const NEAR: usize = 200;
/// Lines within which a panic is taken for the consequence of a splat.
const DERIVED_WITHIN: usize = 2000;

/// The first line of a splat was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Kind, as far as the first line tells.
    pub kind: SplatKind,
    /// The line itself, cleaned.
    pub text: String,
    /// Number of the line, from 1.
    pub line: usize,
    /// Whether the kernel cannot be trusted to go on.
    pub fatal: bool,
}

/// Everything found in a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Splats in the order of their first lines, one per fingerprint.
    pub splats: Vec<Splat>,
    /// Splats beyond [`SPLATS_MAX`] distinct ones.
    pub more: usize,
}

/// The streaming recogniser. Feed it bytes or lines, then [`finish`](Scanner::finish).
#[derive(Debug, Default)]
pub struct Scanner {
    line: usize,
    partial: Vec<u8>,
    open: Vec<Report>,
    before: VecDeque<(usize, Caller, String)>,
    found: Vec<Splat>,
    /// First line of the latest report that was counted for each of `found`.
    latest: Vec<usize>,
    index: HashMap<String, usize>,
    text_total: usize,
    more: usize,
    last: Option<Last>,
    seconds: u64,
    told: bool,
    stamps: bool,
    /// Whether kmemleak listed objects that it has not counted yet.
    leaks_listed: bool,
    /// Line of the last mark that syslogd sent a message to all terminals.
    broadcast: usize,
}

/// The splat that began last, for the panic that may follow.
#[derive(Debug)]
struct Last {
    line: usize,
    fatal: bool,
    first_line: usize,
}

impl Scanner {
    /// A scanner at the start of a log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes any piece of a log and gives the evidence that its complete lines hold.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Evidence> {
        let mut evidence = Vec::new();
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let room = line::LINE_MAX.saturating_sub(self.partial.len());
            let body = piece.strip_suffix(b"\n");
            match body {
                Some(body) if self.partial.is_empty() => evidence.extend(self.push(body)),
                Some(body) => {
                    self.partial.extend_from_slice(&body[..body.len().min(room)]);
                    let whole = std::mem::take(&mut self.partial);
                    evidence.extend(self.push(&whole));
                }
                None => self.partial.extend_from_slice(&piece[..piece.len().min(room)]),
            }
        }
        evidence
    }

    /// Takes one line without its newline.
    pub fn push(&mut self, raw: &[u8]) -> Option<Evidence> {
        self.line += 1;
        let raw = &raw[..raw.len().min(line::LINE_MAX)];
        let mut evidence = None;
        for piece in raw.split(|&b| b == b'\r').filter(|p| !p.is_empty()) {
            let clean = line::clean(piece);
            let mut rest: &str = &clean;
            loop {
                let line = line::split(rest);
                let cut = line::embedded(line.text);
                let text = cut.map_or(line.text, |at| &line.text[..at]);
                let skip = line.foreign || cut.is_some() && text.trim().is_empty();
                if !skip {
                    let line = line::Line { text: text.trim_end(), ..line };
                    evidence = evidence.or(self.take(&line));
                }
                match cut {
                    Some(at) => rest = &line.text[at..],
                    None => break,
                }
            }
        }
        evidence
    }

    fn take(&mut self, line: &line::Line<'_>) -> Option<Evidence> {
        let mut evidence = None;
        self.stamps |= line.stamped;
        let listed = head::listed_leak(line.text);
        self.leaks_listed |= listed.is_some();
        let line = &line::Line { text: listed.unwrap_or(line.text), ..*line };
        if line.text.starts_with("Message from syslogd@") {
            self.broadcast = self.line;
        }
        // mm/kmemleak.c kmemleak_scan counts last what it listed.
        let counted = head::counts_leaks(line.text) && std::mem::take(&mut self.leaks_listed);
        let head = head::recognise(line.text).filter(|h| !counted && self.plausible(h, line));
        let rebooted = self.rebooted(line);
        match head.or(rebooted) {
            // Words of programs too: where nothing marks the kernel's lines, only with a stack.
            Some(head) if head.vague && !line.stamped => {
                let tentative = true;
                evidence = self.begin(Head { tentative, ..head }, line);
            }
            Some(head) => evidence = self.begin(head, line),
            None => self.continue_report(line),
        }
        self.remember(line);
        evidence
    }

    /// Whether words that programs use too are the kernel's: if it marks its lines, by the mark.
    fn plausible(&self, head: &Head, line: &line::Line<'_>) -> bool {
        !(head.tentative || head.vague)
            || line.text.len() < 300 && !line.text.contains("\\x") && (line.stamped || !self.stamps)
    }

    /// A kernel that starts after one has run, without anyone having asked for it.
    fn rebooted(&mut self, line: &line::Line<'_>) -> Option<Head> {
        if let Some(seconds) = line.seconds {
            self.seconds = self.seconds.max(seconds);
        }
        if ["reboot: ", "Restarting system", "kexec"].iter().any(|p| line.text.contains(p)) {
            self.told = true;
        }
        if !head::boots(line.text) {
            return None;
        }
        let asked = std::mem::take(&mut self.told);
        let ran = std::mem::take(&mut self.seconds);
        (ran >= 3 && !asked).then(head::reboot)
    }

    fn remember(&mut self, line: &line::Line<'_>) {
        let mark = ["---", "===", "***"].iter().any(|p| line.text.starts_with(p));
        // Only what may stand above a head is worth remembering.
        if mark || !self.before.is_empty() {
            if mark && !line.text.contains("end trace") || self.before.len() < BEFORE {
                self.before.push_back((self.line, line.caller, line.text.to_owned()));
            } else {
                self.before.clear();
            }
            if self.before.len() > BEFORE {
                self.before.pop_front();
            }
        }
    }

    /// The lines above a head that belong to it: from "cut here" or a rule on, not far away.
    fn above(&mut self, caller: Caller) -> Vec<(usize, String)> {
        let near = self.line.saturating_sub(8);
        let mut lines: Vec<_> = std::mem::take(&mut self.before)
            .into_iter()
            .filter(|(line, by, _)| *line >= near && *by == caller)
            .map(|(line, _, text)| (line, text))
            .collect();
        let start =
            lines.iter().rposition(|(_, t)| t.contains("[ cut here ]") || t.starts_with("===="));
        match start {
            Some(start) => lines.split_off(start),
            None => Vec::new(),
        }
    }

    fn begin(&mut self, head: Head, line: &line::Line<'_>) -> Option<Evidence> {
        let number = self.line;
        let evidence = |kind: SplatKind, fatal| {
            Some(Evidence { kind, text: line.text.to_owned(), line: number, fatal })
        };
        if head.derived && self.derive(&head, line) {
            return evidence(SplatKind::Panic, true);
        }
        if let Some(report) = self.owner(line) {
            // A decoder repeats a line for each inlined function; the last names the real one.
            let repeated = &mut self.open[report];
            if repeats(repeated, &head) {
                repeated.head = head;
                repeated.decoded = line.text.ends_with("[inline]");
                repeated.push(self.line, line.text);
                return None;
            }
            // mm/slub.c object_err and slab_err: a WARN ends the report, for its stack's sake. Who
            // warns is the checker; the title may name who called it.
            if head.slub && self.open[report].lacks_stack_of_slab() {
                let report = &mut self.open[report];
                report.head.named = true;
                report.push(self.line, line.text);
                return None;
            }
            let heard = self.broadcast > 0
                && self.line <= self.broadcast + 2
                && self.open[report].head.stem == head.stem;
            if heard || continues(&self.open[report], &head) || wrapped(&self.open[report], &head) {
                let report = &mut self.open[report];
                report.fatal |= head.kind.is_fatal();
                if report.head.function.is_none() {
                    report.head.function.clone_from(&head.function);
                }
                report.push(self.line, line.text);
                return None;
            }
        }
        let tentative = head.tentative;
        let found = evidence(head.kind, head.kind.is_fatal());
        // One task or CPU prints one splat at a time.
        let mut at = 0;
        while at < self.open.len() {
            if self.open[at].caller == line.caller || line.caller == Caller::Unknown {
                let done = self.open.remove(at);
                self.close(done);
            } else {
                at += 1;
            }
        }
        if self.open.len() >= OPEN_MAX {
            let done = self.open.remove(0);
            self.close(done);
        }
        let above = self.above(line.caller);
        let report = Report::new(head, line.caller, line.stamped, self.line, line.text, &above);
        if !tentative {
            self.last =
                Some(Last { line: self.line, fatal: report.fatal, first_line: report.first_line });
        }
        self.open.push(report);
        found.filter(|_| !tentative)
    }

    /// Lets a panic that follows from a splat count for that splat.
    fn derive(&mut self, head: &Head, line: &line::Line<'_>) -> bool {
        let Some(last) = &mut self.last else {
            return false;
        };
        if self.line - last.line > DERIVED_WITHIN {
            return false;
        }
        if head.stem.contains("kill init") && !last.fatal {
            return false;
        }
        last.fatal = true;
        let first_line = last.first_line;
        if let Some(report) = self.open.iter_mut().find(|r| r.first_line == first_line) {
            report.fatal = true;
            report.push(self.line, line.text);
        } else if let Some(at) = self.latest.iter().rposition(|&l| l == first_line) {
            self.found[at].fatal = true;
        }
        true
    }

    /// The open report that a line of this caller belongs to.
    fn owner(&self, line: &line::Line<'_>) -> Option<usize> {
        let exact = self.open.iter().rposition(|r| r.caller == line.caller);
        exact.or_else(|| {
            self.open.iter().rposition(|r| {
                line.caller == Caller::Unknown
                    || r.caller == Caller::Unknown
                    || r.all_cpus && matches!(line.caller, Caller::Cpu(_))
            })
        })
    }

    fn continue_report(&mut self, line: &line::Line<'_>) {
        let Some(at) = self.owner(line) else { return };
        let report = &mut self.open[at];
        // A program's output between the lines of a kernel that stamps them.
        // A mail program breaks lines; what is a frame is no program's output.
        let broken = || {
            line.text.contains("+0x") && frame::parse(line.text).is_some()
                || line.text.starts_with('(') && line.text.contains(':')
        };
        if report.stamped && !line.stamped && !broken() {
            return;
        }
        report.push(self.line, line.text);
        if report.is_over() {
            let done = self.open.remove(at);
            self.close(done);
        }
    }

    fn close(&mut self, report: Report) {
        if !report.counts() {
            return;
        }
        let began = report.first_line;
        let mut splat = report.finish();
        if let Some(&at) = self.index.get(&splat.fingerprint) {
            let known = &mut self.found[at];
            known.count += 1;
            known.fatal |= splat.fatal;
            self.latest[at] = began;
            return;
        }
        if self.found.len() >= SPLATS_MAX {
            self.more += 1;
            return;
        }
        if self.text_total + splat.text.len() > TEXT_TOTAL_MAX {
            let end = splat.text.find('\n').map_or(splat.text.len(), |i| i + 1);
            splat.text.truncate(end);
        }
        self.text_total += splat.text.len();
        self.index.insert(splat.fingerprint.clone(), self.found.len());
        self.found.push(splat);
        self.latest.push(began);
    }

    /// A report that another CPU's report of the same fault cut off says nothing that the whole one
    /// does not say.
    fn drop_beginnings(&mut self) {
        let whole: Vec<_> = self
            .found
            .iter()
            .filter(|s| s.function.is_some())
            .map(|s| (s.kind, s.first_line, s.last_line))
            .collect();
        self.found.retain(|s| {
            let cut = s.function.is_none() && s.last_line < s.first_line + BEGINNING;
            let near = |&(kind, first, last): &(SplatKind, usize, usize)| {
                kind == s.kind && s.first_line + NEAR >= first && s.first_line <= last + NEAR
            };
            !(cut && s.kind.names_function() && whole.iter().any(near))
        });
    }

    /// Ends the log.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        if !self.partial.is_empty() {
            let last = std::mem::take(&mut self.partial);
            self.push(&last);
        }
        for report in std::mem::take(&mut self.open) {
            self.close(report);
        }
        self.found.sort_by_key(|s| s.first_line);
        self.drop_beginnings();
        Findings { splats: self.found, more: self.more }
    }
}

/// Whether a head is the line above once more.
fn repeats(report: &Report, head: &Head) -> bool {
    use SplatKind::*;
    let same = report.head.kind == head.kind && report.head.stem == head.stem;
    let decoded = matches!(head.kind, Kasan | Kmsan | Kfence | Warning | Refcount | Odebug);
    same && decoded && report.decoded && !report.has_stack() && head.function.is_some()
}

/// Whether a head is the line above once more, where a mail program put the function on the next.
fn wrapped(report: &Report, head: &Head) -> bool {
    let same = report.head.kind == head.kind && report.head.stem == head.stem;
    let bare = report.head.function.is_none() && head.function.is_none();
    same && bare && head.find == head::Find::Pointer && report.lines() == 1
}

/// Whether a head only says more about the splat that is being read.
fn continues(report: &Report, head: &Head) -> bool {
    use SplatKind::*;
    let of = report.head.kind;
    match head.kind {
        // die prints the exception after what raised it.
        InvalidOpcode | Oops => {
            let plain = head.kind == InvalidOpcode
                || matches!(&*head.stem, "Oops" | "Internal error" | "illegal operation");
            plain
                && (of.is_fatal() || matches!(of, Kasan | ListCorruption | BadUsercopy))
                && report.lines() < 60
        }
        KernelBug => {
            head.stem == "kernel BUG"
                && head.function.is_none()
                && of == KernelBug
                && report.lines() < 4
                && !report.has_stack()
        }
        MemoryLeak => {
            of == MemoryLeak && report.lines() == 0 && !report.head.stem.starts_with("kmemleak")
        }
        // fs/dcache.c umount_check says the same by a WARN.
        Warning => report.head.stem.starts_with("BUG: Dentry ") && report.lines() < 4,
        RcuStall => of == RcuStall && !report.has_stack() && report.lines() < 40,
        OomKill => of == OomKill,
        SlabCorruption => of == Kasan,
        DoubleFault | StackOverflow => {
            matches!(of, StackOverflow | DoubleFault) && report.lines() < 60
        }
        GeneralProtection | NullDereference | PageFault => {
            of == head.kind && !report.has_stack() && report.lines() < 6
        }
        _ if head.skip == Skip::Stack => false,
        Other => head.tentative && report.lines() < 12,
        _ => false,
    }
}
