// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of faults, `patches/selftest/faults.yaml`, with its defaults filled in.

use std::collections::BTreeMap;
use std::path::Path;

use bytesize::ByteSize;
use kvet_records::Parameters;
use serde::Deserialize;

use super::Selection;
use crate::fault::Fault;
use crate::plan::manifest::ConfigBase;
use crate::plan::yaml::{closest, parse};

const TEXT: &str = include_str!("../../../patches/selftest/faults.yaml");
const SCHEMA: &str = "kvet/selftest/1";

/// The table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    schema: String,
    configs: BTreeMap<String, ConfigEntry>,
    defaults: Defaults,
    faults: Vec<Entry>,
    #[serde(default)]
    controls: Vec<Entry>,
}

/// A kernel that rows boot.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigEntry {
    /// What the fragments are merged on.
    pub base: ConfigBase,
    /// Names in `configs/kconfig/`.
    pub fragments: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    config: String,
    vcpus: u32,
    memory: ByteSize,
    append: Vec<String>,
    phase: Phase,
    seconds: u64,
    test: Test,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    fault: Option<String>,
    config: Option<String>,
    vcpus: Option<u32>,
    memory: Option<ByteSize>,
    append: Option<Vec<String>>,
    phase: Option<Phase>,
    seconds: Option<u64>,
    test: Option<Test>,
    allow: Option<Vec<String>>,
    expect: Option<Expect>,
}

/// When a fault comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Before init is up.
    Boot,
    /// While the test runs.
    Test,
}

/// What runs in the guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Name of a guest test.
    pub name: String,
    /// Its parameters.
    #[serde(default)]
    pub parameters: Parameters,
}

/// What kvet must say.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Name of the halt reason.
    pub halt: String,
    /// Kind of the splat that tells it, or `none`.
    pub kind: String,
    /// The function to blame.
    #[serde(default)]
    pub function: Option<String>,
    /// Kinds of further splats that may come with it.
    #[serde(default)]
    pub also: Vec<String>,
    /// What kvet exits with.
    pub exit: u8,
}

/// A row, defaults filled in.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The value of `kvet_selftest=`.
    pub fault: String,
    /// The kernel.
    pub config: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: ByteSize,
    /// Further words of the kernel command line.
    pub append: Vec<String>,
    /// When the fault comes.
    pub phase: Phase,
    /// Deadline of that phase in seconds.
    pub seconds: u64,
    /// What runs in the guest.
    pub test: Test,
    /// Titles of splats that are known and do not count.
    pub allow: Vec<String>,
    /// What kvet must say.
    pub expect: Expect,
}

impl Table {
    /// Reads the table that kvet carries.
    ///
    /// # Errors
    /// A `plan` fault with the place of the mistake.
    pub fn read() -> Result<Self, Fault> {
        let table: Self = parse(Path::new("patches/selftest/faults.yaml"), TEXT.to_owned())?.value;
        if table.schema != SCHEMA {
            return Err(Fault::plan(format!("faults.yaml has schema {:?}", table.schema)));
        }
        Ok(table)
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// A `plan` fault when a row names one that is not there.
    pub fn config(&self, name: &str) -> Result<&ConfigEntry, Fault> {
        self.configs
            .get(name)
            .ok_or_else(|| Fault::plan(format!("faults.yaml has no config {name:?}")))
    }

    /// The rows that are asked for.
    ///
    /// # Errors
    /// A `plan` fault for a row or config that is not there.
    pub fn select(&self, selection: &Selection) -> Result<Vec<Row>, Fault> {
        let all: Vec<Row> =
            self.faults.iter().chain(&self.controls).map(|entry| self.row(entry)).collect();
        for (wanted, names) in [
            (&selection.rows, all.iter().map(|row| row.name.as_str()).collect::<Vec<_>>()),
            (&selection.configs, self.configs.keys().map(String::as_str).collect()),
        ] {
            if let Some(name) = wanted.iter().find(|name| !names.contains(&name.as_str())) {
                let fault = Fault::plan(format!("the selftest has no {name:?}"));
                return Err(match closest(name, names) {
                    Some(near) => fault.help(format!("did you mean `{near}`?")),
                    None => fault.help("patches/selftest/faults.yaml lists what there is"),
                });
            }
        }
        let chosen = |list: &[String], name: &String| list.is_empty() || list.contains(name);
        Ok(all
            .into_iter()
            .filter(|row| {
                chosen(&selection.rows, &row.name) && chosen(&selection.configs, &row.config)
            })
            .collect())
    }

    fn row(&self, entry: &Entry) -> Row {
        let defaults = &self.defaults;
        let clean = || Expect {
            halt: "completed".to_owned(),
            kind: "none".to_owned(),
            function: None,
            also: Vec::new(),
            exit: 0,
        };
        Row {
            name: entry.name.clone(),
            fault: entry.fault.clone().unwrap_or_else(|| entry.name.clone()),
            config: entry.config.clone().unwrap_or_else(|| defaults.config.clone()),
            vcpus: entry.vcpus.unwrap_or(defaults.vcpus),
            memory: entry.memory.unwrap_or(defaults.memory),
            append: entry.append.clone().unwrap_or_else(|| defaults.append.clone()),
            phase: entry.phase.unwrap_or(defaults.phase),
            seconds: entry.seconds.unwrap_or(defaults.seconds),
            test: entry.test.clone().unwrap_or_else(|| defaults.test.clone()),
            allow: entry.allow.clone().unwrap_or_default(),
            expect: entry.expect.clone().unwrap_or_else(clean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let table = Table::read().unwrap();
        let rows = table.select(&Selection::default()).unwrap();
        let faults = rows.iter().filter(|row| row.expect.exit != 0).count();
        assert!(faults >= 30 && rows.len() - faults >= 10, "{faults} of {}", rows.len());
        let tests = crate::guest::tests();
        for row in &rows {
            table.config(&row.config).unwrap();
            assert!(tests.contains_key(&row.test.name), "{}: {}", row.name, row.test.name);
        }
        let mut names: Vec<_> = rows.iter().map(|row| &row.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), rows.len());
    }

    #[test]
    fn a_row_that_is_not_there_is_an_error() {
        let selection = Selection { rows: vec!["null_raed".into()], ..Selection::default() };
        let fault = Table::read().unwrap().select(&selection).unwrap_err();
        assert_eq!(fault.help.as_deref(), Some("did you mean `null_read`?"));
    }
}
