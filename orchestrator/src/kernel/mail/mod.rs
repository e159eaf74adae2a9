// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a series out of whatever people send: mboxes, maildirs, single mails,
//! patch files, text copied from a page.
//!
//! Where git has a meaning (`git mailinfo`, `git am`), this is the same one; where
//! git would pass over a part of a diff, or apply mails in the wrong order, this
//! says so instead. mail-parser reads the fields of headers (RFC 2047 and
//! RFC 2231); structure and bodies are read here, since a patch has to come out byte
//! for byte and every message has to name the line of the input.
//!
//! An input is read twice: once from start to end, keeping an [`entry::Entry`] of
//! each mail, and then only the mails that are the series. So memory depends on
//! the largest mail and on the series, not on the size of the mbox.

mod author;
mod body;
mod charset;
mod checks;
mod choose;
mod damage;
mod diff;
mod diff_line;
mod entry;
mod flowed;
mod git_format;
mod group;
mod header;
pub mod input;
#[expect(clippy::module_inception, reason = "a mail is what the module is about")]
mod mail;
mod mbox;
mod mime;
mod names;
mod pasted;
mod paths;
pub mod reading;
mod rfc;
mod subject;
mod text;
mod threads;
mod trailers;
mod transfer;

use std::io;

use choose::{Choice, choose};
use entry::Entry;
use input::Input;
use mail::Mail;
use mbox::{Mails, RawMail};
use reading::{Cover, Passed, Patch, Place, Problem, ProblemKind, READING_SCHEMA, Reading};

pub use author::Author;
pub(crate) use choose::ranges;
pub use damage::DamageKind;
pub use names::{Change, FileChange};
pub(crate) use subject::Subject;
pub use trailers::Trailer;

/// Most bytes of mails that a series may have; the kernel's largest series are a
/// tenth of that.
const MAX_SERIES_BYTES: u64 = 32 << 20;

/// Most mails of an input: those of a busy list in some years.
const MAX_MAILS: usize = 1_000_000;

/// Reads the series in bytes.
///
/// # Errors
/// Where the bytes are more mails than can be read.
pub fn read_bytes(name: &str, bytes: &[u8]) -> io::Result<Reading> {
    read(&[Input::bytes(name, bytes)])
}

/// Reads the series in some inputs, whose order counts only for patches without numbers.
///
/// # Errors
/// Those of reading the inputs.
pub fn read(inputs: &[Input<'_>]) -> io::Result<Reading> {
    let mut entries = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let mut mails = Mails::new(input.reader()?);
        while let Some(raw) = mails.next_mail()? {
            if entries.len() > MAX_MAILS {
                return Err(io::Error::other(format!("more than {MAX_MAILS} mails")));
            }
            for (nth, mail) in mail::read(&raw).iter().enumerate() {
                entries.push(Entry::new(mail, index, &raw, nth));
            }
        }
    }
    let mut choice = choose(&mut entries);
    let size: u64 = choice.patches.iter().map(|&(_, at)| entries[at].length).sum();
    if size > MAX_SERIES_BYTES {
        let what = format!("a series of {size} bytes, more than {MAX_SERIES_BYTES}");
        choice.problems.push((None, ProblemKind::TooLarge, what));
        choice.patches.clear();
    }
    Reader { inputs, entries: &entries }.reading(choice)
}

struct Reader<'a> {
    inputs: &'a [Input<'a>],
    entries: &'a [Entry],
}

impl Reader<'_> {
    fn place(&self, at: usize, line: usize) -> Place {
        Place { input: self.inputs[self.entries[at].input].name.clone(), line }
    }

    /// Reads a mail again.
    fn mail(&self, at: usize) -> io::Result<Mail> {
        let entry = &self.entries[at];
        let length = usize::try_from(entry.length).unwrap_or(usize::MAX);
        let raw = RawMail {
            bytes: self.inputs[entry.input].piece(entry.offset, length)?,
            line: entry.piece_line,
            offset: entry.offset,
            length: entry.length,
            quoted_from: entry.quoted_from,
            too_large: false,
        };
        let mail = mail::read(&raw).into_iter().nth(entry.nth);
        mail.ok_or_else(|| io::Error::other("the input changed while it was read"))
    }

    fn reading(&self, choice: Choice) -> io::Result<Reading> {
        let mut reading = Reading {
            schema: READING_SCHEMA,
            title: None,
            complete: false,
            version: choice.version.map_or(1, |version| version.0),
            total: choice.total,
            rfc: false,
            tags: Vec::new(),
            cover: None,
            patches: Vec::new(),
            missing: choice.missing,
            problems: Vec::new(),
            notes: choice.notes,
            passed_over: Vec::new(),
            mails: self.entries.len(),
        };
        for &(number, at) in &choice.patches {
            let mail = self.mail(at)?;
            self.warn(&mut reading, number, at, &mail);
            let subject = &self.entries[at].subject;
            reading.rfc |= subject.rfc;
            for tag in &subject.tags {
                if !reading.tags.contains(tag) {
                    reading.tags.push(tag.clone());
                }
            }
            reading.patches.push(self.patch(number, at, mail));
        }
        if let Some(at) = choice.cover {
            reading.rfc |= self.entries[at].subject.rfc;
            let mail = self.mail(at)?;
            reading.cover = Some(Cover {
                place: self.place(at, mail.line),
                subject: mail.subject.text,
                author: mail.author,
                message: mail.body.message,
                message_id: mail.message_id,
            });
        }
        for (at, kind, what) in choice.problems {
            let place = at.map(|at| self.place(at, self.entries[at].line));
            reading.problems.push(Problem { place, kind, what, help: help(kind) });
        }
        for (at, entry) in self.entries.iter().enumerate() {
            if let Some((reason, detail)) = &entry.passed {
                reading.passed_over.push(Passed {
                    place: self.place(at, entry.line),
                    subject: entry.raw_subject.clone(),
                    from: entry.from.clone(),
                    reason: *reason,
                    detail: detail.clone(),
                });
            }
        }
        reading.complete = reading.problems.is_empty() && !reading.patches.is_empty();
        Ok(reading)
    }

    /// Notes a patch's damages and what else the reader should know of it.
    fn warn(&self, reading: &mut Reading, number: u32, at: usize, mail: &Mail) {
        for note in &mail.notes {
            reading.notes.push(format!("patch {number}: {note}"));
        }
        for damage in mail.body.diff.iter().flat_map(|diff| &diff.damages) {
            let kind = ProblemKind::Damaged(damage.kind);
            reading.problems.push(Problem {
                place: Some(self.place(at, damage.line)),
                kind,
                what: format!("patch {number}: {}", damage.what),
                help: help(kind),
            });
        }
    }

    fn patch(&self, number: u32, at: usize, mail: Mail) -> Patch {
        let diff_line = mail.body.diff_line();
        let bytes = mail.body.diff_bytes().to_vec();
        let diff = mail.body.diff.unwrap_or_default();
        let subject = match mail.subject.text {
            text if !text.is_empty() => text,
            _ => diff.files.first().map_or_else(String::new, |file| file.path.clone()),
        };
        Patch {
            place: self.place(at, mail.line),
            number,
            subject,
            author: mail.author,
            date: mail.date,
            message_id: mail.message_id,
            trailers: trailers::trailers(&mail.body.message),
            message: mail.body.message,
            notes: mail.body.notes,
            files: diff.files,
            strip: diff.strip,
            diff_line,
            added: diff.added,
            removed: diff.removed,
            diff: bytes,
        }
    }
}

fn help(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::Incomplete => "add the missing mails; order does not matter",
        ProblemKind::NotKernel => {
            "check that the patch is for Linux and made at the top of its tree"
        }
        ProblemKind::Nothing => "give an mbox, a maildir, a mail, or a unified diff",
        ProblemKind::Ambiguous => "give the mails of one series only",
        ProblemKind::CoverDiff => {
            "if it is a patch, give it a number from 1; if it is none, take it away"
        }
        ProblemKind::Conflict => "take away the mail that is not meant",
        ProblemKind::TooLarge => "give the mails of one series only",
        ProblemKind::Damaged(damage) => damage.help(),
    }
}
