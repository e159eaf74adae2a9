// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipeline's logic with fakes for building and booting: what a run
//! concludes from what its parts report. No kernel, no QEMU.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use common::case::{Case, FakeBoot, completed, halted, report, skipped, warning};
use kvet::fault::{ExitCode, Fault};
use kvet::kernel::warning::{Identity, Warning};
use kvet::plan::manifest::{SplatAllowance, VariantName};
use kvet::plan::{PatchFile, Program, ProgramSource, Test};
use kvet::run::event::Events;
use kvet::run::folder::RunFolder;
use kvet::run::pipeline::run;
use kvet::run::result::Environment;
use kvet::vm::halt::{BootReport, HaltReason};
use kvet::vm::splat::SplatKind;
use kvet_records::{Format, Outcome};

use VariantName::{Base, Patch, Patched};

#[test]
fn the_declared_change_is_acceptable() {
    let result = Case::new().run(vec![
        (Base, completed(&[("kicks", 9), ("other", 1)])),
        (Patched, completed(&[("kicks", 5), ("other", 1)])),
    ]);
    assert_eq!(result.exit_code, ExitCode::Acceptable);
    insta::assert_snapshot!(report(&result));
}

#[test]
fn a_change_that_did_not_come_is_not() {
    let same = || completed(&[("kicks", 9)]);
    let result = Case::new().run(vec![(Base, same()), (Patched, same())]);
    assert_eq!(result.exit_code, ExitCode::Behaviour);
    insta::assert_snapshot!(report(&result));
}

#[test]
fn a_new_splat_is_not_acceptable_unless_the_plan_allows_it() {
    let mut case = Case::new();
    case.plan.cells[0].series.expect.clear();
    let reports = || vec![(Base, completed(&[("kicks", 9)])), (Patched, warning())];
    let result = case.run(reports());
    assert_eq!(result.exit_code, ExitCode::Behaviour);
    insta::assert_snapshot!(report(&result));
    case.plan.allow =
        vec![SplatAllowance { pattern: "WARNING in broken".into(), reason: "known".into() }];
    assert_eq!(case.run(reports()).exit_code, ExitCode::Acceptable);
}

#[test]
fn a_splat_of_both_or_of_base_alone_does_not_count() {
    let mut case = Case::new();
    case.plan.cells[0].series.expect.clear();
    assert_eq!(
        case.run(vec![(Base, warning()), (Patched, warning())]).exit_code,
        ExitCode::Acceptable
    );
    case.selection.strict = true;
    let both = case.run(vec![(Base, warning()), (Patched, warning())]);
    assert_eq!(both.exit_code, ExitCode::Behaviour);
    let gone = vec![(Base, warning()), (Patched, completed(&[("kicks", 9)]))];
    assert_eq!(case.run(gone).exit_code, ExitCode::Acceptable);
}

#[test]
fn a_dead_guest_is_a_fault_and_never_a_verdict() {
    let ends = [
        (
            HaltReason::Kernel { kind: SplatKind::KernelBug, title: "kernel BUG in f".into() },
            ExitCode::Kernel,
        ),
        (HaltReason::ExitHang { seconds: 20 }, ExitCode::Kernel),
        (HaltReason::UnexpectedEnd, ExitCode::Kernel),
        (HaltReason::QemuStuck, ExitCode::Infra),
        (HaltReason::Reset, ExitCode::Kernel),
        (HaltReason::GuestHang { seconds: 120 }, ExitCode::Kernel),
        (HaltReason::TestHang { seconds: 120 }, ExitCode::Test),
        (HaltReason::Violation { what: "x".into(), line: "y".into() }, ExitCode::Test),
        (
            HaltReason::QemuDied { how: "killed by signal 9".into(), stderr: String::new() },
            ExitCode::Infra,
        ),
        (
            HaltReason::QemuRefused { how: "exit status 1".into(), stderr: "no".into() },
            ExitCode::Infra,
        ),
    ];
    for (halt, code) in ends {
        let reports = vec![(Base, completed(&[("kicks", 9)])), (Patched, halted(halt.clone()))];
        let result = Case::new().run(reports);
        assert_eq!(result.exit_code, code, "{halt}");
        let behaviour = result.cells[0].tests[0].behaviour.as_ref().unwrap();
        assert_eq!((behaviour.verdict, behaviour.observations.len()), (None, 1), "{halt}");
    }
}

#[test]
fn what_can_be_concluded_when_one_kernel_hangs_is_said() {
    let hang = || halted(HaltReason::GuestHang { seconds: 120 });
    let done = || completed(&[("kicks", 9)]);
    for (base, patched, words) in [
        (hang(), done(), "patched completes this test and base does not"),
        (done(), hang(), "base completes this test and patched does not"),
        (hang(), hang(), "neither kernel completes this test"),
    ] {
        let result = Case::new().run(vec![(Base, base), (Patched, patched)]);
        assert_eq!(result.exit_code, ExitCode::Kernel);
        assert!(report(&result).contains(words), "{}", report(&result));
    }
}

#[test]
fn tests_that_die_are_test_faults() {
    for outcome in [
        Outcome::Killed { signal: 11 },
        Outcome::Exited { status: 3 },
        Outcome::Failed { reason: "no reason\u{1b}[2J".into() },
    ] {
        let mut dead = completed(&[("kicks", 9)]);
        dead.report.outcome = Some(outcome);
        let result = Case::new().run(vec![(Base, dead), (Patched, completed(&[("kicks", 5)]))]);
        assert_eq!(result.exit_code, ExitCode::Test);
    }
}

#[test]
fn a_test_that_was_skipped_everywhere_is_no_pass() {
    let result = Case::new().run(vec![(Base, skipped()), (Patched, skipped())]);
    assert_eq!(result.exit_code, ExitCode::Inconclusive);
    insta::assert_snapshot!(report(&result));
}

#[test]
fn a_test_that_only_one_kernel_can_run_found_a_difference() {
    let result = Case::new().run(vec![(Base, completed(&[("kicks", 9)])), (Patched, skipped())]);
    assert_eq!(result.exit_code, ExitCode::Behaviour);
}

#[test]
fn a_variant_that_does_not_build_stops_its_cell_and_keeps_what_was_built() {
    let mut case = Case::new();
    let fault = Fault::series("does not build").at("a.log").evidence("mm/a.c:1:1: error: no");
    case.build.images.insert(Patched, Err(fault));
    let result = case.run(Vec::new());
    assert_eq!(result.exit_code, ExitCode::Series);
    assert!(result.cells[0].variants.contains_key(&Base));
    insta::assert_snapshot!(report(&result));
}

#[test]
fn equal_images_are_identical_and_not_booted() {
    let mut case = Case::new();
    case.build.images.insert(Patched, Ok("0123456789ab"));
    let result = case.run(Vec::new());
    assert_eq!(result.exit_code, ExitCode::Inconclusive);
    assert!(result.cells[0].identical);
    case.plan.allow_identical = true;
    // The series declares a change, which cannot have come.
    assert_eq!(case.run(Vec::new()).exit_code, ExitCode::Inconclusive);
    case.plan.cells[0].series.expect.clear();
    assert_eq!(case.run(Vec::new()).exit_code, ExitCode::Acceptable);
}

#[test]
fn an_interrupt_starts_nothing_new_and_keeps_what_was_done() {
    let mut case = Case::new();
    let cell = case.plan.cells[0].clone();
    case.plan.cells[0].tests.push(Test { name: "second".into(), ..Test::default() });
    case.plan.cells.push(cell);
    let result = case.run(vec![
        (Base, completed(&[("kicks", 9)])),
        (Patched, completed(&[("kicks", 5)])),
        (Base, halted(HaltReason::Interrupted)),
    ]);
    assert_eq!(result.exit_code, ExitCode::Interrupted);
    assert_eq!(result.cells.len(), 1);
    assert!(result.cells[0].tests[0].behaviour.is_some());
}

#[test]
fn a_declared_change_that_no_test_looks_at_is_no_pass() {
    let mut case = Case::new();
    case.plan.cells[0].series.expect[0].test = "another".into();
    let same = || completed(&[("kicks", 9)]);
    let result = case.run(vec![(Base, same()), (Patched, same())]);
    assert_eq!(result.exit_code, ExitCode::Inconclusive);
    assert!(
        report(&result).contains("not checked: cold declares a change of kicks in test another")
    );
}

#[test]
fn an_interrupt_keeps_what_base_observed_and_blames_nobody() {
    let reports =
        vec![(Base, completed(&[("kicks", 9)])), (Patched, halted(HaltReason::Interrupted))];
    let result = Case::new().run(reports);
    assert_eq!(result.exit_code, ExitCode::Interrupted);
    assert!(result.cells[0].tests[0].behaviour.is_some());
    assert!(!report(&result).contains("series;"), "{}", report(&result));
}

#[test]
fn one_variant_alone_is_observed_without_a_verdict() {
    let mut case = Case::new();
    case.selection.variants = vec![Patched];
    let result = case.run(vec![(Patched, completed(&[("kicks", 5)]))]);
    assert_eq!(result.exit_code, ExitCode::Inconclusive);
    assert!(report(&result).contains("nothing was compared"));
    assert_eq!(result.cells[0].tests[0].behaviour.as_ref().unwrap().verdict, None);
}

#[test]
fn boots_of_a_variant_that_differ_are_a_fault_and_no_verdict() {
    let mut case = Case::new();
    case.selection.boots = 3.try_into().unwrap();
    let steady = |kicks| vec![(Base, completed(&[("kicks", kicks)])); 3];
    let patched = |last| {
        [5, 5, last].map(|kicks| (Patched, completed(&[("kicks", kicks)]))).into_iter().collect()
    };
    let result = case.run([steady(9), patched(5)].concat());
    assert_eq!(result.exit_code, ExitCode::Acceptable);
    assert!(report(&result).contains("the same in 3 boots of each variant"));

    let result = case.run([steady(9), patched(6)].concat());
    assert_eq!(result.exit_code, ExitCode::Test);
    let text = report(&result);
    assert!(text.contains("boot 3 did not observe what boot 1 did"), "{text}");
    assert!(text.contains("kicks: 5, then 6"), "{text}");
    assert!(!text.contains("behaviour expected"), "{text}");

    // A skip that comes and goes is a difference, too.
    let mut reports = steady(9);
    reports.extend([(Patched, completed(&[])), (Patched, skipped())]);
    let result = case.run(reports);
    assert_eq!(result.exit_code, ExitCode::Test);
}

/// A series of as many patches as the case has prefixes to build.
fn per_patch(images: &[Result<&'static str, Fault>]) -> Case {
    let mut case = Case::new();
    let total = images.len() - 1;
    let cell = &mut case.plan.cells[0];
    cell.series.patches = (1..=total)
        .map(|number| PatchFile {
            name: format!("{number:04}.patch"),
            subject: Some(format!("mm: step {number}")),
            path: PathBuf::new(),
            strip: 1,
            bytes: Vec::new(),
        })
        .collect();
    cell.variants = VariantName::every(total);
    case.build.images = cell.variants.iter().copied().zip(images.iter().cloned()).collect();
    case
}

#[test]
fn every_prefix_of_a_series_is_tested_and_has_its_column() {
    let case = per_patch(&[Ok("0123456789ab"), Ok("1123456789ab"), Ok("2123456789ab")]);
    let mut splat = warning();
    splat.report.observations = [("kicks".to_owned(), 7i64.into())].into();
    splat.report.observations.insert("other".into(), 2i64.into());
    let result = case.run(vec![
        (Base, completed(&[("kicks", 9), ("other", 1)])),
        (Patch(1), splat),
        (Patched, completed(&[("kicks", 5), ("other", 1)])),
    ]);
    assert_eq!(result.exit_code, ExitCode::Behaviour);
    insta::assert_snapshot!(report(&result));
}

#[test]
fn a_prefix_that_does_not_build_is_named_with_the_patch_that_mends_it() {
    let fault = || Fault::series("patch-NN does not build").evidence("mm/a.c:1:1: error: no");
    let case = per_patch(&[
        Ok("0123456789ab"),
        Ok("1123456789ab"),
        Err(fault()),
        Err(fault()),
        Ok("2123456789ab"),
    ]);
    let result = case.run(Vec::new());
    assert_eq!(result.exit_code, ExitCode::Series);
    insta::assert_snapshot!(report(&result));
}

#[test]
fn warnings_are_compared_from_each_prefix_to_the_next() {
    let warning = |text: &str, line| Warning {
        identity: Identity {
            file: "mm/a.c".into(),
            function: Some("f".into()),
            kind: "-Wunused-variable".into(),
            text: text.into(),
        },
        line,
        column: 1,
    };
    let mut case = per_patch(&[Ok("0123456789ab"), Ok("1123456789ab"), Ok("2123456789ab")]);
    case.selection.build_only = true;
    case.build.warnings = [
        (Base, vec![warning("unused variable 'x'", 3)]),
        (Patch(1), vec![warning("unused variable 'x'", 4), warning("unused variable 'z'", 9)]),
        (Patched, vec![warning("unused variable 'y'", 4)]),
    ]
    .into();
    let result = case.run(Vec::new());
    assert_eq!(result.exit_code, ExitCode::Acceptable);
    insta::assert_snapshot!(report(&result));
    case.build.warnings.remove(&Base);
    assert!(report(&case.run(Vec::new())).contains("those of base were not kept"));
}

/// A case whose one test is a program that prints TAP.
fn program_case() -> Case {
    let mut case = Case::new();
    case.plan.cells[0].series.expect.clear();
    case.plan.cells[0].tests = vec![Test {
        name: "mine".into(),
        program: Some(Program {
            source: ProgramSource::Exec("/bin/true".into()),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            format: Format::Tap,
            files: Vec::new(),
            place: "mine.yaml:1:1".into(),
        }),
        ..Test::default()
    }];
    case
}

fn printed(text: &str, outcome: Outcome) -> BootReport {
    let mut report = completed(&[]);
    report.report.output = text.lines().map(str::to_owned).collect();
    report.report.outcome = Some(outcome);
    report
}

const ONE_FAILS: &str = "TAP version 13\n1..3\nok 1 a\nnot ok 2 b\nok 3 c # SKIP no swap\n";

#[test]
fn what_fails_without_the_series_too_is_shown_and_not_blamed_on_it() {
    let failed = || printed(ONE_FAILS, Outcome::Exited { status: 1 });
    let result = program_case().run(vec![(Base, failed()), (Patched, failed())]);
    assert_eq!(result.exit_code, ExitCode::Acceptable);
    assert_eq!(result.cells[0].initramfs.as_deref(), Some("0123"));
    insta::assert_snapshot!(report(&result));
}

#[test]
fn what_the_series_breaks_is_unexpected() {
    let good = ONE_FAILS.replace("not ok 2", "ok 2");
    let result = program_case().run(vec![
        (Base, printed(&good, Outcome::Completed)),
        (Patched, printed(ONE_FAILS, Outcome::Exited { status: 1 })),
    ]);
    assert_eq!(result.exit_code, ExitCode::Behaviour);
    insta::assert_snapshot!(report(&result));
}

#[test]
fn a_program_that_dies_in_the_middle_has_changed() {
    let good = ONE_FAILS.replace("not ok 2", "ok 2");
    let result = program_case().run(vec![
        (Base, printed(&good, Outcome::Completed)),
        (Patched, printed("TAP version 13\n1..3\nok 1 a\n", Outcome::Killed { signal: 11 })),
    ]);
    assert_eq!(result.exit_code, ExitCode::Behaviour);
    let text = report(&result);
    assert!(text.contains("signal 11 (SIGSEGV)"), "{text}");
}

#[test]
fn a_program_in_which_nothing_passes_says_nothing() {
    let failed = || printed("TAP version 13\n1..1\nnot ok 1 a\n", Outcome::Exited { status: 1 });
    let result = program_case().run(vec![(Base, failed()), (Patched, failed())]);
    assert_eq!(result.exit_code, ExitCode::Inconclusive);
    assert!(report(&result).contains("nothing passed in test mine"), "{}", report(&result));
    let skipped = || printed("1..0 # SKIP no swap\n", Outcome::Exited { status: 4 });
    let result = program_case().run(vec![(Base, skipped()), (Patched, skipped())]);
    assert_eq!(result.exit_code, ExitCode::Inconclusive);
    assert!(report(&result).contains("skipped: base: no swap"), "{}", report(&result));
}

#[test]
fn a_long_table_counts_what_passes_everywhere_and_shows_what_fails() {
    let lines: String = (1..=60)
        .map(|at| match at {
            7 => format!("not ok {at} odd\n"),
            at if at % 3 == 0 => format!("ok {at} # SKIP no hugetlb\n"),
            at => format!("ok {at} no leak\n"),
        })
        .collect();
    let text = format!("TAP version 13\n1..60\n{lines}");
    let failed = || printed(&text, Outcome::Exited { status: 1 });
    let result = program_case().run(vec![(Base, failed()), (Patched, failed())]);
    insta::assert_snapshot!(report(&result));
}

#[test]
fn a_program_goes_to_the_guest_in_its_job() {
    let case = program_case();
    let boot = FakeBoot {
        reports: RefCell::new(vec![
            (Base, printed(ONE_FAILS, Outcome::Completed)),
            (Patched, printed(ONE_FAILS, Outcome::Completed)),
        ]),
        jobs: RefCell::default(),
    };
    let folder = RunFolder::create(&case.folder.path().join("runs"), "mine").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(
        &case.plan,
        &case.selection,
        &case.build,
        &boot,
        &folder,
        &Events::default(),
        Environment::default(),
    ));
    let jobs = boot.jobs.borrow();
    let paths: Vec<&str> =
        jobs.iter().filter_map(|job| Some(job.program.as_ref()?.path.as_str())).collect();
    assert_eq!(paths, ["/bin/true", "/bin/true"]);
    let output = folder.path().join("boots/cold.debian-6.12.microvm.up/base/mine/output.log");
    assert_eq!(std::fs::read_to_string(output).unwrap(), ONE_FAILS);
}
