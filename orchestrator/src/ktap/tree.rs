// SPDX-License-Identifier: MIT OR Apache-2.0
//! From lines to the tree of tests.
//!
//! A group begins with a version line, a `# Subtest:` line or both, and ends
//! when its plan is fulfilled, with a result line of its own name, or with the
//! log; then its own result line follows.

use super::line::{Directive, Kind, Outcome, read};
use super::prefix::Extract;
use super::{Counts, Node, Results, Status};
use crate::fault::escape;

/// Groups in groups; what is deeper is diagnostics.
const MAX_DEPTH: usize = 32;
/// Most tests that are kept, those without result included.
const MAX_TESTS: usize = 200_000;
/// Most problems that are kept.
pub(super) const MAX_PROBLEMS: usize = 100;
/// Versions that are known: KTAP's, then TAP's.
const VERSIONS: [std::ops::RangeInclusive<u64>; 2] = [1..=1, 13..=14];

/// Reads a log of any kind: tests begin at its first version line, whose prefix
/// is taken off; a log without one is read whole, if it has a plan.
#[must_use]
pub fn parse_log(log: &str) -> Results {
    let mut extract = Extract::default();
    let lines: Vec<&str> = log.lines().filter_map(|line| extract.line(line)).collect();
    if lines.is_empty() {
        let plan = |line: &str| matches!(read(line).1, Kind::Plan { .. });
        let lines = if log.lines().any(plan) { log.lines().collect() } else { Vec::new() };
        return parse_lines(&lines);
    }
    parse_lines(&lines)
}

/// Reads a program's output, which has no prefix and needs no version line.
#[must_use]
pub fn parse_lines(lines: &[&str]) -> Results {
    let mut parser = Parser::new(lines, 0);
    let found = parser.lines.iter().any(|line| {
        matches!(line.kind, Kind::Result(_) | Kind::Plan { .. } | Kind::Version { .. })
    });
    let main = parser.main();
    Results { found, bail_out: parser.bail_out, problems: parser.problems, ..finished(main) }
}

/// The whole with its status and counts.
pub(super) fn finished(mut main: Node) -> Results {
    let found = !main.subtests.is_empty();
    main.status = if found { Status::Crashed } else { Status::NoTests };
    let (mut counts, mut quoted) = (Counts::default(), Counts::default());
    count(&main, &mut counts, &mut quoted);
    if found {
        main.status = overall(&counts);
    }
    Results { found, main, counts, quoted, bail_out: None, problems: Vec::new() }
}

fn overall(counts: &Counts) -> Status {
    match counts {
        Counts { crashed: 1.., .. } => Status::Crashed,
        Counts { failed: 1.., .. } => Status::Failed,
        Counts { passed: 1.., .. } => Status::Passed,
        Counts { xfail: 1.., .. } => Status::Xfail,
        Counts { todo: 1.., .. } => Status::Todo,
        Counts { skipped: 1.., .. } => Status::Skipped,
        _ => Status::NoTests,
    }
}

/// Counts leaves: a group counts itself only where nothing in it counts.
fn count(node: &Node, counts: &mut Counts, quoted: &mut Counts) {
    let mut own = Counts::default();
    for child in &node.subtests {
        if child.quoted {
            let mut inner = Counts::default();
            count(child, &mut inner, quoted);
            quoted.merge(inner);
        } else {
            count(child, &mut own, quoted);
        }
    }
    if own.is_empty() {
        own.add(node.status);
    }
    counts.merge(own);
}

struct Line<'a> {
    indent: usize,
    kind: Kind<'a>,
    text: &'a str,
}

struct Parser<'a> {
    lines: Vec<Line<'a>>,
    at: usize,
    depth: usize,
    tests: usize,
    bail_out: Option<String>,
    problems: Vec<String>,
}

/// What a group is known by while it is read.
struct Group<'a> {
    name: &'a str,
    indent: usize,
    parent_indent: usize,
}

impl<'a> Parser<'a> {
    fn new(lines: &[&'a str], depth: usize) -> Self {
        let lines = lines
            .iter()
            .map(|&text| {
                let (indent, kind) = read(text);
                Line { indent, kind, text }
            })
            .collect();
        Self { lines, at: 0, depth, tests: 0, bail_out: None, problems: Vec::new() }
    }

    fn main(&mut self) -> Node {
        let mut main = node("main", Status::Crashed);
        let _ = self.diagnostics();
        self.version();
        let mut log = self.diagnostics();
        main.planned = self.plan();
        self.children(&mut main, None, &mut log);
        main
    }

    /// Passes over what is no test output; gives where it stands.
    fn diagnostics(&mut self) -> Vec<usize> {
        let begin = self.at;
        while let Some(line) = self.lines.get(self.at) {
            let too_deep = self.depth >= MAX_DEPTH
                && matches!(line.kind, Kind::Version { .. } | Kind::Subtest(_));
            match line.kind {
                Kind::Other => {}
                Kind::BailOut(reason) => {
                    let reason = escape(reason);
                    self.bail_out.get_or_insert(reason);
                }
                _ if too_deep => {
                    self.problem(format!("groups are nested more than {MAX_DEPTH} deep"))
                }
                _ => break,
            }
            self.at += 1;
        }
        (begin..self.at).collect()
    }

    fn peek(&self) -> Option<&Kind<'a>> {
        self.lines.get(self.at).map(|line| &line.kind)
    }

    fn problem(&mut self, what: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(what);
        }
    }

    fn version(&mut self) -> bool {
        let Some(&Kind::Version { ktap, number }) = self.peek() else {
            return false;
        };
        if !VERSIONS[usize::from(!ktap)].contains(&number) {
            self.problem(format!(
                "{}TAP version {number} is not known",
                if ktap { "K" } else { "" }
            ));
        }
        self.at += 1;
        true
    }

    fn plan(&mut self) -> Option<u64> {
        let Some(&Kind::Plan { count, .. }) = self.peek() else {
            return None;
        };
        self.at += 1;
        Some(count)
    }

    /// Reads a group's tests up to its own result, which is left. `log` holds the
    /// diagnostics that were read already, and then those that come last.
    fn children(&mut self, node: &mut Node, group: Option<&Group<'a>>, log: &mut Vec<usize>) {
        loop {
            log.extend(self.diagnostics());
            let done = node.planned.is_some_and(|planned| node.subtests.len() as u64 >= planned);
            let Some(line) = self.lines.get(self.at) else { break };
            match (&line.kind, group) {
                (&Kind::Plan { count, .. }, _) => {
                    if done && group.is_some() {
                        break;
                    }
                    match node.planned {
                        None => node.planned = Some(count),
                        Some(first) => self.problem(format!(
                            "{:?} has a second plan, of {count} after {first}",
                            escape(&node.name)
                        )),
                    }
                    self.at += 1;
                    continue;
                }
                // The next group's lines are as deep as those of this one.
                (Kind::Version { .. } | Kind::Subtest(_), Some(_)) if done => break,
                (_, Some(group)) if done && line.indent < group.indent => break,
                (Kind::Result(outcome), Some(group))
                    if outcome.name == group.name
                        && !(node.planned.is_some()
                            && !done
                            && line.indent >= group.indent
                            && group.indent > group.parent_indent) =>
                {
                    break;
                }
                (_, Some(group)) if done && group.indent <= group.parent_indent => break,
                _ => {}
            }
            if self.tests >= MAX_TESTS {
                self.problem(format!("more than {MAX_TESTS} tests; the rest is not read"));
                self.at = self.lines.len();
                break;
            }
            let expected = node.subtests.len() as u64 + 1;
            let indent = group.map_or(0, |group| group.indent);
            let mut child = self.test(expected, indent, std::mem::take(log));
            if done {
                child.unplanned = true;
                self.problem(format!(
                    "{:?} is one more than the plan announces",
                    escape(&child.name)
                ));
            }
            node.subtests.push(child);
        }
        self.missing(node);
    }

    /// Adds the tests that were announced and did not come.
    fn missing(&mut self, node: &mut Node) {
        let planned = node.planned.unwrap_or(0);
        let missing = planned.saturating_sub(node.subtests.len() as u64);
        if missing == 0 {
            return;
        }
        self.problem(format!(
            "{:?} announces {planned} tests, of which {} came",
            escape(&node.name),
            node.subtests.len()
        ));
        let room = MAX_TESTS.saturating_sub(self.tests);
        let kept = usize::try_from(missing).unwrap_or(usize::MAX).min(room);
        self.tests += kept;
        node.subtests.extend((0..kept).map(|_| self::node("", Status::Crashed)));
    }

    /// Reads one test: a result, or a group and its result.
    fn test(&mut self, expected: u64, parent_indent: usize, mut log: Vec<usize>) -> Node {
        self.tests += 1;
        self.depth += 1;
        let begin = self.lines.get(self.at).map_or(0, |line| line.indent);
        let mut test = node("", Status::Crashed);
        let version = self.version();
        let mut name = "";
        let header = if let Some(&Kind::Subtest(text)) = self.peek() {
            self.at += 1;
            name = text;
            true
        } else {
            false
        };
        let is_group = version || header;
        if is_group {
            test.name = escape(name);
            log.extend(self.diagnostics());
            test.planned = self.plan();
            let group = Group { name, indent: begin, parent_indent };
            let mut last = Vec::new();
            self.children(&mut test, Some(&group), &mut last);
            log.extend(last);
        }
        match self.peek().cloned() {
            Some(Kind::Result(outcome)) if name.is_empty() || outcome.name == name => {
                self.at += 1;
                self.result(&mut test, &outcome, expected);
                let quoted = self.quoted(&log);
                test.subtests.extend(quoted);
            }
            _ => self.problem(format!("{:?} has no result of its own", escape(name))),
        }
        if is_group {
            settle(&mut test);
        }
        self.depth -= 1;
        test
    }

    fn result(&mut self, test: &mut Node, outcome: &Outcome<'_>, expected: u64) {
        test.name = escape(outcome.name);
        test.number = outcome.number;
        test.reason = escape(outcome.reason);
        test.status = match (outcome.directive, outcome.ok) {
            (Some(Directive::Skip), _) => Status::Skipped,
            (Some(Directive::Xfail), _) => Status::Xfail,
            // A test that passes before it was expected to has passed.
            (Some(Directive::Todo), false) => Status::Todo,
            (Some(Directive::Todo) | None, true) => Status::Passed,
            (None, false) => Status::Failed,
        };
        if let Some(number) = outcome.number.filter(|&number| number != expected) {
            self.problem(format!(
                "{:?} has the number {number}, but is the test {expected} of its group",
                test.name
            ));
        }
    }

    /// The tests in the `# ` lines that kselftest's runner puts before the result
    /// of a program that prints TAP itself.
    fn quoted(&mut self, log: &[usize]) -> Vec<Node> {
        let lines: Vec<&'a str> = log
            .iter()
            .filter_map(|&at| self.lines[at].text.trim_start().strip_prefix('#'))
            .map(|text| text.strip_prefix(' ').unwrap_or(text))
            .skip_while(|text| !matches!(read(text).1, Kind::Version { .. }))
            .collect();
        if lines.is_empty() || self.depth >= MAX_DEPTH {
            return Vec::new();
        }
        let mut inner = Parser::new(&lines, self.depth + 1);
        inner.tests = self.tests;
        let main = inner.main();
        self.tests = inner.tests;
        for problem in inner.problems {
            self.problem(problem);
        }
        if let Some(reason) = inner.bail_out {
            self.bail_out.get_or_insert(reason);
        }
        main.subtests.into_iter().map(|node| Node { quoted: true, ..node }).collect()
    }
}

/// A group without tests ran nothing, whatever its own result says, unless that
/// is a failure or a skip; one with a test that crashed has crashed.
fn settle(group: &mut Node) {
    let own: Vec<&Node> = group.subtests.iter().filter(|node| !node.quoted).collect();
    if own.is_empty() {
        if matches!(group.status, Status::Crashed | Status::Passed) {
            group.status = Status::NoTests;
        }
        return;
    }
    let mut counts = Counts::default();
    count(group, &mut counts, &mut Counts::default());
    if counts.crashed > 0 {
        group.status = Status::Crashed;
    }
}

pub(super) fn node(name: &str, status: Status) -> Node {
    Node {
        name: name.to_owned(),
        number: None,
        status,
        reason: String::new(),
        planned: None,
        unplanned: false,
        quoted: false,
        subtests: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tree in one line: `name=status(children)`.
    fn shape(node: &Node) -> String {
        let children: Vec<String> = node.subtests.iter().map(shape).collect();
        let inner =
            if children.is_empty() { String::new() } else { format!("({})", children.join(" ")) };
        format!("{}={}{inner}", node.name.replace(' ', "_"), node.status.word().replace(' ', "_"))
    }

    fn tree(log: &str) -> String {
        shape(&parse_log(log).main)
    }

    #[test]
    fn groups_nest_by_version_lines_and_headers() {
        let log = "KTAP version 1\n1..2\n    KTAP version 1\n    # Subtest: a\n    1..2\n    ok 1 x\n        # Subtest: y\n        1..1\n        not ok 1 z\n    not ok 2 y\nnot ok 1 a\nok 2 b # SKIP no swap\n";
        assert_eq!(tree(log), "main=not_ok(a=not_ok(x=ok y=not_ok(z=not_ok)) b=skip)");
    }

    #[test]
    fn a_log_that_stops_leaves_what_is_missing_without_result() {
        let log = "KTAP version 1\n1..2\n    # Subtest: a\n    1..3\n    ok 1 x\nBUG: oops\n";
        assert_eq!(tree(log), "main=no_result(a=no_result(x=ok =no_result =no_result) =no_result)");
    }

    #[test]
    fn without_a_plan_a_group_ends_with_its_own_result() {
        let log = "TAP version 14\n# Subtest: a\nok 1 x\nok 2 y\nok 1 a\nok 2 b\n";
        assert_eq!(tree(log), "main=ok(a=ok(x=ok y=ok) b=ok)");
    }

    #[test]
    fn a_plan_may_come_late_and_is_held_to() {
        assert_eq!(tree("TAP version 13\nok 1 a\n1..1\n"), "main=ok(a=ok)");
        assert_eq!(tree("ok 1 a\nok 2 b\n1..3\n"), "main=no_result(a=ok b=ok =no_result)");
    }

    #[test]
    fn results_beyond_the_plan_count_and_are_reported() {
        let found = parse_log("TAP version 13\n1..1\nok 1 a\nnot ok 2 b\n");
        assert_eq!(shape(&found.main), "main=not_ok(a=ok b=not_ok)");
        assert!(found.main.subtests[1].unplanned);
        assert_eq!(found.problems.len(), 1, "{:?}", found.problems);
    }

    #[test]
    fn wrong_and_repeated_numbers_are_reported() {
        let found = parse_log("TAP version 13\n1..3\nok 1 a\nok 1 b\nok 7 c\n");
        assert_eq!(found.problems.len(), 2, "{:?}", found.problems);
        assert_eq!(found.counts.passed, 3);
    }

    #[test]
    fn what_the_runner_quotes_is_read_and_counted_apart() {
        let log = "TAP version 13\n1..2\n# timeout set to 45\n# selftests: mm: cow\n# TAP version 13\n# 1..3\n# # [RUN] x\n# ok 1 x\n# ok 2 # SKIP no hugetlb\n# not ok 3 z\nnot ok 1 selftests: mm: cow # exit=1\nok 2 selftests: mm: mkdirty\n";
        let found = parse_log(log);
        assert_eq!(
            shape(&found.main),
            "main=not_ok(selftests:_mm:_cow=not_ok(x=ok =skip z=not_ok) selftests:_mm:_mkdirty=ok)"
        );
        assert_eq!((found.counts.total(), found.quoted.total()), (2, 3));
    }

    #[test]
    fn directives_change_what_a_result_means() {
        let log = "TAP version 13\n1..5\nok 1 a # XFAIL known\nnot ok 2 b # TODO\nok 3 c # TODO\nnot ok 4 d # SKIP\nok 5 # SKIP why\n";
        assert_eq!(tree(log), "main=ok(a=xfail b=todo c=ok d=skip =skip)");
    }

    #[test]
    fn a_bail_out_is_kept_with_its_reason() {
        let found = parse_log("TAP version 13\n1..2\nok 1 a\nBail out! no \u{1b}memory\n");
        assert_eq!(found.bail_out.as_deref(), Some("no \\u{1b}memory"));
        assert_eq!(found.main.status, Status::Crashed);
    }

    #[test]
    fn a_log_without_tests_has_none() {
        for log in ["", "hello\n", "[ 1.0] ok then\n", "ok 1 not without a plan\n"] {
            let found = parse_log(log);
            assert!(!found.found && found.counts.is_empty(), "{log:?}: {found:?}");
        }
        assert_eq!(parse_log("TAP version 13\n1..0 # SKIP no\n").main.status, Status::NoTests);
    }

    #[test]
    fn plans_and_depths_beyond_reason_are_bounded() {
        let found = parse_log("TAP version 13\n1..18446744073709551615\nok 1 a\n");
        assert!(found.main.subtests.len() <= MAX_TESTS);
        assert_eq!(found.main.status, Status::Crashed);
        let deep: String =
            (0..10_000).map(|at| format!("{}# Subtest: s{at}\n", " ".repeat(at % 50))).collect();
        let found = parse_log(&format!("KTAP version 1\n1..1\n{deep}"));
        assert!(!found.problems.is_empty());
    }

    proptest! {
        #[test]
        fn no_log_makes_the_parser_panic_or_hang(
            lines in prop::collection::vec("( {0,4}|# |# # )(KTAP version 1|TAP version 13|# Subtest: a|1\\.\\.[0-4]|ok [0-3] [ab]|not ok [12]|ok 1 a # SKIP|Bail out!|x)", 0..40)
        ) {
            let log = lines.join("\n");
            let found = parse_log(&log);
            let results = lines.iter().filter(|line| matches!(read(line).1, Kind::Result(_))).count();
            let planned = found.counts.total() + found.quoted.total();
            // Nothing is counted twice: beyond results there are only missing ones and empty groups.
            let missing = found.counts.crashed + found.quoted.crashed;
            prop_assert!(planned <= (results + lines.len()) as u64 + missing);
        }
    }
}
