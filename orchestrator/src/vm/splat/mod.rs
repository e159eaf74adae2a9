// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splats: what broke, read from a serial console's log.
//!
//! A log comes in lines; [`mod@line`] parts what stands before the kernel's words, [`head`] says whether
//! a splat begins, [`body`] and [`frame`] read what follows, [`guilty`] and [`helpers`] choose the
//! function, [`fingerprint`] names the splat, and [`Scanner`] holds it all together as a stream.
//!
//! The log is the guest's, so it is hostile: nothing here panics on any bytes, memory is bounded
//! whatever the log holds, and time is linear in its length.

pub mod body;
pub mod fingerprint;
pub mod frame;
pub mod guilty;
pub mod head;
pub mod helpers;
mod kind;
pub mod line;
mod lists;
mod report;
mod scanner;

pub use kind::SplatKind;
pub use scanner::{Evidence, Findings, SPLATS_MAX, Scanner};

use serde::{Deserialize, Serialize};

/// One thing that broke, as the log tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splat {
    /// What it is.
    pub kind: SplatKind,
    /// Flavour of a sanitizer's report: `slab-use-after-free`, `data-race`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavour: Option<String>,
    /// Title as syzkaller and the mailing lists word it.
    pub title: String,
    /// The guilty function: the first frame that is not a helper.
    pub function: Option<String>,
    /// Second function of a data race.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<String>,
    /// Sixteen hexadecimal digits, the same in every boot; see [`fingerprint`].
    pub fingerprint: String,
    /// Taint letters as in `Tainted: G        W  O`; none if the kernel was not tainted.
    pub taint: Option<String>,
    /// CPU that reported it.
    pub cpu: Option<u32>,
    /// Task that was running.
    pub pid: Option<u32>,
    /// Its command name.
    pub comm: Option<String>,
    /// The report without prefixes, cut at 256 KiB. Guest text: escape it before showing it.
    pub text: String,
    /// First line in the log, from 1.
    pub first_line: usize,
    /// Last line in the log.
    pub last_line: usize,
    /// How often it was printed.
    pub count: usize,
    /// Whether the kernel cannot be trusted to go on: an oops, or the splat led to a panic.
    pub fatal: bool,
}

/// Reads a whole log. Splats come in the order of the log, one per fingerprint, with counts.
#[must_use]
pub fn scan(log: &[u8]) -> Vec<Splat> {
    examine(log).splats
}

/// Reads a whole log and also says how many splats were beyond the limit.
#[must_use]
pub fn examine(log: &[u8]) -> Findings {
    let mut scanner = Scanner::new();
    // In pieces, because the evidence that a piece gives takes room until it is dropped.
    for piece in log.chunks(64 * 1024) {
        scanner.feed(piece);
    }
    scanner.finish()
}
