// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results made by hand, for the tests of the reports.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use kvet_records::{Better, Parameters, Value};

use crate::compare::behaviour::{self, Observations};
use crate::compare::metrics::{MetricResult, compare};
use crate::compare::snapshot::SnapshotState;
use crate::fault::ExitCode;
use crate::plan::Instructions;
use crate::plan::manifest::{Expectation, Measure, VariantName};
use crate::run::result::{
    BehaviourResult, BuildResult, CellResult, Environment, RUN_SCHEMA, RunResult, TestResult,
    VariantResult,
};
use crate::transport::virtio::Sample;

/// A metric with its values at each phase, before it is compared.
pub(super) struct Metric {
    name: &'static str,
    unit: &'static str,
    better: Better,
    parameters: Parameters,
    beside: Vec<(&'static str, (i64, i64))>,
    base: Vec<f64>,
    patched: Vec<f64>,
}

/// A metric in instructions; `values` are base's and patched's.
pub(super) fn metric(
    name: &'static str,
    parameters: &[(&str, i64)],
    (base, patched): (&[f64], &[f64]),
) -> Metric {
    let parameters =
        parameters.iter().map(|&(name, value)| (name.to_owned(), Value::from(value))).collect();
    Metric {
        name,
        unit: "instructions",
        better: Better::Lower,
        parameters,
        beside: Vec::new(),
        base: base.to_vec(),
        patched: patched.to_vec(),
    }
}

impl Metric {
    pub(super) fn text(mut self, name: &str, value: &str) -> Self {
        self.parameters.insert(name.to_owned(), Value::from(value));
        self
    }

    pub(super) fn unit(self, unit: &'static str, better: Better) -> Self {
        Self { unit, better, ..self }
    }

    /// The least and the most of counters, in both variants.
    pub(super) fn beside<const N: usize>(
        mut self,
        counters: [(&'static str, (i64, i64)); N],
    ) -> Self {
        self.beside = counters.to_vec();
        self
    }

    /// As kvet compares it, with a threshold of 0.1 %.
    pub(super) fn result(self) -> MetricResult {
        let sample = |value: f64| Sample {
            metric: self.name.to_owned(),
            unit: self.unit.to_owned(),
            better: self.better,
            parameters: self.parameters.clone(),
            value,
            beside: BTreeMap::new(),
        };
        let phases = |values: &[f64]| values.iter().map(|&value| vec![sample(value)]).collect();
        let measured = BTreeMap::from([
            (VariantName::Base, phases(&self.base)),
            (VariantName::Patched, phases(&self.patched)),
        ]);
        let rule = Instructions::default();
        let mut result = compare(&measured, Measure::Instructions, &rule).remove(0);
        for figures in result.figures.values_mut() {
            let counters = self.beside.iter().map(|&(name, range)| (name.to_owned(), range));
            figures.beside = counters.collect();
        }
        result
    }
}

/// A test with nothing but metrics.
pub(super) fn measured(name: &str, metrics: Vec<MetricResult>) -> TestResult {
    TestResult {
        name: name.to_owned(),
        boots: NonZeroU16::MIN,
        faults: Vec::new(),
        skips: Vec::new(),
        behaviour: None,
        metrics,
    }
}

/// A test that observed this, base and patched; a difference is declared if it says so.
pub(super) fn observed(name: &str, rows: &[(&str, Value, Value, bool)]) -> TestResult {
    let of = |side: fn(&(&str, Value, Value, bool)) -> Value| -> Observations {
        rows.iter().map(|row| (row.0.to_owned(), side(row))).collect()
    };
    let (base, patched) = (of(|row| row.1.clone()), of(|row| row.2.clone()));
    let expect: Vec<Expectation> = rows
        .iter()
        .filter(|row| row.3)
        .map(|row| Expectation {
            test: name.to_owned(),
            observation: row.0.to_owned(),
            base: row.1.clone(),
            patched: row.2.clone(),
        })
        .collect();
    let rows = behaviour::compare(name, &base, &patched, &expect);
    let behaviour = BehaviourResult {
        verdict: rows.iter().map(|row| row.verdict).max(),
        observations: BTreeMap::from([(VariantName::Base, base), (VariantName::Patched, patched)]),
        snapshot: BTreeMap::from([(VariantName::Base, SnapshotState::Matches)]),
        rows,
    };
    TestResult { behaviour: Some(behaviour), ..measured(name, Vec::new()) }
}

/// A cell of `guest` with these tests.
pub(super) fn cell(series: &str, guest: &str, tests: Vec<TestResult>) -> CellResult {
    let variant = |digit: &str| VariantResult {
        image_sha256: digit.repeat(64),
        release: "6.12.117".to_owned(),
        build: BuildResult {
            key: digit.repeat(32),
            compiler: "gcc (Debian 12.2.0-14+deb12u1) 12.2.0".to_owned(),
            stored: true,
            steps: 1,
            seconds: 1,
            warnings: Some(0),
            sandbox: None,
            refused: Vec::new(),
            ccache: None,
        },
    };
    CellResult {
        series: series.to_owned(),
        input: None,
        passed_over: Vec::new(),
        moved_hunks: Vec::new(),
        kernel: "debian-6.12".to_owned(),
        source: Some("linux-source-6.12 6.12.117-1~deb12u1".to_owned()),
        config: "microvm".to_owned(),
        overrides: Vec::new(),
        guest: guest.to_owned(),
        variation_of: None,
        cpu: None,
        initramfs: None,
        variants: BTreeMap::from([
            (VariantName::Base, variant("a")),
            (VariantName::Patched, variant("b")),
        ]),
        identical: false,
        unchanged: false,
        allow_identical: false,
        strict: false,
        warnings: Vec::new(),
        splats: Vec::new(),
        faults: Vec::new(),
        tests,
    }
}

/// A run of these cells.
pub(super) fn run(plan: &str, cells: Vec<CellResult>) -> RunResult {
    let mut result = RunResult {
        schema: RUN_SCHEMA.to_owned(),
        id: format!("2026-01-01T00-00-00Z-{plan}"),
        plan: plan.to_owned(),
        exit_code: ExitCode::Acceptable,
        environment: Environment {
            kvet: "0.1.0".to_owned(),
            host: "Linux 6.18.0 x86_64".to_owned(),
            qemu: "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)".to_owned(),
            sandbox: None,
            accelerator: None,
        },
        faults: Vec::new(),
        unchecked: Vec::new(),
        skipped: Vec::new(),
        robustness: Vec::new(),
        cells,
    };
    result.settle();
    result
}
