// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads every mail in tests/mails/ and compares with what expected.txt says of it.
//!
//! An expectation is a block: `== FILE`, then what [`told`] makes of the reading:
//!
//! ```text
//! complete v1 of 2 rfc +net-next; 3 mails
//! cover LINE | SUBJECT
//! NUMBER | SUBJECT | AUTHOR | +ADDED -REMOVED | FILES | diff at LINE | TRAILERS
//!   bytes NAME          the diff is diffs/NAME.diff, byte for byte
//! missing NUMBERS
//! problem LINE KIND
//! note TEXT
//! passed LINE REASON | SUBJECT
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use kvet::kernel::mail::reading::Reading;
use kvet::kernel::mail::{Change, FileChange, read_bytes};
use proptest::prelude::*;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mails")
}

/// What is expected of each file, and the diffs that its patches must have.
fn expected() -> BTreeMap<String, (String, Vec<Option<String>>)> {
    let text = fs::read_to_string(folder().join("expected.txt")).unwrap();
    let mut all = BTreeMap::new();
    for block in text.split("== ").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        let mut diffs = Vec::new();
        let mut lines = String::new();
        for line in rest.trim().lines() {
            if let Some(diff) = line.strip_prefix("  bytes ") {
                *diffs.last_mut().unwrap() = Some(diff.to_owned());
                continue;
            }
            if line.starts_with(|c: char| c.is_ascii_digit()) {
                diffs.push(None);
            }
            writeln!(lines, "{line}").unwrap();
        }
        assert!(all.insert(name.to_owned(), (lines, diffs)).is_none(), "{name} twice");
    }
    all
}

fn file(file: &FileChange) -> String {
    let old = file.old_path.as_ref().map_or(String::new(), |old| format!("{old} => "));
    let change = match file.change {
        Change::Modified => "",
        Change::Added => " (new)",
        Change::Deleted => " (deleted)",
        Change::Renamed => " (renamed)",
        Change::Copied => " (copied)",
        Change::Mode => " (mode)",
    };
    format!("{old}{}{change}{}", file.path, if file.binary { " (binary)" } else { "" })
}

fn words(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

fn told(reading: &Reading) -> String {
    let mut out = String::new();
    out.push_str(if reading.complete { "complete" } else { "broken" });
    write!(out, " v{}", reading.version).unwrap();
    if let Some(total) = reading.total {
        write!(out, " of {total}").unwrap();
    }
    if reading.rfc {
        out.push_str(" rfc");
    }
    for tag in &reading.tags {
        write!(out, " +{tag}").unwrap();
    }
    let plural = if reading.mails == 1 { "" } else { "s" };
    writeln!(out, "; {} mail{plural}", reading.mails).unwrap();
    if let Some(cover) = &reading.cover {
        writeln!(out, "cover {} | {}", cover.place.line, cover.subject).unwrap();
    }
    for patch in &reading.patches {
        let author = patch.author.as_ref().map_or("-".to_owned(), ToString::to_string);
        let files: Vec<String> = patch.files.iter().map(file).collect();
        let trailers: Vec<&str> = patch.trailers.iter().map(|t| t.key.as_str()).collect();
        let mut parts = vec![
            patch.number.to_string(),
            patch.subject.clone(),
            author,
            format!("+{} -{}", patch.added, patch.removed),
            files.join(", "),
            format!("diff at {}", patch.diff_line),
        ];
        if patch.strip != 1 {
            parts.insert(5, format!("-p{}", patch.strip));
        }
        if !trailers.is_empty() {
            parts.push(trailers.join(", "));
        }
        writeln!(out, "{}", parts.join(" | ")).unwrap();
    }
    if !reading.missing.is_empty() {
        let mut missing = Vec::new();
        for &number in &reading.missing {
            match missing.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => missing.push((number, number)),
            }
        }
        let range = |(from, to): &(u32, u32)| match to - from {
            0 => from.to_string(),
            1 => format!("{from}, {to}"),
            _ => format!("{from}-{to}"),
        };
        writeln!(out, "missing {}", missing.iter().map(range).collect::<Vec<_>>().join(", "))
            .unwrap();
    }
    for problem in &reading.problems {
        let line = problem.place.as_ref().map_or("-".to_owned(), |place| place.line.to_string());
        let kind = words(problem.kind);
        writeln!(out, "problem {line} {kind}").unwrap();
    }
    for note in &reading.notes {
        writeln!(out, "note {note}").unwrap();
    }
    for passed in &reading.passed_over {
        let reason = words(passed.reason);
        writeln!(out, "passed {} {reason} | {}", passed.place.line, passed.subject).unwrap();
    }
    out
}

fn mails() -> Vec<(String, Vec<u8>)> {
    let mut mails: Vec<(String, Vec<u8>)> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && !path.ends_with("expected.txt"))
        .map(|path| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap())
        })
        .collect();
    mails.sort();
    mails
}

#[test]
fn every_mail_is_read_as_the_table_says() {
    let expected = expected();
    let mails = mails();
    assert!(mails.len() >= 100 && mails.len() == expected.len(), "{} mails", mails.len());
    let mut wrong = String::new();
    for (name, bytes) in &mails {
        let (want, diffs) = expected.get(name).unwrap_or_else(|| panic!("{name} has no entry"));
        let reading = read_bytes(name, bytes).unwrap();
        let found = told(&reading);
        if found != *want {
            write!(wrong, "{name}\n--- want\n{want}--- found\n{found}").unwrap();
            for problem in &reading.problems {
                writeln!(wrong, "    {}", problem.what).unwrap();
            }
            continue;
        }
        for (patch, diff) in reading.patches.iter().zip(diffs) {
            let Some(diff) = diff else {
                continue;
            };
            let want = fs::read(folder().join(format!("diffs/{diff}.diff"))).unwrap();
            if patch.diff != want {
                writeln!(wrong, "{name}: patch {} is not {diff}.diff", patch.number).unwrap();
                writeln!(wrong, "{}", String::from_utf8_lossy(&patch.diff)).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The text for `git am` that is made of a patch is read as the same patch.
#[test]
fn what_was_read_can_be_written_and_read_again() {
    for (name, bytes) in mails() {
        for patch in read_bytes(&name, &bytes).unwrap().patches {
            let mail = patch.to_mail(1, 1);
            let again = read_bytes(&name, &mail).unwrap();
            let Some(same) = again.patches.first() else {
                panic!("{name}: nothing is left of {}", String::from_utf8_lossy(&mail));
            };
            let diff = patch.diff.strip_suffix(b"\n").unwrap_or(&patch.diff);
            assert_eq!(same.diff.strip_suffix(b"\n").unwrap_or(&same.diff), diff, "{name}");
            assert_eq!((&same.subject, &same.files), (&patch.subject, &patch.files), "{name}");
            if patch.author.is_some() {
                assert_eq!(same.author, patch.author, "{name}");
            }
            if name != "mboxrd.mbox" && name != "from-in-message.patch" {
                assert_eq!(same.message, patch.message, "{name}");
            }
        }
    }
}

/// Edits of a mail: what is done to which of its lines.
fn edited(bytes: &[u8], edits: &[(u8, usize, usize)]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> =
        bytes.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    for &(edit, one, other) in edits {
        if lines.is_empty() {
            break;
        }
        let (one, other) = (one % lines.len(), other % lines.len());
        match edit {
            0 => drop(lines.remove(one)),
            1 => lines.insert(other, lines[one].clone()),
            2 => lines.swap(one, other),
            3 => lines.truncate(one),
            4 => {
                let at = other % lines[one].len().max(1);
                lines[one].insert(at, b'\n');
            }
            5 => {
                let at = other % lines[one].len().max(1);
                lines[one].truncate(at);
            }
            _ => {
                let at = other % lines[one].len().max(1);
                if let Some(byte) = lines[one].get_mut(at) {
                    *byte = byte.wrapping_add(edit);
                }
            }
        }
    }
    lines.concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]
    /// However a mail is mangled, every place lies in it, and what is called whole
    /// can be written and read again.
    #[test]
    fn a_mangled_mail_is_read_without_contradiction(
        index in any::<prop::sample::Index>(),
        edits in prop::collection::vec((0_u8..12, any::<usize>(), any::<usize>()), 1..5),
    ) {
        let mails = mails();
        let (name, bytes) = index.get(&mails);
        let bytes = edited(bytes, &edits);
        let reading = read_bytes(name, &bytes).unwrap();
        let lines = bytes.split(|&byte| byte == b'\n').count();
        let text = || format!("{name}\n{}\n{}", String::from_utf8_lossy(&bytes), told(&reading));
        for place in reading.problems.iter().filter_map(|problem| problem.place.as_ref()) {
            prop_assert!((1..=lines).contains(&place.line), "{}", text());
        }
        prop_assert_eq!(reading.complete, reading.problems.is_empty() && !reading.patches.is_empty());
        let numbers: Vec<u32> = reading.patches.iter().map(|patch| patch.number).collect();
        prop_assert!(numbers.is_sorted_by(|one, other| one < other), "{}", text());
        if reading.complete {
            for patch in &reading.patches {
                let again = read_bytes(name, &patch.to_mail(1, 1)).unwrap();
                prop_assert_eq!(again.patches.len(), 1, "{}", text());
                let end = |diff: &[u8]| diff.strip_suffix(b"\n").unwrap_or(diff).to_vec();
                prop_assert!(end(&again.patches[0].diff) == end(&patch.diff), "{}", text());
            }
        }
    }
}

/// Carriage returns of a transport change nothing but the line ends.
#[test]
fn a_mail_with_crlf_reads_as_the_same_series() {
    for (name, bytes) in mails() {
        if bytes.contains(&b'\r') || name.starts_with("base64") {
            continue;
        }
        let crlf: Vec<u8> = bytes
            .iter()
            .flat_map(|&byte| {
                if byte == b'\n' { &b"\r\n"[..] } else { std::slice::from_ref(&byte) }.to_vec()
            })
            .collect();
        assert_eq!(
            told(&read_bytes(&name, &crlf).unwrap()),
            told(&read_bytes(&name, &bytes).unwrap()),
            "{name}"
        );
    }
}
