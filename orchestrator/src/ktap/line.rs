// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line of TAP or KTAP.
//!
//! Sources: Documentation/dev-tools/ktap.rst for KTAP version 1, testanything.org
//! for TAP versions 13 and 14.

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind<'a> {
    /// `KTAP version 1`, `TAP version 13`.
    Version {
        /// Whether it is KTAP's.
        ktap: bool,
        /// The number.
        number: u64,
    },
    /// `# Subtest: name`.
    Subtest(&'a str),
    /// `1..N`.
    Plan {
        /// N.
        count: u64,
        /// What follows `# SKIP`: the whole test was skipped.
        skip: Option<&'a str>,
    },
    /// `ok 1 name # SKIP reason`.
    Result(Outcome<'a>),
    /// `Bail out! reason`.
    BailOut(&'a str),
    /// Anything else: diagnostics.
    Other,
}

/// A result line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// `ok`, not `not ok`.
    pub ok: bool,
    /// The test's number.
    pub number: Option<u64>,
    /// Its description, which may be empty.
    pub name: &'a str,
    /// The directive, if it is one that changes what the result means.
    pub directive: Option<Directive>,
    /// What follows the directive.
    pub reason: &'a str,
}

/// What follows `#` in a result line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directive {
    /// The test did not run.
    Skip,
    /// The test is known to fail until something is done.
    Todo,
    /// The test is meant to fail.
    Xfail,
}

const DIRECTIVES: [(&str, Directive); 3] =
    [("SKIP", Directive::Skip), ("TODO", Directive::Todo), ("XFAIL", Directive::Xfail)];

/// Reads a line without its end; gives its indentation in characters, too.
pub fn read(line: &str) -> (usize, Kind<'_>) {
    let text = line.trim_start();
    let indent = line.chars().count() - text.chars().count();
    (indent, kind(text.trim_end()))
}

fn kind(text: &str) -> Kind<'_> {
    if let Some((ktap, number)) = version(text) {
        return Kind::Version { ktap, number };
    }
    if let Some(name) = text.strip_prefix("# Subtest: ") {
        return Kind::Subtest(name);
    }
    if let Some(reason) = text.strip_prefix("Bail out!") {
        return Kind::BailOut(reason.trim());
    }
    if let Some(rest) = text.strip_prefix("1..")
        && let Some((count, rest)) = number(rest)
    {
        let skip = rest.trim_start().strip_prefix("# SKIP").map(str::trim);
        return Kind::Plan { count, skip };
    }
    let (ok, rest) = match (text.strip_prefix("ok"), text.strip_prefix("not ok")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Kind::Other,
    };
    match outcome(ok, rest) {
        Some(outcome) => Kind::Result(outcome),
        None => Kind::Other,
    }
}

/// Whether it is KTAP's, and the number, if `text` is a version line.
pub fn version(text: &str) -> Option<(bool, u64)> {
    let (ktap, rest) = match text.strip_prefix("KTAP version ") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("TAP version ")?),
    };
    match number(rest)? {
        (number, "") => Some((ktap, number)),
        _ => None,
    }
}

/// `rest` follows `ok` or `not ok`. Words that merely begin with one of these are
/// no result, and without a number neither is a sentence.
fn outcome(ok: bool, rest: &str) -> Option<Outcome<'_>> {
    let numbered = rest.strip_prefix(' ').and_then(number);
    let (number, text) = match numbered {
        Some((number, rest)) if rest.is_empty() || rest.starts_with(' ') => (Some(number), rest),
        Some(_) => return None,
        None if rest.is_empty() || rest.starts_with(" - ") || rest.starts_with(" # ") => {
            (None, rest)
        }
        None => return None,
    };
    // `text` is empty or begins with the space behind the number.
    let (name, directive, reason) = match directive(text) {
        Some((name, directive, reason)) => (name, Some(directive), reason),
        None => (text.split_once(" # ").map_or(text, |(name, _)| name), None, ""),
    };
    let name = name.trim();
    let name = name.strip_prefix("- ").unwrap_or(name);
    Some(Outcome { ok, number, name: name.trim(), directive, reason: reason.trim() })
}

/// Name, directive and reason. The last ` # ` that a directive follows counts;
/// directives are in capitals, so that a comment does not skip a test.
fn directive(text: &str) -> Option<(&str, Directive, &str)> {
    text.rmatch_indices(" # ").find_map(|(at, mark)| {
        let rest = &text[at + mark.len()..];
        DIRECTIVES
            .iter()
            .find_map(|&(word, directive)| Some((&text[..at], directive, rest.strip_prefix(word)?)))
    })
}

/// The decimal number at the start of `text` and what follows it.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn result(text: &str) -> Outcome<'_> {
        match read(text).1 {
            Kind::Result(outcome) => outcome,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    #[test]
    fn the_parts_of_a_result_are_told_apart() {
        let outcome = result("    not ok 12 - a name # SKIP no swap");
        assert_eq!((outcome.ok, outcome.number, outcome.name), (false, Some(12), "a name"));
        assert_eq!((outcome.directive, outcome.reason), (Some(Directive::Skip), "no swap"));
        assert_eq!(result("ok 1 # SKIP no name").name, "");
        assert_eq!(result("ok 1 # SKIP no name").reason, "no name");
        assert_eq!(result("ok 3 page #7 # time=1ms").name, "page #7");
        assert_eq!(result("ok 3 page #7 # time=1ms").directive, None);
        assert_eq!(result("not ok 1 a # XFAIL").directive, Some(Directive::Xfail));
        assert_eq!(result("not ok 1 a # TODO later").directive, Some(Directive::Todo));
        assert_eq!(result("ok 4").number, Some(4));
        assert_eq!(result("ok").number, None);
        assert_eq!(result("not ok - a").name, "a");
        assert_eq!(result("ok 2 a # skip in small letters is a comment").directive, None);
    }

    #[test]
    fn words_that_look_like_results_are_none() {
        for text in ["okay", "ok then", "not okay 1", "ok 12x", "not", "notok 1", "ok1", "# ok 1 a"]
        {
            assert_eq!(read(text).1, Kind::Other, "{text}");
        }
    }

    #[test]
    fn the_other_lines_are_known() {
        assert_eq!(read("  KTAP version 1"), (2, Kind::Version { ktap: true, number: 1 }));
        assert_eq!(read("TAP version 13"), (0, Kind::Version { ktap: false, number: 13 }));
        assert_eq!(read("TAP version 13a").1, Kind::Other);
        assert_eq!(read("\t# Subtest: a b"), (1, Kind::Subtest("a b")));
        assert_eq!(read("1..4").1, Kind::Plan { count: 4, skip: None });
        assert_eq!(read("1..0 # SKIP why").1, Kind::Plan { count: 0, skip: Some("why") });
        assert_eq!(read("1..99999999999999999999").1, Kind::Other);
        assert_eq!(read("Bail out! no memory").1, Kind::BailOut("no memory"));
    }

    proptest! {
        #[test]
        fn no_line_makes_the_reader_panic(line in any::<String>(), near in "[ \t]{0,3}(not )?ok ?[0-9]{0,22}[ #\\-A-Zé]{0,20}") {
            let _ = (read(&line), read(&near));
        }
    }
}
