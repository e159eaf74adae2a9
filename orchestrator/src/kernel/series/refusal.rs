// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why git refused a patch: read from its words, and compared with the source.

use std::fmt::Write as _;

/// Most lines of a hunk that a message shows.
const MAX_SHOWN_LINES: usize = 12;
/// Most lines of a file that are compared with a hunk; the kernel's longest
/// sources written by people stay below.
const MAX_COMPARED_LINES: usize = 100_000;

/// Why `git apply --verbose` refused a patch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The first file that it refused.
    pub(super) file: Option<String>,
    /// The line at which the refused hunk starts in the file before the patch.
    pub(super) line: Option<usize>,
    /// The lines that the hunk looks for.
    searched: Vec<String>,
    /// The lines of the source that come nearest.
    found: Vec<String>,
    /// The line of the source where these begin.
    found_at: usize,
    /// git's own words, without `error: `.
    reason: String,
}

impl Refusal {
    pub(super) fn parse(stderr: &str) -> Self {
        let mut refusal = Self::default();
        let mut lines = stderr.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(error) = line.strip_prefix("error: ") else {
                continue;
            };
            if error == "while searching for:" {
                refusal.searched.clear();
                while let Some(next) = lines.next_if(|next| !next.starts_with("error: ")) {
                    refusal.searched.push(next.to_owned());
                }
                if refusal.searched.last().is_some_and(String::is_empty) {
                    refusal.searched.pop();
                }
            } else if let Some(place) = error.strip_prefix("patch failed: ") {
                if let Some((file, line)) = place.rsplit_once(':') {
                    refusal.file = Some(file.to_owned());
                    refusal.line = line.parse().ok();
                }
            } else {
                refusal.reason = error.to_owned();
                if refusal.file.is_none() {
                    refusal.file = error.split_once(": ").map(|(file, _)| file.to_owned());
                }
                break;
            }
        }
        refusal
    }

    pub(super) fn what(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("the hunk at {file}:{line} does not match"),
            _ if self.reason.is_empty() => "git gave no reason".to_owned(),
            _ => self.reason.clone(),
        }
    }

    pub(super) fn help(&self) -> &'static str {
        let reason = self.reason.as_str();
        if self.is_stale() {
            "rebase the series on this source; the kernel's version may have moved"
        } else if reason.starts_with("cannot apply binary patch") {
            "the patch names a binary file without its bytes; make it with `git format-patch --binary`"
        } else {
            "take the patch from its source again"
        }
    }

    /// Whether another version of the source might take the patch.
    pub(super) fn is_stale(&self) -> bool {
        self.line.is_some() || self.reason.contains("exist")
    }

    /// Finds the place of a file that comes nearest to the refused hunk: the one
    /// with most of its lines, and of several the one nearest to where the hunk says.
    pub(super) fn compare(&mut self, file: &str) {
        let Some(line) = self.line else {
            return;
        };
        let wanted: Vec<&str> = self.searched.iter().map(String::as_str).take(100).collect();
        let lines: Vec<&str> = file.lines().take(MAX_COMPARED_LINES).collect();
        let stated = line.saturating_sub(1);
        let alike = |at: usize| {
            let pairs = wanted.iter().zip(&lines[at.min(lines.len())..]);
            // A blank line or a lone brace is everywhere.
            pairs.filter(|(a, b)| a == b && a.trim().len() > 1).count()
        };
        let best = (0..lines.len())
            .max_by_key(|&at| (alike(at), std::cmp::Reverse(at.abs_diff(stated))))
            .filter(|&at| alike(at) > 0)
            .unwrap_or(stated);
        let count = wanted.len().max(1);
        self.found = lines.iter().skip(best).take(count).map(|line| (*line).to_owned()).collect();
        self.found_at = best + 1;
    }

    pub(super) fn evidence(&self) -> String {
        if self.searched.is_empty() {
            return String::new();
        }
        // What is shown has the first line that differs in it.
        let differs = |at: usize| self.searched.get(at) != self.found.get(at);
        let different = (0..self.searched.len()).find(|&at| differs(at));
        let first = different.unwrap_or(0);
        let from = first.saturating_sub(3);
        let mut out = String::new();
        let mut block = |title: &str, lines: &[String]| {
            let _ = writeln!(out, "{title}");
            for (at, line) in lines.iter().enumerate().skip(from).take(MAX_SHOWN_LINES) {
                let _ = writeln!(out, "  {} {line}", if differs(at) { '>' } else { '|' });
            }
            let rest = lines.len().saturating_sub(from + MAX_SHOWN_LINES);
            if rest > 0 {
                let _ = writeln!(out, "  | ... {rest} lines more");
            }
        };
        block("the hunk expects:", &self.searched);
        let file = self.file.as_deref().unwrap_or_default();
        if different.is_none() {
            let at = self.found_at;
            let _ = writeln!(
                out,
                "the same lines are at {file}:{at}, but the hunk says that they are at the file's beginning or end"
            );
            return out;
        }
        match self.found.is_empty() {
            true => block("the source has nothing there", &[]),
            false => {
                let place = format!("the source has at {file}:{}:", self.found_at + from);
                block(&place, &self.found);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_refused_hunk_is_read_from_gits_words() {
        let stderr = "Checking patch mm/madvise.c...\nerror: while searching for:\n\ttlb_finish_mmu(&tlb);\n\n\treturn 0;\n\nerror: patch failed: mm/madvise.c:608\nerror: mm/madvise.c: patch does not apply\n";
        let refusal = Refusal::parse(stderr);
        assert_eq!(refusal.file.as_deref(), Some("mm/madvise.c"));
        assert_eq!(refusal.line, Some(608));
        assert_eq!(refusal.searched, ["\ttlb_finish_mmu(&tlb);", "", "\treturn 0;"]);
        assert_eq!(refusal.what(), "the hunk at mm/madvise.c:608 does not match");
    }

    #[test]
    fn the_nearest_place_of_the_file_is_shown_with_the_lines_that_differ() {
        let stderr = "error: while searching for:\n\tone();\n\ttwo();\n\tthree();\nerror: patch failed: a.c:2\nerror: a.c: patch does not apply\n";
        let mut refusal = Refusal::parse(stderr);
        let file = format!("{}\tone();\n\tTWO();\n\tthree();\n}}\n", "\tother();\n".repeat(40));
        refusal.compare(&file);
        assert_eq!(
            refusal.evidence(),
            "the hunk expects:\n  | \tone();\n  > \ttwo();\n  | \tthree();\nthe source has at a.c:41:\n  | \tone();\n  > \tTWO();\n  | \tthree();\n"
        );
    }

    #[test]
    fn a_missing_file_and_a_damaged_patch_are_told_in_gits_words() {
        let missing = Refusal::parse("error: mm/none.c: does not exist in index\n");
        assert_eq!(missing.file.as_deref(), Some("mm/none.c"));
        assert_eq!(missing.what(), "mm/none.c: does not exist in index");
        let damaged = Refusal::parse("error: corrupt patch at line 12\n");
        assert_eq!(damaged.what(), "corrupt patch at line 12");
    }

    proptest! {
        #[test]
        fn no_answer_of_git_makes_the_reader_panic(text in "(error: |while searching for:|patch failed: |[a-z:0-9\n]){0,20}", file in "([a-z]\n){0,5}") {
            let mut refusal = Refusal::parse(&text);
            refusal.compare(&file);
            let _ = (refusal.what(), refusal.evidence());
        }
    }
}
