// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds where test output begins and ends in a log, and takes off what the
//! kernel's log or whatever carried it puts before each line.

use std::sync::LazyLock;

use regex::Regex;

use super::line;

/// What printk puts before a message: `<6>`, `[    1.234567] `, `[    T1] `.
static STAMP: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:<\d+>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?)?").expect("a constant pattern")
});

/// With one of these the kernel ends a boot that has nothing more to run
/// (init/do_mounts.c, kernel/panic.c, kernel/reboot.c).
const ENDS: [&str; 3] =
    ["List of all partitions:", "Kernel panic - not syncing: VFS:", "reboot: System halted"];

/// Takes a log line by line and gives what belongs to the tests.
#[derive(Debug, Default)]
pub struct Extract {
    prefix: Option<Prefix>,
    ended: bool,
}

/// What stands before every line.
#[derive(Debug)]
enum Prefix {
    /// A stamp of printk's, whose width may change.
    Stamp,
    /// This many characters.
    Width(usize),
}

impl Extract {
    /// The part of a line that the tests wrote; none before the first version
    /// line and after the end.
    pub fn line<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let line = line.trim_end();
        if self.ended {
            return None;
        }
        let Some(prefix) = &self.prefix else {
            let at = version_at(line)?;
            let stamp = stamp(line);
            let stamped = stamp > 0 && line[stamp..at].trim().is_empty();
            let width = line[..at].chars().count();
            // What follows the stamp up to the version line is indentation.
            self.prefix = Some(match stamped {
                true if line[stamp..at].is_empty() => Prefix::Stamp,
                _ => Prefix::Width(width),
            });
            return Some(&line[at..]);
        };
        if ENDS.iter().any(|end| line.contains(end)) {
            self.ended = true;
            return None;
        }
        Some(match prefix {
            Prefix::Stamp => &line[stamp(line)..],
            Prefix::Width(width) => {
                line.char_indices().nth(*width).map_or("", |(start, _)| &line[start..])
            }
        })
    }
}

/// Bytes of printk's stamp at the start of a line.
fn stamp(line: &str) -> usize {
    STAMP.find(line).map_or(0, |found| found.end())
}

/// Where a version line begins in a line that ends with one.
fn version_at(line: &str) -> Option<usize> {
    ["KTAP version ", "TAP version "].iter().find_map(|words| {
        let at = line.find(words)?;
        line::version(&line[at..]).map(|_| at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extract(log: &str) -> Vec<&str> {
        let mut extract = Extract::default();
        log.lines().filter_map(|line| extract.line(line)).collect()
    }

    #[test]
    fn stamps_may_grow_and_change() {
        let log = "[    0.1] boot\n<6>[    0.99] TAP version 14\n<4>[  99.99] 1..2\n[10000.000000][    T1]     ok 1 a\n[1.0]  ok 2 b";
        assert_eq!(extract(log), ["TAP version 14", "1..2", "    ok 1 a", " ok 2 b"]);
    }

    #[test]
    fn any_other_prefix_has_the_width_that_it_has_at_first() {
        let log = "guest: KTAP version 1\nguest: 1..1\nguest:   ok 1 a\nx";
        assert_eq!(extract(log), ["KTAP version 1", "1..1", "  ok 1 a", ""]);
        assert_eq!(extract("  KTAP version 1\n  1..1\n"), ["KTAP version 1", "1..1"]);
    }

    #[test]
    fn a_version_in_the_middle_of_a_line_and_what_follows_the_end_is_not_read() {
        assert!(extract("KTAP version 1 is the format\n1..1\nok 1 a\n").is_empty());
        let log = "KTAP version 1\n1..2\n[1.0] reboot: System halted\nok 1 a\n";
        assert_eq!(extract(log), ["KTAP version 1", "1..2"]);
    }

    proptest! {
        #[test]
        fn no_log_makes_it_panic(log in "([<>\\[\\] .é0-9a-z]{0,9}(KTAP version 1)?\n){0,6}") {
            let _ = extract(&log);
        }
    }
}
