// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kvet read of a series, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::fault::escape;
use crate::kernel::mail::reading::{Passed, Patch, Reading, Reason};
use crate::kernel::mail::{Change, FileChange};

/// Most mails passed over that are shown each; of more, their number by reason.
/// The JSON has all.
const MAX_PASSED: usize = 30;
/// Most files of a patch that are shown.
const MAX_FILES: usize = 8;
/// Most problems that are shown.
const MAX_PROBLEMS: usize = 40;

/// The reading as a page.
#[must_use]
pub fn render(reading: &Reading) -> String {
    let mut out = String::new();
    headline(&mut out, reading);
    if let Some(cover) = &reading.cover {
        let by = cover.author.as_ref().map_or_else(String::new, |author| format!(", {author}"));
        let _ = writeln!(out, "  cover  {}{}", escape(&cover.subject), escape(&by));
        let _ = writeln!(out, "         {}", escape(&cover.place.to_string()));
    }
    let total = reading.total.unwrap_or(0);
    let mut missing = reading.missing.iter().copied().peekable();
    for patch in &reading.patches {
        while let Some(number) = missing.next_if(|&number| number < patch.number) {
            let _ = writeln!(out, "  {number}/{total}  missing");
        }
        show_patch(&mut out, patch, total);
    }
    for number in missing {
        let _ = writeln!(out, "  {number}/{total}  missing");
    }
    for note in &reading.notes {
        let _ = writeln!(out, "  note: {}", escape(note));
    }
    passed_over(&mut out, &reading.passed_over);
    for problem in reading.problems.iter().take(MAX_PROBLEMS) {
        let place = problem.place.as_ref().map_or_else(String::new, |place| format!("{place}: "));
        let _ = writeln!(out, "{}{}", escape(&place), escape(&problem.what));
    }
    if reading.problems.len() > MAX_PROBLEMS {
        let _ = writeln!(out, "... {} problems more", reading.problems.len() - MAX_PROBLEMS);
    }
    let mut helps: Vec<&str> = reading.problems.iter().map(|problem| problem.help).collect();
    helps.dedup();
    for help in helps {
        let _ = writeln!(out, "  help: {help}");
    }
    out
}

fn headline(out: &mut String, reading: &Reading) {
    let mut words = Vec::new();
    if !reading.patches.is_empty() {
        words.push(format!("v{}", reading.version));
        if reading.rfc {
            words.push("RFC".to_owned());
        }
        words.extend(reading.tags.iter().map(|tag| escape(tag)));
    }
    let have = reading.patches.len();
    let count = match reading.total {
        Some(total) if total as usize != have => format!("{have} of {total} patches"),
        _ if have == 1 => "1 patch".to_owned(),
        _ if have == 0 => "no patch".to_owned(),
        _ => format!("{have} patches"),
    };
    let state = match (reading.complete, have) {
        (true, _) => "complete",
        (false, 0) => "nothing to apply",
        (false, _) if !reading.missing.is_empty() => "incomplete",
        (false, _) if reading.problems.iter().all(|problem| problem.may_apply()) => "suspect",
        (false, _) => "unusable",
    };
    let words = if words.is_empty() { String::new() } else { format!("{}: ", words.join(" ")) };
    if let Some(title) = &reading.title {
        let _ = writeln!(out, "{}", escape(title));
    }
    let mails = if reading.mails == 1 { "mail" } else { "mails" };
    let _ = writeln!(out, "{words}{count}, {state}, from {} {mails}", reading.mails);
}

fn show_patch(out: &mut String, patch: &Patch, total: u32) {
    let _ = writeln!(out, "  {}/{total}  {}", patch.number, escape(&patch.subject));
    let indent = " ".repeat(format!("  {}/{total}  ", patch.number).len());
    let author = patch.author.as_ref().map_or("no author".to_owned(), ToString::to_string);
    let date = patch.date.as_deref().unwrap_or("no date");
    let _ = writeln!(out, "{indent}{}, {}", escape(&author), escape(date));
    let place = escape(&patch.place.to_string());
    let _ = writeln!(
        out,
        "{indent}{place}, diff in line {}, +{} -{}",
        patch.diff_line, patch.added, patch.removed
    );
    for file in patch.files.iter().take(MAX_FILES) {
        let _ = writeln!(out, "{indent}{}", escape(&file_line(file)));
    }
    if patch.files.len() > MAX_FILES {
        let _ = writeln!(out, "{indent}... {} files more", patch.files.len() - MAX_FILES);
    }
    for trailer in &patch.trailers {
        let _ = writeln!(out, "{indent}{}: {}", escape(&trailer.key), escape(&trailer.value));
    }
}

fn file_line(file: &FileChange) -> String {
    let kind = match file.change {
        Change::Modified => "",
        Change::Added => " (new)",
        Change::Deleted => " (deleted)",
        Change::Renamed => " (renamed)",
        Change::Copied => " (copied)",
        Change::Mode => " (mode)",
    };
    let old = file.old_path.as_ref().map_or_else(String::new, |old| format!("{old} -> "));
    let binary = if file.binary { " (binary)" } else { "" };
    format!("{old}{}{kind}{binary}", file.path)
}

fn passed_over(out: &mut String, passed: &[Passed]) {
    if passed.is_empty() {
        return;
    }
    let _ = writeln!(out, "passed over:");
    for mail in passed.iter().take(MAX_PASSED) {
        let detail =
            if mail.detail.is_empty() { String::new() } else { format!(" ({})", mail.detail) };
        let subject = if mail.subject.is_empty() { "no subject" } else { &mail.subject };
        let _ = writeln!(
            out,
            "  {}: {}{}: {}",
            escape(&mail.place.to_string()),
            mail.reason.words(),
            escape(&detail),
            escape(subject)
        );
    }
    if passed.len() > MAX_PASSED {
        let mut counts: BTreeMap<Reason, usize> = BTreeMap::new();
        for mail in &passed[MAX_PASSED..] {
            *counts.entry(mail.reason).or_default() += 1;
        }
        let counts: Vec<String> =
            counts.iter().map(|(reason, count)| format!("{count} {}", reason.words())).collect();
        let _ = writeln!(out, "  and {}", counts.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::mail::read_bytes;

    const DIFF: &str =
        "diff --git a/mm/a.c b/mm/a.c\n--- a/mm/a.c\n+++ b/mm/a.c\n@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn a_page_says_what_is_there_and_what_is_not() {
        let mbox = format!(
            "From mboxrd@z Thu Jan  1 00:00:00 1970\nFrom: Ada Example <ada@example.org>\nSubject: [RFC PATCH net-next v2 2/3] mm: x\nDate: Thu, 1 Jan 2026 00:00:00 +0000\n\nwhy\n\nSigned-off-by: Ada Example <ada@example.org>\n---\n{DIFF}\nFrom mboxrd@z Thu Jan  1 00:00:00 1970\nFrom: Bob <bob@example.org>\nSubject: Re: [RFC PATCH net-next v2 2/3] mm: x\u{1b}[2J\n\nno\n"
        );
        let page = render(&read_bytes("x.mbox", mbox.as_bytes()).unwrap());
        insta::assert_snapshot!(page);
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn an_empty_input_is_said_to_be_empty() {
        let page = render(&read_bytes("-", b"").unwrap());
        assert!(page.starts_with("no patch, nothing to apply, from 0 mails\n"), "{page}");
    }
}
