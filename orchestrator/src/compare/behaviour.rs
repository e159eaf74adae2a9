// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the behavioural facts of base and patched, and both with what the
//! series declares.

use std::collections::{BTreeMap, BTreeSet};

use kvet_records::Value;
use serde::{Deserialize, Serialize};

use crate::fault::ExitCode;
use crate::plan::manifest::{Expectation, VariantName};

/// Observations by name.
pub type Observations = BTreeMap<String, Value>;

/// What a behaviour, or one observation of it, came to. From best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No difference.
    Same,
    /// The declared difference.
    Expected,
    /// A declared difference that did not come.
    Missing,
    /// A difference that was not declared, or another than was declared.
    Unexpected,
}

impl Verdict {
    /// What it means for the exit code.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Same | Self::Expected => ExitCode::Acceptable,
            Self::Missing | Self::Unexpected => ExitCode::Behaviour,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Same => "same",
            Self::Expected => "expected",
            Self::Missing => "missing",
            Self::Unexpected => "unexpected",
        })
    }
}

/// One observation in both variants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the observation.
    pub name: String,
    /// Its value without the series; none when it was not observed.
    pub base: Option<Value>,
    /// Its value with the series; none when it was not observed.
    pub patched: Option<Value>,
    /// What the series declares, where it declares something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<(Value, Value)>,
    /// What it came to.
    pub verdict: Verdict,
}

/// Compares two variants' observations of one test; rows come sorted by name.
#[must_use]
pub fn compare(
    test: &str,
    base: &Observations,
    patched: &Observations,
    expect: &[Expectation],
) -> Vec<Row> {
    let declared: BTreeMap<&str, &Expectation> = expect
        .iter()
        .filter(|expectation| expectation.test == test)
        .map(|expectation| (expectation.observation.as_str(), expectation))
        .collect();
    let names: BTreeSet<&str> = base
        .keys()
        .chain(patched.keys())
        .map(String::as_str)
        .chain(declared.keys().copied())
        .collect();
    names
        .into_iter()
        .map(|name| {
            let (base, patched) = (base.get(name), patched.get(name));
            let declared = declared.get(name);
            Row {
                name: name.to_owned(),
                base: base.cloned(),
                patched: patched.cloned(),
                declared: declared.map(|expect| (expect.base.clone(), expect.patched.clone())),
                verdict: verdict(base, patched, declared.copied()),
            }
        })
        .collect()
}

/// Looks at the prefixes of the series, too: where base and patched agree, a
/// prefix with another value changes in between what the series leaves alone. On
/// the way of a change a prefix may have any value.
#[must_use]
pub fn between(rows: Vec<Row>, observations: &BTreeMap<VariantName, Observations>) -> Vec<Row> {
    let prefixes = || observations.iter().filter(|(name, _)| matches!(name, VariantName::Patch(_)));
    let names: BTreeSet<&String> = prefixes().flat_map(|(_, observed)| observed.keys()).collect();
    let mut rows = rows;
    for name in names {
        if !rows.iter().any(|row| row.name == *name) {
            let (name, verdict) = (name.clone(), Verdict::Same);
            rows.push(Row { name, base: None, patched: None, declared: None, verdict });
        }
    }
    for row in rows.iter_mut().filter(|row| row.base == row.patched) {
        let strays = prefixes().any(|(_, observed)| observed.get(&row.name) != row.base.as_ref());
        if strays {
            row.verdict = Verdict::Unexpected;
        }
    }
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    rows
}

fn verdict(
    base: Option<&Value>,
    patched: Option<&Value>,
    declared: Option<&Expectation>,
) -> Verdict {
    match declared {
        Some(expect) if base == Some(&expect.base) && patched == Some(&expect.patched) => {
            // A declared "no change" is kept, not changed.
            if expect.base == expect.patched { Verdict::Same } else { Verdict::Expected }
        }
        Some(expect) if base == patched && expect.base != expect.patched => Verdict::Missing,
        Some(_) => Verdict::Unexpected,
        None if base == patched => Verdict::Same,
        None => Verdict::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn observations(pairs: &[(&str, i64)]) -> Observations {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect()
    }

    fn expect(observation: &str, base: i64, patched: i64) -> Expectation {
        Expectation {
            test: "t".into(),
            observation: observation.into(),
            base: base.into(),
            patched: patched.into(),
        }
    }

    fn verdicts(
        base: &[(&str, i64)],
        patched: &[(&str, i64)],
        expect: &[Expectation],
    ) -> Vec<Verdict> {
        compare("t", &observations(base), &observations(patched), expect)
            .into_iter()
            .map(|row| row.verdict)
            .collect()
    }

    #[test]
    fn declared_changes_are_expected_and_others_are_not() {
        let declared = [expect("kicks", 9, 5)];
        assert_eq!(verdicts(&[("kicks", 9)], &[("kicks", 5)], &declared), [Verdict::Expected]);
        assert_eq!(verdicts(&[("kicks", 9)], &[("kicks", 9)], &declared), [Verdict::Missing]);
        assert_eq!(verdicts(&[("kicks", 5)], &[("kicks", 9)], &declared), [Verdict::Unexpected]);
        assert_eq!(verdicts(&[("kicks", 9)], &[("kicks", 6)], &declared), [Verdict::Unexpected]);
        assert_eq!(
            verdicts(&[("a", 1)], &[("a", 2)], &declared),
            [Verdict::Unexpected, Verdict::Missing]
        );
    }

    #[test]
    fn an_observation_that_only_one_variant_has_is_not_dropped() {
        assert_eq!(verdicts(&[("a", 1)], &[], &[]), [Verdict::Unexpected]);
        assert_eq!(
            verdicts(&[("a", 1)], &[("a", 1), ("b", 1)], &[]),
            [Verdict::Same, Verdict::Unexpected]
        );
    }

    #[test]
    fn expectations_of_other_tests_do_not_count() {
        let other = Expectation { test: "other".into(), ..expect("kicks", 9, 5) };
        assert_eq!(verdicts(&[("kicks", 9)], &[("kicks", 9)], &[other]), [Verdict::Same]);
    }

    #[test]
    fn a_prefix_may_not_change_what_the_series_leaves_alone() {
        let all = |base, first, patched| {
            let names = [VariantName::Base, VariantName::Patch(1), VariantName::Patched];
            let values = [base, first, patched].map(|value| observations(&[("kicks", value)]));
            let all: BTreeMap<_, _> = names.into_iter().zip(values).collect();
            let rows = compare(
                "t",
                &all[&VariantName::Base],
                &all[&VariantName::Patched],
                &[expect("kicks", 9, 5)],
            );
            between(rows, &all)[0].verdict
        };
        assert_eq!(all(9, 7, 5), Verdict::Expected);
        assert_eq!(all(1, 1, 1), Verdict::Missing);
        assert_eq!(all(1, 2, 1), Verdict::Unexpected);
    }

    proptest! {
        #[test]
        fn equal_variants_are_never_expected_or_unexpected(values in prop::collection::btree_map("[a-c]", 0i64..3, 0..3), wanted in prop::collection::btree_map("[a-c]", (0i64..3, 4i64..6), 0..3)) {
            let observations: Observations = values.into_iter().map(|(name, value)| (name, value.into())).collect();
            let declared: Vec<Expectation> = wanted.into_iter().map(|(name, (base, patched))| expect(&name, base, patched)).collect();
            for row in compare("t", &observations, &observations, &declared) {
                prop_assert!(matches!(row.verdict, Verdict::Same | Verdict::Missing), "{:?}", row);
            }
        }
    }
}
