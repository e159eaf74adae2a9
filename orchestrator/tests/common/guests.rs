// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots in this process, of a plan's first cell without its series.

use std::path::PathBuf;

use kvet::host::budget::Budget;
use kvet::kernel::build::{Builder, Image};
use kvet::plan::Plan;
use kvet::plan::manifest::VariantName;
use kvet::run::event::Events;
use kvet::run::host::{Booter, environment, find_qemu};
use kvet::run::pipeline::{Boot, Bootable, Build};
use kvet::store::Store;
use kvet::vm::accel::Choice;
use kvet::vm::halt::BootReport;
use kvet_records::{Job, PROTOCOL_VERSION, Parameters};
use tokio_util::sync::CancellationToken;

use super::{Project, cache};

/// What guests start from, and what starts them.
pub struct Guests {
    pub plan: Plan,
    pub booter: Booter,
    image: Image,
    initramfs: PathBuf,
}

impl Guests {
    /// Builds the kernel of the project's plan `mine`.
    pub async fn new(project: &Project, budget: Budget) -> Self {
        let file = project.path().join("configs/plans/mine.yaml");
        let plan = kvet::plan::resolve::resolve(&file, &kvet::guest::tests()).unwrap();
        let (cell, events, stop) = (&plan.cells[0], Events::default(), CancellationToken::new());
        let store = Store::open(&cache()).unwrap();
        let builder = Builder {
            store: store.clone(),
            budget: budget.clone(),
            events: events.clone(),
            stop: stop.clone(),
            jobs: 2,
            sandbox: kvet::host::sandbox::Sandbox::none("a test"),
        };
        let (source, trees) = builder.prepare(cell).await.unwrap();
        let log = project.path().join("build.log");
        let building =
            Build::build(&builder, "guests", &source, &trees, VariantName::Base, &cell.config, log);
        let image = building.await.unwrap();
        let initramfs = kvet::guest::initramfs::prepare(&store).unwrap();
        let qemu = find_qemu().unwrap();
        let booter = Booter {
            store,
            budget,
            events,
            stop,
            choice: Choice::Auto,
            version: environment(Some(&qemu)).await.qemu,
            qemu,
            cold: false,
            resume: false,
            probe_folder: project.path().join("probe"),
            chosen: tokio::sync::OnceCell::new(),
            states: std::cell::RefCell::default(),
        };
        Self { plan, booter, image, initramfs }
    }

    /// Boots a guest with a job and watches it to its end. `task` names it.
    pub async fn boot(&self, task: &str, job: Job, folder: PathBuf) -> BootReport {
        let bootable = Bootable { image: &self.image, initramfs: &self.initramfs };
        self.booter
            .boot(task, &self.plan.cells[0], bootable, job, &self.plan, folder)
            .await
            .unwrap()
    }
}

/// A job for one of kvet's own tests.
pub fn job(id: &str, test: &str) -> Job {
    Job {
        protocol: PROTOCOL_VERSION,
        id: id.to_owned(),
        test: test.to_owned(),
        parameters: Parameters::new(),
        measure: None,
        offset_ns: 0,
        start_at_ms: None,
        program: None,
    }
}
