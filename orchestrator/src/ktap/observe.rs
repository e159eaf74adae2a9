// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as observations, which can be compared between two kernels.

use std::collections::BTreeMap;

use kvet_records::{MAX_NAME_BYTES, Value, name_part};

use super::{Node, Results, Status};
use crate::store::key;

/// Most observations of one log; a report of more is of no use to anybody.
const MAX_FACTS: usize = 20_000;

/// Observations by name.
pub type Facts = BTreeMap<String, Value>;

/// Names that say something of the whole log.
/// Number of results that were announced and did not come.
pub const MISSING: &str = "missing";
const PROBLEMS: &str = "problems";
/// Why the program gave up.
pub const BAIL_OUT: &str = "bail_out";

/// One observation for each test, `parent.child`, with its status in a word; and
/// where there are any, the number of tests that were announced and have no
/// result, the number of problems in the log, and the reason to bail out.
///
/// A name that several tests have gets their numbers: kselftest's `cow` gives
/// hundreds of tests one description. `reserved` are names that are taken.
///
/// # Errors
/// There are too many tests; the reason.
pub fn facts(results: &Results, reserved: &[&str]) -> Result<Facts, String> {
    let mut found = Vec::new();
    collect(&results.main, "", &mut found);
    if found.len() > MAX_FACTS {
        return Err(format!("{} tests, of which at most {MAX_FACTS} can be compared", found.len()));
    }
    let mut facts = Facts::new();
    let missing = missing(&results.main);
    if missing > 0 {
        facts.insert(MISSING.to_owned(), Value::Integer(missing));
    }
    if !results.problems.is_empty() {
        let count = i64::try_from(results.problems.len()).unwrap_or(i64::MAX);
        facts.insert(PROBLEMS.to_owned(), Value::Integer(count));
    }
    if let Some(reason) = &results.bail_out {
        let reason: String = reason.chars().take(200).collect();
        facts.insert(BAIL_OUT.to_owned(), Value::Text(reason));
    }
    let mut uses: BTreeMap<&str, u32> = BTreeMap::new();
    for name in reserved.iter().copied().chain([MISSING, PROBLEMS, BAIL_OUT]) {
        uses.insert(name, 1);
    }
    for (name, _) in &found {
        *uses.entry(name.as_str()).or_default() += 1;
    }
    for (name, node) in &found {
        let mut unique = name.clone();
        if uses[name.as_str()] > 1 {
            unique = shorten(&format!("{name}_{}", node.number.unwrap_or(0)));
        }
        let mut again = 2;
        while facts.contains_key(&unique) {
            unique = shorten(&format!("{name}_{}_{again}", node.number.unwrap_or(0)));
            again += 1;
        }
        facts.insert(unique, node.status.word().into());
    }
    Ok(facts)
}

/// Every test that has a result, with its whole name, parents first.
fn collect<'a>(node: &'a Node, path: &str, found: &mut Vec<(String, &'a Node)>) {
    for (child, position) in node.subtests.iter().zip(1u64..) {
        if child.status == Status::Crashed && child.number.is_none() && child.subtests.is_empty() {
            continue;
        }
        let number = child.number.unwrap_or(position);
        let own = name_part(&child.name).unwrap_or_else(|| format!("test_{number}"));
        let name = shorten(&if path.is_empty() { own } else { format!("{path}.{own}") });
        found.push((name.clone(), child));
        collect(child, &name, found);
    }
}

fn missing(node: &Node) -> i64 {
    let own = node.subtests.iter().map(|child| {
        let alone = child.subtests.is_empty() && child.status == Status::Crashed;
        i64::from(alone) + missing(child)
    });
    own.sum()
}

/// A name that is too long is cut, and ends in a hash of the whole of it.
fn shorten(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    let hash = &key([name.as_bytes()])[..12];
    let kept = name[..MAX_NAME_BYTES - 13].trim_end_matches(['.', '_']);
    format!("{kept}_{hash}")
}

#[cfg(test)]
mod tests {
    use super::super::parse_log;
    use super::*;
    use kvet_records::valid_name;
    use proptest::prelude::*;

    fn pairs(log: &str) -> Vec<String> {
        let facts = facts(&parse_log(log), &["exit"]).unwrap();
        facts.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn tests_become_observations_with_valid_names() {
        let log = "TAP version 13\n1..6\nok 1 Basic COW (2048 kB)\nnot ok 2 page #7\nok 3 # SKIP why\nok 4 4 kB\nok 5 Exit\nnot ok 6 x # XFAIL\n";
        assert_eq!(
            pairs(log),
            [
                "basic_cow_2048_kb=ok",
                "exit_5=ok",
                "page_7=not ok",
                "t_4_kb=ok",
                "test_3=skip",
                "x=xfail"
            ]
        );
    }

    #[test]
    fn one_description_for_many_tests_gets_their_numbers() {
        let log = "TAP version 13\n1..3\nok 1 no leak\nnot ok 2 no leak\nok 2 no leak\n";
        assert_eq!(
            pairs(log),
            ["no_leak_1=ok", "no_leak_2=not ok", "no_leak_2_2=ok", "problems=1"]
        );
    }

    #[test]
    fn groups_are_named_before_their_tests_and_missing_ones_are_counted() {
        let log = "KTAP version 1\n1..2\n # Subtest: A\n 1..2\n ok 1 b\nok 1 A\n";
        assert_eq!(pairs(log), ["a=no result", "a.b=ok", "missing=2", "problems=2"]);
    }

    proptest! {
        #[test]
        fn every_name_is_valid_and_none_is_lost(names in prop::collection::vec("[a-zA-Z0-9 #._é()-]{0,200}", 0..20)) {
            let names: Vec<String> = names.iter().map(|name| name.trim().replace(" # ", "_")).collect();
            let lines: String = names.iter().zip(1..).map(|(name, at)| format!("ok {at} - {name}\n")).collect();
            let log = format!("TAP version 13\n1..{}\n{lines}", names.len());
            let facts = facts(&parse_log(&log), &["exit"]).unwrap();
            prop_assert_eq!(facts.len(), names.len());
            for name in facts.keys() {
                prop_assert!(valid_name(name), "{}", name);
            }
        }
    }
}
