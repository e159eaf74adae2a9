// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kvet reads out of TAP or KTAP, for people.

use std::fmt::Write as _;

use crate::ktap::{Node, Results};

/// The results of one log; names and reasons were escaped when they were read.
#[must_use]
pub fn render(results: &Results) -> String {
    if !results.found {
        return "no TAP or KTAP found\n".to_owned();
    }
    let mut out = String::new();
    for node in &results.main.subtests {
        tree(node, 0, &mut out);
    }
    if let Some(reason) = &results.bail_out {
        let _ = writeln!(out, "bailed out: {reason}");
    }
    for problem in &results.problems {
        let _ = writeln!(out, "problem: {problem}");
    }
    let _ = writeln!(out, "{}", results.counts);
    if !results.quoted.is_empty() {
        let _ = writeln!(out, "in what a runner quotes: {}", results.quoted);
    }
    out
}

fn tree(node: &Node, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let name = if node.name.is_empty() { "(no name)" } else { &node.name };
    let _ = write!(out, "{indent}{:<9} {name}", node.status.word());
    if !node.reason.is_empty() {
        let _ = write!(out, " ({})", node.reason);
    }
    if node.unplanned {
        out.push_str(" (not in the plan)");
    }
    out.push('\n');
    for child in &node.subtests {
        tree(child, depth + 1, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ktap::parse_log;

    #[test]
    fn a_log_is_shown_as_a_tree_with_counts_and_cannot_move_a_cursor() {
        let log = "KTAP version 1\n1..3\n# Subtest: a\n1..1\nnot ok 1 \u{1b}[2Jx # SKIP no swap\nok 1 a\nok 2 b\n";
        insta::assert_snapshot!(render(&parse_log(log)), @r#"
        ok        a
          skip      \u{1b}[2Jx (no swap)
        ok        b
        no result (no name)
        problem: "main" announces 3 tests, of which 2 came
        1 passed, 1 skipped, 1 without result
        "#);
        assert_eq!(render(&parse_log("hello\n")), "no TAP or KTAP found\n");
    }
}
