// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the measured guests were, from what their boots left in the run's folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use kvet_records::Parameters;
use serde::Deserialize;

use crate::plan::Tests;
use crate::run::result::{CellResult, RunResult, TestResult};

/// Longest report of a boot that is read, in bytes.
const MAX_BOOT: u64 = 16 << 20;

/// A guest that was measured, and what its test was told.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Machine {
    /// QEMU's machine type.
    pub machine: String,
    /// QEMU's CPU model with its switches.
    pub cpu: String,
    /// Memory with its unit.
    pub memory: String,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// The test's parameters, with the defaults where they are known.
    #[serde(skip)]
    pub parameters: Parameters,
}

/// The guests of a run's measured tests, by cell and test.
#[derive(Debug, Clone, Default)]
pub struct Machines(BTreeMap<(String, String), Machine>);

impl Machines {
    /// Reads what is there; `run` is a run's folder or its `result.json`, and `tests`
    /// says the parameters' defaults.
    #[must_use]
    pub fn read(run: &Path, result: &RunResult, tests: &Tests) -> Self {
        let folder = if run.is_dir() { run } else { run.parent().unwrap_or(run) };
        let mut machines = Self::default();
        for cell in &result.cells {
            for test in cell.tests.iter().filter(|test| !test.metrics.is_empty()) {
                let Some(mut machine) = read(folder, cell, test) else { continue };
                // Another kvet's defaults may have been others.
                if result.environment.kvet == env!("CARGO_PKG_VERSION") {
                    defaults(&mut machine.parameters, &test.name, tests);
                }
                machines.insert(cell, test, machine);
            }
        }
        machines
    }

    pub(super) fn insert(&mut self, cell: &CellResult, test: &TestResult, machine: Machine) {
        self.0.insert((id(cell), test.name.clone()), machine);
    }

    pub(super) fn get(&self, cell: &CellResult, test: &TestResult) -> Option<&Machine> {
        self.0.get(&(id(cell), test.name.clone()))
    }
}

/// As the folder of a cell's boots is called.
fn id(cell: &CellResult) -> String {
    format!("{}.{}.{}.{}", cell.series, cell.kernel, cell.config, cell.guest)
}

fn read(run: &Path, cell: &CellResult, test: &TestResult) -> Option<Machine> {
    #[derive(Deserialize)]
    struct Boot {
        inputs: Inputs,
    }
    #[derive(Deserialize)]
    struct Inputs {
        machine: Machine,
        job: Job,
    }
    #[derive(Deserialize)]
    struct Job {
        #[serde(default)]
        parameters: Parameters,
    }
    let cell_folder = run.join("boots").join(part(&id(cell))?);
    cell.variants.keys().find_map(|variant| {
        let path = cell_folder.join(variant.to_string()).join(part(&test.name)?).join("boot.json");
        let mut text = Vec::new();
        File::open(path).ok()?.take(MAX_BOOT).read_to_end(&mut text).ok()?;
        let Inputs { machine, job } = serde_json::from_slice::<Boot>(&text).ok()?.inputs;
        Some(Machine { parameters: job.parameters, ..machine })
    })
}

/// A name that is one component of a path, and nothing else.
fn part(name: &str) -> Option<&str> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Some(name),
        _ => None,
    }
}

fn defaults(parameters: &mut Parameters, test: &str, tests: &Tests) {
    let name = test.split('.').next().unwrap_or_default();
    let known = tests.get(name).and_then(|info| info.measured.as_ref());
    for parameter in known.into_iter().flatten() {
        let default = || parameter.default.clone();
        parameters.entry(parameter.name.clone()).or_insert_with(default);
    }
}

#[cfg(test)]
mod tests {
    use kvet_records::Value;

    use super::*;
    use crate::guest;
    use crate::report::sample::{cell, measured, metric, run};

    #[test]
    fn a_boots_report_says_what_the_guest_was() {
        let folder = tempfile::tempdir().unwrap();
        let one = metric("latency", &[], (&[1.0], &[1.0])).result();
        let mut result = run(
            "p",
            vec![cell("s", "up", vec![measured("process_madvise.instructions", vec![one])])],
        );
        result.environment.kvet = env!("CARGO_PKG_VERSION").to_owned();
        let boot = folder
            .path()
            .join("boots/s.debian-6.12.microvm.up/patched/process_madvise.instructions");
        std::fs::create_dir_all(&boot).unwrap();
        let text = r#"{"inputs": {"machine": {"machine": "microvm", "cpu": "max,-erms", "memory": "1.0 GiB", "vcpus": 1, "seed": 1}, "job": {"parameters": {"memory": "256MiB"}}}, "report": {}}"#;
        std::fs::write(boot.join("boot.json"), text).unwrap();
        let machines = Machines::read(folder.path(), &result, &guest::tests());
        let machine = machines.get(&result.cells[0], &result.cells[0].tests[0]).unwrap();
        assert_eq!((machine.cpu.as_str(), machine.vcpus), ("max,-erms", 1));
        assert_eq!(machine.parameters["memory"], Value::from("256MiB"));
        assert_eq!(machine.parameters["advice"], Value::from("dontneed,free"));
        result.cells[0].guest = "up/../up".to_owned();
        assert!(Machines::read(folder.path(), &result, &guest::tests()).0.is_empty());
    }
}
