// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads every log in tests/consoles/ and compares with what stands at its top.
//!
//! A file begins with one line per splat, `# kind | title | function` (`-` for no function), or
//! with `# clean`; then an empty line; then the log.

use kvet::vm::splat::{self, Scanner, Splat};
use std::fs;
use std::path::{Path, PathBuf};

fn samples() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consoles");
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

fn parts(file: &Path) -> (Vec<String>, Vec<u8>) {
    let bytes = fs::read(file).unwrap();
    let mut rest = &bytes[..];
    let mut expected = Vec::new();
    while let Some(line) = rest.strip_prefix(b"# ") {
        let end = line.iter().position(|&b| b == b'\n').unwrap();
        expected.push(String::from_utf8(line[..end].to_vec()).unwrap());
        rest = &line[end + 1..];
    }
    (expected, rest.strip_prefix(b"\n").unwrap_or(rest).to_vec())
}

fn told(splat: &Splat) -> String {
    let kind = serde_json::to_value(splat.kind).unwrap();
    let function = splat.function.as_deref().unwrap_or("-");
    format!("{} | {} | {function}", kind.as_str().unwrap(), splat.title)
}

#[test]
fn every_sample_is_read_as_it_says() {
    let mut wrong = Vec::new();
    for file in samples() {
        let (expected, log) = parts(&file);
        assert!(!expected.is_empty(), "{} has no expectation", file.display());
        let found: Vec<_> = splat::scan(&log).iter().map(told).collect();
        let found = if found.is_empty() { vec!["clean".to_owned()] } else { found };
        if found != expected {
            wrong.push(format!("{}\n  want {expected:#?}\n  got  {found:#?}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn there_are_enough_samples() {
    let all: Vec<_> = samples().iter().map(|f| parts(f).0).collect();
    let clean = all.iter().filter(|e| e[0] == "clean").count();
    assert!(clean >= 15 && all.len() - clean >= 80, "{clean} clean of {}", all.len());
}

#[test]
fn a_stream_in_small_pieces_reads_the_same_as_the_whole() {
    for file in samples() {
        let (_, log) = parts(&file);
        let whole = splat::scan(&log);
        for size in [1, 7, 64, 1000] {
            let mut scanner = Scanner::new();
            for piece in log.chunks(size) {
                scanner.feed(piece);
            }
            assert_eq!(scanner.finish().splats, whole, "{} by {size}", file.display());
        }
    }
}

#[test]
fn carriage_returns_and_levels_change_nothing() {
    for file in samples() {
        let (_, log) = parts(&file);
        let whole: Vec<_> = splat::scan(&log).iter().map(told).collect();
        let text = String::from_utf8_lossy(&log);
        let crlf = text.replace('\n', "\r\n");
        let found: Vec<_> = splat::scan(crlf.as_bytes()).iter().map(told).collect();
        assert_eq!(found, whole, "{} with CR LF", file.display());
    }
}

#[test]
fn the_first_evidence_comes_with_the_first_line() {
    for file in samples() {
        let (expected, log) = parts(&file);
        let mut scanner = Scanner::new();
        let first = log.split(|&b| b == b'\n').find_map(|l| scanner.push(l));
        if expected[0] == "clean" {
            assert_eq!(first, None, "{}", file.display());
        }
        if first.is_none() && expected[0] != "clean" {
            // Only reports that need a stack to count come late.
            assert!(expected.iter().all(|e| e.starts_with("other")), "{}", file.display());
        }
    }
}
