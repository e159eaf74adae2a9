// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every kind of search needs: a folder, the host's builder and QEMU, a log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BisectArgs, Cli};
use crate::bisect::kernels::record::{BISECTION_SCHEMA, Ended, FILE, Record};
use crate::bisect::kernels::{Lab, Predicate};
use crate::bisect::log::{LogFile, read};
use crate::bisect::rates::Rule;
use crate::fault::{Blame, ExitCode, Fault};
use crate::guest::payload::Payload;
use crate::kernel::build::Builder;
use crate::kernel::series::{Tree, Trees};
use crate::kernel::source::Source;
use crate::plan::manifest::VariantName;
use crate::plan::{Cell, Plan};
use crate::report::bisect::render;
use crate::report::json::pretty;
use crate::run::event::Events;
use crate::run::folder::RunFolder;
use crate::run::host::{Booter, environment, find_qemu};
use crate::run::journal;
use crate::run::pipeline::{Build, Selection};
use crate::store::{Store, write_atomically};

/// A search's log.
const LOG: &str = "bisect.jsonl";

/// What the user asks for.
pub(super) struct Request<'a> {
    pub(super) cli: &'a Cli,
    pub(super) args: &'a BisectArgs,
    pub(super) plan: &'a Plan,
    pub(super) predicate: &'a Predicate,
    pub(super) rule: Rule,
}

/// What it is done with.
pub(super) struct Bench {
    pub(super) store: Store,
    pub(super) folder: RunFolder,
    pub(super) events: Events,
    pub(super) builder: Builder,
    pub(super) booter: Booter,
    began: Instant,
}

impl Request<'_> {
    /// The plan's one cell.
    pub(super) fn cell(&self) -> Result<&Cell, Fault> {
        self.plan.cells.first().ok_or_else(|| Fault::plan("the plan has nothing to run"))
    }

    /// Opens the search's folder and all that builds and boots.
    pub(super) async fn bench(&self) -> Result<Bench, Fault> {
        let global = &self.cli.global;
        // Before anything is built: what is missing at the end is missing now.
        let qemu = if self.predicate.boots() { Some(find_qemu()?) } else { None };
        let (store, budget) = (global.store()?, global.budget()?);
        if self.predicate.boots() {
            super::super::check_room(self.plan, &budget)?;
        }
        let selection = Selection {
            test: self.args.test.clone(),
            build_only: qemu.is_none(),
            ..Selection::default()
        };
        let folder = match &self.args.resume {
            Some(run) => {
                if !run.join(LOG).is_file() {
                    return Err(Fault::plan("this is no folder of a search")
                        .at(run.display())
                        .help("name the folder of a `kvet bisect` that was interrupted"));
                }
                journal::check(run, self.plan, &selection)?;
                RunFolder::reopen(run)?
            }
            None => {
                let name = format!("bisect-{}", self.plan.name);
                let folder = RunFolder::create(&global.runs_dir, &name)?;
                journal::intend(folder.path(), self.plan, &selection)?;
                folder
            }
        };
        let events = self.cli.events(&folder)?;
        let stop = self.cli.signals.stop()?;
        let builder = self.cli.builder(&store, &budget, &events, &stop).await?;
        let booter = Booter {
            store: store.clone(),
            budget,
            events: events.clone(),
            stop,
            choice: global.accel,
            version: environment(qemu.as_deref()).await.qemu,
            qemu: qemu.unwrap_or_default(),
            // Each kernel is booted once, and repeated runs are to be independent.
            cold: true,
            resume: self.args.resume.is_some(),
            probe_folder: folder.path().join("probe"),
            chosen: tokio::sync::OnceCell::new(),
            states: std::cell::RefCell::default(),
        };
        Ok(Bench { store, folder, events, builder, booter, began: Instant::now() })
    }

    /// What guests start from; `bad` is where selftests of the kernel are taken from.
    pub(super) async fn payload(
        &self,
        bench: &Bench,
        source: &Source,
        good: &Tree,
        bad: &Tree,
    ) -> Result<Payload, Fault> {
        if !self.predicate.boots() {
            return Ok(Payload::default());
        }
        let variants =
            [(VariantName::Base, good.clone()), (VariantName::Patched, bad.clone())].into();
        let trees = Trees { variants, ..Trees::default() };
        let log = bench.folder.build_log("selftests", "build")?;
        bench.builder.payload("selftests", self.cell()?, source, &trees, log).await
    }

    pub(super) fn lab<'b>(
        &'b self,
        bench: &'b Bench,
        source: &'b Source,
        payload: Payload,
    ) -> Result<Lab<'b, Builder, Booter>, Fault> {
        let cell = self.cell()?;
        Ok(Lab {
            plan: self.plan,
            cell,
            test: cell.tests.first(),
            predicate: self.predicate,
            build: &bench.builder,
            boot: &bench.booter,
            folder: &bench.folder,
            events: &bench.events,
            source,
            payload,
            ends: std::cell::RefCell::default(),
            work: std::cell::RefCell::default(),
        })
    }

    /// Test, config and guest, in words.
    pub(super) fn setting(&self, with_config: bool) -> Result<String, Fault> {
        let cell = self.cell()?;
        let mut words = Vec::new();
        if let Some(test) = cell.tests.first() {
            words.push(format!("test {}", test.id()));
        }
        if with_config {
            words.push(format!("config {}", cell.config.name));
        }
        if !cell.tests.is_empty() {
            words.push(format!("guest {}", cell.guest.name));
        }
        words.push(cell.config.compiler.program().to_owned());
        Ok(words.join(", "))
    }

    /// What is called bad, as the log has it: with a digest of what else a result depends
    /// on and the ends do not say, so that a log is never gone on with for other patches,
    /// another source or another config.
    pub(super) fn logged_predicate(&self, source: &Source) -> Result<String, Fault> {
        let cell = self.cell()?;
        let config = crate::kernel::kconfig::Request::read(&cell.config)
            .map_err(|mut faults| faults.remove(0))?;
        let text = config.text();
        let mut parts: Vec<&[u8]> = vec![source.tree.as_bytes(), text.as_bytes()];
        parts.push(cell.config.base.key().as_bytes());
        parts.extend(cell.series.patches.iter().map(|patch| patch.bytes.as_slice()));
        let sets = cell.series.prerequisites.iter().flat_map(|set| &set.patches);
        parts.extend(sets.map(|patch| patch.bytes.as_slice()));
        Ok(format!("{} (inputs {})", self.predicate, crate::store::key(parts)))
    }

    pub(super) fn record(&self, bench: &Bench, searched: String, ended: Ended) -> Record {
        Record {
            schema: BISECTION_SCHEMA.to_owned(),
            id: bench.folder.id().to_owned(),
            plan: self.plan.name.clone(),
            searched,
            predicate: self.predicate.to_string(),
            setting: String::new(),
            exit_code: ended.exit_code(),
            ended,
            author: None,
            bad: None,
            before: Vec::new(),
            skipped: Vec::new(),
            builds: 0,
            boots: 0,
            seconds: bench.began.elapsed().as_secs_f64(),
            work: Vec::new(),
        }
    }

    /// Shows and keeps what a search came to.
    pub(super) fn finish(
        &self,
        bench: &Bench,
        result: Result<Record, Fault>,
    ) -> Result<ExitCode, Fault> {
        // Ends the live line before the report is printed.
        bench.events.close();
        bench.folder.settle(false);
        let folder = bench.folder.path().display();
        match result {
            Ok(record) => {
                write_atomically(&bench.folder.path().join(FILE), &pretty(&record))?;
                super::super::print(&render(&record));
                if !self.cli.global.quiet {
                    super::super::print(&format!("results: {folder}\n"));
                }
                Ok(record.exit_code)
            }
            Err(fault) => {
                let goes_on = matches!(fault.blame, Blame::Infra | Blame::Interrupt);
                if !self.cli.global.quiet {
                    super::super::print(&format!("results: {folder}\n"));
                    if goes_on {
                        super::super::print(
                            "the same command with `--resume` and that folder goes on from there\n",
                        );
                    }
                }
                Err(fault)
            }
        }
    }
}

impl Bench {
    /// Where the log is.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }

    /// The entries of the log; none for a new search.
    pub(super) fn entries<E: DeserializeOwned>(&self) -> Result<Vec<E>, Fault> {
        let path = self.log();
        match File::open(&path) {
            Ok(file) => read(file, &shown(&path)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Fault::io(format!("read {}", path.display()), &error)),
        }
    }

    /// The log, to add to it; `start` is its first line.
    pub(super) fn open_log<E: Serialize>(&self, start: Option<&E>) -> Result<LogFile, Fault> {
        let mut log = LogFile::open(&self.log())?;
        if let Some(start) = start {
            crate::bisect::log::Journal::keep(&mut log, start)?;
        }
        Ok(log)
    }
}

/// What errors call a log.
pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A log of a search for something else.
pub(super) fn other_predicate(then: &str, now: &str) -> Fault {
    Fault::plan("the log is of a search for something else")
        .evidence(&format!("then: {then}\nnow:  {now}"))
        .help("resume with the arguments that the search was started with")
}
