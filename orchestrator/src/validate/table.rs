// SPDX-License-Identifier: MIT OR Apache-2.0
//! `configs/validate.yaml`: what is checked, and which tests are chosen by the files
//! that a series touches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::compare::splats::matches;
use crate::fault::Fault;
use crate::plan::manifest::{
    BaseEntry, Compiler, ConfigEntry, DeadlineEntry, GuestEntry, SplatEntry, TestEntry,
};
use crate::plan::yaml::{Document, load};

/// `schema:` of the table.
pub const VALIDATE_SCHEMA: &str = "kvet/validate/1";
/// Where it is, below the folder that holds `kernels/` and `patches/`.
pub const FILE: &str = "configs/validate.yaml";

/// The table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// [`VALIDATE_SCHEMA`].
    pub schema: String,
    /// Guests by name.
    pub guests: BTreeMap<String, GuestEntry>,
    /// Kernel configs, in the order of the checks.
    pub configs: Vec<ConfigRow>,
    /// Which tests are chosen.
    pub rules: Vec<Rule>,
    /// How long each phase of a boot may take.
    #[serde(default)]
    pub deadlines: DeadlineEntry,
    /// What to do about splats.
    #[serde(default)]
    pub splats: SplatEntry,
}

/// One kernel config, and what is checked of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigRow {
    /// Its name.
    pub name: String,
    /// What the fragments are merged on.
    pub base: BaseEntry,
    /// Names in `configs/kconfig/`, or paths; later ones win.
    #[serde(default)]
    pub fragments: Vec<String>,
    /// The compiler; where it is missing, the config is skipped.
    #[serde(default)]
    pub compiler: Compiler,
    /// Which prefixes of the series are built.
    pub patches: Patches,
    /// What is checked of it.
    pub checks: BTreeSet<StageCheck>,
    /// Words that its guests have on their command line, too.
    #[serde(default)]
    pub append: Vec<String>,
    /// The guest test within which the chosen ones run: it takes their names as its
    /// parameter `tests`.
    #[serde(default)]
    pub within: Option<String>,
}

impl ConfigRow {
    /// The row as a plan's config.
    #[must_use]
    pub fn entry(&self) -> ConfigEntry {
        ConfigEntry {
            base: self.base.clone(),
            fragments: self.fragments.clone(),
            compiler: self.compiler,
        }
    }
}

/// Which prefixes of a series are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Patches {
    /// Each of them.
    Every,
    /// All of it, and none of it where it must be known what is new.
    Ends,
}

/// What may be checked of a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageCheck {
    /// It builds, without new warnings.
    Builds,
    /// The tests observe what they should at every prefix.
    Behaviour,
    /// Counted figures of the ends.
    Performance,
    /// Without new splats in the ends.
    Boots,
}

/// Tests for files.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Patterns of paths in the tree; `*` stands for any text.
    pub paths: Vec<String>,
    /// Why these tests, for people.
    pub reason: String,
    /// The tests.
    pub tests: Vec<TestEntry>,
}

/// A test that was chosen, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The test.
    pub entry: TestEntry,
    /// Why.
    pub reason: String,
}

/// Finds the table in the folder that kvet runs in or in one above; its root.
///
/// # Errors
/// A `plan` fault when there is none.
pub fn find_root() -> Result<PathBuf, Fault> {
    let here =
        std::env::current_dir().map_err(|error| Fault::io("find the current folder", &error))?;
    let root = here.ancestors().find(|up| up.join(FILE).is_file());
    root.map(Path::to_owned).ok_or_else(|| {
        Fault::plan(format!("no {FILE} here or in a folder above"))
            .help("run kvet where kernels/, configs/ and patches/ are")
    })
}

/// Reads the table.
///
/// # Errors
/// A `plan` fault with its place.
pub fn read(root: &Path) -> Result<Document<Table>, Fault> {
    let document: Document<Table> = load(&root.join(FILE))?;
    let found = &document.value.schema;
    if found != VALIDATE_SCHEMA {
        let fault = document.fault("schema", format!("schema {found:?} is not known here"));
        return Err(fault.help(format!("this kvet reads {VALIDATE_SCHEMA}")));
    }
    for (index, row) in document.value.configs.iter().enumerate() {
        if document.value.configs[..index].iter().any(|other| other.name == row.name) {
            let what = format!("config {:?} is listed twice", row.name);
            return Err(document.fault(&format!("configs.{index}.name"), what));
        }
    }
    for (index, rule) in document.value.rules.iter().enumerate() {
        if rule.paths.is_empty() || rule.tests.is_empty() {
            let what = "a rule has `paths:` and `tests:`, and neither is empty";
            return Err(document.fault(&format!("rules.{index}"), what));
        }
    }
    Ok(document)
}

/// The tests of all rules with a pattern that covers one of `files`, each once, with
/// the first reason.
#[must_use]
pub fn choose(rules: &[Rule], files: &[String]) -> Vec<Choice> {
    let mut chosen: Vec<Choice> = Vec::new();
    for rule in rules {
        let covered = |pattern: &String| files.iter().find(|file| matches(pattern, file));
        let Some((pattern, file)) =
            rule.paths.iter().find_map(|pattern| Some((pattern, covered(pattern)?)))
        else {
            continue;
        };
        let reason = match pattern.as_str() {
            "*" => rule.reason.clone(),
            _ => format!("{file}: {}", rule.reason),
        };
        for entry in &rule.tests {
            add(&mut chosen, entry.clone(), &reason);
        }
    }
    chosen
}

/// Adds a test, or its guests to the same test.
pub(super) fn add(chosen: &mut Vec<Choice>, entry: TestEntry, reason: &str) {
    let bare = |entry: &TestEntry| TestEntry { guests: None, ..entry.clone() };
    let Some(there) = chosen.iter_mut().find(|there| bare(&there.entry) == bare(&entry)) else {
        chosen.push(Choice { entry, reason: reason.to_owned() });
        return;
    };
    match (&mut there.entry.guests, entry.guests) {
        (Some(guests), Some(more)) => {
            for guest in more {
                if !guests.contains(&guest) {
                    guests.push(guest);
                }
            }
        }
        (guests, _) => *guests = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<Rule> {
        serde_yaml::from_str(text).unwrap()
    }

    fn names(chosen: &[Choice]) -> Vec<(&str, Vec<&str>)> {
        let name = |choice: &Choice| choice.entry.name.clone().unwrap_or_default();
        chosen
            .iter()
            .map(|choice| {
                let guests = choice.entry.guests.iter().flatten().map(String::as_str);
                (Box::leak(name(choice).into_boxed_str()) as &str, guests.collect())
            })
            .collect()
    }

    #[test]
    fn the_files_choose_and_say_why() {
        let rules = rules(
            "- {paths: ['*'], reason: all, tests: [{name: pass, guests: [up]}]}\n- {paths: [mm/a.c, 'mm/b*'], reason: b, tests: [{name: pass, guests: [smp]}, {name: bee, guests: [up]}]}\n",
        );
        let files =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chosen = choose(&rules, &files(&["fs/x.c", "mm/bats.c"]));
        assert_eq!(names(&chosen), [("pass", vec!["up", "smp"]), ("bee", vec!["up"])]);
        assert_eq!(chosen[0].reason, "all");
        assert_eq!(chosen[1].reason, "mm/bats.c: b");
        let chosen = choose(&rules, &files(&["mm/ab.c"]));
        assert_eq!(names(&chosen), [("pass", vec!["up"])]);
    }

    #[test]
    fn what_measures_is_another_test() {
        let rules = rules(
            "- {paths: ['*'], reason: all, tests: [{name: a, guests: [up]}, {name: a, guests: [up], measure: [instructions]}]}\n",
        );
        assert_eq!(choose(&rules, &["x".to_owned()]).len(), 2);
    }

    #[test]
    fn our_own_table_is_read_and_its_tests_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let table = read(root).unwrap().value;
        let tests = crate::guest::tests();
        for rule in &table.rules {
            for name in rule.tests.iter().filter_map(|entry| entry.name.as_ref()) {
                assert!(tests.contains_key(name), "{name}");
            }
        }
        for within in table.configs.iter().filter_map(|row| row.within.as_ref()) {
            assert!(tests[within].parameters.iter().any(|known| known.name == "tests"));
        }
        let chosen = choose(&table.rules, &["mm/khugepaged.c".to_owned()]);
        let names: Vec<_> = chosen.iter().filter_map(|one| one.entry.name.as_deref()).collect();
        assert!(names.contains(&"khugepaged_cold") && names.contains(&"selftest_pass"));
        assert!(!names.contains(&"process_madvise"));
    }
}
