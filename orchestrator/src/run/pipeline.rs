// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole experiment: for each cell, the variants' trees and images, every test
//! in each, and the comparison. Building and booting are behind traits, so that
//! this logic is tested without a kernel.

use std::cell::Cell as Flag;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use kvet_records::Job;

use super::boots::Chain;
use super::event::Events;
use super::folder::RunFolder;
use super::result::{
    BehaviourResult, BuildResult, CellResult, Environment, RUN_SCHEMA, RunResult, TestResult,
    VariantResult,
};
pub use super::selection::Selection;
use super::unchecked::unchecked;
use super::{job, phases, program, robust};
use crate::compare::behaviour::{self, Observations, Verdict};
use crate::compare::{metrics, snapshot, splats, warnings};
use crate::fault::{Blame, ExitCode, Fault, escape};
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

    /// How many guests of a cell may run at once.
    fn at_once(&self, _cell: &Cell) -> usize {
        1
    }

    /// The accelerator, once something was booted.
    fn accelerator(&self) -> Option<Chosen>;
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
        robustness: Vec::new(),
        cells: Vec::new(),
    };
    note_overrides(plan, events);
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
                input: cell.series.input.clone(),
                passed_over: cell.series.passed_over.clone(),
                moved_hunks: Vec::new(),
                kernel: cell.kernel.name.clone(),
                source: None,
                config: cell.config.name.clone(),
                overrides: cell.config.overrides.clone(),
                guest: cell.guest.name.clone(),
                variation_of: cell.variation_of.clone(),
                cpu: cell.guest.cpu.clone(),
                initramfs: None,
                variants: BTreeMap::new(),
                identical: false,
                unchanged: false,
                allow_identical: plan.allow_identical,
                strict: selection.strict,
                warnings: Vec::new(),
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
        result.robustness = robust::summarise(&result.cells);
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

/// Says once for each config where its fragments disagree.
fn note_overrides(plan: &Plan, events: &Events) {
    let configs: BTreeMap<&str, &Config> =
        plan.cells.iter().map(|cell| (cell.config.name.as_str(), &cell.config)).collect();
    for (name, config) in configs {
        for found in &config.overrides {
            events.note(format!("config {name}: {found}"));
        }
    }
}

/// Start phases of each figure of a variation.
const VARIATION_PHASES: u16 = 2;

/// One boot of a test in a variant.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// From 1 on.
    number: u16,
    /// From 0 on.
    phase: u16,
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
        let variants = self.selection.variants_of(self.cell);
        let images = self.images(&variants).await?;
        self.compare_warnings(&images);
        if !self.result.faults.is_empty() {
            return Ok(());
        }
        let mut hashes = images.values().map(|image| image.image_sha256.as_str());
        let first = hashes.next();
        if images.len() > 1 && hashes.all(|hash| Some(hash) == first) {
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
        self.tests(&images).await;
        Ok(())
    }

    /// Builds every variant, also those after a prefix that does not build: what
    /// a later patch mends is worth knowing.
    async fn images(
        &mut self,
        variants: &[VariantName],
    ) -> Result<BTreeMap<VariantName, Image>, Fault> {
        let (source, trees) = self.build.prepare(self.cell).await?;
        self.result.source = Some(source.origin.clone());
        self.result.moved_hunks.clone_from(&trees.moved);
        self.result.unchanged = trees.unchanged;
        // Before the kernels: a program that does not build is known sooner.
        let task = format!("selftests {}/{}", self.cell.series.name, self.cell.kernel.name);
        let log = self.folder.build_log(&self.cell.id(), "selftests")?;
        self.payload = self.build.payload(&task, self.cell, &source, &trees, log).await?;
        self.result.initramfs = self.payload.hash();
        let mut images = BTreeMap::new();
        for &variant in variants {
            let task = self.task(variant, "");
            let log = self.folder.build_log(&self.build_id(), variant)?;
            let built =
                self.build.build(&task, &source, &trees, variant, &self.cell.config, log).await;
            let image = match built {
                Ok(image) => image,
                Err(fault) if self.goes_on_after(variant, &fault) => {
                    let fault = self.at_patch(variant, fault);
                    self.result.faults.push(fault);
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            self.mended_by(variant);
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
                        warnings: image.warnings.as_ref().map(Vec::len),
                        sandbox: image.sandbox.clone(),
                        refused: image.refused.clone(),
                        ccache: image.ccache,
                    },
                },
            );
            images.insert(variant, image);
        }
        Ok(images)
    }

    /// Whether the cell builds its prefixes, and this one is only one of them.
    fn goes_on_after(&self, variant: VariantName, fault: &Fault) -> bool {
        let per_patch = self.cell.variants.iter().any(|name| matches!(name, VariantName::Patch(_)));
        per_patch && variant != VariantName::Base && fault.blame == Blame::Series
    }

    /// Says which patch it is that does not build.
    fn at_patch(&self, variant: VariantName, mut fault: Fault) -> Fault {
        let patches = &self.cell.series.patches;
        let count = variant.patches(patches.len());
        let patch = count.checked_sub(1).and_then(|at| patches.get(at));
        let name = patch.map_or(String::new(), |patch| {
            format!(" ({})", escape(patch.subject.as_deref().unwrap_or(&patch.name)))
        });
        let either = if self.result.faults.is_empty() { "" } else { " either" };
        fault.what.push_str(&format!(" at patch {count} of {}{either}{name}", patches.len()));
        fault
    }

    /// After prefixes that do not build, says which patch mends them.
    fn mended_by(&mut self, variant: VariantName) {
        let count = variant.patches(self.cell.series.patches.len());
        for fault in &mut self.result.faults {
            if fault.blame == Blame::Series
                && !fault.help.as_deref().is_some_and(|help| help.contains("mends it"))
            {
                fault.help = Some(format!(
                    "patch {count} mends it; move what it mends to the patch that breaks it, so that every prefix builds"
                ));
            }
        }
    }

    /// From each variant to the next, and, with prefixes, from the first to the last.
    fn compare_warnings(&mut self, images: &BTreeMap<VariantName, Image>) {
        let known: Vec<_> = images
            .iter()
            .filter_map(|(&name, image)| Some((name, image.warnings.as_deref()?)))
            .collect();
        let mut pairs: Vec<_> = known.windows(2).map(|pair| (pair[0], pair[1])).collect();
        if let [first, _, .., last] = known[..] {
            pairs.push((first, last));
        }
        self.result.warnings =
            pairs.into_iter().map(|(from, to)| warnings::compare(from, to)).collect();
    }

    /// Every selected test in every variant, as many boots at once as the host
    /// has room for.
    async fn tests(&mut self, images: &BTreeMap<VariantName, Image>) {
        let wanted = self.selection.test.as_ref();
        let cell = self.cell;
        let tests = cell.tests.iter().filter(|test| wanted.is_none_or(|name| *name == test.name));
        let tests: Vec<&Test> = tests.collect();
        let stopped = Flag::new(false);
        let chains = {
            let this: &Self = self;
            let pairs = tests.iter().flat_map(|&test| {
                images.iter().map(move |(&variant, image)| (test, variant, image))
            });
            let work =
                pairs.map(|(test, variant, image)| this.chain(test, variant, image, &stopped));
            let at_once = self.boot.at_once(cell).max(1);
            futures_util::stream::iter(work).buffered(at_once).collect::<Vec<_>>().await
        };
        let mut chains = chains.into_iter();
        for test in tests {
            let chains: Vec<Chain> = chains.by_ref().take(images.len()).collect();
            if chains.iter().all(|chain| !chain.begun) {
                break;
            }
            let tested = self.test(test, chains);
            self.result.tests.push(tested);
        }
    }

    /// All boots of one test in one variant, one after another.
    async fn chain(
        &self,
        test: &Test,
        variant: VariantName,
        image: &Image,
        stopped: &Flag<bool>,
    ) -> Chain {
        let mut chain = Chain { variant, ..Chain::default() };
        for turn in self.turns(test) {
            if stopped.get() {
                break;
            }
            chain.begun = true;
            match self.boot_once(test, variant, turn, image).await {
                Ok(mut report) => {
                    chain.splats.extend(report.splats.iter().cloned());
                    let task = self.task(variant, &test.id());
                    let samples = std::mem::take(&mut report.report.samples);
                    let unlike = chain.take(&task, turn.number, report);
                    let unlike = unlike.or_else(|| {
                        test.measure?;
                        chain.take_samples(&task, turn.phase, samples)
                    });
                    if let Some(fault) = unlike {
                        chain.fault = Some(fault);
                        break;
                    }
                }
                Err((fault, splats)) => {
                    stopped.set(stopped.get() || fault.blame == Blame::Interrupt);
                    chain.splats.extend(splats);
                    chain.fault = Some(fault);
                    break;
                }
            }
        }
        chain
    }

    /// Start phases of what is measured. There are many variations of a cell, and their
    /// question is of signs.
    fn phases(&self) -> u16 {
        let phases = self.plan.instructions.phases;
        if self.cell.variation_of.is_some() { phases.min(VARIATION_PHASES) } else { phases }
    }

    /// The boots of one test in one variant.
    fn turns(&self, test: &Test) -> Vec<Turn> {
        let boots = self.selection.boots.get();
        let phases = match test.measure {
            Some(_) => phases::schedule(self.phases(), boots),
            None => vec![0; usize::from(boots)],
        };
        (1..).zip(phases).map(|(number, phase)| Turn { number, phase }).collect()
    }

    fn test(&mut self, test: &Test, chains: Vec<Chain>) -> TestResult {
        let mut result = TestResult {
            name: test.id(),
            boots: self.selection.boots,
            faults: Vec::new(),
            skips: Vec::new(),
            behaviour: None,
            metrics: Vec::new(),
        };
        let mut measured = BTreeMap::new();
        let mut observed = BTreeMap::new();
        let mut skipped = BTreeSet::new();
        for chain in chains {
            let variant = chain.variant;
            self.splats.extend(chain.splats.into_iter().map(|splat| (variant, splat)));
            result.skips.extend(chain.skips.iter().map(|why| format!("{variant}: {why}")));
            match (chain.fault, chain.observed) {
                (Some(fault), _) => result.faults.push(fault),
                (None, Some(_)) if test.measure.is_some() => {
                    measured.insert(variant, chain.phases);
                }
                (None, Some(observations)) => {
                    if chain.skipped {
                        skipped.insert(variant);
                    }
                    observed.insert(variant, observations);
                }
                (None, None) => {}
            }
        }
        if let Some(measure) = test.measure {
            result.metrics = metrics::compare(&measured, measure, &self.plan.instructions);
        }
        if observed.keys().any(|variant| !skipped.contains(variant)) {
            // A test that only one of two kernels can run has found a difference.
            match self.behaviour(test, observed, &skipped) {
                Ok(behaviour) => result.behaviour = Some(behaviour),
                Err(fault) => result.faults.push(fault),
            }
        }
        result
    }

    /// One boot with one job; a boot without a result is a fault, and what broke
    /// in it.
    async fn boot_once(
        &self,
        test: &Test,
        variant: VariantName,
        Turn { number, phase }: Turn,
        image: &Image,
    ) -> Result<BootReport, (Fault, Vec<Splat>)> {
        let task = match number {
            1 => self.task(variant, &test.id()),
            _ => format!("{}, boot {number}", self.task(variant, &test.id())),
        };
        let mut folder = self.folder.boot(&self.cell.id(), variant, &test.id());
        if number > 1 {
            folder = folder.join(format!("boot-{number}"));
        }
        let program = self.payload.programs.get(&test.id()).cloned();
        let job = job::job(test, variant, program, phase, self.phases());
        let alone = |fault| (fault, Vec::new());
        let bootable = Bootable { image, initramfs: &self.payload.initramfs };
        let booting = self.boot.boot(&task, self.cell, bootable, job, self.plan, folder.clone());
        let mut report = booting.await.map_err(alone)?;
        if let Some(program) = &test.program {
            program::settle(program.format, &mut report);
            let said = &report.report;
            self.folder.record_output(&folder, &said.output, &said.logs).map_err(alone)?;
        }
        self.folder.record_samples(&task, &report.report.samples).map_err(alone)?;
        match report.fault(&task) {
            Some(fault) => Err((fault.at(folder.display()), report.splats)),
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
                let rows = behaviour::between(rows, &observations);
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
        let ran = self.result.variants.len();
        self.result.splats = splats::compare(&self.splats, &self.plan.allow, ran);
        self.result
    }
}
