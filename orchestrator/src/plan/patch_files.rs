// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads patch files as `git format-patch` writes them: one patch in each.

use std::path::{Path, PathBuf};

use super::PatchFile;
use super::input::Taken;
use super::mails::NOTE;
use super::resolve::files_in;
use crate::fault::Fault;
use crate::kernel::mail::Subject;

/// Largest patch that is read; the largest mails on the kernel's lists are far below.
pub(super) const MAX_PATCH_BYTES: u64 = 64 * 1024 * 1024;
/// Longest subject that is kept.
const MAX_SUBJECT: usize = 200;

/// The `*.patch` files of a folder in the order of their names.
pub(super) fn folder(folder: &Path) -> Result<Taken, Fault> {
    // What looks like a patch but is not called one would be left out without a word.
    for extension in ["diff", "eml", "mbox", "txt"] {
        if let Some(name) = files_in(folder, extension).first() {
            return Err(Fault::plan("a file that looks like a patch is not called *.patch")
                .at(folder.join(name).display())
                .help("rename it, or move it out of the series' folder"));
        }
    }
    let names = files_in(folder, "patch");
    if names.is_empty() {
        return Err(Fault::plan("no *.patch file in the folder")
            .at(folder.display())
            .help("put the series there as `git format-patch` writes it"));
    }
    let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    files(&paths)
}

/// Patch files in the given order.
pub(super) fn files(paths: &[PathBuf]) -> Result<Taken, Fault> {
    let mut taken = Taken::default();
    let mut subjects = Vec::new();
    for path in paths {
        let read = |error: std::io::Error| {
            Fault::plan(format!("cannot be read: {error}")).at(path.display())
        };
        let size = std::fs::metadata(path).map_err(read)?.len();
        if size > MAX_PATCH_BYTES {
            return Err(
                Fault::plan(format!("{size} bytes are too many for a patch")).at(path.display())
            );
        }
        let bytes = std::fs::read(path).map_err(read)?;
        let mails = bytes.split(|&byte| byte == b'\n').filter(|line| starts_mail(line)).count();
        if mails > 1 {
            return Err(Fault::plan(format!("the file holds {mails} patches"))
                .at(path.display())
                .help("name it as {mbox: FILE}, or give each patch a file of its own"));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let raw = raw_subject(&bytes);
        let subject = raw.as_deref().map(without_tags);
        if subject.is_some() && !has_diff(&bytes) {
            taken.passed_over.push(format!("{name}: a mail without a diff"));
            continue;
        }
        let parsed = raw.as_deref().map(Subject::parse).unwrap_or_default();
        if parsed.number.is_some_and(|(number, _)| number == 0) {
            if paths.len() == 1 || has_separator(&bytes) {
                return Err(Fault::series("the cover letter has a diff of its own")
                    .at(path.display())
                    .help(
                        "if it is a patch, give it a number from 1; if it is none, take it away",
                    ));
            }
            let what = "a cover letter, with a diff between two versions";
            taken.passed_over.push(format!("{name}: {what}"));
            continue;
        }
        subjects.push((path.as_path(), parsed));
        taken.patches.push(PatchFile { name, subject, path: path.clone(), strip: 1, bytes });
    }
    taken.passed_over.extend(numbers(&subjects)?.map(|note| format!("{NOTE}{note}")));
    Ok(taken)
}

/// Whether the numbers in the subjects are those of one series, in its order: a patch
/// that is missing is missing however it comes. Gives a note where the subjects are
/// not of one series, which a folder may be meant to be.
fn numbers(subjects: &[(&Path, Subject)]) -> Result<Option<String>, Fault> {
    const ALONE: &str = "add the patches that are missing; to take what is there for the \
        whole, write it without numbers (`git format-patch -N`)";
    let said = |subject: &Subject| match subject.number {
        Some((number, total)) => format!("{number}/{total}"),
        None => "no number".to_owned(),
    };
    let Some((first, Some((_, total)))) =
        subjects.iter().find_map(|(_, one)| one.number.map(|number| (one, Some(number))))
    else {
        return Ok(None);
    };
    if let Some((path, other)) = subjects.iter().find(|(_, other)| {
        other.number.is_none_or(|number| number.1 != total) || other.version != first.version
    }) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        return Ok(Some(format!(
            "the subjects are not of one series: {} in one, {} in {name}",
            said(first),
            said(other)
        )));
    }
    for pair in subjects.windows(2) {
        let [(_, before), (path, subject)] = pair else {
            continue;
        };
        if subject.number <= before.number {
            let what = format!("its subject says {}, behind {}", said(subject), said(before));
            return Err(Fault::series(what).at(path.display()).help(
                "name the files in the order of the series, each once, or write the patches without numbers (`git format-patch -N`)",
            ));
        }
    }
    let have: Vec<u32> =
        subjects.iter().filter_map(|(_, subject)| Some(subject.number?.0)).collect();
    let missing: Vec<u32> =
        (1..=total).filter(|number| have.binary_search(number).is_err()).collect();
    if let Some(at) = have.iter().position(|&number| number > total) {
        let what = format!("its subject says {}", said(&subjects[at].1));
        return Err(Fault::series(what).at(subjects[at].0.display()).help(ALONE));
    }
    if missing.is_empty() {
        return Ok(None);
    }
    let what = format!(
        "{} of {total} patches, by the subjects: {} missing",
        have.len(),
        crate::kernel::mail::ranges(&missing)
    );
    Err(Fault::series(what).at(subjects[0].0.display()).help(ALONE))
}

/// Whether a file is several mails, or one whose body is encoded.
pub(super) fn holds_mails(path: &Path) -> bool {
    let Ok(size) = std::fs::metadata(path).map(|data| data.len()) else {
        return false;
    };
    let Some(bytes) = (size <= MAX_PATCH_BYTES).then(|| std::fs::read(path).ok()).flatten() else {
        return false;
    };
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let encoded = lines.by_ref().take_while(|line| !line.trim_ascii().is_empty()).any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with(b"content-transfer-encoding:")
            && (line.ends_with(b"base64") || line.ends_with(b"quoted-printable"))
    });
    encoded || bytes.split(|&byte| byte == b'\n').filter(|line| starts_mail(line)).count() > 1
}

/// `From ID Mon Sep 17 00:00:00 2001`: the first line of each mail that
/// git-format-patch(1) writes.
fn starts_mail(line: &[u8]) -> bool {
    line.strip_prefix(b"From ")
        .and_then(|rest| rest.trim_ascii_end().strip_suffix(b" Mon Sep 17 00:00:00 2001"))
        .is_some_and(|id| id.len() >= 40 && id.iter().all(u8::is_ascii_hexdigit))
}

fn has_diff(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    lines.any(|line| {
        [&b"diff --git "[..], b"@@ -", b"+++ "].iter().any(|start| line.starts_with(start))
    })
}

/// Whether a `---` line stands before the diff, as in a patch of `git format-patch`.
fn has_separator(bytes: &[u8]) -> bool {
    let lines = bytes.split(|&byte| byte == b'\n');
    lines
        .take_while(|line| !line.starts_with(b"diff --git ") && !line.starts_with(b"+++ "))
        .any(|line| line.trim_ascii_end() == b"---")
}

/// The subject of a mail's header, unfolded.
fn raw_subject(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(64 * 1024)]);
    let mut lines = text.lines().take_while(|line| !line.is_empty()).skip_while(|line| {
        line.get(..8).is_none_or(|start| !start.eq_ignore_ascii_case("subject:"))
    });
    let mut subject = lines.next()?[8..].trim().to_owned();
    for more in lines.take_while(|line| line.starts_with([' ', '\t'])) {
        subject.push(' ');
        subject.push_str(more.trim());
    }
    Some(subject)
}

/// A subject without `[PATCH n/m]`.
fn without_tags(subject: &str) -> String {
    let mut rest = subject;
    while let Some((_, after)) = rest.strip_prefix('[').and_then(|tag| tag.split_once(']')) {
        rest = after.trim_start();
    }
    rest.chars().take(MAX_SUBJECT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn subject(bytes: &[u8]) -> Option<String> {
        raw_subject(bytes).as_deref().map(without_tags)
    }

    /// What is said of files with these subjects, each with the same diff.
    fn said(subjects: &[&str]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        for (at, subject) in subjects.iter().enumerate() {
            let text = format!("Subject: {subject}\n\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n");
            std::fs::write(folder.path().join(format!("{at}.patch")), text).unwrap();
        }
        super::folder(folder.path()).map(|taken| taken.passed_over).map_err(|fault| fault.what)
    }

    #[test]
    fn numbers_in_the_subjects_hold_for_files_too() {
        for whole in
            [&["[PATCH 1/2] a", "[PATCH 2/2] b"][..], &["[PATCH] a", "b"], &["[PATCH 1/1] a"]]
        {
            assert_eq!(said(whole), Ok(vec![]), "{whole:?}");
        }
        for (subjects, what) in [
            (&["[PATCH 2/2] b"][..], "1 of 2 patches, by the subjects: 1 missing"),
            (
                &["[PATCH 1/5] b", "[PATCH 4/5] x"],
                "2 of 5 patches, by the subjects: 2, 3, 5 missing",
            ),
            (&["[PATCH 2/2] b", "[PATCH 1/2] a"], "its subject says 1/2, behind 2/2"),
            (&["[PATCH 1/2] a", "[PATCH 2/2] b", "[PATCH 3/2] c"], "its subject says 3/2"),
            (&["[PATCH 1/2] b", "[PATCH 1/2] a"], "its subject says 1/2, behind 1/2"),
        ] {
            assert_eq!(said(subjects), Err(what.to_owned()), "{subjects:?}");
        }
        let note = "note: the subjects are not of one series: 1/2 in one, no number in 1.patch";
        assert_eq!(said(&["[PATCH 1/2] a", "[PATCH] b"]), Ok(vec![note.to_owned()]));
        let note = "note: the subjects are not of one series: 1/2 in one, 2/2 in 1.patch";
        assert_eq!(said(&["[PATCH 1/2] a", "[PATCH v2 2/2] b"]), Ok(vec![note.to_owned()]));
    }

    #[test]
    fn a_diff_in_a_cover_letter_is_no_patch_and_is_not_dropped() {
        let between = ["[PATCH 0/1] words", "[PATCH 1/1] a"];
        let passed = "0.patch: a cover letter, with a diff between two versions";
        assert_eq!(said(&between), Ok(vec![passed.to_owned()]));
        let own = "the cover letter has a diff of its own";
        assert_eq!(said(&["[PATCH 0/1] words"]), Err(own.to_owned()));
        assert_eq!(said(&["[PATCH 0/1] words\n\n---\nx", "[PATCH 1/1] a"]), Err(own.to_owned()));
    }

    #[test]
    fn a_subject_is_unfolded_and_loses_its_tags() {
        let mail = "From x\nSubject: [PATCH v3 2/4] mm:\n  a long\n\tone\nDate: y\n\nSubject: no\n";
        assert_eq!(subject(mail.as_bytes()).as_deref(), Some("mm: a long one"));
        assert_eq!(subject(b"\nSubject: no\n"), None);
        assert_eq!(subject(b"subject: [RFC][PATCH] x").as_deref(), Some("x"));
    }

    #[test]
    fn a_cover_letter_is_passed_over_and_two_mails_in_one_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let diff = "Subject: [PATCH 1/1] x\n\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
        file("0001-x.patch", diff);
        file("0000-cover-letter.patch", "Subject: [PATCH 0/1] words\n\nwords\n");
        let taken = super::folder(folder.path()).unwrap();
        assert_eq!(taken.patches.len(), 1);
        assert_eq!(taken.passed_over, ["0000-cover-letter.patch: a mail without a diff"]);
        let from = format!("From {} Mon Sep 17 00:00:00 2001\n{diff}", "0a".repeat(20));
        let two = file("two.patch", &from.repeat(2));
        let fault = files(&[two]).unwrap_err();
        assert_eq!(fault.what, "the file holds 2 patches");
    }

    proptest! {
        #[test]
        fn no_header_makes_the_subject_panic(text in "(Subject:|subject:|\\[|\\]| |\t|é|\n|[a-z]){0,30}") {
            let _ = subject(text.as_bytes());
        }
    }
}
