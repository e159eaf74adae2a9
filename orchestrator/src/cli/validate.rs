// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet validate`, from its arguments to its exit code.

use std::path::{Path, PathBuf};

use super::arguments::Format;
use super::{Cli, check_room, print};
use crate::fault::{ExitCode, Fault};
use crate::guest::{self, payload};
use crate::plan::manifest::SeriesEntry;
use crate::plan::resolve::find_plan;
use crate::report::cover_letter::{self, Machines};
use crate::report::json;
use crate::run::folder::{RunFolder, read_result};
use crate::run::host::{Booter, environment, find_qemu};
use crate::run::journal;
use crate::run::pipeline::Build;
use crate::validate::result::ValidateResult;
use crate::validate::stages::{Request, Validation, prepare};
use crate::validate::{self, Driver, render, table};

/// What the command line asks for.
pub(super) struct Wanted<'a> {
    pub(super) kernel: &'a str,
    pub(super) series: &'a str,
    pub(super) plans: &'a [PathBuf],
    pub(super) configs: &'a [String],
    pub(super) fail_fast: bool,
    pub(super) resume: Option<&'a Path>,
    pub(super) dry_run: bool,
}

impl Cli {
    pub(super) async fn validate(&self, wanted: &Wanted<'_>) -> Result<ExitCode, Vec<Fault>> {
        let one = |fault: Fault| vec![fault];
        let root = table::find_root().map_err(one)?;
        let plans = wanted.plans.iter().map(|plan| find_plan(plan));
        let request = Request {
            kernel: wanted.kernel.to_owned(),
            series: SeriesEntry::from_argument(wanted.series),
            plans: plans.collect::<Result<_, _>>().map_err(one)?,
            configs: wanted.configs.to_vec(),
        };
        let validation = prepare(&root, &guest::tests(), &request)?;
        let budget = self.global.budget().map_err(one)?;
        for stage in &validation.stages {
            for plan in std::iter::once(&stage.plan).chain(&stage.measured) {
                payload::check(plan)?;
                check_room(plan, &budget).map_err(one)?;
            }
        }
        if wanted.dry_run {
            print(&String::from_utf8_lossy(&json::pretty(&validation)));
            return Ok(ExitCode::Acceptable);
        }
        self.run_validation(&validation, wanted).await.map_err(one)
    }

    async fn run_validation(
        &self,
        validation: &Validation,
        wanted: &Wanted<'_>,
    ) -> Result<ExitCode, Fault> {
        let qemu = find_qemu()?;
        let (store, budget) = (self.global.store()?, self.global.budget()?);
        let mut before = None;
        let folder = match wanted.resume {
            Some(run) => {
                before = validate::read(run)?.source;
                journal::check_value(run, validation)?;
                RunFolder::reopen(run)?
            }
            None => {
                let folder = RunFolder::create(&self.global.runs_dir, "validate")?;
                journal::intend_value(folder.path(), validation)?;
                folder
            }
        };
        let events = self.events(&folder)?;
        // Of its own, so that the last check can end what is made beside it.
        let stop = self.signals.stop()?.child_token();
        let builder = self.builder(&store, &budget, &events, &stop).await?;
        if let Some(before) = before
            && let Ok((source, _)) = builder.prepare(&validation.cell).await
            && source.origin != before
        {
            let what = format!("it is of {before}, and {} is now {}", wanted.kernel, source.origin);
            return Err(Fault::plan(what)
                .at(folder.path().display())
                .help("name the revision (--kernel REPOSITORY@REV), or begin without --resume"));
        }
        let mut environment = environment(Some(&qemu)).await;
        environment.sandbox = Some(builder.sandbox.description());
        let machine = (qemu, environment.qemu.clone());
        let resume = wanted.resume.is_some();
        let booter = Booter { resume, ..self.booter(&builder, machine, &folder) };
        let driver = Driver {
            validation,
            build: &builder,
            boot: &booter,
            checkpatch: &builder,
            folder: &folder,
            events: &events,
            environment,
            store: Some(&store),
            fail_fast: wanted.fail_fast,
            at_once: validation.at_once(budget.cpus()),
            stop,
            resume,
            probes: std::cell::RefCell::default(),
        };
        let result = driver.run().await;
        drop((builder, booter));
        events.close();
        self.print_validation(folder.path(), &result);
        if !self.global.quiet {
            print(&format!("results: {}\n", folder.path().display()));
            if result.exit_code == ExitCode::Interrupted {
                print("the same command with `--resume` and that folder goes on from there\n");
            }
        }
        Ok(result.exit_code)
    }

    fn print_validation(&self, folder: &Path, result: &ValidateResult) {
        let color = self.global.color(&std::io::stdout());
        print(&render::render(result, color));
        let behaviour = result.checks.iter().find(|check| check.name == "behaviour");
        let run = behaviour.and_then(|check| check.runs.first());
        if let Some(run) = run.and_then(|run| read_result(&folder.join(run)).ok()) {
            print(&format!("\n{}\n", render::cover_letter(&run)));
        }
        print(&render::verdict(result, color));
    }

    /// The report of a validation again, from its folder.
    pub(super) fn report_validation(&self, run: &Path, format: Format) -> Result<ExitCode, Fault> {
        let result = validate::read(run)?;
        match format {
            Format::Terminal => self.print_validation(run, &result),
            Format::Json => print(&String::from_utf8_lossy(&json::pretty(&result))),
            Format::CoverLetter => print_letters(run, &result),
        }
        Ok(result.exit_code)
    }
}

/// The letters of what was counted and of what was observed.
fn print_letters(folder: &Path, result: &ValidateResult) {
    let told = |name: &str| result.checks.iter().find(|check| check.name == name);
    for check in ["performance", "behaviour"].iter().filter_map(|name| told(name)) {
        let Some(run) = check.runs.first().map(|run| folder.join(run)) else { continue };
        if let Ok(ran) = read_result(&run) {
            let machines = Machines::read(&run, &ran, &guest::tests());
            print(&cover_letter::render(&ran, &machines));
        }
    }
}
