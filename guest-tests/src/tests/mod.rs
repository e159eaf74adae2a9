// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests, one file each, and the list of them.

pub mod khugepaged_cold;
pub mod process_madvise;
pub mod selftest;
pub mod thp_disable;

use kvet_records::{ParameterInfo, TestInfo};

use crate::harness::{Measured, Parameter, Test};

/// The tests with a file of their own; `kvet new-test` adds to them.
const OWN: &[&Test] = &[
    &khugepaged_cold::TEST,
    &process_madvise::TEST,
    &process_madvise::smp::TEST,
    &process_madvise::pressure::TEST,
    &thp_disable::TEST,
];

/// What tests measure.
const MEASURED: &[&Measured] =
    &[&khugepaged_cold::MEASURED, &process_madvise::MEASURED, &thp_disable::MEASURED];

/// What the test of that name measures.
#[must_use]
pub fn measured(name: &str) -> Option<&'static Measured> {
    MEASURED.iter().copied().find(|measured| measured.test == name)
}

/// Every test, in the order in which `list` prints them.
pub fn all() -> impl Iterator<Item = &'static Test> {
    OWN.iter().copied().chain(selftest::TESTS)
}

/// The test of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Test> {
    all().find(|test| test.name == name)
}

/// All tests as a JSON array of [`TestInfo`].
#[must_use]
pub fn list() -> String {
    let infos: Vec<TestInfo> = all()
        .map(|test| TestInfo {
            name: test.name.to_owned(),
            summary: test.summary.to_owned(),
            parameters: infos_of(test.parameters),
            measured: measured(test.name).map(|measured| infos_of(measured.parameters)),
        })
        .collect();
    serde_json::to_string(&infos).expect("strings, numbers and booleans always serialise")
}

fn infos_of(parameters: &[Parameter]) -> Vec<ParameterInfo> {
    let info = |parameter: &Parameter| ParameterInfo {
        name: parameter.name.to_owned(),
        summary: parameter.summary.to_owned(),
        default: parameter.default.to_value(),
    };
    parameters.iter().map(info).collect()
}

/// What `kvet new-test` writes.
#[cfg(test)]
#[path = "../../../orchestrator/src/scaffold/test.rs.template"]
mod new_test;

/// What docs/tests.md makes of it.
#[cfg(test)]
#[path = "../../../docs/populate_write.rs"]
mod documented;

#[cfg(test)]
mod checks {
    use std::collections::BTreeSet;

    use kvet_records::{Parameters, valid_name};

    use super::*;

    #[test]
    fn every_name_is_valid_and_used_once() {
        let mut names = BTreeSet::new();
        for test in all() {
            assert!(valid_name(test.name), "{}", test.name);
            assert!(names.insert(test.name), "{} twice", test.name);
            assert!(!test.summary.is_empty() && !test.summary.contains('\n'), "{}", test.name);
            let mut parameters = BTreeSet::new();
            for parameter in test.parameters {
                assert!(valid_name(parameter.name), "{}: {}", test.name, parameter.name);
                assert!(parameters.insert(parameter.name), "{}: {}", test.name, parameter.name);
            }
        }
    }

    #[test]
    fn what_new_test_writes_and_the_documentation_shows_runs() {
        for test in [&new_test::TEST, &documented::TEST] {
            let mut context =
                crate::harness::Context::new(Parameters::new(), Box::new(std::io::sink()));
            assert_eq!((test.run)(&mut context), Ok(()), "{}", test.name);
        }
        let whole = include_str!("../../../docs/populate_write.rs");
        let shown = whole.find("use crate").map(|start| &whole[start..]).unwrap();
        assert!(include_str!("../../../docs/tests.md").contains(shown));
    }

    #[test]
    fn the_list_is_what_the_host_reads() {
        let infos: Vec<TestInfo> = serde_json::from_str(&list()).unwrap();
        assert_eq!(infos.len(), all().count());
        assert!(infos.iter().any(|info| info.name == "khugepaged_cold"));
        assert!(find("khugepaged_cold").is_some());
        assert!(find("no_such_test").is_none());
    }
}
