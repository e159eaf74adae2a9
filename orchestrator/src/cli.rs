// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

mod arguments;
mod bisect;
mod signals;
mod validate;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use tokio_util::sync::CancellationToken;

use arguments::{Cli, Color, Command, Format, Global, Inspect};

use crate::bisect::kernels::record;
use crate::compare::snapshot;
use crate::fault::{ExitCode, Fault};
use crate::guest::{self, payload};
use crate::host::budget::Budget;
use crate::host::children;
use crate::host::doctor;
use crate::host::sandbox::{self, Sandbox};
use crate::inspect;
use crate::kernel::build::Builder;
use crate::mutants::{self, Mutants};
use crate::plan::Plan;
use crate::plan::resolve::{Overrides, find_plan, resolve, resolve_with};
use crate::report::cover_letter::{self, Machines};
use crate::report::{json, progress, terminal};
use crate::run::event::Events;
use crate::run::folder::{RunFolder, read_result};
use crate::run::host::{Booter, environment, find_qemu};
use crate::run::journal;
use crate::run::leftovers;
use crate::run::pipeline::{self, Selection};
use crate::scaffold;
use crate::selftest::{self, Selftest};
use crate::store::{Store, clean};
use crate::vm::spec::need;

/// How long a killed child may take to be gone.
const KILLING: Duration = Duration::from_secs(1);

/// Runs the command line of this process.
pub async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::Plan } else { ExitCode::Acceptable };
        }
    };
    let mut running = Box::pin(cli.run());
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = cli.signals.at_once() => {
            // First, so that nobody writes any more into what is removed then.
            children::end_all(KILLING);
            drop(running);
            return ExitCode::Interrupted;
        }
    };
    let ended = ended.and_then(|code| match OUTPUT_LOST.get() {
        Some(fault) if code == ExitCode::Acceptable => Err(vec![fault.clone()]),
        _ => Ok(code),
    });
    match ended {
        Ok(code) => code,
        Err(faults) => {
            let color = cli.global.color(&std::io::stderr());
            for fault in &faults {
                let text = fault.to_string();
                let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
                let first =
                    if color { format!("\u{1b}[31m{first}\u{1b}[0m") } else { first.to_owned() };
                let _ = writeln!(std::io::stderr(), "kvet: {first}");
                if !rest.is_empty() {
                    let _ = writeln!(std::io::stderr(), "{rest}");
                }
            }
            ExitCode::worst(faults.iter().map(Fault::exit_code))
        }
    }
}

/// What the process exits with when [`main`] gave `code`.
#[must_use]
pub fn status(code: ExitCode) -> u8 {
    bisect::status(code)
}

impl Global {
    fn color(&self, stream: &impl IsTerminal) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => stream.is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    /// What all kvets of this user share, whatever cache each of them uses.
    fn budget(&self) -> Result<Budget, Fault> {
        let folder = default_cache().or_else(|fault| self.cache_dir.clone().ok_or(fault))?;
        let cpus = u32::try_from(cpus()).unwrap_or(u32::MAX);
        Budget::open(&folder, cpus, self.memory.map(|size| size.as_u64()))
    }

    fn store(&self) -> Result<Store, Fault> {
        let folder = match &self.cache_dir {
            Some(folder) => folder.clone(),
            None => default_cache()?,
        };
        let store = Store::open(&folder)?;
        leftovers::sweep_cache(&folder);
        Ok(store)
    }
}

/// CPUs that kvet may use.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// `$XDG_CACHE_HOME/kvet`, or `~/.cache/kvet`.
fn default_cache() -> Result<PathBuf, Fault> {
    let folder =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("XDG_CACHE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("kvet"))
        .ok_or_else(|| {
            Fault::plan("neither HOME nor XDG_CACHE_HOME is set")
                .help("name a folder with --cache-dir")
        })
}

impl Cli {
    async fn run(&self) -> Result<ExitCode, Vec<Fault>> {
        match &self.command {
            Command::Doctor => self.doctor().await.map_err(|fault| vec![fault]),
            Command::Build { plan, variant, input } => {
                let selection = Selection {
                    build_only: true,
                    variants: variant.clone(),
                    ..Selection::default()
                };
                self.run_plan(plan, &input.overrides(), &selection, None, false).await
            }
            Command::Run { plan, test, variant, input, strict, boots, cold, resume, dry_run } => {
                let selection = Selection {
                    test: test.clone(),
                    variants: variant.clone(),
                    build_only: false,
                    strict: *strict,
                    boots: *boots,
                    cold: *cold,
                };
                self.run_plan(plan, &input.overrides(), &selection, resume.as_deref(), *dry_run)
                    .await
            }
            Command::Validate { kernel, series, plan, config, fail_fast, resume, dry_run } => {
                let wanted = validate::Wanted {
                    kernel,
                    series,
                    plans: plan,
                    configs: config,
                    fail_fast: *fail_fast,
                    resume: resume.as_deref(),
                    dry_run: *dry_run,
                };
                self.validate(&wanted).await
            }
            Command::Bisect(args) => self.bisect(args).await,
            Command::Clean { keep, dry_run } => {
                self.clean(keep.map(|size| size.as_u64()), *dry_run).await.map_err(|f| vec![f])
            }
            Command::Review { plan } => self.snapshots(plan.as_deref(), |pending| {
                print(&format!("{}\n{}", pending.display(), snapshot::difference(pending)));
                Ok(())
            }),
            Command::Accept { plan } => self.snapshots(plan.as_deref(), |pending| {
                let accepted = snapshot::accept(pending)?;
                print(&format!("accepted {}\n", accepted.display()));
                Ok(())
            }),
            Command::Reject { plan } => self.snapshots(plan.as_deref(), |pending| {
                snapshot::reject(pending)?;
                print(&format!("rejected {}\n", pending.display()));
                Ok(())
            }),
            Command::Selftest { only, config, guests } => {
                let selection = selftest::Selection { rows: only.clone(), configs: config.clone() };
                self.selftest(&selection, *guests).await.map_err(|fault| vec![fault])
            }
            Command::Mutants { only, guests } => self.mutants(only, *guests).await,
            Command::Inspect(what) => {
                let whole = |page| (page, true);
                let page = match what {
                    Inspect::Console { log, json } => inspect::console(log, *json).map(whole),
                    Inspect::Ktap { log, json } => inspect::ktap(log, *json).map(whole),
                    Inspect::Series { input, json } => inspect::series(input, *json),
                };
                let (page, usable) = page.map_err(|fault| vec![fault])?;
                print(&page);
                Ok(if usable { ExitCode::Acceptable } else { ExitCode::Series })
            }
            Command::NewTest { name, script } => {
                let here = std::env::current_dir()
                    .map_err(|error| vec![Fault::io("find the current folder", &error)])?;
                let made = scaffold::new_test(&here, name, *script, &guest::tests());
                print(&made.map_err(|fault| vec![fault])?);
                Ok(ExitCode::Acceptable)
            }
            Command::Report { run, format } if run.join(crate::validate::FILE).is_file() => {
                self.report_validation(run, *format).map_err(|fault| vec![fault])
            }
            Command::Report { run, format } if run.join(record::FILE).is_file() => {
                self.report_search(run, *format).map_err(|fault| vec![fault])
            }
            Command::Report { run, format } => {
                let result = read_result(run).map_err(|fault| vec![fault])?;
                match format {
                    Format::Terminal => {
                        print(&terminal::render(&result, self.global.color(&std::io::stdout())))
                    }
                    Format::Json => print(&String::from_utf8_lossy(&json::pretty(&result))),
                    Format::CoverLetter => {
                        let machines = Machines::read(run, &result, &guest::tests());
                        print(&cover_letter::render(&result, &machines));
                    }
                }
                Ok(result.exit_code)
            }
        }
    }

    async fn clean(&self, keep: Option<u64>, dry: bool) -> Result<ExitCode, Fault> {
        let (store, events, stop) = (self.global.store()?, Events::default(), self.signals.stop()?);
        if !self.global.quiet {
            progress::subscribe(&events, self.global.verbose);
        }
        let cleaning = stop.run_until_cancelled(store.clean(keep, dry, &events)).await;
        events.close();
        let Some(cleaned) = cleaning else {
            return Ok(ExitCode::Interrupted);
        };
        print(&clean::render(&cleaned?, keep, dry));
        Ok(ExitCode::Acceptable)
    }

    async fn doctor(&self) -> Result<ExitCode, Fault> {
        let findings = doctor::examine();
        let missing = findings.iter().any(doctor::Finding::is_missing);
        let store = self.global.store()?;
        let stop = self.signals.stop()?;
        print(&doctor::accelerators(&store, &stop).await);
        print(&doctor::render(&findings));
        Ok(if missing { ExitCode::Infra } else { ExitCode::Acceptable })
    }

    async fn run_plan(
        &self,
        plan: &Path,
        overrides: &Overrides,
        selection: &Selection,
        resume: Option<&Path>,
        dry_run: bool,
    ) -> Result<ExitCode, Vec<Fault>> {
        let file = find_plan(plan).map_err(|fault| vec![fault])?;
        let plan = resolve_with(&file, &guest::tests(), overrides)?;
        selection.check(&plan).map_err(|fault| vec![fault])?;
        payload::check(&plan)?;
        check_room(&plan, &self.global.budget().map_err(|fault| vec![fault])?)
            .map_err(|fault| vec![fault])?;
        if dry_run {
            print(&String::from_utf8_lossy(&json::pretty(&plan)));
            return Ok(ExitCode::Acceptable);
        }
        self.run_resolved(&plan, selection, resume).await.map_err(|fault| vec![fault])
    }

    async fn run_resolved(
        &self,
        plan: &Plan,
        selection: &Selection,
        resume: Option<&Path>,
    ) -> Result<ExitCode, Fault> {
        // Before anything is built: what is missing at the end is missing now.
        let qemu = if selection.build_only { None } else { Some(find_qemu()?) };
        let store = self.global.store()?;
        let budget = self.global.budget()?;
        leftovers::sweep_snapshots(&plan.root.join("snapshots").join(&plan.name));
        let folder = match resume {
            Some(run) => {
                journal::check(run, plan, selection)?;
                RunFolder::reopen(run)?
            }
            None => {
                let folder = RunFolder::create(&self.global.runs_dir, &plan.name)?;
                journal::intend(folder.path(), plan, selection)?;
                folder
            }
        };
        let events = self.events(&folder)?;
        let stop = self.signals.stop()?;
        let builder = self.builder(&store, &budget, &events, &stop).await?;
        let mut environment = environment(qemu.as_deref()).await;
        environment.sandbox = Some(builder.sandbox.description());
        let machine = (qemu.unwrap_or_default(), environment.qemu.clone());
        let booter = Booter {
            cold: selection.cold,
            resume: resume.is_some(),
            ..self.booter(&builder, machine, &folder)
        };
        let result =
            pipeline::run(plan, selection, &builder, &booter, &folder, &events, environment).await;
        drop((builder, booter));
        if resume.is_some() {
            folder.settle(result.exit_code == ExitCode::Plan);
        }
        // Ends the live line before the report is printed.
        events.close();
        print(&terminal::render(&result, self.global.color(&std::io::stdout())));
        if !self.global.quiet {
            print(&format!("results: {}\n", folder.path().display()));
            if result.exit_code == ExitCode::Interrupted {
                print("the same command with `--resume` and that folder goes on from there\n");
            }
        }
        Ok(result.exit_code)
    }

    async fn selftest(
        &self,
        selection: &selftest::Selection,
        guests: Option<u16>,
    ) -> Result<ExitCode, Fault> {
        let qemu = find_qemu()?;
        let store = self.global.store()?;
        let folder = RunFolder::create(&self.global.runs_dir, "selftest")?;
        let events = self.events(&folder)?;
        let stop = self.signals.stop()?;
        let selftest = Selftest {
            builder: self.builder(&store, &self.global.budget()?, &events, &stop).await?,
            store,
            events: events.clone(),
            stop,
            choice: self.global.accel,
            qemu,
            folder,
            guests: guests.map_or_else(cpus, usize::from),
        };
        let outcomes = selftest.run(selection).await;
        events.close();
        let outcomes = outcomes?;
        print(&selftest::render(&outcomes));
        Ok(selftest::exit_code(&outcomes))
    }

    async fn mutants(&self, only: &[String], guests: Option<u16>) -> Result<ExitCode, Vec<Fault>> {
        let (mutants, events) = self.mutants_driver(guests).await.map_err(|fault| vec![fault])?;
        let outcomes = mutants.run(only).await;
        events.close();
        let outcomes = outcomes?;
        print(&mutants::render(&outcomes));
        Ok(mutants::exit_code(&outcomes))
    }

    async fn mutants_driver(&self, guests: Option<u16>) -> Result<(Mutants, Events), Fault> {
        let qemu = find_qemu()?;
        let store = self.global.store()?;
        let budget = self.global.budget()?;
        let folder = RunFolder::create(&self.global.runs_dir, "mutants")?;
        let events = self.events(&folder)?;
        let stop = self.signals.stop()?;
        let builder = self.builder(&store, &budget, &events, &stop).await?;
        let version = environment(Some(&qemu)).await.qemu;
        // Each kernel is booted once.
        let booter = Booter { cold: true, ..self.booter(&builder, (qemu, version), &folder) };
        let guests = guests.map_or_else(cpus, usize::from);
        Ok((Mutants { builder, booter, folder, guests }, events))
    }

    /// Events that the run's folder keeps and, unless it is to be quiet, people see.
    fn events(&self, folder: &RunFolder) -> Result<Events, Fault> {
        let events = Events::default();
        folder.record_events(&events)?;
        if !self.global.quiet {
            progress::subscribe(&events, self.global.verbose);
        }
        Ok(events)
    }

    /// Boots with QEMU's program and version, from saved machines where there are any.
    fn booter(
        &self,
        builder: &Builder,
        (qemu, version): (PathBuf, String),
        folder: &RunFolder,
    ) -> Booter {
        Booter {
            store: builder.store.clone(),
            budget: builder.budget.clone(),
            events: builder.events.clone(),
            stop: builder.stop.clone(),
            choice: self.global.accel,
            qemu,
            version,
            cold: false,
            resume: false,
            probe_folder: folder.path().join("probe"),
            chosen: tokio::sync::OnceCell::new(),
            states: std::cell::RefCell::default(),
        }
    }

    async fn builder(
        &self,
        store: &Store,
        budget: &Budget,
        events: &Events,
        stop: &CancellationToken,
    ) -> Result<Builder, Fault> {
        let sandbox = Sandbox::choose(self.global.sandbox).await?;
        if let (Some(why), sandbox::Choice::Auto) = (sandbox.missing(), self.global.sandbox) {
            events.note(format!("builds run without a sandbox: {why}"));
        }
        Ok(Builder {
            store: store.clone(),
            budget: budget.clone(),
            events: events.clone(),
            stop: stop.clone(),
            jobs: self.global.jobs.map_or_else(cpus, usize::from),
            sandbox,
        })
    }

    fn snapshots(
        &self,
        plan: Option<&Path>,
        each: impl Fn(&Path) -> Result<(), Fault>,
    ) -> Result<ExitCode, Vec<Fault>> {
        let folder = match plan {
            Some(plan) => {
                let file = find_plan(plan).map_err(|fault| vec![fault])?;
                let plan = resolve(&file, &guest::tests())?;
                plan.root.join("snapshots").join(&plan.name)
            }
            None => PathBuf::from("snapshots"),
        };
        let pending = snapshot::pending(&folder);
        if pending.is_empty() {
            print(&format!("no pending snapshots in {}\n", folder.display()));
        }
        for file in pending {
            each(&file).map_err(|fault| vec![fault])?;
        }
        Ok(ExitCode::Acceptable)
    }
}

/// Refuses a guest that can never have what it needs, before anything is built.
fn check_room(plan: &Plan, budget: &Budget) -> Result<(), Fault> {
    for guest in plan.cells.iter().map(|cell| &cell.guest) {
        if let Err(why) = budget.check(need(guest)) {
            return Err(Fault::plan(format!(
                "guest {} does not fit on this host: {why}",
                guest.name
            ))
            .at(plan.file.display())
            .help("give it less `memory:` in the plan, or raise --memory"));
        }
    }
    Ok(())
}

/// Why something could not be written to standard output, if it could not.
static OUTPUT_LOST: std::sync::OnceLock<Fault> = std::sync::OnceLock::new();

/// Writes to standard output. A reader that has gone away is no error of ours; a
/// full disk is, since what is lost there may be the report.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = OUTPUT_LOST.set(Fault::io("write to standard output", &error));
    }
}
