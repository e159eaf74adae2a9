// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet validate`: everything to look at before a series is sent. A driver over the
//! pipeline: each check is one or several runs of it, kept below the run's folder, and
//! a finding that a pure function makes of their results.

mod attribute;
pub mod checkpatch;
pub mod judge;
pub mod prefix;
pub mod render;
pub mod result;
mod sequence;
pub mod stages;
pub mod table;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use checkpatch::{Checked, Checkpatch, Findings};
use result::{Check, Finding, Outcome, VALIDATE_RUN_SCHEMA, ValidateResult};
use stages::{Stage, Validation};
use table::{Patches, StageCheck};
use tokio_util::sync::CancellationToken;

use crate::fault::{Blame, ExitCode, Fault, escape};
use crate::host::process::find_program;
use crate::kernel::kselftest;
use crate::kernel::series::Trees;
use crate::kernel::source::Source;
use crate::plan::manifest::VariantName;
use crate::plan::{Plan, ProgramSource, Test};
use crate::report::json::pretty;
use crate::run::event::Events;
use crate::run::folder::RunFolder;
use crate::run::journal;
use crate::run::pipeline::{self, Boot, Build, Selection};
use crate::run::result::{Environment, RunResult};
use crate::store::estimate::Estimate;
use crate::store::{Store, key, write_atomically};

/// The result's file in the run's folder.
pub const FILE: &str = "validate.json";

/// A validation and what carries it out.
#[derive(Debug)]
pub struct Driver<'a, B, V, C> {
    /// What is checked.
    pub validation: &'a Validation,
    /// Makes trees and images.
    pub build: &'a B,
    /// Runs guests.
    pub boot: &'a V,
    /// Runs checkpatch.
    pub checkpatch: &'a C,
    /// Where everything goes.
    pub folder: &'a RunFolder,
    /// Where progress goes.
    pub events: &'a Events,
    /// What the figures depend on.
    pub environment: Environment,
    /// Where it is noted what checks take; without it nothing is said of what is left.
    pub store: Option<&'a Store>,
    /// The first failed check is the last.
    pub fail_fast: bool,
    /// Configs that are checked side by side ([`Validation::at_once`]).
    pub at_once: usize,
    /// Ends what is being built and booted: cancelled from outside, or by a check that is
    /// the last.
    pub stop: CancellationToken,
    /// Runs of an earlier life go on.
    pub resume: bool,
    /// Results of single prefixes, by their folder.
    pub probes: RefCell<BTreeMap<String, RunResult>>,
}

/// Why no further check is made.
enum Stop {
    /// With the reason for those that are left.
    Rest(String),
    Interrupted,
}

impl<B: Build, V: Boot, C: Checkpatch> Driver<'_, B, V, C> {
    /// Makes all checks. Always gives a result: what went wrong is in it.
    pub async fn run(&self) -> ValidateResult {
        let began = Instant::now();
        let cell = &self.validation.cell;
        let mut result = ValidateResult {
            schema: VALIDATE_RUN_SCHEMA.to_owned(),
            id: self.folder.id().to_owned(),
            series: cell.series.name.clone(),
            title: cell.series.title.clone(),
            patches: cell.series.patches.len(),
            kernel: cell.kernel.name.clone(),
            source: None,
            files: self.validation.files.clone(),
            tests: self.validation.tests.clone(),
            checks: Vec::new(),
            faults: Vec::new(),
            complete: false,
            seconds: 0.0,
            exit_code: ExitCode::Acceptable,
        };
        // So that it can be gone on with, whenever it ends.
        let ended = match self.write(&result) {
            Ok(()) => {
                self.tell_left(&result.checks);
                self.checks(&mut result).await
            }
            Err(fault) => {
                result.faults.push(fault);
                Err(Stop::Rest("the result cannot be written".to_owned()))
            }
        };
        match ended {
            Ok(()) => result.complete = true,
            Err(Stop::Rest(why)) => {
                self.skip_rest(&mut result, &why);
                result.complete = true;
            }
            Err(Stop::Interrupted) => {
                self.skip_rest(&mut result, "kvet was interrupted");
                result.faults.push(Fault::interrupted());
            }
        }
        result.seconds = began.elapsed().as_secs_f64();
        result.settle();
        if let Err(fault) = self.write(&result) {
            result.faults.push(fault);
            result.settle();
        }
        result
    }

    /// Checks that are not made are not forgotten.
    fn skip_rest(&self, result: &mut ValidateResult, why: &str) {
        for (name, config) in self.planned() {
            let made = |check: &Check| check.name == name && check.config == config;
            if !result.checks.iter().any(made) {
                result.checks.push(Check {
                    name: name.to_owned(),
                    config,
                    finding: Finding::skipped(why),
                    seconds: 0.0,
                    runs: Vec::new(),
                });
            }
        }
        self.sort(&mut result.checks);
    }

    /// Brings checks into the order of the table, whichever was made first.
    fn sort(&self, checks: &mut [Check]) {
        let planned = self.planned();
        checks.sort_by_key(|check| {
            planned.iter().position(|(name, config)| check.name == *name && check.config == *config)
        });
    }

    /// Every check there is, in its order.
    fn planned(&self) -> Vec<(&'static str, Option<String>)> {
        let mut all = vec![("applies", None), ("checkpatch", None)];
        for stage in &self.validation.stages {
            all.extend(stage.checks.iter().map(|&check| (name(check), Some(stage.config.clone()))));
        }
        all
    }

    /// What checks of this kind took: of the same kernel, number of patches, tests and
    /// CPUs. None where nothing is noted.
    fn estimate(&self, name: &str, config: Option<&str>) -> Option<Estimate> {
        let cell = &self.validation.cell;
        let mut kind = format!("validate {name} {} ", config.unwrap_or_default());
        let origin = serde_json::to_string(&cell.kernel.source).unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let _ = write!(kind, "{cpus} {} {origin}", cell.series.patches.len());
        for test in &self.validation.tests {
            let _ = write!(kind, " {} {:?}", test.test, test.guests);
        }
        self.store.map(|store| Estimate::read(store, &key([kind.as_bytes()])))
    }

    /// Says how long the checks that are left took before.
    fn tell_left(&self, made: &[Check]) {
        let planned = self.planned();
        let is_left = |(name, config): &&(&'static str, Option<String>)| {
            !made.iter().any(|check| check.name == *name && check.config == *config)
        };
        let times: Vec<Option<(u32, u32)>> = planned
            .iter()
            .filter(is_left)
            .map(|(name, config)| self.estimate(name, config.as_deref())?.range())
            .collect();
        if let Some(left) = render::left(&times) {
            self.events.note(left);
        }
    }

    async fn checks(&self, result: &mut ValidateResult) -> Result<(), Stop> {
        let began = Instant::now();
        let total = self.validation.cell.series.patches.len();
        let prepared = self.build.prepare(&self.validation.cell).await;
        let finding = match &prepared {
            Ok((_, trees)) => judge::applies(trees, total),
            Err(fault) => Finding::fault(fault),
        };
        let over = match &prepared {
            Ok((_, trees)) if trees.unchanged => Some("the series changes no file"),
            Ok(_) => None,
            Err(fault) if fault.nothing_to_do => Some("there is nothing to check"),
            Err(fault) if fault.blame == Blame::Series => Some("the series does not apply"),
            Err(_) => Some("there is no source to apply the series to"),
        };
        self.take(result, "applies", None, began, Ok(finding), Vec::new())?;
        if let Some(why) = over {
            return Err(Stop::Rest(why.to_owned()));
        }
        let Ok((source, trees)) = prepared else { return Ok(()) };
        result.source = Some(source.origin.clone());
        let began = Instant::now();
        let checked = self.patches(&source, &trees).await;
        self.take(result, "checkpatch", None, began, checked, Vec::new())?;
        let mut stages = self.validation.stages.clone();
        let absent = self.take_out_absent(&source, &trees, &mut stages).await;
        self.stages(result, &stages, &absent).await
    }

    /// Takes out the selftests that rules chose and this kernel does not have; says why.
    async fn take_out_absent(
        &self,
        source: &Source,
        trees: &Trees,
        stages: &mut [Stage],
    ) -> Vec<String> {
        let mut absent = BTreeSet::new();
        let Some(tree) = trees.variants.get(&VariantName::Patched) else { return Vec::new() };
        if self.validation.planned {
            return Vec::new();
        }
        for cell in stages.iter().flat_map(|stage| &stage.plan.cells) {
            for (target, _) in kselftest::targets(cell) {
                if !kselftest::is_there(&source.git_dir, &tree.commit, &target).await {
                    absent.insert(target);
                }
            }
        }
        let is_absent = |test: &Test| match test.program.as_ref().map(|program| &program.source) {
            Some(ProgramSource::Kselftest(target)) => absent.contains(target),
            _ => false,
        };
        for stage in stages {
            for cell in &mut stage.plan.cells {
                cell.tests.retain(|test| !is_absent(test));
            }
            // The cell that is built is needed even when nothing runs in it.
            if stage.plan.cells.iter().any(|cell| !cell.tests.is_empty()) {
                stage.plan.cells.retain(|cell| !cell.tests.is_empty());
            }
        }
        let why = |target: String| {
            format!("{target} skipped: {} has no such selftest", escape(&source.origin))
        };
        absent.into_iter().map(why).collect()
    }

    /// Notes what a check came to, and whether to go on.
    fn take(
        &self,
        result: &mut ValidateResult,
        name: &str,
        config: Option<&str>,
        began: Instant,
        found: Result<Finding, Fault>,
        runs: Vec<String>,
    ) -> Result<(), Stop> {
        let finding = match found {
            Err(fault) if fault.blame == Blame::Interrupt => return Err(Stop::Interrupted),
            Err(fault) => Finding::fault(&fault),
            Ok(finding) if finding.exit_code == ExitCode::Interrupted => {
                return Err(Stop::Interrupted);
            }
            Ok(finding) => finding,
        };
        let check = Check {
            name: name.to_owned(),
            config: config.map(str::to_owned),
            finding,
            seconds: began.elapsed().as_secs_f64(),
            runs,
        };
        self.events.note(format!("check {}", render::line(&check).trim_start()));
        let failed = check.finding.outcome == Outcome::Failed;
        let label = [Some(name), config].into_iter().flatten().collect::<Vec<_>>().join(" ");
        // One that failed ended early or was followed up, and boots may be kept from before.
        if let Some(estimate) = self.estimate(name, config)
            && check.finding.outcome == Outcome::Ok
            && !self.resume
        {
            estimate.learn(check.seconds.ceil() as u32);
        }
        result.checks.push(check);
        self.sort(&mut result.checks);
        result.settle();
        self.tell_left(&result.checks);
        // After every check: nothing that was found is lost later.
        if let Err(fault) = self.write(result) {
            result.faults.push(fault);
            return Err(Stop::Rest("the result cannot be written".to_owned()));
        }
        match failed && self.fail_fast {
            true => Err(Stop::Rest(format!("--fail-fast, after {label}"))),
            false => Ok(()),
        }
    }

    fn write(&self, result: &ValidateResult) -> Result<(), Fault> {
        write_atomically(&self.folder.path().join(FILE), &pretty(result))
    }

    fn subjects(&self) -> Vec<String> {
        let patches = self.validation.cell.series.patches.iter();
        patches.map(|patch| escape(patch.subject.as_deref().unwrap_or(&patch.name))).collect()
    }

    async fn patches(&self, source: &Source, trees: &Trees) -> Result<Finding, Fault> {
        let patches = &self.validation.cell.series.patches;
        let Some(base) = trees.variants.get(&VariantName::Base) else {
            return Ok(Finding::skipped("there is no tree without the series"));
        };
        Ok(match self.checkpatch.checkpatch(source, base, patches).await? {
            Checked::Skipped(why) => Finding::skipped(why),
            Checked::Patches(all) => self.complaints(&all),
        })
    }

    fn complaints(&self, all: &[Findings]) -> Finding {
        let subjects = self.subjects();
        let allow = &self.validation.cell.series.checkpatch;
        // `line 7: LONG_LINE: text`.
        let allowed = |line: &str| {
            let kind = line.split(": ").nth(1).unwrap_or_default();
            allow.iter().find(|entry| entry.kind == kind)
        };
        let (mut bad, mut told, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for (at, one) in all.iter().enumerate() {
            let errors = one.errors.iter().map(|line| ("error", line));
            for (what, line) in errors.chain(one.warnings.iter().map(|line| ("warning", line))) {
                let list = match (allowed(line), what) {
                    (Some(entry), _) => {
                        let words = format!("{} does not count: {}", entry.kind, entry.reason);
                        if !known.contains(&words) {
                            known.push(words);
                        }
                        continue;
                    }
                    (None, "error") => &mut bad,
                    (None, _) => &mut told,
                };
                list.push((at + 1, format!("{what}, {line}")));
            }
        }
        let shown = |(at, line): &(usize, String)| format!("patch {at}: {line}");
        let mut counts = format!("{} errors, {} warnings", bad.len(), told.len());
        if !known.is_empty() {
            counts = format!("{counts}; {}", escape(&known.join("; ")));
        }
        match bad.first() {
            Some((at, line)) => Finding::failed(
                ExitCode::Series,
                format!("{counts}; {}: {line}", prefix::at_patch(*at, &subjects)),
            )
            .with(bad.iter().skip(1).chain(&told).map(shown))
            .at_patch(Some(*at)),
            None => Finding::ok(counts).with(told.iter().map(shown)),
        }
    }

    /// The finding, and whether a kernel is missing.
    async fn builds(
        &self,
        stage: &Stage,
        runs: &mut Vec<String>,
    ) -> Result<(Finding, bool), Fault> {
        let subjects = self.subjects();
        let mut plan = stage.plan.clone();
        // The images do not depend on the guest.
        plan.cells.truncate(1);
        for cell in &mut plan.cells {
            cell.tests.clear();
        }
        let folder = format!("builds-{}", stage.config);
        let mut built = self.sub(&folder, &with_series(stage, &plan), &images(), runs).await?;
        if stage.patches == Patches::Ends && !(judge::is_clean(&built) && judge::is_silent(&built))
        {
            built = self.sub(&format!("{folder}-ends"), &plan, &images(), runs).await?;
        }
        let mut finding = judge::builds(&built, &subjects);
        let total = subjects.len();
        if finding.outcome == Outcome::Failed
            && finding.exit_code == ExitCode::Series
            && stage.patches == Patches::Ends
            && total > 1
        {
            // Which patch it is, only every prefix can say.
            for cell in &mut plan.cells {
                cell.variants = VariantName::every(total);
            }
            built = self.sub(&format!("{folder}-every"), &plan, &images(), runs).await?;
            let each = judge::builds(&built, &subjects);
            if each.outcome == Outcome::Failed {
                finding = each;
            }
        }
        let whole = |cell: &crate::run::result::CellResult| cell.faults.is_empty();
        Ok((finding, !built.faults.is_empty() || !built.cells.iter().all(whole)))
    }

    async fn behaviour(&self, stage: &Stage, runs: &mut Vec<String>) -> Found {
        let folder = format!("behaviour-{}", stage.config);
        let result = self.sub(&folder, &stage.plan, &Selection::default(), runs).await?;
        Ok(judge::behaviour(&result, &self.subjects()))
    }

    async fn performance(&self, stage: &Stage, runs: &mut Vec<String>) -> Found {
        let Some(plan) = &stage.measured else {
            return Ok(Finding::skipped("none of the chosen tests counts anything"));
        };
        let folder = format!("performance-{}", stage.config);
        let mut result = self.sub(&folder, plan, &Selection::default(), runs).await?;
        if judge::is_the_hosts(&result) {
            // Two counts that must be the same and are not are refused, whatever their
            // difference. Once more, since much may be going on beside it here.
            let again = format!("{folder}-again");
            result = self.sub(&again, plan, &Selection::default(), runs).await?;
        }
        let worse = judge::regressions(&result);
        match worse.is_empty() {
            true => Ok(judge::performance(&result)),
            false => self.attribute(&folder, plan, &worse, runs).await,
        }
    }

    async fn boots(&self, stage: &Stage, runs: &mut Vec<String>) -> Found {
        let folder = format!("boots-{}", stage.config);
        let plan = with_series(stage, &stage.plan);
        let mut result = self.sub(&folder, &plan, &Selection::default(), runs).await?;
        if stage.patches == Patches::Ends && !judge::is_clean(&result) {
            // Patched is not booted again: what it showed once counts, whether or not it
            // would show it twice.
            let plan = of_ends(&stage.plan, VariantName::Base);
            let folder = format!("{folder}-base");
            let base = self.sub(&folder, &plan, &Selection::default(), runs).await?;
            result = judge::beside_base(result, base);
        }
        let wrong = judge::symptoms(&result);
        match wrong.is_empty() {
            true => Ok(judge::boots(&result)),
            false => self.attribute(&folder, &stage.plan, &wrong, runs).await,
        }
    }

    /// One run of the pipeline in a folder below this run's.
    async fn sub(
        &self,
        name: &str,
        plan: &Plan,
        selection: &Selection,
        runs: &mut Vec<String>,
    ) -> Result<RunResult, Fault> {
        let folder = self.folder.below(name)?;
        if self.resume && journal::is_intended(folder.path()) {
            journal::check(folder.path(), plan, selection)?;
        } else {
            journal::intend(folder.path(), plan, selection)?;
        }
        // What was accepted of a plan's behaviour is no matter of a validation.
        let plan = Plan { root: folder.path().to_owned(), ..plan.clone() };
        let environment = self.environment.clone();
        let result = pipeline::run(
            &plan,
            selection,
            self.build,
            self.boot,
            &folder,
            self.events,
            environment,
        )
        .await;
        folder.settle(false);
        runs.push(name.to_owned());
        match result.exit_code {
            ExitCode::Interrupted => Err(Fault::interrupted()),
            _ => Ok(result),
        }
    }
}

type Found = Result<Finding, Fault>;

/// Of a config's ends the one with the series: where nothing is wrong with it, nothing
/// is new, and what the kernel without the series says does not matter.
fn with_series(stage: &Stage, plan: &Plan) -> Plan {
    match stage.patches {
        Patches::Ends => of_ends(plan, VariantName::Patched),
        Patches::Every => plan.clone(),
    }
}

fn of_ends(plan: &Plan, variant: VariantName) -> Plan {
    let mut plan = plan.clone();
    for cell in &mut plan.cells {
        cell.variants = vec![variant];
    }
    plan
}

fn images() -> Selection {
    Selection { build_only: true, ..Selection::default() }
}

fn name(check: StageCheck) -> &'static str {
    match check {
        StageCheck::Builds => "builds",
        StageCheck::Behaviour => "behaviour",
        StageCheck::Performance => "performance",
        StageCheck::Boots => "boots",
    }
}

/// Why a config cannot be built here.
fn missing(plan: &Plan) -> Option<String> {
    let compiler = plan.cells.first()?.config.compiler;
    let (program, package) =
        compiler.programs().iter().find(|(program, _)| find_program(program).is_none())?;
    (compiler != crate::plan::manifest::Compiler::Gcc)
        .then(|| format!("{program} is not installed (sudo apt-get install {package})"))
}

/// Reads the result of a validation from its folder.
///
/// # Errors
/// A `plan` fault when there is none.
pub fn read(run: &Path) -> Result<ValidateResult, Fault> {
    let file = run.join(FILE);
    let wrong = |what: String| {
        Fault::plan(what).at(file.display()).help("name the folder of a run of `kvet validate`")
    };
    let text = std::fs::read(&file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let result: ValidateResult = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("not a result of kvet validate: {error}")))?;
    match result.schema == VALIDATE_RUN_SCHEMA {
        true => Ok(result),
        false => {
            let what = format!("schema {:?}; this kvet reads {VALIDATE_RUN_SCHEMA}", result.schema);
            Err(wrong(what))
        }
    }
}
