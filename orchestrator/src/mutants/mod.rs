// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet mutants`: would the tests of our series notice a mistake in them? It
//! builds each series with one small mistake after another, runs one test in
//! it, and compares what the test observes with what it observes of the series
//! as it is.

mod judge;
pub mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use kvet_records::{Job, PROTOCOL_VERSION};

use crate::compare::behaviour::Observations;
use crate::fault::Fault;
use crate::guest::{self, initramfs};
use crate::kernel::build::{BuildRequest, Builder, Image};
use crate::kernel::edit::edit;
use crate::kernel::series::{Tree, Trees};
use crate::kernel::source::Source;
use crate::plan::manifest::VariantName;
use crate::plan::resolve::{find_plan, resolve};
use crate::plan::{Cell, Plan, Test};
use crate::run::folder::RunFolder;
use crate::run::host::Booter;
use crate::run::pipeline::{Boot, Bootable, Build};
use crate::vm::halt::{BootReport, HaltReason};
pub use judge::{Outcome, exit_code, render};
use table::{Expect, Mutant};

/// What the mutants need.
#[derive(Debug)]
pub struct Mutants {
    /// Builds kernels.
    pub builder: Builder,
    /// Boots them.
    pub booter: Booter,
    /// Where the traces go.
    pub folder: RunFolder,
    /// Guests at once.
    pub guests: usize,
}

/// A plan, with what its kernels are built from.
struct Prepared {
    plan: Plan,
    source: Source,
    trees: Trees,
}

/// One guest to boot: a kernel, and the test to run in it.
struct Guest<'a> {
    name: String,
    plan: &'a Plan,
    cell: &'a Cell,
    test: &'a Test,
    image: Image,
}

impl Mutants {
    /// Builds and boots the mutants named in `only`, or all, and the series that
    /// they are made from.
    ///
    /// # Errors
    /// Faults when the table is wrong, or a kernel cannot be built or a guest not
    /// be started; what guests do is in the outcomes.
    pub async fn run(&self, only: &[String]) -> Result<Vec<Outcome>, Vec<Fault>> {
        let rows =
            find_table().and_then(|file| table::read(&file, only)).map_err(|fault| vec![fault])?;
        let mut prepared = BTreeMap::new();
        for (mutant, _) in &rows {
            if !prepared.contains_key(&mutant.plan) {
                prepared.insert(mutant.plan.clone(), self.prepare(&mutant.plan).await?);
            }
        }
        self.rows(&rows, &prepared).await.map_err(|fault| vec![fault])
    }

    async fn prepare(&self, name: &str) -> Result<Prepared, Vec<Fault>> {
        let plan =
            resolve(&find_plan(Path::new(name)).map_err(|fault| vec![fault])?, &guest::tests())?;
        let cell = plan.cells.first().ok_or_else(|| {
            vec![Fault::plan(format!("the plan {name} has nothing to run")).at(plan.file.display())]
        })?;
        let (source, trees) = self.builder.prepare(cell).await.map_err(|fault| vec![fault])?;
        Ok(Prepared { plan, source, trees })
    }

    async fn rows(
        &self,
        rows: &[(Mutant, Expect)],
        prepared: &BTreeMap<String, Prepared>,
    ) -> Result<Vec<Outcome>, Fault> {
        // The series as they are, one boot for each test and guest.
        let mut references: BTreeMap<String, Guest> = BTreeMap::new();
        let mut mutants = Vec::new();
        for (mutant, expect) in rows {
            let Prepared { plan, source, trees } = &prepared[&mutant.plan];
            let (cell, test) = find_cell(plan, mutant)?;
            let patched = &trees.variants[&VariantName::Patched];
            let key = format!("{}.{}", cell.id(), test.id());
            let guest = |name: String, image| Guest { name, plan, cell, test, image };
            let original = match references.get(&key) {
                Some(reference) => reference.image.clone(),
                None => {
                    let image = self.build(source, patched.clone(), cell, &plan.name).await?;
                    references.insert(key.clone(), guest(key.clone(), image.clone()));
                    image
                }
            };
            let tree =
                edit(source, patched, &mutant.edits, &mutant.name, &self.builder.store).await?;
            let image = self.build(source, tree, cell, &mutant.name).await?;
            if image.image_sha256 == original.image_sha256 {
                return Err(Fault::plan(format!(
                    "mutant {} gives the same image as the series {}",
                    mutant.name, cell.series.name
                ))
                .help("its change does not reach the compiled code in this config"));
            }
            mutants.push((key, mutant, expect, guest(mutant.name.clone(), image)));
        }
        let mut expected: BTreeMap<String, Observations> = BTreeMap::new();
        for (key, guest) in &references {
            let report = self.boot(guest).await?;
            if let Some(fault) = report.fault(&guest.name) {
                return Err(fault);
            }
            expected.insert(key.clone(), report.report.observations);
        }
        let work = mutants.iter().map(async |(key, mutant, expect, guest)| {
            let report = self.boot(guest).await?;
            Ok(judge::judge(mutant, expect, &expected[key], &report))
        });
        let outcomes: Vec<_> =
            futures_util::stream::iter(work).buffered(self.guests).collect().await;
        outcomes.into_iter().collect()
    }

    async fn build(
        &self,
        source: &Source,
        tree: Tree,
        cell: &Cell,
        name: &str,
    ) -> Result<Image, Fault> {
        let request = BuildRequest {
            task: format!("mutants/{name}"),
            source: source.clone(),
            tree,
            config: cell.config.clone(),
            log: self.folder.build_log("mutants", name)?,
        };
        Builder::build(&self.builder, &request).await
    }

    async fn boot(&self, guest: &Guest<'_>) -> Result<BootReport, Fault> {
        let job = Job {
            protocol: PROTOCOL_VERSION,
            id: guest.name.clone(),
            test: guest.test.name.clone(),
            parameters: guest.test.parameters.clone(),
            measure: None,
            offset_ns: 0,
            start_at_ms: None,
            program: None,
        };
        let task = format!("mutants/{}", guest.name);
        let folder = self.folder.path().join("boots").join(&guest.name);
        let initramfs = initramfs::prepare(&self.builder.store)?;
        let bootable = Bootable { image: &guest.image, initramfs: &initramfs };
        let report = self.booter.boot(&task, guest.cell, bootable, job, guest.plan, folder).await?;
        match report.halt {
            HaltReason::Interrupted => Err(Fault::interrupted()),
            _ => Ok(report),
        }
    }
}

/// The table of the folder that kvet runs in, or of one above.
fn find_table() -> Result<PathBuf, Fault> {
    let here =
        std::env::current_dir().map_err(|error| Fault::io("find the current folder", &error))?;
    let found = here.ancestors().map(|up| up.join("patches/mutants/mutants.yaml"));
    found.into_iter().find(|file| file.is_file()).ok_or_else(|| {
        Fault::plan("no patches/mutants/mutants.yaml here or above")
            .help("run kvet in a folder of its source")
    })
}

/// The cell and the test of a plan that a mutant is run in.
fn find_cell<'a>(plan: &'a Plan, mutant: &Mutant) -> Result<(&'a Cell, &'a Test), Fault> {
    plan.cells
        .iter()
        .filter(|cell| cell.guest.name == mutant.guest)
        .find_map(|cell| Some((cell, cell.tests.iter().find(|test| test.name == mutant.test)?)))
        .ok_or_else(|| {
            Fault::plan(format!(
                "mutant {}: the plan {} runs no test {} in a guest {}",
                mutant.name, plan.name, mutant.test, mutant.guest
            ))
            .at(plan.file.display())
        })
}
