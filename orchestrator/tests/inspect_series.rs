// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet inspect series`: whatever form a series comes in, the same reading; exit codes.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mails")
}

/// Exit code, standard output, standard error.
fn inspect(input: &Path, stdin: &[u8], json: bool) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvet"));
    command.args(["inspect", "series"]).arg(input);
    if json {
        command.arg("--json");
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // kvet may not want its standard input at all.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The patches of a reading without their places.
fn patches(input: &Path, stdin: &[u8]) -> Vec<Value> {
    let (code, out, err) = inspect(input, stdin, true);
    assert_eq!(code, Some(0), "{out}{err}");
    let reading: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(reading["schema"], "kvet/reading/1");
    let mut patches = reading["patches"].as_array().unwrap().clone();
    for patch in &mut patches {
        let patch = patch.as_object_mut().unwrap();
        patch.remove("place");
        patch.remove("diff_line");
    }
    patches
}

#[test]
fn a_series_is_the_same_as_mbox_folder_maildir_and_standard_input() {
    let mbox = samples().join("series-shuffled.mbox");
    let bytes = fs::read(&mbox).unwrap();
    let expected = patches(&mbox, b"");
    assert_eq!(expected.len(), 3);
    assert!(expected.iter().all(|patch| patch["diff"]["sha256"].as_str().unwrap().len() == 64));
    assert_eq!(patches(Path::new("-"), &bytes), expected);
    let folder = tempfile::tempdir().unwrap();
    let (plain, maildir) = (folder.path().join("plain"), folder.path().join("maildir"));
    fs::create_dir_all(&plain).unwrap();
    fs::create_dir_all(maildir.join("cur")).unwrap();
    fs::create_dir_all(maildir.join("new")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    for (index, mail) in text.split("From mboxrd@z Thu Jan  1 00:00:00 1970\n").skip(1).enumerate()
    {
        fs::write(plain.join(format!("{index}.eml")), mail).unwrap();
        let part = if index % 2 == 0 { "cur" } else { "new" };
        fs::write(maildir.join(part).join(format!("{index}:2,S")), mail).unwrap();
    }
    assert_eq!(patches(&plain, b""), expected);
    assert_eq!(patches(&maildir, b""), expected);
}

#[test]
fn an_incomplete_series_is_printed_and_is_a_series_fault() {
    let (code, out, err) = inspect(&samples().join("series-partial.mbox"), b"", false);
    assert_eq!(code, Some(5), "{err}");
    assert!(out.contains("2 of 3 patches, incomplete") && out.contains("2/3  missing"), "{out}");
    let (code, out, _) = inspect(&samples().join("wrapped.eml"), b"", false);
    assert_eq!(code, Some(5));
    assert!(out.contains("wrapped.eml:23: patch 1: \"written yet */\" looks like"), "{out}");
}

/// Blanks in the place of tabs may be the file's own: `kvet build` leaves that to
/// git, which has the file, and so the exit code is that of a series that it takes.
#[test]
fn a_doubt_that_only_the_file_can_settle_is_printed_and_is_no_fault() {
    let (code, out, err) = inspect(&samples().join("tabs-to-spaces.eml"), b"", false);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("v1: 1 patch, suspect") && out.contains("tabs turned to"), "{out}");
}

#[test]
fn nothing_at_all_is_no_series_and_a_wrong_path_is_a_usage_error() {
    assert_eq!(inspect(Path::new("-"), b"", false).0, Some(5));
    let (code, _, err) = inspect(Path::new("/nonexistent/x.mbox"), b"", false);
    assert_eq!(code, Some(2));
    assert!(err.contains("/nonexistent/x.mbox") && err.contains("check the path"), "{err}");
}

#[test]
fn a_series_folder_is_listed_with_its_title() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../patches/madvise-batch-tlb");
    let (code, out, err) = inspect(&folder, b"", false);
    assert_eq!(code, Some(0), "{out}{err}");
    let yaml = fs::read_to_string(folder.join("series.yaml")).unwrap();
    let title = yaml.lines().find_map(|line| line.strip_prefix("title: ")).unwrap();
    assert!(out.starts_with(title.trim_matches('"')), "{out}");
    assert!(out.contains("v1: 4 patches, complete"), "{out}");
}
