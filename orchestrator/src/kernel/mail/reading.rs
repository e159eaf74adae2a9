// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was read out of an input.

use std::fmt;

use serde::{Serialize, Serializer};

use super::author::Author;
use super::damage::DamageKind;
use super::names::FileChange;
use super::trailers::Trailer;

/// `schema` of a reading's JSON.
pub const READING_SCHEMA: &str = "kvet/reading/1";

/// A line of an input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The input's name: a path, or `-`.
    pub input: String,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.input, self.line)
    }
}

/// A series as it was read, and everything that was not taken for a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// [`READING_SCHEMA`].
    pub schema: &'static str,
    /// What `series.yaml` calls it, for a folder that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// All patches of one series are there and none is damaged.
    pub complete: bool,
    /// The version that was read; 1 where none is said.
    pub version: u32,
    /// How many patches the series has, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// It asks for comments only.
    pub rfc: bool,
    /// Other words of the subjects' brackets, such as `net-next`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The cover letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cover: Option<Cover>,
    /// The patches in their order.
    pub patches: Vec<Patch>,
    /// The numbers of the patches that are not there.
    pub missing: Vec<u32>,
    /// Why the series is not complete, or not one series, or damaged.
    pub problems: Vec<Problem>,
    /// What the reader should know although nothing is wrong.
    pub notes: Vec<String>,
    /// Every mail that is no part of the series.
    pub passed_over: Vec<Passed>,
    /// How many mails were read.
    pub mails: usize,
}

impl Reading {
    /// Whether it can be built: it is complete, or all doubts are such that git
    /// decides, which has the files (see [`Problem::may_apply`]).
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.patches.is_empty() && self.problems.iter().all(Problem::may_apply)
    }
}

/// A cover letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cover {
    /// Where it stands.
    pub place: Place,
    /// Its subject without brackets.
    pub subject: String,
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// Its text.
    pub message: String,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

/// One patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Patch {
    /// Where its mail starts.
    pub place: Place,
    /// Its number in the series, from 1.
    pub number: u32,
    /// Its subject as `git am` makes it.
    pub subject: String,
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// Its date as the mail has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Its mail's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The commit's message without the subject.
    pub message: String,
    /// The message's trailers.
    pub trailers: Vec<Trailer>,
    /// What stands between `---` and the diff.
    pub notes: String,
    /// The files that it touches.
    pub files: Vec<FileChange>,
    /// How many leading folders its names have more than the tree; 1 is usual.
    pub strip: usize,
    /// The line that the diff starts in.
    pub diff_line: usize,
    /// Lines that the diff adds.
    pub added: usize,
    /// Lines that the diff removes.
    pub removed: usize,
    /// The diff, byte for byte. In JSON its size and hash.
    #[serde(serialize_with = "summary")]
    pub diff: Vec<u8>,
}

fn summary<S: Serializer>(diff: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Summary {
        bytes: usize,
        sha256: String,
    }
    use sha2::Digest as _;
    let sha256 =
        sha2::Sha256::digest(diff).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Summary { bytes: diff.len(), sha256 }.serialize(serializer)
}

/// A mail that is no part of the series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Passed {
    /// Where it starts.
    pub place: Place,
    /// Its subject as it stands; empty if it has none.
    pub subject: String,
    /// Who sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Why it was passed over.
    pub reason: Reason,
    /// More about why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// Why a mail was passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// An answer.
    Reply,
    /// An answer that quotes a diff.
    Review,
    /// A cover letter of another version, or a second one.
    Cover,
    /// A newer version is there.
    Superseded,
    /// The same patch is there already.
    Duplicate,
    /// There is no diff in it.
    NoDiff,
    /// Its diff touches nothing of a kernel tree.
    NotKernel,
    /// It asks to pull.
    PullRequest,
    /// It is HTML only.
    Html,
    /// A patch that belongs to no series of the input, in a series' thread.
    Stray,
    /// One of several series.
    OtherSeries,
    /// Its patches are attached mails, which stand for themselves.
    Carrier,
    /// It is too large.
    TooLarge,
}

impl Reason {
    /// A word or two for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Review => "review that quotes a diff",
            Self::Cover => "cover letter",
            Self::Superseded => "older version",
            Self::Duplicate => "duplicate",
            Self::NoDiff => "no diff",
            Self::NotKernel => "nothing of a kernel tree",
            Self::PullRequest => "pull request",
            Self::Html => "HTML only",
            Self::Stray => "patch of no series",
            Self::OtherSeries => "another series",
            Self::Carrier => "carries patches as attachments",
            Self::TooLarge => "too large",
        }
    }
}

/// What kind of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// Not all patches are there.
    Incomplete,
    /// There is no patch.
    Nothing,
    /// No patch touches a file of a kernel tree.
    NotKernel,
    /// More than one series.
    Ambiguous,
    /// Two patches with one number.
    Conflict,
    /// The cover letter has a diff of its own.
    CoverDiff,
    /// More than kvet takes.
    TooLarge,
    /// A patch is damaged.
    #[serde(untagged)]
    Damaged(DamageKind),
}

/// Why a series cannot be used as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What kind.
    pub kind: ProblemKind,
    /// What is wrong.
    pub what: String,
    /// What to do next.
    pub help: &'static str,
}

impl Problem {
    /// Whether a patch may apply all the same: indentation by blanks can be the
    /// file's own.
    #[must_use]
    pub fn may_apply(&self) -> bool {
        matches!(self.kind, ProblemKind::Damaged(kind) if !kind.is_certain())
    }
}
