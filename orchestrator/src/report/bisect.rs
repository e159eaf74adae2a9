// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a search for what makes the difference, and a text for whoever wrote it.

use std::fmt::Write as _;

use super::number::counted;
use crate::bisect::config::ConfigOutcome;
use crate::bisect::kernels::range::short;
use crate::bisect::kernels::record::{Ended, Record, Side};
use crate::bisect::outcome::{Confidence, Outcome};
use crate::fault::escape;

/// Most columns of a mail.
const COLUMNS: usize = 72;
/// Most lines of evidence that are shown of one side.
const LINES: usize = 8;

/// The report.
#[must_use]
pub fn render(record: &Record) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "bisect {}: bad is where {}", record.plan, record.predicate);
    let _ = writeln!(out, "  {}", record.searched);
    let _ = writeln!(out, "  {}\n", record.setting);
    match &record.ended {
        Ended::Changes(Outcome::Found { first_bad, confidence }) => {
            let (id, subject) = (escape(short(&first_bad.id)), escape(&first_bad.subject));
            let _ = writeln!(out, "first bad: {id} {subject}");
            if first_bad.id.len() > short(&first_bad.id).len() {
                let _ = writeln!(out, "  commit  {}", escape(&first_bad.id));
            }
            if let Some((name, mail)) = &record.author {
                let _ = writeln!(out, "  author  {} <{}>", escape(name), escape(mail));
            }
            let _ = writeln!(out, "  {confidence}");
            if let Some(side) = &record.bad {
                push_side(&mut out, "with it", side);
            }
            for side in &record.before {
                push_side(&mut out, &format!("without it, at {}", named(side)), side);
            }
        }
        Ended::Changes(outcome) => {
            let _ = writeln!(out, "{outcome}");
            if let Some(side) = &record.bad {
                push_side(&mut out, "the bad end", side);
            }
        }
        Ended::Configs(outcome) => {
            let _ = writeln!(out, "{outcome}");
            for side in record.bad.iter().chain(&record.before) {
                push_side(&mut out, &named(side), side);
            }
        }
    }
    for side in &record.skipped {
        let reason = side.evidence.lines().next().unwrap_or_default();
        let _ = writeln!(out, "skipped {}: {}", named(side), escape(reason));
    }
    let _ = writeln!(
        out,
        "\n{}, {} in {:.0} s; one after another {:.0} s",
        counted(record.builds as usize, "build"),
        counted(record.boots as usize, "boot"),
        record.seconds,
        record.in_sequence()
    );
    if let Some(mail) = mail(record) {
        let _ = write!(out, "\na text for its author:\n\n{mail}");
    }
    out
}

fn named(side: &Side) -> String {
    let candidate = &side.candidate;
    format!("{} {}", escape(short(&candidate.id)), escape(&candidate.subject)).trim_end().to_owned()
}

fn push_side(out: &mut String, title: &str, side: &Side) {
    let times = if side.trials > 1 { format!(" in {} trials", side.trials) } else { String::new() };
    let _ = writeln!(out, "  {title}: {}{times}", side.word);
    for line in shown(side) {
        let _ = writeln!(out, "    {line}");
    }
    if let Some(folder) = boot(side) {
        let _ = writeln!(out, "    {folder}");
    }
}

/// The first lines of what was seen.
fn shown(side: &Side) -> Vec<String> {
    let lines: Vec<&str> =
        side.evidence.lines().filter(|line| !line.starts_with("boot: ")).collect();
    let mut shown: Vec<String> = lines.iter().take(LINES).map(|line| escape(line)).collect();
    if lines.len() > LINES {
        shown.push(format!("... {} more lines", lines.len() - LINES));
    }
    shown
}

/// Where its boot's traces are, in the search's folder.
fn boot(side: &Side) -> Option<String> {
    side.evidence.lines().rev().find_map(|line| line.strip_prefix("boot: ")).map(escape)
}

/// A text for the author of what was found: plain, in 72 columns.
#[must_use]
pub fn mail(record: &Record) -> Option<String> {
    let mut out = String::new();
    match &record.ended {
        Ended::Changes(Outcome::Found { first_bad, confidence }) => {
            let subject: String = escape(&first_bad.subject);
            if let Some((name, mail)) = &record.author {
                let _ = writeln!(out, "To: {} <{}>", escape(name), escape(mail));
            }
            let _ = writeln!(out, "{}\n", cut(&format!("Subject: bisected to: {subject}")));
            let what = match record.author.is_some() {
                true => format!("commit {} (\"{subject}\")", short(&first_bad.id)),
                false => format!("{} (\"{subject}\")", escape(&first_bad.id)),
            };
            wrap(
                &mut out,
                "",
                &format!("Hello,\n\na bisection names {what} as what makes this difference."),
            );
            if let Some(side) = &record.bad {
                out.push_str("\nWith it:\n");
                shown(side).iter().for_each(|line| wrap(&mut out, "  ", line));
            }
            for side in &record.before {
                out.push('\n');
                wrap(&mut out, "", &format!("Without it, at {}:", named(side)));
                shown(side).iter().for_each(|line| wrap(&mut out, "  ", line));
            }
            out.push('\n');
            let sure = match confidence {
                Confidence(1.0..) => {
                    "Each kernel was tried once, since the result is exact.".to_owned()
                }
                sure => format!("The result is noisy; the trials make this {sure}."),
            };
            wrap(&mut out, "", &format!("{} {sure}", searched(record)));
            if !record.skipped.is_empty() {
                out.push_str("\nNot tried:\n");
                for side in &record.skipped {
                    let reason = side.evidence.lines().next().unwrap_or_default();
                    wrap(&mut out, "  ", &format!("{}: {}", named(side), escape(reason)));
                }
            }
        }
        Ended::Configs(outcome @ ConfigOutcome::Found { changes, .. }) if !changes.is_empty() => {
            let symbols: Vec<String> =
                changes.iter().map(|change| format!("CONFIG_{}", escape(&change.symbol))).collect();
            let list = symbols.join(", ");
            let _ = writeln!(out, "{}\n", cut(&format!("Subject: bisected to: {list}")));
            wrap(&mut out, "", "Hello,\n\nwhat follows depends on the kernel's config:");
            for line in outcome.to_string().lines() {
                wrap(&mut out, "  ", line.trim_start());
            }
            for side in record.bad.iter().chain(&record.before) {
                out.push('\n');
                wrap(&mut out, "", &format!("{}, with {}:", capital(&side.word), named(side)));
                shown(side).iter().for_each(|line| wrap(&mut out, "  ", line));
            }
            out.push('\n');
            wrap(&mut out, "", &searched(record));
        }
        Ended::Changes(_) | Ended::Configs(_) => return None,
    }
    Some(out)
}

fn searched(record: &Record) -> String {
    format!(
        "Searched: {}, with {}; bad is where {}. {} kernels were built and {} boots judged.",
        record.searched, record.setting, record.predicate, record.builds, record.boots
    )
}

/// A word at the beginning of a sentence.
fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A line of at most [`COLUMNS`].
fn cut(line: &str) -> String {
    match line.char_indices().nth(COLUMNS) {
        None => line.to_owned(),
        Some(_) => line.chars().take(COLUMNS - 3).chain("...".chars()).collect(),
    }
}

/// Adds a text in lines of at most [`COLUMNS`], each after `indent`; words that are
/// longer are broken.
fn wrap(out: &mut String, indent: &str, text: &str) {
    let room = COLUMNS - indent.len();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        let mut length = 0;
        for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
            let letters: Vec<char> = word.chars().collect();
            for piece in letters.chunks(room) {
                if length > 0 && length + 1 + piece.len() > room {
                    let _ = writeln!(out, "{indent}{line}");
                    line.clear();
                    length = 0;
                }
                if length > 0 {
                    line.push(' ');
                    length += 1;
                }
                line.extend(piece);
                length += piece.len();
            }
        }
        let _ = writeln!(out, "{}", format!("{indent}{line}").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bisect::config::{Change, Part};
    use crate::bisect::history::Candidate;
    use crate::bisect::kernels::record::BISECTION_SCHEMA;
    use crate::fault::ExitCode;

    fn record(subject: &str) -> Record {
        let candidate = |id: &str, subject: &str| Candidate::new(id.repeat(20), subject);
        let side = |id, subject: &str, word: &str, evidence: &str| Side {
            candidate: candidate(id, subject),
            word: word.to_owned(),
            evidence: evidence.to_owned(),
            trials: 1,
        };
        Record {
            schema: BISECTION_SCHEMA.to_owned(),
            id: "run".to_owned(),
            plan: "mine".to_owned(),
            searched: "64 commits of linux, good v6.12, bad topic".to_owned(),
            predicate: "kicks is what it is at the bad end".to_owned(),
            setting: "test khugepaged_cold, config microvm, guest up".to_owned(),
            ended: Ended::Changes(Outcome::Found {
                first_bad: candidate("ab", subject),
                confidence: Confidence(1.0),
            }),
            exit_code: ExitCode::Acceptable,
            author: Some(("Ada Example".to_owned(), "ada@example.org".to_owned())),
            bad: Some(side(
                "ab",
                subject,
                "bad",
                "kicks = 9\nboot: boots/abababababab/khugepaged_cold",
            )),
            before: vec![side(
                "12",
                "mm: before",
                "good",
                "kicks = 5\nboot: boots/121212121212/khugepaged_cold",
            )],
            skipped: vec![side("34", "mm: breaks the build", "skip", "it does not build: x")],
            builds: 8,
            boots: 7,
            seconds: 96.2,
            work: Vec::new(),
        }
    }

    #[test]
    fn a_report_names_the_commit_and_both_sides() {
        insta::assert_snapshot!(render(&record("mm: khugepaged: wake up once more than before")));
    }

    #[test]
    fn a_report_names_the_symbol_and_both_sides() {
        let change = |symbol: &str, part| Change {
            symbol: symbol.to_owned(),
            good: None,
            bad: Some("y".to_owned()),
            part,
        };
        let mut found = record("");
        found.ended = Ended::Configs(ConfigOutcome::Found {
            changes: vec![change("PROC_MORE", Part::Guilty), change("MORE", Part::Enables)],
            enough: true,
            notes: Vec::new(),
        });
        found.searched = "300 symbols between good.config and bad.config".to_owned();
        found.author = None;
        found.skipped.clear();
        insta::assert_snapshot!(render(&found));
    }

    proptest! {
        #[test]
        fn a_mail_keeps_its_columns(subject in "\\PC{0,200}") {
            let mail = mail(&record(&subject)).unwrap();
            for line in mail.lines() {
                prop_assert!(line.chars().count() <= COLUMNS, "{line}");
            }
        }
    }
}
