// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole experiment: for each cell, both trees, both images, every test in
//! both, and the comparison. Building and booting are behind traits, so that
//! this logic is tested without a kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use kvet_records::{Job, Outcome, PROTOCOL_VERSION, Value};
use serde::Serialize;

use super::event::Events;
use super::folder::RunFolder;
use super::program;
use super::result::{
    BehaviourResult, BuildResult, CellResult, Environment, RUN_SCHEMA, RunResult, TestResult,
    VariantResult,
};
use crate::compare::behaviour::{self, Observations, Verdict};
use crate::compare::{snapshot, splats};
use crate::fault::{Blame, ExitCode, Fault};
use crate::guest::payload::Payload;
use crate::kernel::build::Image;
use crate::kernel::series::Trees;
use crate::kernel::source::Source;
use crate::plan::manifest::VariantName;
use crate::plan::{Cell, Config, Plan, Test};
use crate::vm::accel::Chosen;
use crate::vm::halt::BootReport;
use crate::vm::splat::Splat;

/// Makes trees and images.
pub trait Build {
    /// The source of a cell's kernel and the trees of its variants.
    fn prepare(&self, cell: &Cell) -> impl Future<Output = Result<(Source, Trees), Fault>>;

    /// The image of one variant. `log` gets the build's output.
    fn build(
        &self,
        task: &str,
        source: &Source,
        trees: &Trees,
        variant: VariantName,
        config: &Config,
        log: PathBuf,
    ) -> impl Future<Output = Result<Image, Fault>>;

    /// What a cell's guests start from. `log` gets the output of what is built
    /// for it.
    fn payload(
        &self,
        task: &str,
        cell: &Cell,
        source: &Source,
        trees: &Trees,
        log: PathBuf,
    ) -> impl Future<Output = Result<Payload, Fault>>;
}

/// What a guest starts from.
#[derive(Debug, Clone, Copy)]
pub struct Bootable<'a> {
    /// The kernel.
    pub image: &'a Image,
    /// The initramfs.
    pub initramfs: &'a Path,
}

/// Runs guests.
pub trait Boot {
    /// Boots a cell's guest with one job and watches it to its end.
    fn boot(
        &self,
        task: &str,
        cell: &Cell,
        bootable: Bootable<'_>,
        job: Job,
        plan: &Plan,
        folder: PathBuf,
    ) -> impl Future<Output = Result<BootReport, Fault>>;

    /// The accelerator, once something was booted.
    fn accelerator(&self) -> Option<Chosen>;
}

/// What of a plan is run.
#[derive(Debug, Clone, Serialize)]
pub struct Selection {
    /// Only tests of this name.
    pub test: Option<String>,
    /// Only these variants; all of the plan's when empty.
    pub variants: Vec<VariantName>,
    /// Images only.
    pub build_only: bool,
    /// A splat that both variants have is not acceptable either.
    pub strict: bool,
    /// Boots of each variant for each test; all must observe the same.
    pub boots: NonZeroU16,
    /// Every boot from power-on, none from a saved machine.
    pub cold: bool,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            test: None,
            variants: Vec::new(),
            build_only: false,
            strict: false,
            boots: NonZeroU16::MIN,
            cold: false,
        }
    }
}

/// Runs a plan. Always gives a result: what went wrong is in it.
pub async fn run(
    plan: &Plan,
    selection: &Selection,
    build: &impl Build,
    boot: &impl Boot,
    folder: &RunFolder,
    events: &Events,
    environment: Environment,
) -> RunResult {
    let mut result = RunResult {
        schema: RUN_SCHEMA.to_owned(),
        id: folder.id().to_owned(),
        plan: plan.name.clone(),
        exit_code: ExitCode::Acceptable,
        environment,
        faults: Vec::new(),
        unchecked: Vec::new(),
        skipped: plan.skipped.clone(),
        cells: Vec::new(),
    };
    for cell in &plan.cells {
        let mut experiment = Experiment {
            plan,
            selection,
            build,
            boot,
            folder,
            events,
            cell,
            result: CellResult {
                series: cell.series.name.clone(),
                kernel: cell.kernel.name.clone(),
                source: None,
                config: cell.config.name.clone(),
                guest: cell.guest.name.clone(),
                initramfs: None,
                variants: BTreeMap::new(),
                identical: false,
                allow_identical: plan.allow_identical,
                strict: selection.strict,
                splats: Vec::new(),
                faults: Vec::new(),
                tests: Vec::new(),
            },
            splats: Vec::new(),
            payload: Payload::default(),
        };
        if let Err(fault) = experiment.run().await {
            experiment.result.faults.push(fault);
        }
        let interrupted = experiment.interrupted();
        result.cells.push(experiment.finish());
        result.environment.accelerator = boot.accelerator();
        result.settle();
        // Written after every cell: nothing that was measured is lost later.
        if let Err(fault) = folder.write_result(&result) {
            result.faults.push(fault);
            break;
        }
        if interrupted {
            break;
        }
    }
    if !selection.build_only && result.cells.len() == plan.cells.len() {
        result.unchecked = unchecked(plan, selection, &result);
    }
    result.settle();
    if result.faults.is_empty()
        && let Err(fault) = folder.write_result(&result)
    {
        result.faults.push(fault);
        result.settle();
    }
    result
}

/// What nothing looked at: changes that a series declares for tests that were
/// not compared, and variants without another to compare with.
fn unchecked(plan: &Plan, selection: &Selection, result: &RunResult) -> Vec<String> {
    let mut compared: BTreeSet<(&str, &str, &str, &str)> = BTreeSet::new();
    let mut lines = BTreeSet::new();
    for (cell, done) in plan.cells.iter().zip(&result.cells) {
        let key = |test| {
            (cell.series.name.as_str(), cell.kernel.name.as_str(), cell.config.name.as_str(), test)
        };
        let tests = cell.tests.iter().filter(|test| {
            done.tests.iter().any(|ran| ran.name == test.id() && ran.behaviour.is_some())
        });
        compared.extend(tests.map(|test| key(test.name.as_str())));
    }
    for (cell, done) in plan.cells.iter().zip(&result.cells) {
        for test in cell.tests.iter().filter(|test| test.program.is_some()) {
            let ran = done.tests.iter().find(|ran| ran.name == test.id());
            let behaviour =
                ran.filter(|ran| ran.faults.is_empty()).and_then(|ran| ran.behaviour.as_ref());
            if behaviour.is_some_and(|found| !found.observations.values().any(program::passed)) {
                lines.insert(format!(
                    "nothing passed in test {} on {}, guest {}, in any variant, so it cannot show what the series breaks",
                    test.id(),
                    cell.kernel.name,
                    cell.guest.name
                ));
            }
        }
    }
    if variants(plan, selection).len() < 2 {
        lines.insert("only one variant was run, so nothing was compared".to_owned());
    }
    for (cell, done) in plan.cells.iter().zip(&result.cells) {
        let changes = || cell.series.expect.iter().filter(|expect| expect.base != expect.patched);
        if done.identical && changes().next().is_some() {
            lines.insert(format!(
                "{} declares changes, but base and patched are the same image",
                cell.series.name
            ));
            continue;
        }
        for expect in cell.series.expect.iter().filter(|_| done.faults.is_empty()) {
            let key = (
                cell.series.name.as_str(),
                cell.kernel.name.as_str(),
                cell.config.name.as_str(),
                expect.test.as_str(),
            );
            if !compared.contains(&key) {
                lines.insert(format!(
                    "{} declares a change of {} in test {}, which was not run on {}, config {}",
                    cell.series.name,
                    expect.observation,
                    expect.test,
                    cell.kernel.name,
                    cell.config.name
                ));
            }
        }
    }
    lines.into_iter().collect()
}

fn variants(plan: &Plan, selection: &Selection) -> Vec<VariantName> {
    let chosen = &selection.variants;
    let wanted = |variant: &VariantName| chosen.is_empty() || chosen.contains(variant);
    plan.variants.iter().copied().filter(wanted).collect()
}

/// One cell while it is run.
struct Experiment<'a, B, V> {
    plan: &'a Plan,
    selection: &'a Selection,
    build: &'a B,
    boot: &'a V,
    folder: &'a RunFolder,
    events: &'a Events,
    cell: &'a Cell,
    result: CellResult,
    splats: Vec<(VariantName, Splat)>,
    payload: Payload,
}

impl<B: Build, V: Boot> Experiment<'_, B, V> {
    async fn run(&mut self) -> Result<(), Fault> {
        let variants = variants(self.plan, self.selection);
        let images = self.images(&variants).await?;
        let hashes: Vec<&str> = images.values().map(|image| image.image_sha256.as_str()).collect();
        if let [base, patched] = hashes[..]
            && base == patched
        {
            self.result.identical = true;
            self.events.note(format!(
                "{}: base and patched are the same image, so there is nothing to compare",
                self.cell.id()
            ));
            return Ok(());
        }
        if self.selection.build_only {
            return Ok(());
        }
        for test in &self.cell.tests {
            if self.selection.test.as_ref().is_some_and(|wanted| *wanted != test.name) {
                continue;
            }
            let tested = self.test(test, &images).await;
            self.result.tests.push(tested);
            if self.interrupted() {
                break;
            }
        }
        Ok(())
    }

    async fn images(
        &mut self,
        variants: &[VariantName],
    ) -> Result<BTreeMap<VariantName, Image>, Fault> {
        let (source, trees) = self.build.prepare(self.cell).await?;
        self.result.source = Some(source.origin.clone());
        // Before the kernels: a program that does not build is known sooner.
        let task = format!("selftests {}/{}", self.cell.series.name, self.cell.kernel.name);
        let log = self.folder.build_log(&self.cell.id(), "selftests")?;
        self.payload = self.build.payload(&task, self.cell, &source, &trees, log).await?;
        self.result.initramfs = self.payload.hash();
        let mut images = BTreeMap::new();
        for &variant in variants {
            let task = self.task(variant, "");
            let log = self.folder.build_log(&self.build_id(), variant)?;
            let image =
                self.build.build(&task, &source, &trees, variant, &self.cell.config, log).await?;
            self.result.variants.insert(
                variant,
                VariantResult {
                    image_sha256: image.image_sha256.clone(),
                    release: image.release.clone(),
                    build: BuildResult {
                        key: image.key.clone(),
                        compiler: image.compiler.clone(),
                        stored: image.stored,
                        steps: image.steps,
                        seconds: image.seconds,
                    },
                },
            );
            images.insert(variant, image);
        }
        Ok(images)
    }

    async fn test(&mut self, test: &Test, images: &BTreeMap<VariantName, Image>) -> TestResult {
        let mut result = TestResult {
            name: test.id(),
            boots: self.selection.boots,
            faults: Vec::new(),
            skips: Vec::new(),
            behaviour: None,
        };
        let mut observed: BTreeMap<VariantName, Observations> = BTreeMap::new();
        let mut faulty = BTreeSet::new();
        let mut skipped = BTreeSet::new();
        // The variants take turns, so that none has the host at another time.
        'boots: for number in 1..=self.selection.boots.get() {
            for (&variant, image) in images {
                if faulty.contains(&variant) {
                    continue;
                }
                let report = match self.boot_once(test, variant, number, image).await {
                    Ok(report) => report.report,
                    Err(fault) => {
                        let stop = fault.blame == Blame::Interrupt;
                        result.faults.push(fault);
                        if stop {
                            break 'boots;
                        }
                        faulty.insert(variant);
                        continue;
                    }
                };
                let skips = report.outcome == Some(Outcome::Skipped);
                // What a test saw before it found that it cannot run is no result.
                let now = if skips { Observations::new() } else { report.observations };
                if number == 1 {
                    let reasons = report.skips.iter();
                    result.skips.extend(reasons.map(|why| format!("{variant}: {why}")));
                    if skips {
                        skipped.insert(variant);
                    }
                    observed.insert(variant, now);
                } else if skips != skipped.contains(&variant) || now != observed[&variant] {
                    let what = format!(
                        "{}: boot {number} did not observe what boot 1 did",
                        self.task(variant, &test.id())
                    );
                    result.faults.push(
                        Fault::test(what).evidence(&unsteady(&observed[&variant], &now)).help(
                            "an observation must be the same in every boot of a variant; \
                             what is not belongs in a log or a sample",
                        ),
                    );
                    faulty.insert(variant);
                }
            }
        }
        observed.retain(|variant, _| !faulty.contains(variant));
        if observed.keys().any(|variant| !skipped.contains(variant)) {
            // A test that only one of two kernels can run has found a difference.
            match self.behaviour(test, observed, &skipped) {
                Ok(behaviour) => result.behaviour = Some(behaviour),
                Err(fault) => result.faults.push(fault),
            }
        }
        result
    }

    /// One boot with one job; a boot without a result is a fault.
    async fn boot_once(
        &mut self,
        test: &Test,
        variant: VariantName,
        number: u16,
        image: &Image,
    ) -> Result<BootReport, Fault> {
        let task = match number {
            1 => self.task(variant, &test.id()),
            _ => format!("{}, boot {number}", self.task(variant, &test.id())),
        };
        let mut folder = self.folder.boot(&self.cell.id(), variant, &test.id());
        if number > 1 {
            folder = folder.join(format!("boot-{number}"));
        }
        let job = Job {
            protocol: PROTOCOL_VERSION,
            id: format!("{}-{variant}", test.name),
            test: test.name.clone(),
            parameters: test.parameters.clone(),
            measure: None,
            offset_ns: 0,
            program: self.payload.programs.get(&test.id()).cloned(),
        };
        let bootable = Bootable { image, initramfs: &self.payload.initramfs };
        let mut report =
            self.boot.boot(&task, self.cell, bootable, job, self.plan, folder.clone()).await?;
        if let Some(program) = &test.program {
            program::settle(program.format, &mut report);
            let said = &report.report;
            self.folder.record_output(&folder, &said.output, &said.logs)?;
        }
        self.folder.record_samples(&task, &report.report.samples)?;
        self.splats.extend(report.splats.iter().map(|splat| (variant, splat.clone())));
        match report.fault(&task) {
            Some(fault) => Err(fault.at(folder.display())),
            None => Ok(report),
        }
    }

    fn behaviour(
        &self,
        test: &Test,
        observations: BTreeMap<VariantName, Observations>,
        skipped: &BTreeSet<VariantName>,
    ) -> Result<BehaviourResult, Fault> {
        let folder = self.plan.root.join("snapshots").join(&self.plan.name);
        let plan = self.plan.file.strip_prefix(&self.plan.root).unwrap_or(&self.plan.file);
        let mut states = BTreeMap::new();
        for (variant, observed) in observations.iter().filter(|(name, _)| !skipped.contains(name)) {
            let name = format!("{}.{}.{variant}", self.cell.id(), test.id());
            let state = snapshot::check(&folder, &name, &plan.display().to_string(), observed)?;
            states.insert(*variant, state);
        }
        let variant = |name| observations.get(&name);
        let (rows, verdict) = match (variant(VariantName::Base), variant(VariantName::Patched)) {
            (Some(base), Some(patched)) => {
                let rows = behaviour::compare(&test.name, base, patched, &self.cell.series.expect);
                let worst = rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Same);
                (rows, Some(worst))
            }
            _ => (Vec::new(), None),
        };
        Ok(BehaviourResult { verdict, observations, snapshot: states, rows })
    }

    fn task(&self, variant: VariantName, test: &str) -> String {
        let cell = self.cell;
        let images =
            format!("{} {}/{}/{}", variant, cell.series.name, cell.kernel.name, cell.config.name);
        if test.is_empty() { images } else { format!("{images}/{} {test}", cell.guest.name) }
    }

    /// Cells that differ only in their guest share their builds.
    fn build_id(&self) -> String {
        let cell = self.cell;
        format!("{}.{}.{}", cell.series.name, cell.kernel.name, cell.config.name)
    }

    fn interrupted(&self) -> bool {
        let own = self.result.faults.iter();
        own.chain(self.result.tests.iter().flat_map(|test| &test.faults))
            .any(|fault| fault.blame == Blame::Interrupt)
    }

    fn finish(mut self) -> CellResult {
        let both = self.result.variants.len() > 1;
        self.result.splats = splats::compare(&self.splats, &self.plan.allow, both);
        self.result
    }
}

/// What two boots of a variant did not observe alike, one line each.
fn unsteady(first: &Observations, later: &Observations) -> String {
    let shown =
        |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    let names: BTreeSet<&String> = first.keys().chain(later.keys()).collect();
    let lines: Vec<String> = names
        .into_iter()
        .filter(|name| first.get(*name) != later.get(*name))
        .map(|name| format!("{name}: {}, then {}", shown(first.get(name)), shown(later.get(name))))
        .collect();
    lines.join("\n")
}
