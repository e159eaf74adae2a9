// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of tests that print TAP or KTAP.
//!
//! The reader comes to the tree and the statuses that the kernel's own
//! `tools/testing/kunit/kunit.py parse` comes to (compared by
//! `tests/ktap.rs`), with these differences, each of which would lose a result:
//!
//! - a result without a description, without a number, or with a `#` in its
//!   description is one (kselftest prints `ok 3 # SKIP why`);
//! - results after the last that the plan announces are kept, as `unplanned`;
//! - a plan may follow the results (TAP), and a second one is only reported;
//! - what kselftest's runner quotes with `# ` is read, as `quoted`;
//! - the width of printk's stamps may change in the middle of a log;
//! - `XFAIL` and `TODO` are statuses;
//! - a test that is named as the group that it is in does not end that group.
//!
//! Logs are untrusted: sizes and depths are bounded and nothing panics.

mod line;
mod observe;
mod prefix;
mod tree;
mod words;

use serde::Serialize;

pub use observe::{BAIL_OUT, Facts, MISSING, facts};
pub use tree::{parse_lines, parse_log};
pub use words::parse_words;

/// Most bytes of a log that are read.
pub const MAX_LOG_BYTES: usize = 64 * 1024 * 1024;

/// What a log says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Results {
    /// Whether there was any test output.
    pub found: bool,
    /// The whole; its name is `main`.
    #[serde(flatten)]
    pub main: Node,
    /// Leaves by status, without what a runner quotes.
    pub counts: Counts,
    /// Leaves that a runner quotes, by status.
    #[serde(skip_serializing_if = "Counts::is_empty")]
    pub quoted: Counts,
    /// The reason after `Bail out!`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bail_out: Option<String>,
    /// What is wrong with the log, at most [`tree::MAX_PROBLEMS`] lines.
    pub problems: Vec<String>,
}

/// A test, or a group of tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its description; may be empty.
    pub name: String,
    /// The number in its result line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// How it ended.
    pub status: Status,
    /// What follows a directive.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How many tests its plan announces, if it is a group that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<u64>,
    /// It comes after the last that the plan announces.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unplanned: bool,
    /// It stands in the `# ` lines of a test runner.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quoted: bool,
    /// What it is made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subtests: Vec<Node>,
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// `ok`.
    Passed,
    /// `not ok`.
    Failed,
    /// `# SKIP`.
    Skipped,
    /// `# XFAIL`: meant to fail.
    Xfail,
    /// `# TODO`: known to fail.
    Todo,
    /// It has no result although one was announced.
    Crashed,
    /// A group without a test in it.
    NoTests,
}

impl Status {
    /// The status in the words of the format, as an observation's value.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "not ok",
            Self::Skipped => "skip",
            Self::Xfail => "xfail",
            Self::Todo => "todo",
            Self::Crashed => "no result",
            Self::NoTests => "no tests",
        }
    }
}

/// Numbers of tests by status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "each is the number of tests of that Status")]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    pub xfail: u64,
    pub todo: u64,
    pub crashed: u64,
}

impl Counts {
    fn add(&mut self, status: Status) {
        match status {
            Status::Passed => self.passed += 1,
            Status::Failed => self.failed += 1,
            Status::Skipped => self.skipped += 1,
            Status::Xfail => self.xfail += 1,
            Status::Todo => self.todo += 1,
            Status::Crashed => self.crashed += 1,
            Status::NoTests => {}
        }
    }

    fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.xfail += other.xfail;
        self.todo += other.todo;
        self.crashed += other.crashed;
    }

    /// How many there are in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.passed + self.failed + self.skipped + self.xfail + self.todo + self.crashed
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [
            (self.passed, "passed"),
            (self.failed, "failed"),
            (self.skipped, "skipped"),
            (self.xfail, "failed as meant"),
            (self.todo, "to do"),
            (self.crashed, "without result"),
        ];
        let words: Vec<String> = all
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        f.write_str(if words.is_empty() { "no tests" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}
