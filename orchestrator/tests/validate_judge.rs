// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `kvet validate` makes of behaviour, splats and counts, and which patch it names,
//! with fakes for building, booting and checkpatch.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use common::case::{Case, FakeBoot, FakeBuild, completed, halted, skipped, warning};
use kvet::fault::{Blame, ExitCode, Fault};
use kvet::kernel::series::Tree;
use kvet::kernel::source::Source;
use kvet::kernel::warning::{Identity, Warning};
use kvet::plan::manifest::{Measure, SplatAllowance, VariantName};
use kvet::plan::{PatchFile, Plan, Program, ProgramSource, Test};
use kvet::run::event::Events;
use kvet::run::folder::{RunFolder, read_result};
use kvet::run::result::Environment;
use kvet::transport::virtio::Sample;
use kvet::validate::checkpatch::{Checked, Checkpatch, Findings};
use kvet::validate::result::{Check, Outcome, ValidateResult};
use kvet::validate::stages::{Stage, Validation};
use kvet::validate::table::{Patches, StageCheck};
use kvet::validate::{Driver, render};
use kvet::vm::halt::{BootReport, HaltReason};
use kvet_records::{Better, Format, Parameters};
use tokio_util::sync::CancellationToken;

use VariantName::{Base, Patch, Patched};

/// What the script is to say.
struct FakeScript(Checked);

impl Checkpatch for FakeScript {
    async fn checkpatch(
        &self,
        _source: &Source,
        _base: &Tree,
        _patches: &[PatchFile],
    ) -> Result<Checked, Fault> {
        Ok(self.0.clone())
    }
}

/// A series of five patches, and one config with some checks.
struct Five {
    case: Case,
    checks: Vec<StageCheck>,
    script: FakeScript,
    fail_fast: bool,
}

const EVERY: [VariantName; 6] = [Base, Patch(1), Patch(2), Patch(3), Patch(4), Patched];

fn five(checks: &[StageCheck]) -> Five {
    let mut case = Case::new();
    let cell = &mut case.plan.cells[0];
    cell.series.expect.clear();
    cell.series.patches = (1..=5)
        .map(|number| PatchFile {
            name: format!("{number:04}-change.patch"),
            subject: Some(format!("mm: change {number}")),
            path: PathBuf::new(),
            strip: 1,
            bytes: Vec::new(),
        })
        .collect();
    cell.variants = EVERY.into();
    let hashes = ["0a0a0a0a", "1b1b1b1b", "2c2c2c2c", "3d3d3d3d", "4e4e4e4e", "5f5f5f5f"];
    let images = EVERY.into_iter().zip(hashes.map(Ok)).collect();
    let warnings = EVERY.into_iter().map(|name| (name, Vec::new())).collect();
    case.build = FakeBuild { images, warnings };
    let script = FakeScript(Checked::Skipped("there is no perl".to_owned()));
    Five { case, checks: checks.into(), script, fail_fast: false }
}

impl Five {
    fn validate(&self, reports: Vec<(VariantName, BootReport)>) -> ValidateResult {
        let plan = self.case.plan.clone();
        let checks: BTreeSet<StageCheck> = self.checks.iter().copied().collect();
        let ends = |mut plan: Plan| {
            plan.cells[0].variants = vec![Base, Patched];
            plan
        };
        let every = checks.contains(&StageCheck::Behaviour);
        let mut measured = ends(plan.clone());
        measured.instructions.phases = 2;
        for test in &mut measured.cells[0].tests {
            test.measure = Some(Measure::Instructions);
        }
        let stage = Stage {
            config: "microvm".to_owned(),
            patches: if every { Patches::Every } else { Patches::Ends },
            checks,
            plan: if every { plan.clone() } else { ends(plan.clone()) },
            measured: Some(measured),
        };
        let validation = Validation {
            cell: plan.cells[0].clone(),
            files: vec!["mm/madvise.c".to_owned()],
            tests: Vec::new(),
            planned: false,
            stages: vec![stage],
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let boot = FakeBoot { reports: RefCell::new(reports), jobs: RefCell::default() };
        let folder = RunFolder::create(&self.case.folder.path().join("runs"), "validate").unwrap();
        let events = Events::default();
        let driver = Driver {
            validation: &validation,
            build: &self.case.build,
            boot: &boot,
            checkpatch: &self.script,
            folder: &folder,
            events: &events,
            environment: Environment::default(),
            store: None,
            fail_fast: self.fail_fast,
            at_once: 1,
            stop: CancellationToken::new(),
            resume: false,
            probes: RefCell::default(),
        };
        let result = runtime.block_on(driver.run());
        assert!(boot.reports.borrow().is_empty(), "boots that were not asked for");
        // Whatever happened, it is on disk, and reads back as it was.
        let json = |result: &ValidateResult| serde_json::to_value(result).unwrap();
        assert_eq!(json(&kvet::validate::read(folder.path()).unwrap()), json(&result));
        result
    }
}

fn check<'a>(result: &'a ValidateResult, name: &str) -> &'a Check {
    let found = result.checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {:#?}", result.checks))
}

#[track_caller]
fn found(result: &ValidateResult, name: &str, outcome: Outcome, patch: Option<usize>, words: &str) {
    let check = check(result, name);
    assert_eq!(check.finding.outcome, outcome, "{check:#?}");
    assert_eq!(check.finding.patch, patch, "{check:#?}");
    assert!(check.finding.evidence.contains(words), "{words:?} is not in {check:#?}");
}

fn observed(values: [i64; 6]) -> Vec<(VariantName, BootReport)> {
    EVERY
        .into_iter()
        .zip(values.map(|value| completed(&[("kicks", value), ("other", 1)])))
        .collect()
}

#[test]
fn what_is_broken_in_between_is_told_with_where_it_breaks_and_where_it_is_fixed() {
    let result =
        five(&[StageCheck::Builds, StageCheck::Behaviour]).validate(observed([9, 9, 4, 9, 9, 9]));
    let words = "khugepaged_cold kicks broken at patch 2 of 5 (mm: change 2): 4 instead of 9; fixed at 3 of 5";
    found(&result, "behaviour", Outcome::Failed, Some(2), words);
    assert_eq!(result.exit_code, ExitCode::Behaviour);
    found(&result, "builds", Outcome::Ok, None, "6 kernels, no new warnings");
}

#[test]
fn a_declared_change_is_told_with_the_patch_that_makes_it() {
    let mut five = five(&[StageCheck::Behaviour]);
    five.case.plan.cells[0].series.expect = Case::new().plan.cells[0].series.expect.clone();
    let result = five.validate(observed([9, 9, 9, 5, 5, 5]));
    found(
        &result,
        "behaviour",
        Outcome::Ok,
        None,
        "1 declared change from patch 3 of 5 on, nothing else",
    );
    assert_eq!(result.exit_code, ExitCode::Acceptable);
    // And one that does not come.
    let result = five.validate(observed([9; 6]));
    found(&result, "behaviour", Outcome::Failed, None, "kicks stays 9, declared to become 5");
}

#[test]
fn a_change_that_nobody_declared_names_the_patch_that_brings_it() {
    let result = five(&[StageCheck::Behaviour]).validate(observed([9, 9, 9, 9, 5, 5]));
    found(
        &result,
        "behaviour",
        Outcome::Failed,
        Some(4),
        "kicks 9 -> 5 at patch 4 of 5 (mm: change 4), not declared",
    );
}

/// What the cover letter says of the behaviour.
fn letter(five: &Five, result: &ValidateResult) -> String {
    let runs = five.case.folder.path().join("runs");
    let run = read_result(&runs.join(&result.id).join("behaviour-microvm")).unwrap();
    render::cover_letter(&run)
}

#[test]
fn no_change_is_said_to_be_none() {
    let five = five(&[StageCheck::Behaviour]);
    let result = five.validate(observed([9; 6]));
    found(&result, "behaviour", Outcome::Ok, None, "unchanged in 6 kernels");
    assert!(letter(&five, &result).ends_with("\n  No observable behaviour changes.\n"));
}

#[test]
fn a_cover_letter_says_nothing_of_what_was_not_seen() {
    let five = five(&[StageCheck::Behaviour]);
    let died = || halted(HaltReason::QemuDied { how: "signal: 9".into(), stderr: String::new() });
    let result = five.validate(EVERY.into_iter().map(|name| (name, died())).collect());
    found(&result, "behaviour", Outcome::Failed, None, "QEMU");
    let letter = letter(&five, &result);
    assert!(letter.ends_with("\n  Nothing was observed: no test has a result.\n"), "{letter}");
}

fn with_warning(names: &[VariantName], all: &[VariantName]) -> Vec<(VariantName, BootReport)> {
    let report = |name: &VariantName| {
        if names.contains(name) { warning() } else { completed(&[("kicks", 9)]) }
    };
    all.iter().map(|name| (*name, report(name))).collect()
}

#[test]
fn a_new_splat_of_the_ends_is_looked_for_in_as_few_prefixes_as_it_takes() {
    // Five patches, the fourth is it: 3 is good, 4 is bad. What patched shows once counts:
    // it is not booted again.
    let boots = with_warning(&[Patch(4), Patched], &[Patched, Base, Patch(2), Patch(3), Patch(4)]);
    let result = five(&[StageCheck::Boots]).validate(boots);
    found(
        &result,
        "boots",
        Outcome::Failed,
        Some(4),
        "new splat: WARNING in broken, guest up, at patch 4 of 5 (mm: change 4)",
    );
    assert_eq!(result.exit_code, ExitCode::Behaviour);
    assert_eq!(check(&result, "boots").runs.len(), 5);
}

#[test]
fn a_kernel_with_which_nothing_is_wrong_needs_no_other_beside_it() {
    let result =
        five(&[StageCheck::Builds, StageCheck::Boots]).validate(with_warning(&[], &[Patched]));
    found(&result, "builds", Outcome::Ok, None, "1 kernel, no warnings");
    found(&result, "boots", Outcome::Ok, None, "1 test, no new splats");
}

#[test]
fn warnings_of_the_patched_kernel_are_compared_with_those_of_base() {
    let warning = |text: &str| Warning {
        identity: Identity {
            file: "mm/a.c".to_owned(),
            function: None,
            kind: "-Wunused".to_owned(),
            text: text.to_owned(),
        },
        line: 1,
        column: 1,
    };
    let mut five = five(&[StageCheck::Builds]);
    for name in EVERY {
        five.case.build.warnings.insert(name, vec![warning("old")]);
    }
    let result = five.validate(Vec::new());
    found(&result, "builds", Outcome::Ok, None, "2 kernels, no new warnings");
    five.case.build.warnings.insert(Patched, vec![warning("old"), warning("fresh")]);
    let result = five.validate(Vec::new());
    found(&result, "builds", Outcome::Failed, Some(5), "fresh");
}

#[test]
fn without_a_base_kernel_nothing_that_patched_shows_is_called_new() {
    let mut five = five(&[StageCheck::Boots]);
    five.case.build.images.insert(Base, Err(Fault::infra("base does not build")));
    let result = five.validate(with_warning(&[Patched], &[Patched]));
    found(&result, "boots", Outcome::Failed, None, "base does not build");
    assert_eq!(result.exit_code, ExitCode::Infra);
}

#[test]
fn a_splat_that_base_has_is_not_the_series_fault() {
    let result = five(&[StageCheck::Boots]).validate(with_warning(&EVERY, &[Base, Patched]));
    found(&result, "boots", Outcome::Ok, None, "no new splats, 1 that base has, too");
    // One that a plan allows needs no base.
    let mut five = five(&[StageCheck::Boots]);
    let allowance = SplatAllowance { pattern: "WARNING in *".into(), reason: "known".into() };
    five.case.plan.allow.push(allowance);
    let result = five.validate(with_warning(&[Patched], &[Patched]));
    found(&result, "boots", Outcome::Ok, None, "no new splats");
}

#[test]
fn a_kernel_that_dies_with_the_series_only_is_its_fault_and_with_both_nobodys() {
    let dead = || halted(HaltReason::Reset);
    let alive = || completed(&[("kicks", 9)]);
    let mut boots = vec![(Base, alive()), (Patched, dead())];
    // 2 and 3 are tried: patch 3 it is.
    boots.extend([(Patch(2), alive()), (Patch(3), dead())]);
    let result = five(&[StageCheck::Boots]).validate(boots);
    found(&result, "boots", Outcome::Failed, Some(3), "at patch 3 of 5");
    assert_eq!(result.exit_code, ExitCode::Kernel);

    let result = five(&[StageCheck::Boots]).validate(vec![(Base, dead()), (Patched, dead())]);
    found(&result, "boots", Outcome::Inconclusive, None, "no result without the series");
    assert_eq!(result.exit_code, ExitCode::Inconclusive);
}

#[test]
fn what_the_same_bytes_show_once_is_no_work_of_the_series() {
    let mut five = five(&[StageCheck::Boots]);
    five.case.build.images.insert(Patched, five.case.build.images[&Base].clone());
    for seen in [warning(), halted(HaltReason::Reset)] {
        let result = five.validate(vec![(Patched, seen), (Base, completed(&[("kicks", 9)]))]);
        found(&result, "boots", Outcome::Ok, None, "it is the same kernel");
        assert_eq!(check(&result, "boots").finding.details.len(), 1, "{result:#?}");
        assert_eq!(result.exit_code, ExitCode::Acceptable);
    }
}

#[test]
fn beside_a_base_that_did_not_come_to_its_end_nothing_is_new() {
    let infra = || halted(HaltReason::QemuDied { how: "signal: 9".into(), stderr: String::new() });
    let reset = || halted(HaltReason::Reset);
    let boots = |base| vec![(Patched, warning()), (Base, base)];
    let told = |result: &ValidateResult, name: &str| {
        let details = &check(result, name).finding.details;
        let words = "WARNING in broken: whether it is new cannot be told";
        assert!(details.iter().any(|line| line == words), "{result:#?}");
    };
    let result = five(&[StageCheck::Boots]).validate(boots(infra()));
    found(&result, "boots", Outcome::Failed, None, "QEMU");
    told(&result, "boots");
    assert_eq!(result.exit_code, ExitCode::Infra);
    let result = five(&[StageCheck::Boots]).validate(boots(reset()));
    found(&result, "boots", Outcome::Inconclusive, None, "1 test has no result without the series");
    told(&result, "boots");
    // The same of a config in which every kernel is booted.
    let every = |base| {
        let rest = EVERY.into_iter().skip(1).map(|name| (name, warning()));
        std::iter::once((Base, base)).chain(rest).collect()
    };
    let result = five(&[StageCheck::Behaviour]).validate(every(infra()));
    found(&result, "behaviour", Outcome::Failed, None, "QEMU");
    told(&result, "behaviour");
    assert_eq!(result.exit_code, ExitCode::Infra);
    let result = five(&[StageCheck::Behaviour]).validate(every(reset()));
    found(&result, "behaviour", Outcome::Inconclusive, None, "1 test has no result");
    told(&result, "behaviour");
}

#[test]
fn a_prefix_that_does_not_build_leaves_a_range() {
    let mut five = five(&[StageCheck::Boots]);
    for name in [Patch(3), Patch(4)] {
        five.case.build.images.insert(name, Err(Fault::new(Blame::Series, "does not build")));
    }
    let boots = with_warning(&[Patched], &[Base, Patched, Patch(2)]);
    let result = five.validate(boots);
    found(&result, "boots", Outcome::Failed, None, "at one of the patches 3 to 5 of 5");
}

fn counted(value: f64) -> BootReport {
    let mut report = completed(&[]);
    report.report.samples = vec![Sample {
        metric: "latency".into(),
        unit: "instructions".into(),
        better: Better::Lower,
        parameters: Parameters::new(),
        value,
        beside: BTreeMap::new(),
    }];
    report
}

/// The first phase is taken twice; of prefixes it is all.
fn counts(variant: VariantName, value: f64) -> Vec<(VariantName, BootReport)> {
    let times = if matches!(variant, Patch(_)) { 2 } else { 3 };
    (0..times).map(|_| (variant, counted(value))).collect()
}

#[test]
fn three_percent_more_fail_and_name_the_patch() {
    let mut boots = [counts(Base, 1e6), counts(Patched, 1.03e6)].concat();
    // 1 % comes before; it is the 2 % of patch 5 that make most of it.
    boots.extend(
        [counts(Patch(2), 1e6), counts(Patch(3), 1.01e6), counts(Patch(4), 1.01e6)].concat(),
    );
    let result = five(&[StageCheck::Performance]).validate(boots);
    let words =
        "latency regressed +3.00 % (instructions), guest up, at patch 5 of 5 (mm: change 5)";
    found(&result, "performance", Outcome::Failed, Some(5), words);
    assert_eq!(result.exit_code, ExitCode::Behaviour);
}

#[test]
fn counts_that_are_not_exact_are_taken_once_more() {
    let odd = || vec![(Base, counted(1e6)), (Base, counted(1e6 + 16.0))];
    let good = || [counts(Base, 1e6), counts(Patched, 1e6)].concat();
    let once = [odd(), counts(Patched, 1e6), good()].concat();
    let result = five(&[StageCheck::Performance]).validate(once);
    found(&result, "performance", Outcome::Ok, None, "1 unchanged");
    assert_eq!(check(&result, "performance").runs.len(), 2);
    let twice = [odd(), counts(Patched, 1e6), odd(), counts(Patched, 1e6)].concat();
    let result = five(&[StageCheck::Performance]).validate(twice);
    found(&result, "performance", Outcome::Failed, None, "two counts of the same thing differ");
    assert_eq!(result.exit_code, ExitCode::Infra);
}

#[test]
fn less_than_the_threshold_is_told_and_passes() {
    let result = five(&[StageCheck::Performance])
        .validate([counts(Base, 1e6), counts(Patched, 1.01e6)].concat());
    found(&result, "performance", Outcome::Ok, None, "1 worse by less than 2 %");
    let result = five(&[StageCheck::Performance])
        .validate([counts(Base, 1e6), counts(Patched, 0.9e6)].concat());
    found(&result, "performance", Outcome::Ok, None, "1 improved");
    let result = five(&[StageCheck::Performance])
        .validate([counts(Base, 1e6), counts(Patched, 1e6)].concat());
    found(&result, "performance", Outcome::Ok, None, "1 unchanged");
}

#[test]
fn tests_that_cannot_run_are_told() {
    let mut five = five(&[StageCheck::Boots]);
    five.case.plan.cells[0].tests.push(Test { name: "selftest_pass".into(), ..Test::default() });
    let pass = || completed(&[("passed", 1)]);
    let boots = vec![(Patched, skipped()), (Patched, pass())];
    let result = five.validate(boots);
    found(
        &result,
        "boots",
        Outcome::Ok,
        None,
        "2 tests, no new splats, 1 skipped in whole or part",
    );
    assert!(check(&result, "boots").finding.details[0].contains("no such file"));
}

#[test]
fn a_selftest_that_the_kernel_does_not_have_is_told_and_not_run() {
    let mut five = five(&[StageCheck::Boots]);
    let program = Program {
        source: ProgramSource::Kselftest("mm/later".to_owned()),
        arguments: Vec::new(),
        environment: BTreeMap::new(),
        format: Format::Ktap,
        files: Vec::new(),
        place: String::new(),
    };
    let test = Test { name: "mm.later".into(), program: Some(program), ..Test::default() };
    five.case.plan.cells[0].tests.push(test);
    let pass = || completed(&[("passed", 1)]);
    let result = five.validate(vec![(Patched, pass())]);
    found(&result, "boots", Outcome::Ok, None, "1 test, no new splats");
    let told = "mm/later skipped: linux-source-6.12 6.12.1-1 has no such selftest";
    assert!(check(&result, "boots").finding.details.iter().any(|detail| detail == told));
}

#[test]
fn checkpatch_fails_by_errors_and_tells_warnings() {
    let mut five = five(&[]);
    let line = |text: &str| vec![text.to_owned()];
    let mut all = vec![Findings::default(); 5];
    all[2].warnings = line("line 7: LONG_LINE: too long");
    five.script = FakeScript(Checked::Patches(all.clone()));
    found(&five.validate(Vec::new()), "checkpatch", Outcome::Ok, None, "0 errors, 1 warnings");
    all[3].errors = line("line 9: CODE_INDENT: tabs");
    five.script = FakeScript(Checked::Patches(all));
    let result = five.validate(Vec::new());
    found(
        &result,
        "checkpatch",
        Outcome::Failed,
        Some(4),
        "at patch 4 of 5 (mm: change 4): error, line 9",
    );
    assert_eq!(result.exit_code, ExitCode::Series);
}

#[test]
fn the_first_failure_is_the_last_check_where_that_is_asked_for() {
    let mut five = five(&[StageCheck::Boots]);
    let mut all = vec![Findings::default(); 5];
    all[0].errors = vec!["line 1: X: y".to_owned()];
    five.script = FakeScript(Checked::Patches(all));
    five.fail_fast = true;
    let result = five.validate(Vec::new());
    found(&result, "boots", Outcome::Skipped, None, "--fail-fast, after checkpatch");
}

#[test]
fn several_failures_exit_by_the_rule_and_the_summary_has_a_line_for_each() {
    let mut five = five(&[StageCheck::Builds, StageCheck::Behaviour]);
    let mut all = vec![Findings::default(); 5];
    all[0].errors = vec!["line 1: X: y".to_owned()];
    five.script = FakeScript(Checked::Patches(all));
    let result = five.validate(observed([9, 9, 4, 9, 9, 9]));
    assert_eq!(result.exit_code, ExitCode::Series);
    let page = render::render(&result, false) + &render::verdict(&result, false);
    // Seconds are not the same every time.
    let page: Vec<&str> = page.lines().collect();
    for (line, start) in
        page[3..].iter().zip(["  applies", "  checkpatch", "  builds", "  behaviour"])
    {
        assert!(line.starts_with(start), "{page:#?}");
    }
    assert!(
        page.last().unwrap().starts_with("exit 5: series fault; 2 of 4 checks passed, 2 failed"),
        "{page:#?}"
    );
}
