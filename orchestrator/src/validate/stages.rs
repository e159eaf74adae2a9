// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the plans of a validation: one for each config of the table, with the tests
//! that were chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kvet_records::Value;
use serde::Serialize;

use super::result::ChosenTest;
use super::table::{self, Choice, ConfigRow, Patches, StageCheck, Table, add, choose};
use crate::fault::Fault;
use crate::kernel::patch;
use crate::plan::manifest::{
    DeadlineEntry, GuestEntry, InstructionsEntry, MeasuresEntry, PLAN_SCHEMA, ParameterEntry,
    PlanFile, SeriesEntry, SplatEntry, TestEntry, VariantName, Variants,
};
use crate::plan::resolve::{Overrides, resolve_document};
use crate::plan::yaml::{Document, load};
use crate::plan::{Cell, Plan, Tests, kernel_file};

/// Start phases of each counted figure. The question here is of [`THRESHOLD_PERCENT`],
/// far above what the ticks in a window make of it: a second phase shows that the first
/// was no odd one, more would only take longer.
///
/// [`THRESHOLD_PERCENT`]: super::judge::THRESHOLD_PERCENT
const PHASES: u16 = 2;

/// What the command line asks for.
#[derive(Debug, Clone)]
pub struct Request {
    /// A name in `kernels/`, or a git repository with or without `@REV`.
    pub kernel: String,
    /// The series.
    pub series: SeriesEntry,
    /// Plans whose tests and guests are taken instead of the table's.
    pub plans: Vec<PathBuf>,
    /// Only these configs; all when empty.
    pub configs: Vec<String>,
}

/// Everything that is checked.
#[derive(Debug, Clone, Serialize)]
pub struct Validation {
    /// The series on its kernel, with any config.
    pub cell: Cell,
    /// The files that it touches.
    pub files: Vec<String>,
    /// The tests, and why these.
    pub tests: Vec<ChosenTest>,
    /// The tests are those of plans, so that each must be there.
    pub planned: bool,
    /// The configs, in the order of the checks.
    pub stages: Vec<Stage>,
}

impl Validation {
    /// How many configs can be checked side by side on a host with `cpus`. What a config's
    /// tests boot runs side by side in any case; each has CPUs for two of the largest guest.
    #[must_use]
    pub fn at_once(&self, cpus: u32) -> usize {
        let cells = self.stages.iter().flat_map(|stage| &stage.plan.cells);
        let largest = cells.map(|cell| cell.guest.vcpus).max().unwrap_or(1);
        let many = usize::try_from(cpus / (2 * largest.max(1))).unwrap_or(usize::MAX);
        many.clamp(1, self.stages.len().max(1))
    }
}

/// What is checked of one config.
#[derive(Debug, Clone, Serialize)]
pub struct Stage {
    /// Name of the config.
    pub config: String,
    /// Which prefixes are built.
    pub patches: Patches,
    /// What is checked.
    pub checks: BTreeSet<StageCheck>,
    /// What observes.
    pub plan: Plan,
    /// What measures; none without such a test, or where it is not checked.
    pub measured: Option<Plan>,
}

/// What is run, wherever it comes from.
struct Chosen {
    guests: BTreeMap<String, GuestEntry>,
    tests: Vec<Choice>,
    deadlines: DeadlineEntry,
    splats: SplatEntry,
}

/// Reads the table, the series and the plans, and makes the plan of each config.
///
/// # Errors
/// Every `plan` fault that was found.
pub fn prepare(root: &Path, tests: &Tests, request: &Request) -> Result<Validation, Vec<Fault>> {
    let one = |fault: Fault| vec![fault];
    let table = table::read(root).map_err(one)?;
    let overrides = Overrides {
        series: vec![request.series.clone()],
        kernel: kernel_file::given(&request.kernel, root).map_err(one)?,
        ..Overrides::default()
    };
    let mut maker = Maker { root, tests, table: &table, overrides, kernel: &request.kernel };
    let rows = rows(&table, &request.configs).map_err(one)?;
    let first = table
        .value
        .configs
        .first()
        .ok_or_else(|| one(table.fault("configs", "the table has no config")))?;
    // What the series is, before it is known what is to run: any test does.
    let any = Choice {
        entry: TestEntry { name: Some("selftest_pass".to_owned()), ..TestEntry::default() },
        reason: String::new(),
    };
    let bare = Chosen {
        guests: table.value.guests.clone(),
        tests: vec![any],
        deadlines: DeadlineEntry::default(),
        splats: SplatEntry::default(),
    };
    let cell = maker.plan(first, &bare, &bare.tests)?.cells.swap_remove(0);
    maker.overrides.resolved = Some(cell.series.clone());
    let files = touched(&cell);
    let mut chosen = match request.plans.is_empty() {
        true => Chosen {
            guests: table.value.guests.clone(),
            tests: match files.as_slice() {
                // That it changes nothing is found when it is applied.
                [] => bare.tests,
                files => choose(&table.value.rules, files),
            },
            deadlines: table.value.deadlines,
            splats: table.value.splats.clone(),
        },
        false => of_plans(&request.plans)?,
    };
    if request.plans.is_empty() {
        declared(&cell, &table.value, &mut chosen.tests);
    }
    let mut stages = Vec::new();
    for row in rows {
        stages.push(maker.stage(row, &chosen)?);
    }
    let tests = chosen.tests.iter().map(told).collect();
    let planned = !request.plans.is_empty();
    Ok(Validation { cell, files, tests, planned, stages })
}

/// The rows that are asked for.
fn rows<'a>(table: &'a Document<Table>, wanted: &[String]) -> Result<Vec<&'a ConfigRow>, Fault> {
    let configs = &table.value.configs;
    let names: Vec<&str> = configs.iter().map(|row| row.name.as_str()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Fault::plan(format!("no config {unknown:?} to validate in"))
            .at("--config")
            .help(format!("{} has: {}", table::FILE, names.join(", "))));
    }
    Ok(configs.iter().filter(|row| wanted.is_empty() || wanted.contains(&row.name)).collect())
}

/// The files that the patches of a series name, each once.
fn touched(cell: &Cell) -> Vec<String> {
    let patches = cell.series.patches.iter();
    let files: BTreeSet<String> =
        patches.flat_map(|one| patch::files(&one.bytes, one.strip)).collect();
    files.into_iter().collect()
}

/// Adds the tests of which the series declares a change, wherever a rule of the table
/// has them: what is declared is to be looked at.
fn declared(cell: &Cell, table: &Table, chosen: &mut Vec<Choice>) {
    let names: BTreeSet<&str> = cell.series.expect.iter().map(|one| one.test.as_str()).collect();
    let known = table.rules.iter().flat_map(|rule| &rule.tests);
    for entry in known.filter(|entry| {
        entry.name.as_deref().is_some_and(|name| names.contains(name)) && entry.measure.is_empty()
    }) {
        add(chosen, entry.clone(), "the series declares what it changes of it");
    }
}

fn name_of(entry: &TestEntry) -> String {
    let names = [&entry.name, &entry.kselftest, &entry.exec, &entry.script];
    names.into_iter().flatten().next().cloned().unwrap_or_default()
}

fn told(choice: &Choice) -> ChosenTest {
    let measures: String = choice
        .entry
        .measure
        .iter()
        .map(|measure| format!(", {} counted", measure.name()))
        .collect();
    ChosenTest {
        test: format!("{}{measures}", name_of(&choice.entry)),
        guests: choice.entry.guests.clone().unwrap_or_default(),
        reason: choice.reason.clone(),
    }
}

/// The tests and guests of plans. With several, their guests go by the plan's name, too.
fn of_plans(plans: &[PathBuf]) -> Result<Chosen, Vec<Fault>> {
    let mut chosen = Chosen {
        guests: BTreeMap::new(),
        tests: Vec::new(),
        deadlines: DeadlineEntry::default(),
        splats: SplatEntry::default(),
    };
    for file in plans {
        let document: Document<PlanFile> = load(file).map_err(|fault| vec![fault])?;
        let plan = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let called = |guest: &String| match plans.len() {
            1 => guest.clone(),
            _ => format!("{plan}-{guest}"),
        };
        let value = document.value;
        let own: Vec<String> = value.guests.keys().cloned().collect();
        for (name, mut guest) in value.guests {
            guest.extends = guest.extends.as_ref().map(called);
            chosen.guests.insert(called(&name), guest);
        }
        for mut entry in value.tests {
            let place = |path: &String| folder.join(path).to_string_lossy().into_owned();
            entry.exec = entry.exec.as_ref().map(place);
            entry.script = entry.script.as_ref().map(place);
            entry.files = entry.files.iter().map(place).collect();
            let guests = entry.guests.as_ref().unwrap_or(&own);
            entry.guests = Some(guests.iter().map(called).collect());
            add(&mut chosen.tests, entry, &format!("plan {plan}"));
        }
        let longer = |one: &mut Option<_>, other| *one = (*one).max(other);
        longer(&mut chosen.deadlines.boot, value.deadlines.boot);
        longer(&mut chosen.deadlines.test, value.deadlines.test);
        chosen.splats.allow.extend(value.splats.allow);
    }
    Ok(chosen)
}

struct Maker<'a> {
    root: &'a Path,
    tests: &'a Tests,
    table: &'a Document<Table>,
    overrides: Overrides,
    kernel: &'a str,
}

impl Maker<'_> {
    fn stage(&self, row: &ConfigRow, chosen: &Chosen) -> Result<Stage, Vec<Fault>> {
        let (measured, observing): (Vec<Choice>, Vec<Choice>) =
            chosen.tests.iter().cloned().partition(|choice| !choice.entry.measure.is_empty());
        let observing = match &row.within {
            Some(within) => inside(within, &observing, &chosen.guests),
            None => observing,
        };
        let mut plan = self.plan(row, chosen, &observing)?;
        if row.patches == Patches::Every {
            for cell in &mut plan.cells {
                cell.variants = VariantName::every(cell.series.patches.len());
            }
        }
        let wanted = row.checks.contains(&StageCheck::Performance) && !measured.is_empty();
        let measured = if wanted { Some(self.plan(row, chosen, &measured)?) } else { None };
        let (config, checks) = (row.name.clone(), row.checks.clone());
        Ok(Stage { config, patches: row.patches, checks, plan, measured })
    }

    fn plan(&self, row: &ConfigRow, chosen: &Chosen, tests: &[Choice]) -> Result<Plan, Vec<Fault>> {
        let mut guests = chosen.guests.clone();
        for guest in guests.values_mut().filter(|guest| guest.extends.is_none()) {
            guest.append.extend(row.append.iter().cloned());
        }
        let instructions =
            InstructionsEntry { phases: Some(PHASES), ..InstructionsEntry::default() };
        let file = PlanFile {
            schema: PLAN_SCHEMA.to_owned(),
            series: Vec::new(),
            variants: Some(Variants::List(vec![VariantName::Base, VariantName::Patched])),
            kernels: vec![self.kernel.to_owned()],
            configs: BTreeMap::from([(row.name.clone(), row.entry())]),
            guests,
            tests: tests.iter().map(|choice| choice.entry.clone()).collect(),
            measures: MeasuresEntry { instructions },
            deadlines: chosen.deadlines,
            splats: chosen.splats.clone(),
            allow_identical: true,
        };
        let document = self.table.with(file);
        resolve_document(document, self.root.to_owned(), self.tests, &self.overrides)
    }
}

/// In each guest one test that runs all of kvet's own within it; programs run as they
/// are.
fn inside(within: &str, tests: &[Choice], guests: &BTreeMap<String, GuestEntry>) -> Vec<Choice> {
    let own = |choice: &&Choice| choice.entry.name.is_some() && is_own(&choice.entry);
    let mut out: Vec<Choice> =
        tests.iter().filter(|choice| !is_own(&choice.entry)).cloned().collect();
    for guest in guests.keys() {
        let here = |choice: &&Choice| {
            choice.entry.guests.as_ref().is_none_or(|guests| guests.contains(guest))
        };
        let names: Vec<String> =
            tests.iter().filter(own).filter(here).map(|choice| name_of(&choice.entry)).collect();
        if names.is_empty() {
            continue;
        }
        for names in names.chunks(WITHIN) {
            let names = ParameterEntry::One(Value::Text(names.join(",")));
            out.push(Choice {
                entry: TestEntry {
                    name: Some(within.to_owned()),
                    guests: Some(vec![guest.clone()]),
                    parameters: BTreeMap::from([("tests".to_owned(), names)]),
                    ..TestEntry::default()
                },
                reason: String::new(),
            });
        }
    }
    out
}

/// Tests that run within one: their names are in that of a folder.
const WITHIN: usize = 5;

fn is_own(entry: &TestEntry) -> bool {
    entry.exec.is_none() && entry.script.is_none() && entry.kselftest.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
    }

    fn request() -> Request {
        Request {
            kernel: "debian-6.12".to_owned(),
            series: SeriesEntry::Named("madvise-batch-tlb".to_owned()),
            plans: Vec::new(),
            configs: Vec::new(),
        }
    }

    fn ids(plan: &Plan) -> Vec<String> {
        let of = |cell: &Cell| {
            let guest = cell.guest.name.clone();
            let ids: Vec<String> =
                cell.tests.iter().map(|test| format!("{guest} {}", test.id())).collect();
            ids
        };
        plan.cells.iter().flat_map(of).collect()
    }

    #[test]
    fn our_own_series_gets_its_tests_in_each_config() {
        let made = prepare(&root(), &crate::guest::tests(), &request()).unwrap();
        assert!(made.files.contains(&"mm/madvise.c".to_owned()), "{:?}", made.files);
        let names: Vec<&str> = made.stages.iter().map(|stage| stage.config.as_str()).collect();
        assert_eq!(
            names,
            ["microvm", "microvm-clang", "no-thp", "debug-vm", "lockdep", "kasan", "kmemleak"]
        );
        let microvm = &made.stages[0];
        assert_eq!(microvm.plan.cells[0].variants, VariantName::every(4));
        assert!(ids(&microvm.plan).contains(&"smp process_madvise".to_owned()));
        let measured = microvm.measured.as_ref().unwrap();
        assert!(ids(measured).contains(&"up process_madvise.instructions".to_owned()));
        assert_eq!(measured.cells[0].variants, [VariantName::Base, VariantName::Patched]);
        let lockdep = &made.stages[4];
        assert_eq!(lockdep.plan.cells[0].variants.len(), 2);
        assert!(lockdep.measured.is_none());
        // kmemleak looks after all of a guest's tests, and asks for its objects.
        let kmemleak = &made.stages[6];
        let own = |id: &String| id.contains(" process_madvise");
        assert!(!ids(&kmemleak.plan).iter().any(own), "{:?}", ids(&kmemleak.plan));
        let scans = kmemleak.plan.cells.iter().flat_map(|cell| &cell.tests);
        let scans: Vec<String> =
            scans.filter_map(|test| Some(test.parameters.get("tests")?.to_string())).collect();
        assert!(
            scans.iter().any(|tests| tests.contains("process_madvise,process_madvise_smp")),
            "{scans:?}"
        );
        for cell in &kmemleak.plan.cells {
            assert!(
                cell.guest.append.iter().any(|word| word == "kmemleak.verbose=1"),
                "{:?}",
                cell.guest
            );
        }
    }

    #[test]
    fn as_many_configs_are_checked_at_once_as_there_are_cpus_for() {
        let made = prepare(&root(), &crate::guest::tests(), &request()).unwrap();
        let at_once = [1, 2, 4, 8, 16, 1024].map(|cpus| made.at_once(cpus));
        assert_eq!(at_once, [1, 1, 1, 2, 4, 7]);
    }

    #[test]
    fn a_plan_brings_its_tests_and_several_keep_their_guests_apart() {
        let tests = crate::guest::tests();
        let plan = |name: &str| root().join(format!("configs/plans/{name}.yaml"));
        let one = Request { plans: vec![plan("khugepaged-cold")], ..request() };
        let made = prepare(&root(), &tests, &one).unwrap();
        assert_eq!(ids(&made.stages[0].plan), ["up khugepaged_cold"]);
        assert_eq!(made.tests[0].reason, "plan khugepaged-cold");
        assert!(made.stages[0].measured.is_none());
        let plans = vec![plan("khugepaged-cold"), plan("madvise-batch-tlb-counted")];
        let both = Request { plans, configs: vec!["microvm".to_owned()], ..request() };
        let made = prepare(&root(), &tests, &both).unwrap();
        assert_eq!(made.stages.len(), 1);
        let found = ids(&made.stages[0].plan);
        assert!(found.contains(&"khugepaged-cold-up khugepaged_cold".to_owned()), "{found:?}");
        assert!(
            found.contains(&"madvise-batch-tlb-counted-smp process_madvise".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn what_a_series_declares_is_looked_at_whatever_it_touches() {
        let request =
            Request { series: SeriesEntry::Named("thp-disable-skip-6.12".to_owned()), ..request() };
        let mut table = table::read(&root()).unwrap().value;
        let made = prepare(&root(), &crate::guest::tests(), &request).unwrap();
        let mut chosen = choose(&table.rules[..1], &made.files);
        assert_eq!(chosen.len(), 1);
        declared(&made.cell, &table, &mut chosen);
        assert!(chosen.iter().any(|one| one.entry.name.as_deref() == Some("thp_disable")));
        table.rules.clear();
        assert!(choose(&table.rules, &made.files).is_empty());
    }
}
