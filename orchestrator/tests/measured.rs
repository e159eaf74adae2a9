// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run concludes from counted figures, with fakes for building and booting.

mod common;

use std::collections::BTreeMap;

use common::case::{Case, completed};
use kvet::compare::metrics::MetricVerdict;
use kvet::fault::{Blame, ExitCode};
use kvet::plan::manifest::{Measure, VariantName};
use kvet::plan::{Cell, Test};
use kvet::transport::virtio::Sample;
use kvet::vm::halt::BootReport;
use kvet_records::{Better, Parameters};

use VariantName::{Base, Patched};

/// A cell whose one test measures, at two phases.
fn case() -> Case {
    let mut case = Case::new();
    case.plan.instructions.phases = 2;
    case.plan.cells[0].series.expect.clear();
    case.plan.cells[0].tests = vec![Test {
        name: "process_madvise".into(),
        measure: Some(Measure::Instructions),
        ..Test::default()
    }];
    case
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

/// The reports of a variant: the first phase twice, then the second.
fn reports(variant: VariantName, values: [f64; 3]) -> Vec<(VariantName, BootReport)> {
    values.iter().map(|&value| (variant, counted(value))).collect()
}

fn both(base: [f64; 3], patched: [f64; 3]) -> Vec<(VariantName, BootReport)> {
    [reports(Base, base), reports(Patched, patched)].concat()
}

#[test]
fn counts_have_a_verdict_that_gates_only_where_the_plan_says_so() {
    let mut case = case();
    let worse = || both([1e6, 1e6, 1e6 + 1.0], [2e6, 2e6, 2e6 + 1.0]);
    let result = case.run(worse());
    let metric = &result.cells[0].tests[0].metrics[0];
    assert_eq!(metric.verdict, Some(MetricVerdict::Regressed));
    assert_eq!(metric.figures[&Base].values, [1e6, 1e6 + 1.0]);
    assert_eq!(result.exit_code, ExitCode::Acceptable);

    case.plan.instructions.gate = true;
    assert_eq!(case.run(worse()).exit_code, ExitCode::Behaviour);
    let better = both([2e6, 2e6, 2e6], [1e6, 1e6, 1e6]);
    assert_eq!(case.run(better).exit_code, ExitCode::Acceptable);
    let unclear = both([1e6, 1e6, 3e6], [2e6, 2e6, 4e6]);
    assert_eq!(case.run(unclear).exit_code, ExitCode::Inconclusive);
}

#[test]
fn two_counts_at_one_phase_that_differ_are_a_fault_and_no_average() {
    let result = case().run(both([1e6, 1e6 + 7.0, 1e6], [2e6, 2e6, 2e6]));
    assert_eq!(result.exit_code, ExitCode::Infra);
    let test = &result.cells[0].tests[0];
    assert_eq!(test.faults[0].blame, Blame::Infra);
    let evidence = test.faults[0].evidence.join("\n");
    assert!(evidence.contains("latency: 1000000, then 1000007 (+7)"), "{evidence}");
    assert_eq!(test.metrics[0].verdict, None);
}

#[test]
fn a_variant_without_a_figure_has_no_verdict() {
    let mut reports = both([1e6; 3], [1e6; 3]);
    for (variant, report) in &mut reports {
        if *variant == Patched {
            report.report.samples.clear();
        }
    }
    let result = case().run(reports);
    assert_eq!(result.cells[0].tests[0].metrics[0].verdict, None);
}

#[test]
fn what_holds_on_one_cpu_only_is_not_claimed() {
    let mut case = case();
    let own = case.plan.cells[0].clone();
    let mut other = Cell { variation_of: Some(own.id()), ..own.clone() };
    other.guest.name = "up.amd".into();
    case.plan.cells.push(other);
    let here = both([2e6; 3], [1e6; 3]);
    let result = case.run([here.clone(), both([2e6; 3], [1.5e6; 3])].concat());
    assert_eq!(result.robustness[0].claim, Some(MetricVerdict::Improved));
    assert_eq!(result.robustness[0].most.delta_percent, -25.0);
    let result = case.run([here, both([2e6; 3], [2e6; 3])].concat());
    assert_eq!(result.robustness[0].claim, None);
}
