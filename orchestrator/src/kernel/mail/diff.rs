// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unified diffs, read as `git apply` reads them, but without passing over what
//! does not look right: every line of a diff has to belong to it.

use std::ops::Range;

use super::damage::{Damage, DamageKind, Whitespace};
use super::diff_line::{
    hunk_ranges, is_base85, is_between_files, is_signature, lines, looks_like_hunk, no_hunk, quoted,
};
use super::names::{FileChange, Names, git_names, traditional_names};
use super::text::{Text, is_blank};

/// Most damages that are kept for one patch; a damaged patch has one in each line.
const MAX_DAMAGES: usize = 50;

/// Most files of a diff; the kernel has fewer.
const MAX_FILES: usize = 100_000;

/// How many lines behind a hunk are searched for the next one.
const MAX_LOST: usize = 200;

/// A diff inside a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// The lines of the text from its first to its last, garbage between files included.
    pub lines: Range<usize>,
    /// The files that it touches.
    pub files: Vec<FileChange>,
    /// How many leading folders its names have that the tree has not (`-p`).
    pub strip: usize,
    /// What is wrong with it.
    pub damages: Vec<Damage>,
    /// Empty context lines that lost their blank; git reads them all the same.
    pub stripped_blanks: usize,
    /// Lines that it adds and removes.
    pub added: usize,
    /// See `added`.
    pub removed: usize,
    /// Its last line has no line end. git refuses that; it may have been cut there.
    pub unterminated: bool,
    /// What follows its last line: text that git passes over.
    pub trailing: bool,
}

/// Finds the diff in a text, from a line on. None if there is none.
#[must_use]
pub fn find(text: &Text, from: usize) -> Option<Diff> {
    let mut parser = Parser {
        text,
        at: from,
        diff: Diff::default(),
        names: Vec::new(),
        after_hunk: None,
        joined: None,
    };
    parser.run();
    let Parser { mut diff, names, .. } = parser;
    if names.is_empty() && diff.damages.is_empty() {
        return None;
    }
    (diff.strip, diff.files) = super::names::resolve(&names);
    diff.unterminated = !text.slice(diff.lines.clone()).ends_with(b"\n");
    diff.trailing = (diff.lines.end..text.count())
        .map(|index| text.line(index))
        .take_while(|line| !is_signature(line))
        .any(|line| !is_blank(line));
    Some(diff)
}

struct Parser<'a> {
    text: &'a Text,
    at: usize,
    diff: Diff,
    names: Vec<Names>,
    /// The line after the last hunk, until something else than a hunk is found.
    after_hunk: Option<usize>,
    /// Behind a file, the line where a second mail's header stands.
    joined: Option<usize>,
}

impl<'a> Parser<'a> {
    fn line(&self, index: usize) -> &'a [u8] {
        self.text.line(index)
    }

    fn starts(&self, index: usize, prefix: &[u8]) -> bool {
        index < self.text.count() && self.line(index).starts_with(prefix)
    }

    fn damage(&mut self, index: usize, kind: DamageKind, what: String) {
        if self.diff.lines.is_empty() {
            self.diff.lines = index..index;
        }
        if self.diff.damages.len() < MAX_DAMAGES {
            self.diff.damages.push(Damage { line: self.text.number(index), kind, what });
        }
    }

    /// Everything before this line belongs to the diff.
    fn reached(&mut self, from: usize) {
        if self.diff.lines.is_empty() {
            self.diff.lines = from..from;
        }
        self.diff.lines.end = self.at.min(self.text.count());
    }

    fn run(&mut self) {
        while self.at < self.text.count() {
            let start = self.at;
            let line = self.line(start);
            if line.starts_with(b"diff --git ") {
                self.git_file();
            } else if line.starts_with(b"--- ") && self.starts(start + 1, b"+++ ") {
                self.traditional_file();
            } else if hunk_ranges(line).is_some() {
                let what = "a hunk without a file before it".to_owned();
                self.damage(start, DamageKind::Header, what);
                self.hunks(&mut Whitespace::default());
            } else if line.starts_with(b"diff --cc ") || line.starts_with(b"diff --combined ") {
                let what = "the combined diff of a merge, which cannot be applied".to_owned();
                self.damage(start, DamageKind::Unreadable, what);
                self.at += 1;
                while self.at < self.text.count()
                    && !self.starts(self.at, b"diff ")
                    && !is_signature(self.line(self.at))
                {
                    self.at += 1;
                }
            } else if line.starts_with(b"*** ")
                && self.starts(start + 1, b"--- ")
                && self.starts(start + 2, b"***************")
            {
                let what = "a context diff; only unified ones (diff -u) can be read".to_owned();
                self.damage(start, DamageKind::Unreadable, what);
                self.at += 3;
            } else {
                self.garbage();
                continue;
            }
            if let Some(joined) = self.joined.take() {
                let what = "the header of another mail stands here, without a `From ` line before it; its diff is no part of this one";
                self.damage(joined, DamageKind::Joined, what.to_owned());
            }
            self.reached(start);
        }
    }

    /// A line that git passes over: none that follows a hunk may look like a part of one.
    fn garbage(&mut self) {
        let line = self.line(self.at);
        if !self.names.is_empty() && super::mbox::is_format_patch_line(line) {
            let what = "another patch starts here; what parts the two is damaged".to_owned();
            self.damage(self.at, DamageKind::Header, what);
        }
        if !self.names.is_empty() && self.joined.is_none() && self.is_mail_header() {
            self.joined = Some(self.at);
        }
        let lost = match self.after_hunk {
            _ if is_blank(line) || is_signature(line) || self.is_postscript() => {
                self.after_hunk = None;
                None
            }
            Some(_) if is_between_files(line) => None,
            Some(after) if matches!(line.first(), Some(b' ' | b'+' | b'-' | b'\\' | b'\t')) => {
                self.after_hunk = (after < self.at).then_some(after);
                Some("belongs to no hunk: the hunk before it has more lines than its header says")
            }
            // A mangled header costs git the whole hunk, without a word.
            Some(_) if looks_like_hunk(line) => Some("is a damaged hunk header"),
            Some(after) if after == self.at => {
                // Words directly behind a hunk: the rest of a wrapped line, if the
                // next one belongs to a diff again.
                let goes_on = matches!(self.line(self.at + 1).first(), Some(b' ' | b'+' | b'-'))
                    && self.at + 1 < self.text.count()
                    && !is_signature(self.line(self.at + 1));
                goes_on.then_some("belongs to no hunk")
            }
            _ if !self.names.is_empty() && looks_like_hunk(line) => {
                Some("is a damaged hunk header")
            }
            _ => None,
        };
        if let Some(lost) = lost {
            let what = format!("{} {lost}", quoted(line));
            self.damage(self.at, DamageKind::Miscounted, what);
            // One complaint for each run of lost lines.
            self.after_hunk = None;
            self.at += 1;
            while self.at < self.text.count()
                && matches!(self.line(self.at).first(), Some(b' ' | b'+' | b'-' | b'\\'))
                && !is_signature(self.line(self.at))
                && !(self.starts(self.at, b"--- ") && self.starts(self.at + 1, b"+++ "))
            {
                self.at += 1;
            }
            self.diff.lines.end = self.at;
            return;
        }
        self.at += 1;
    }

    /// `---` and words: a field such as `base-commit:`, which b4 writes behind the
    /// diff, or what a mail server adds. A removed line `--` that a hunk does not count
    /// is followed by another of the diff, or by nothing.
    fn is_postscript(&self) -> bool {
        let next = self.line(self.at + 1);
        self.line(self.at).trim_ascii_end() == b"---"
            && next.first().is_some_and(u8::is_ascii_alphanumeric)
    }

    /// Whether a mail's header starts here: behind a blank line, with its two fields
    /// that no mail is without.
    fn is_mail_header(&self) -> bool {
        let is = |index: usize, name: &[u8]| {
            super::text::starts_with_ignore_case(self.line(index), name)
        };
        let starts = |index| {
            [&b"from:"[..], b"subject:", b"date:", b"message-id:", b"to:", b"return-path:"]
                .iter()
                .any(|name| is(index, name))
        };
        if self.at == 0 || !is_blank(self.line(self.at - 1)) || !starts(self.at) {
            return false;
        }
        let end = (self.at + MAX_LOST).min(self.text.count());
        let header = (self.at..end).take_while(|&index| !is_blank(self.line(index)));
        header.clone().any(|index| is(index, b"from:"))
            && header.clone().any(|index| is(index, b"subject:"))
    }

    fn git_file(&mut self) {
        let start = self.at;
        let mut names = git_names(self.line(start));
        let mut whitespace = Whitespace::default();
        let mut hunks = 0;
        self.at += 1;
        while self.at < self.text.count() {
            let line = self.line(self.at);
            if line.starts_with(b"--- ") && self.starts(self.at + 1, b"+++ ") {
                names.markers(line, self.line(self.at + 1));
                self.at += 2;
                whitespace.file(&names);
                if !self.starts(self.at, b"@@ -") {
                    self.damage(self.at, DamageKind::Header, no_hunk(self.line(self.at)));
                }
                hunks = self.hunks(&mut whitespace);
                break;
            } else if line == b"GIT binary patch" {
                names.binary = true;
                self.at += 1;
                self.binary();
                hunks = 1;
                break;
            } else if line.starts_with(b"Binary files ") || line.starts_with(b"Files ") {
                names.binary = true;
                let what = "says that a binary file differs but not how; the sender needs `git diff --binary`".to_owned();
                self.damage(self.at, DamageKind::Unreadable, what);
                hunks = 1;
                self.at += 1;
                break;
            } else if names.extended(line) {
                self.at += 1;
            } else if line.starts_with(b"@@ -") {
                let what = "a hunk without `---` and `+++` lines before it".to_owned();
                self.damage(self.at, DamageKind::Header, what);
                hunks = self.hunks(&mut whitespace);
                break;
            } else if is_blank(line) || line.starts_with(b"diff ") || is_signature(line) {
                break;
            } else if (self.at..self.at + 3).any(|index| {
                names.clone().extended(self.line(index)) || self.starts(index, b"--- ")
            }) {
                self.damage(
                    self.at,
                    DamageKind::Wrapped,
                    format!("{} looks like the rest of the line before it", quoted(line)),
                );
                names.wrapped(self.line(self.at - 1), line);
                self.at += 1;
            } else {
                break;
            }
        }
        if hunks == 0 && !names.changes_something() && self.diff.damages.is_empty() {
            let what = "a file without any change; git calls it garbage".to_owned();
            self.damage(start, DamageKind::Header, what);
        }
        if let Some(what) = names.contradiction() {
            self.damage(start, DamageKind::Header, what);
        }
        self.finish_file(names, &whitespace);
    }

    fn traditional_file(&mut self) {
        let names = traditional_names(self.line(self.at), self.line(self.at + 1));
        let mut whitespace = Whitespace::default();
        whitespace.file(&names);
        self.at += 2;
        if !self.starts(self.at, b"@@ -") {
            self.damage(self.at, DamageKind::Header, no_hunk(self.line(self.at)));
        }
        self.hunks(&mut whitespace);
        self.finish_file(names, &whitespace);
    }

    fn finish_file(&mut self, names: Names, whitespace: &Whitespace) {
        if let Some(damage) = whitespace.damage()
            && self.diff.damages.len() < MAX_DAMAGES
        {
            self.diff.damages.push(damage);
        }
        self.names.push(names);
        if self.names.len() > MAX_FILES {
            let what = format!("more than {MAX_FILES} files");
            self.damage(self.at, DamageKind::Unreadable, what);
            self.at = self.text.count();
        }
    }

    /// All hunks from here; gives how many.
    fn hunks(&mut self, whitespace: &mut Whitespace) -> usize {
        let mut count = 0;
        while self.starts(self.at, b"@@ -") {
            let Some((old, new)) = hunk_ranges(self.line(self.at)) else {
                let what = format!("{} is a damaged hunk header", quoted(self.line(self.at)));
                self.damage(self.at, DamageKind::Header, what);
                self.at += 1;
                while matches!(self.line(self.at).first(), Some(b' ' | b'+' | b'-' | b'\\')) {
                    self.at += 1;
                }
                continue;
            };
            self.hunk(old, new, whitespace);
            count += 1;
            self.between_hunks();
        }
        self.after_hunk = Some(self.at);
        count
    }

    /// Lines that stand between a hunk and the next one of the same file, where none may be.
    fn between_hunks(&mut self) {
        let start = self.at;
        let mut next = start;
        while next < self.text.count()
            && next < start + MAX_LOST
            && !is_blank(self.line(next))
            && !is_signature(self.line(next))
            && !self.starts(next, b"@@ -")
            && !self.starts(next, b"diff --git ")
            && !self.starts(next + 1, b"+++ ")
        {
            next += 1;
        }
        if next == start || !self.starts(next, b"@@ -") {
            return;
        }
        let line = self.line(start);
        if matches!(line.first(), Some(b' ' | b'+' | b'-' | b'\\')) {
            let what = format!(
                "{} belongs to no hunk: the hunk before it has more lines than its header says",
                quoted(line)
            );
            self.damage(start, DamageKind::Miscounted, what);
        } else if !looks_like_hunk(line) {
            let (kind, what) = super::damage::of_line(line);
            self.damage(start, kind, what);
        } else {
            let what = format!("{} is a damaged hunk header", quoted(line));
            self.damage(start, DamageKind::Miscounted, what);
        }
        self.at = next;
    }

    fn hunk(&mut self, mut old: usize, mut new: usize, whitespace: &mut Whitespace) {
        let header = self.at;
        let said = self.text.number(header);
        let (added, removed) = (self.diff.added, self.diff.removed);
        self.at += 1;
        while old > 0 || new > 0 {
            if self.at >= self.text.count() || self.ends_here(old, new) {
                let what = format!(
                    "the hunk of line {said} ends {} too early: the patch is cut or its header is wrong",
                    lines(old.max(new))
                );
                let at = self.at.min(self.text.count().saturating_sub(1));
                self.damage(at, DamageKind::Truncated, what);
                return;
            }
            let line = self.line(self.at);
            let (from_old, from_new) = match line.first() {
                Some(b' ') => (1, 1),
                None | Some(b'\r') if line.len() < 2 => {
                    self.diff.stripped_blanks += 1;
                    (1, 1)
                }
                Some(b'-') => (1, 0),
                Some(b'+') => (0, 1),
                // git apply: at least twelve bytes, whatever the language.
                Some(b'\\') if line.starts_with(b"\\ ") && line.len() >= 11 => (0, 0),
                _ => {
                    let kind = super::damage::kind_of_line(line);
                    // A quoted mail has thousands of such lines; words cost time.
                    if self.diff.damages.len() < MAX_DAMAGES {
                        let (kind, what) = super::damage::of_line(line);
                        self.damage(self.at, kind, what);
                    }
                    if kind == DamageKind::NonBreaking {
                        (1, 1)
                    } else {
                        // The rest of a wrapped line counts for nothing.
                        self.at += 1;
                        continue;
                    }
                }
            };
            if old < from_old || new < from_new {
                let what = format!(
                    "{} is more than the hunk of line {said} says that it has",
                    quoted(line)
                );
                self.damage(self.at, DamageKind::Miscounted, what);
                self.skip_lost_lines();
                return;
            }
            old -= from_old;
            new -= from_new;
            self.diff.removed += usize::from(from_old > from_new);
            self.diff.added += usize::from(from_new > from_old);
            if let Some(damage) = whitespace.line(line, self.text.number(self.at)) {
                self.damage(self.at, damage.kind, damage.what);
            }
            self.at += 1;
        }
        if self.starts(self.at, b"\\ ") {
            self.at += 1;
        }
        if (added, removed) == (self.diff.added, self.diff.removed) {
            let what = "the hunk changes nothing; git calls it corrupt".to_owned();
            self.damage(header, DamageKind::Miscounted, what);
        }
    }

    /// Whether a hunk that still lacks lines has come to its end.
    fn ends_here(&self, old: usize, new: usize) -> bool {
        let line = self.line(self.at);
        let next = self.line(self.at + 1);
        line.starts_with(b"diff --git ")
            || hunk_ranges(line).is_some()
            || (is_signature(line)
                && (old == 0
                    || self.at + 4 >= self.text.count()
                        && !matches!(next.first(), Some(b' ' | b'+' | b'-' | b'\\' | b'@'))))
            || (old.min(new) == 0 && line.starts_with(b"--- ") && next.starts_with(b"+++ "))
    }

    fn skip_lost_lines(&mut self) {
        while self.at < self.text.count()
            && matches!(self.line(self.at).first(), Some(b' ' | b'+' | b'-' | b'\\'))
            && !is_signature(self.line(self.at))
            && !(self.starts(self.at, b"--- ") && self.starts(self.at + 1, b"+++ "))
        {
            self.at += 1;
        }
    }

    /// The data of a binary patch: one or two blocks, each ended by an empty line.
    fn binary(&mut self) {
        let mut blocks = 0;
        while self.starts(self.at, b"literal ") || self.starts(self.at, b"delta ") {
            let start = self.at;
            self.at += 1;
            while self.at < self.text.count() && !is_blank(self.line(self.at)) {
                if !is_base85(self.line(self.at)) {
                    let what =
                        format!("{} is no line of a binary patch", quoted(self.line(self.at)));
                    self.damage(self.at, DamageKind::Wrapped, what);
                    break;
                }
                self.at += 1;
            }
            if self.at >= self.text.count() {
                let what = "the binary patch has no end".to_owned();
                self.damage(start, DamageKind::Truncated, what);
            }
            self.at = (self.at + 1).min(self.text.count());
            blocks += 1;
        }
        if blocks == 0 {
            let what = "a binary patch without data".to_owned();
            self.damage(self.at, DamageKind::Truncated, what);
        }
    }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
