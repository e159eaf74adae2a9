// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results in words: a line that ends, or begins in brackets, with `OK`, `PASS`,
//! `FAIL` or `SKIP`, as programs print them that know neither TAP nor KTAP. The
//! kernel's `mm/khugepaged` is one: `Swapout one page... Fail`.

use std::sync::LazyLock;

use regex::Regex;

use super::tree::{finished, node};
use super::{Node, Results, Status};
use crate::fault::escape;

/// Colours and the like (ECMA-48, CSI sequences).
static CONTROL: LazyLock<Regex> = LazyLock::new(|| pattern(r"\x1b\[[0-9;?]*[A-Za-z]"));
/// `Allocate huge page... OK`, `mmap: [FAIL]`, `swap... Fail: no swap`.
static LAST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(.*?\w.*?)[\s.:]+\[? ?(OK|PASS|PASSED|FAIL|FAILED|Fail|Timeout|SKIP|SKIPPED|Skip)\b ?\]?(?:$|:\s*(.*)$)",
    )
});
/// `[PASS] mmap`.
static FIRST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\[ *(OK|PASS|FAIL|SKIP) *\][\s:]+(.*\w.*)$"));
/// What stands above a group of results.
const HEADING: &str = "Run test: ";

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern")
}

/// Reads a program's output.
#[must_use]
pub fn parse_words(lines: &[&str]) -> Results {
    let mut main = node("main", Status::Passed);
    let mut group: Option<Node> = None;
    let mut number = 0;
    for line in lines {
        let plain = CONTROL.replace_all(line, "");
        // A line that is written over itself ends as its last writing.
        let plain = plain.rsplit('\r').next().unwrap_or_default().trim();
        if let Some(name) = plain.strip_prefix(HEADING) {
            main.subtests.extend(group.replace(node(&escape(name), Status::Passed)));
            continue;
        }
        let Some((name, word, reason)) = result(plain) else { continue };
        number += 1;
        let test = Node {
            number: Some(number),
            reason: escape(reason),
            ..node(&escape(name), status(word))
        };
        group.as_mut().unwrap_or(&mut main).subtests.push(test);
    }
    main.subtests.extend(group);
    finished(main)
}

fn result(line: &str) -> Option<(&str, &str, &str)> {
    if let Some(found) = FIRST.captures(line) {
        return Some((found.get(2)?.as_str(), found.get(1)?.as_str(), ""));
    }
    let found = LAST.captures(line)?;
    let reason = found.get(3).map_or("", |reason| reason.as_str());
    Some((found.get(1)?.as_str(), found.get(2)?.as_str(), reason))
}

fn status(word: &str) -> Status {
    match word {
        "OK" | "PASS" | "PASSED" => Status::Passed,
        "SKIP" | "SKIPPED" | "Skip" => Status::Skipped,
        _ => Status::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Vec<String> {
        fn add(node: &Node, path: &str, out: &mut Vec<String>) {
            for child in &node.subtests {
                let name = format!("{path}{}", child.name);
                match child.subtests.is_empty() {
                    true => out.push(format!("{name}={}", child.status.word())),
                    false => add(child, &format!("{name}/"), out),
                }
            }
        }
        let lines: Vec<&str> = text.split('\n').collect();
        let mut out = Vec::new();
        add(&parse_words(&lines).main, "", &mut out);
        out
    }

    #[test]
    fn results_are_read_with_their_headings() {
        let text = "Save settings... \u{1b}[32mOK\u{1b}[0m\n\nRun test: swapin (anon)\nAllocate huge page... \u{1b}[32mOK\u{1b}[0m\nSwapout one page... \u{1b}[31mFail\u{1b}[0m\nCheck.... Fail: Bad return value\n\rPage 1/2...\rPage 2/2... OK\n";
        assert_eq!(
            shown(text),
            [
                "Save settings=ok",
                "swapin (anon)/Allocate huge page=ok",
                "swapin (anon)/Swapout one page=not ok",
                "swapin (anon)/Check=not ok",
                "swapin (anon)/Page 2/2=ok"
            ]
        );
    }

    #[test]
    fn other_wordings_are_read_and_sentences_are_not() {
        assert_eq!(
            shown("[PASS] mmap\n[FAIL]\tmunmap\n[ SKIP ] x"),
            ["mmap=ok", "munmap=not ok", "x=skip"]
        );
        assert_eq!(shown("mmap: [OK]\nmunmap PASSED"), ["mmap=ok", "munmap=ok"]);
        for text in ["OK", "...OK", "it is OK to do so", "FAILURES follow", "[OK]", "not okay"] {
            assert!(shown(text).is_empty(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(lines in prop::collection::vec(any::<String>(), 0..5)) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let _ = parse_words(&lines);
        }
    }
}
