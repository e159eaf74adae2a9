// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds and boots single kernels of a search, and keeps account of it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::facts::{Booted, Facts};
use super::judge::{Ends, judge};
use super::predicate::Predicate;
use crate::bisect::drive::Seen;
use crate::fault::{Blame, Fault};
use crate::guest::payload::Payload;
use crate::kernel::build::{Builder, Image};
use crate::kernel::series::Trees;
use crate::kernel::source::Source;
use crate::plan::manifest::VariantName;
use crate::plan::{Cell, Config, Plan, Test};
use crate::run::event::Events;
use crate::run::folder::RunFolder;
use crate::run::pipeline::{Boot, Bootable, Build};
use crate::run::{job, program};

/// File in a search's folder that keeps what the ends came to.
const ENDS: &str = "ends.json";

/// Builds beside a guest.
pub trait Aside: Build + Sized {
    /// A builder of the same that takes no more of the host than a guest with `vcpus`
    /// leaves, and what stops it alone.
    fn aside(&self, vcpus: u32) -> (Self, CancellationToken);
}

impl Aside for Builder {
    fn aside(&self, vcpus: u32) -> (Self, CancellationToken) {
        let stop = self.stop.child_token();
        let jobs = self.jobs.saturating_sub(vcpus as usize).max(1);
        (Self { stop: stop.clone(), jobs, ..self.clone() }, stop)
    }
}

/// One build or boot of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// `build` or `boot`.
    pub kind: String,
    /// Of which candidate.
    pub name: String,
    /// Wall-clock seconds; none for an image that was there.
    pub seconds: f64,
    /// It was begun while a guest ran, before it was known to be needed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
}

/// What all kernels of a search share.
#[derive(Debug)]
pub struct Lab<'a, B, V> {
    /// The plan.
    pub plan: &'a Plan,
    /// The config, the guest and the kernel.
    pub cell: &'a Cell,
    /// What is run; none where nothing is booted.
    pub test: Option<&'a Test>,
    /// What is called bad.
    pub predicate: &'a Predicate,
    /// Where kernels are built.
    pub build: &'a B,
    /// Where they are booted.
    pub boot: &'a V,
    /// Where traces go.
    pub folder: &'a RunFolder,
    /// Where progress goes.
    pub events: &'a Events,
    /// Where the trees are.
    pub source: &'a Source,
    /// What guests start from.
    pub payload: Payload,
    /// What the ends came to.
    pub ends: RefCell<Ends>,
    /// What was done.
    pub work: RefCell<Vec<Work>>,
}

impl<B: Build, V: Boot> Lab<'_, B, V> {
    /// Builds one kernel. The outer errors are those that end a search; what keeps this
    /// kernel from being built is the inner one.
    ///
    /// # Errors
    /// The host's faults, and an interrupt.
    pub async fn build(
        &self,
        name: &str,
        trees: &Trees,
        variant: VariantName,
        config: &Config,
    ) -> Result<Result<Image, Fault>, Fault> {
        let began = Instant::now();
        let built = build(self.build, self.source, trees, variant, config, self.folder, name).await;
        let result = sort(built)?;
        self.note_build(name, &result, began.elapsed().as_secs_f64(), false);
        Ok(result)
    }

    /// Notes a build.
    pub fn note_build(&self, name: &str, result: &Result<Image, Fault>, seconds: f64, ahead: bool) {
        let stored = result.as_ref().is_ok_and(|image| image.stored);
        let seconds = if stored { 0.0 } else { seconds };
        let kind = "build".to_owned();
        self.work.borrow_mut().push(Work { kind, name: name.to_owned(), seconds, ahead });
    }

    /// Boots one kernel once.
    ///
    /// # Errors
    /// The host's faults, and an interrupt.
    pub async fn boot(&self, name: &str, image: &Image, run: u32) -> Result<Facts, Fault> {
        let Some(test) = self.test else { return Ok(Facts::Built) };
        let task = match run {
            1 => format!("{name} {}", test.id()),
            run => format!("{name} {}, run {run}", test.id()),
        };
        let mut folder = self.folder.path().join("boots").join(name).join(test.id());
        if run > 1 {
            folder = folder.join(format!("run-{run}"));
        }
        let program = self.payload.programs.get(&test.id()).cloned();
        let job = job::job(test, name, program, 0, 1);
        let bootable = Bootable { image, initramfs: &self.payload.initramfs };
        let began = Instant::now();
        let booting = self.boot.boot(&task, self.cell, bootable, job, self.plan, folder.clone());
        let mut report = booting.await?;
        let (kind, seconds) = ("boot".to_owned(), began.elapsed().as_secs_f64());
        self.work.borrow_mut().push(Work { kind, name: name.to_owned(), seconds, ahead: false });
        if let Some(program) = &test.program {
            program::settle(program.format, &mut report);
            self.folder.record_output(&folder, &report.report.output, &report.report.logs)?;
        }
        let shown =
            folder.strip_prefix(self.folder.path()).unwrap_or(&folder).display().to_string();
        Booted::read(&task, report, &shown).map(Facts::Booted)
    }

    /// Judges what a kernel came to.
    #[must_use]
    pub fn judge(&self, facts: &Facts) -> Seen {
        judge(self.predicate, &self.ends.borrow(), facts)
    }

    /// Keeps what the ends came to.
    ///
    /// # Errors
    /// An `infra` fault when it cannot be written.
    pub fn keep_ends(&self, ends: Ends) -> Result<(), Fault> {
        let path = self.folder.path().join(ENDS);
        crate::store::write_atomically(&path, &crate::report::json::pretty(&ends))?;
        *self.ends.borrow_mut() = ends;
        Ok(())
    }

    /// What the ends came to in an earlier life of the search.
    #[must_use]
    pub fn kept_ends(&self) -> Option<Ends> {
        let text = std::fs::read(self.folder.path().join(ENDS)).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Builds one kernel, with everything that this takes handed over.
///
/// # Errors
/// Whatever prevents it.
pub(super) async fn build<B: Build>(
    build: &B,
    source: &Source,
    trees: &Trees,
    variant: VariantName,
    config: &Config,
    folder: &RunFolder,
    name: &str,
) -> Result<Image, Fault> {
    let log: PathBuf = folder.build_log(name, "build")?;
    build.build(name, source, trees, variant, config, log).await
}

/// Parts what keeps one kernel from being built from what ends the search. A config that
/// this kernel does not grant says nothing of the others.
///
/// # Errors
/// What ends the search.
pub(super) fn sort<T>(result: Result<T, Fault>) -> Result<Result<T, Fault>, Fault> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(fault) => match fault.blame {
            Blame::Series | Blame::Kernel | Blame::Test | Blame::Plan => Ok(Err(fault)),
            Blame::Infra | Blame::Interrupt => Err(fault),
        },
    }
}
