// SPDX-License-Identifier: MIT OR Apache-2.0

use kvet_records::{Better, Parameters, Value};
use proptest::prelude::*;

use super::*;
use crate::compare::metrics::MetricResult;
use crate::fault::Fault;
use crate::report::sample::{cell, measured, metric, observed, run};

fn machine(parameters: &[(&str, &str)]) -> Machine {
    let pair = |&(name, value): &(&str, &str)| (name.to_owned(), Value::from(value));
    Machine {
        machine: "microvm".to_owned(),
        cpu: "max,-erms".to_owned(),
        memory: "1.0 GiB".to_owned(),
        vcpus: 1,
        parameters: parameters.iter().map(pair).collect::<Parameters>(),
    }
}

/// The letter of a run whose measured tests ran in the same machine.
fn letter(result: &RunResult, machine: Option<&Machine>) -> String {
    let mut machines = Machines::default();
    for cell in &result.cells {
        for test in cell.tests.iter().filter(|test| !test.metrics.is_empty()) {
            if let Some(machine) = machine {
                machines.insert(cell, test, machine.clone());
            }
        }
    }
    let letter = render(result, &machines);
    text::check(&letter);
    letter
}

fn madvise() -> RunResult {
    let rows: [(&str, i64, f64, f64); 6] = [
        ("dontneed", 1, 26_804_095.0, 27_123_589.0),
        ("dontneed", 2, 24_459_233.0, 21_151_673.0),
        ("dontneed", 1024, 21_520_501.0, 14_536_794.0),
        ("free", 1, 28_101_033.0, 28_121_050.0),
        ("free", 2, 25_756_253.0, 23_290_259.0),
        ("free", 1024, 22_787_522.0, 17_561_745.0),
    ];
    let mut metrics: Vec<MetricResult> = Vec::new();
    for (advice, vlen, base, patched) in rows {
        let of = |name, base: &[f64], patched: &[f64]| {
            metric(name, &[("vlen", vlen)], (base, patched)).text("advice", advice)
        };
        let switches = if (advice, vlen) == ("dontneed", 1024) { 4 } else { 0 };
        let latency = of("latency", &[base, base + 2500.0], &[patched, patched + 2500.0]);
        metrics.push(latency.beside([("switches", (switches, switches))]).result());
        let calls = 8192 / vlen;
        let each = |whole: f64| (whole / calls as f64).round();
        let call = of("call", &[each(base); 2], &[each(patched); 2]);
        metrics.push(call.beside([("calls", (calls, calls))]).result());
        let events = |name, base: i64| {
            of(name, &[base as f64; 2], &[1.0; 2]).unit("events/call", Better::Lower).result()
        };
        metrics.extend([events("flushes", vlen), events("locks", 1)]);
    }
    let facts = observed(
        "process_madvise",
        &[
            ("contents.dontneed.vlen_64", "zero".into(), "zero".into(), false),
            ("flushes.dontneed.vlen_64", 64_i64.into(), 1_i64.into(), true),
        ],
    );
    let smp = cell("madvise-batch-tlb", "smp", vec![facts]);
    let up =
        cell("madvise-batch-tlb", "up", vec![measured("process_madvise.instructions", metrics)]);
    run("madvise-batch-tlb-counted", vec![smp, up])
}

#[test]
fn process_madvise_has_the_table_of_its_mail() {
    insta::assert_snapshot!(letter(&madvise(), Some(&machine(&[("memory", "32MiB")]))));
}

#[test]
fn thp_disable_has_the_table_of_its_mail() {
    let rows = [(0, 4975.0, 5016.0), (50, 14_367.0, 5181.0), (800, 120_879.0, 5181.0)];
    let mut metrics = Vec::new();
    for (vmas, base, patched) in rows {
        let of = |name, base: f64, patched: &[f64; 3]| {
            let metric = metric(name, &[("vmas", vmas)], (&[base; 3], patched));
            metric.beside([("passes", (30, 30))]).result()
        };
        let least = if vmas == 800 { patched - 138.0 } else { patched };
        metrics.push(of("pass", base, &[patched, patched, least]));
        if vmas > 0 {
            metrics.push(of("walk", base - 4975.0, &[patched - 5016.0; 3]));
        }
    }
    let facts = observed("thp_disable", &[("semantics", "walk".into(), "skip".into(), true)]);
    let tests = vec![facts, measured("thp_disable.instructions", metrics)];
    let result = run("thp-disable-skip-counted", vec![cell("thp-disable-skip-6.12", "up", tests)]);
    insta::assert_snapshot!(letter(&result, None));
}

#[test]
fn a_series_that_saves_nothing_is_not_said_to_gain_more() {
    let with = |change: fn(f64) -> f64| {
        let mut result = madvise();
        for metric in result.cells.iter_mut().flat_map(|cell| &mut cell.tests[0].metrics) {
            if metric.name == "flushes" {
                metric.delta = metric.delta.map(change);
            }
        }
        letter(&result, None).replace('\n', " ")
    };
    assert!(with(|delta| delta).contains("the true gain is larger"));
    assert!(with(|delta| -delta).contains("the true cost is larger"));
    let none = with(|_| 0.0);
    assert!(!none.contains("the true") && none.contains("is not known to differ"), "{none}");
}

fn cold() -> RunResult {
    let of = |name, base: [f64; 3], patched: [f64; 3], unit, better| {
        metric(name, &[], (&base, &patched)).text("advice", "cold").unit(unit, better).result()
    };
    let metrics = vec![
        of(
            "access.total",
            [124_614_254.5, 124_613_471.0, 124_650_904.0],
            [124_629_730.5, 124_628_828.0, 124_635_274.0],
            "instructions",
            Better::Lower,
        ),
        of("access.each", [38.029; 3], [38.034; 3], "instructions", Better::Lower),
        of("access.rate", [26.296; 3], [26.292; 3], "M/s", Better::Higher),
        of("huge.hot1", [503_956_430.0; 3], [503_956_430.0; 3], "ns", Better::Lower),
        of(
            "huge.hot2",
            [1_525_428_397.0, 1_521_428_678.0, 1_525_429_429.0],
            [1_013_428_357.0, 1_009_427_862.0, 1_013_429_556.0],
            "ns",
            Better::Lower,
        ),
        of("khugepaged.cpu", [75_924_031.0; 3], [56_950_680.0; 3], "instructions", Better::Lower),
        of("scans.vain", [32.0; 3], [0.0; 3], "events", Better::Lower),
    ];
    let facts = observed(
        "khugepaged_cold",
        &[
            ("kicks.cold", 9_i64.into(), 5_i64.into(), true),
            ("kicks.none", 9_i64.into(), 9_i64.into(), false),
        ],
    );
    let tests = vec![facts, measured("khugepaged_cold.instructions", metrics)];
    run("khugepaged-cold-counted", vec![cell("khugepaged-cold", "up", tests)])
}

#[test]
fn khugepaged_cold_has_the_table_of_its_mail_and_no_misses() {
    let machine = machine(&[("advice", "cold"), ("memory", "64MiB"), ("reads", "3276800")]);
    insta::assert_snapshot!(letter(&cold(), Some(&machine)));
}

#[test]
fn kicks_that_nobody_observed_are_not_made_up() {
    let mut result = cold();
    result.cells[0].tests.remove(0);
    let text = letter(&result, None);
    let line = text.lines().find(|line| line.contains("kicks to")).unwrap();
    assert_eq!(line.split_whitespace().skip(5).collect::<Vec<_>>(), ["-", "-", "-"], "{text}");
}

#[test]
fn another_test_has_a_table_of_all_that_it_measured() {
    let one = |size, base: &[f64], patched: &[f64]| {
        metric("fault", &[("size", size)], (base, patched)).result()
    };
    let mut lone = one(4, &[7.0, 7.0], &[]);
    lone.figures.remove(&crate::plan::manifest::VariantName::Patched);
    (lone.verdict, lone.delta, lone.delta_percent) = (None, None, None);
    let metrics = vec![
        one(1, &[1000.0, 1010.0], &[1000.0, 1010.0]),
        one(2, &[1000.0, 1200.0], &[1100.0, 1300.0]),
        one(3, &[1000.0, 1000.0], &[1500.0, 1500.0]),
        lone,
    ];
    let mut result =
        run("mine", vec![cell("mine", "up", vec![measured("faults.instructions", metrics)])]);
    result.unchecked.push("nothing looked at x".to_owned());
    result.cells[0].input = Some("~/mails/mine.mbox".to_owned());
    result.faults.push(Fault::infra("the disk is full"));
    result.settle();
    insta::assert_snapshot!(letter(&result, None));
}

#[test]
fn a_run_without_figures_is_said_to_have_none() {
    let facts = observed(
        "my_test",
        &[
            ("declared", 9_i64.into(), 5_i64.into(), true),
            ("stray", true.into(), false.into(), false),
        ],
    );
    let result = run("mine", vec![cell("mine", "up", vec![facts])]);
    insta::assert_snapshot!(letter(&result, None));
}

#[test]
fn variations_are_told_by_what_holds_in_all_of_them() {
    use crate::compare::metrics::MetricVerdict::{Improved, Unchanged};
    use crate::report::robust::sample;
    let mut result = madvise();
    let mut variation = result.cells[1].clone();
    (variation.config, variation.variation_of) = ("distribution".to_owned(), Some("x".to_owned()));
    result.cells.push(variation);
    let before = letter(&result, None);
    assert!(!before.contains("distribution"), "{before}");
    result.robustness = vec![
        sample("latency", Some(Improved), 3),
        sample("call", None, 3),
        sample("locks", Some(Unchanged), 3),
    ];
    let text = letter(&result, None);
    let start = text.find("process_madvise, counted").unwrap();
    assert!(text[start..].contains("  latency vlen=2  improved  -26.50  -8.25\n"), "{text}");
    assert!(text.contains("  call vlen=2     no claim  -26.50  -8.25\n"), "{text}");
    assert!(text.contains("Unchanged in all of them: 1 more."), "{text}");
}

proptest! {
    #[test]
    fn nothing_that_a_guest_or_a_series_says_breaks_the_form(
        word in "[\\PC\t\n\u{1b}]{0,90}", value in any::<f64>(), name in "(process_madvise|thp_disable|khugepaged_cold|x)",
    ) {
        let mut result = madvise();
        for test in result.cells.iter_mut().flat_map(|cell| &mut cell.tests) {
            for metric in &mut test.metrics {
                metric.parameters.insert(word.clone(), Value::from(word.as_str()));
                metric.delta_percent = Some(value);
                for figures in metric.figures.values_mut() {
                    figures.median = value;
                }
            }
            if !test.metrics.is_empty() {
                test.name = format!("{name}.{word}");
            }
        }
        result.cells[0].series = word.clone();
        result.cells[1].guest = word.clone();
        result.plan = word.clone();
        letter(&result, Some(&machine(&[("memory", word.as_str())])));
        letter(&cold(), Some(&machine(&[("memory", word.as_str())])));
    }
}
