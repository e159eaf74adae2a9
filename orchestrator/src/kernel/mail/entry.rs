// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept of every mail while all are read: enough to find the series, but
//! no body.

use super::mail::Mail;
use super::mbox::RawMail;
use super::reading::Reason;
use super::subject::Subject;

/// Most ids of a mail's references that are kept: the nearest ones and the thread's root.
const MAX_REFERENCES: usize = 8;
/// Longest id that is kept.
const MAX_ID: usize = 256;

/// Most words of a subject's brackets that are kept.
const MAX_TAGS: usize = 16;

/// A version; a resent one comes after the one that it repeats.
pub type Version = (u32, bool);

/// One mail, without its body.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Which input.
    pub input: usize,
    /// Where in the input, and how many bytes.
    pub offset: u64,
    /// See `offset`.
    pub length: u64,
    /// The line of the piece at `offset`.
    pub piece_line: usize,
    /// Lines that start with `From ` are quoted.
    pub quoted_from: bool,
    /// Which of the mails in that piece.
    pub nth: usize,
    /// The line that it starts in.
    pub line: usize,
    /// The subject as it stands.
    pub raw_subject: String,
    /// The subject taken apart.
    pub subject: Subject,
    /// The sender's address in lower case; empty if there is none.
    pub sender: String,
    /// The sender for people.
    pub from: Option<String>,
    /// Its id.
    pub message_id: Option<String>,
    /// What it answers, the nearest first.
    pub references: Vec<String>,
    /// Why it is no patch.
    pub passed: Option<(Reason, String)>,
    /// A file that its diff touches, where it touches none of a kernel tree.
    pub outside: Option<String>,
    /// It is a cover letter.
    pub cover: bool,
    /// The kernel that its subject says it is for.
    pub target: Option<String>,
    /// When it was sent, in seconds since 1970.
    pub sent: Option<i64>,
    /// It has a diff, and whether that stands below `---` as a patch's does.
    pub diff: Option<bool>,
    /// It is a patch that stands in a reply.
    pub formal_reply: bool,
    /// Its diff is damaged.
    pub damaged: bool,
    /// Equal for equal subjects, messages and diffs.
    pub content: [u8; 16],
}

impl Entry {
    /// What is kept of a mail.
    #[must_use]
    pub fn new(mail: &Mail, input: usize, raw: &RawMail, nth: usize) -> Self {
        let mut references: Vec<String> =
            mail.references.iter().filter(|id| id.len() <= MAX_ID).cloned().collect();
        if references.len() > MAX_REFERENCES
            && let Some(root) = references.pop()
        {
            references.truncate(MAX_REFERENCES - 1);
            references.push(root);
        }
        let hash = |parts: &[&[u8]]| {
            let mut hasher = blake3::Hasher::new();
            for part in parts {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            let mut hash = [0; 16];
            hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
            hash
        };
        let mut subject = mail.subject.clone();
        subject.tags.truncate(MAX_TAGS);
        Self {
            input,
            offset: raw.offset,
            length: raw.length,
            piece_line: raw.line,
            quoted_from: raw.quoted_from,
            nth,
            line: mail.line,
            raw_subject: mail.raw_subject.clone(),
            content: hash(&[
                subject.text.as_bytes(),
                mail.body.message.as_bytes(),
                mail.body.diff_bytes(),
            ]),
            sender: mail
                .sender
                .as_ref()
                .map(|sender| sender.email.to_lowercase())
                .unwrap_or_default(),
            from: mail.sender.as_ref().map(ToString::to_string),
            message_id: mail.message_id.clone().filter(|id| id.len() <= MAX_ID),
            references,
            passed: mail.passed.clone(),
            outside: mail.outside.clone(),
            cover: mail.cover,
            target: mail.subject.target(),
            sent: mail.sent,
            diff: mail.body.diff.as_ref().map(|_| mail.body.separated),
            formal_reply: mail.formal_reply,
            damaged: mail.body.diff.as_ref().is_some_and(|diff| !diff.damages.is_empty()),
            subject,
        }
    }

    /// Its version; 1 where none is said.
    #[must_use]
    pub fn version(&self) -> Version {
        (self.subject.version.unwrap_or(1), self.subject.resend)
    }

    /// Its series' total, if it says one.
    #[must_use]
    pub fn total(&self) -> Option<u32> {
        self.subject.number.map(|(_, total)| total)
    }

    /// Its number, if it says one.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.subject.number.map(|(number, _)| number)
    }

    /// Whether it can be a patch of a series.
    #[must_use]
    pub fn is_patch(&self) -> bool {
        self.passed.is_none() && !self.cover
    }
}
