// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipeline's [`Build`] and [`Boot`] on this host: the real compiler, the
//! real QEMU.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvet_records::{Job, MEASURE_INSTRUCTIONS};
use tokio::sync::OnceCell;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::event::Events;
use super::journal::{self, Inputs};
use super::pipeline::{Boot, Bootable, Build};
use super::result::Environment;
use crate::arch::x86_64;
use crate::fault::Fault;
use crate::guest::payload::{self, Payload};
use crate::host::budget::Budget;
use crate::host::children;
use crate::host::process::{capture, command, require_program};
use crate::kernel::build::{BuildRequest, Builder, Image};
use crate::kernel::kselftest;
use crate::kernel::series::{self, Trees};
use crate::kernel::source::{self, Source};
use crate::plan::manifest::VariantName;
use crate::plan::{Cell, Config, Guest, Plan};
use crate::store::Store;
use crate::vm::accel::{Choice, Chosen, choose, host_key};
use crate::vm::deadline::{Measured, limits};
use crate::vm::halt::{BootReport, HaltReason};
use crate::vm::machine::{BootRequest, boot};
use crate::vm::spec::{Accelerator, VmSpec, need};
use crate::vm::state::{self, SavedState, Start};

/// How long a build may take to end once it was told to: `make` deletes half-written
/// targets in its own time. What still goes on then waits for another kvet, or is git.
const STOPPING: Duration = Duration::from_secs(6);
/// How long killed programs may take to be gone.
const KILLING: Duration = Duration::from_secs(1);

/// Does some work, which has `grace` to end in its own way once it is told to stop;
/// after that its programs are killed before what it was at is removed.
async fn or_stopped<T>(
    stop: &CancellationToken,
    grace: Duration,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    if stop.is_cancelled() {
        return Err(Fault::interrupted());
    }
    let mut work = Box::pin(work);
    let over = async {
        stop.cancelled().await;
        sleep(grace).await;
    };
    tokio::select! {
        done = &mut work => done,
        () = over => {
            children::end_all(KILLING);
            Err(Fault::interrupted())
        }
    }
}

/// How the system and QEMU word that a disk is full.
const DISK_FULL: &str = "No space left on device";

impl Build for Builder {
    async fn prepare(&self, cell: &Cell) -> Result<(Source, Trees), Fault> {
        require_program("git", "git")?;
        let work = async {
            let source = source::prepare(&cell.kernel, &self.store, &self.events).await?;
            let trees = series::apply(&source, &cell.series, &self.store).await?;
            Ok((source, trees))
        };
        or_stopped(&self.stop, Duration::ZERO, work).await
    }

    async fn build(
        &self,
        task: &str,
        source: &Source,
        trees: &Trees,
        variant: VariantName,
        config: &Config,
        log: PathBuf,
    ) -> Result<Image, Fault> {
        let request = BuildRequest {
            task: task.to_owned(),
            source: source.clone(),
            tree: trees.variants[&variant].clone(),
            config: config.clone(),
            log,
        };
        or_stopped(&self.stop, STOPPING, Builder::build(self, &request)).await
    }

    async fn payload(
        &self,
        task: &str,
        cell: &Cell,
        source: &Source,
        trees: &Trees,
        log: PathBuf,
    ) -> Result<Payload, Fault> {
        let targets = kselftest::targets(cell);
        let request = kselftest::Request {
            task: task.to_owned(),
            source,
            base: &trees.variants[&VariantName::Base],
            patched: &trees.variants[&VariantName::Patched],
            compiler: cell.config.compiler,
            targets: &targets,
            log,
        };
        let built = or_stopped(&self.stop, STOPPING, request.build(self)).await?;
        payload::prepare(&self.store, cell, &built)
    }
}

/// Boots guests with this host's QEMU.
#[derive(Debug)]
pub struct Booter {
    /// Where the probe's answer is kept.
    pub store: Store,
    /// CPUs and memory.
    pub budget: Budget,
    /// Where progress goes.
    pub events: Events,
    /// Ends a boot.
    pub stop: CancellationToken,
    /// The accelerator that the user asks for.
    pub choice: Choice,
    /// QEMU's program.
    pub qemu: PathBuf,
    /// What QEMU says of its version.
    pub version: String,
    /// Every boot from power-on, none from a saved state.
    pub cold: bool,
    /// Boots that an earlier life of this run finished are not repeated.
    pub resume: bool,
    /// Folder for the probe boot's traces.
    pub probe_folder: PathBuf,
    /// What was chosen, once something was booted.
    pub chosen: OnceCell<Chosen>,
    /// The saved machines of this run.
    pub states: RefCell<States>,
}

/// What a run knows of saved machines, by their names in the store.
#[derive(Debug, Default)]
pub struct States {
    /// It starts boots from these, so it does not drop them for others.
    used: BTreeSet<String>,
    /// These could not be saved, which is not tried again.
    unsaved: BTreeSet<String>,
}

impl Booter {
    async fn accelerator_for(&self, spec: &VmSpec) -> Result<Accelerator, Fault> {
        let choosing = async || {
            let folder = &self.probe_folder;
            let chosen = choose(self.choice, spec, folder, &self.store, &self.stop).await?;
            self.events.note(format!("accelerator {}: {}", chosen.accelerator, chosen.reason));
            Ok(chosen)
        };
        self.chosen.get_or_try_init(choosing).await.map(|chosen| chosen.accelerator)
    }

    /// TCG, which counts.
    fn accelerator_for_counts(&self) -> Result<Accelerator, Fault> {
        if self.choice == Choice::Kvm {
            let what = "instructions are counted under TCG, and --accel kvm asks for KVM";
            return Err(Fault::plan(what).help("leave --accel out; counts do not depend on it"));
        }
        Ok(Accelerator::Tcg)
    }

    /// The machine of `request`, up and waiting for a job: from the store, or
    /// saved there by a boot now. The inner error is the report of that boot when
    /// its guest did not come up.
    async fn state(
        &self,
        guest: &Guest,
        request: &BootRequest,
        image_sha256: &str,
    ) -> Result<Result<(String, Option<SavedState>), BootReport>, Fault> {
        let name = state::state_key(&request.spec, &self.version, image_sha256);
        if self.states.borrow().unsaved.contains(&name) {
            return Ok(Ok((name, None)));
        }
        let locking = self.store.lock("states", &name, &self.events);
        let lock = self.stop.run_until_cancelled(locking).await;
        let _lock = lock.unwrap_or_else(|| Err(Fault::interrupted()))?;
        self.states.borrow_mut().used.insert(name.clone());
        if let Some(found) = state::find(&self.store, &name) {
            return Ok(Ok((name, Some(found))));
        }
        // The second time with as much room as there can be: what was expected to be
        // enough was not.
        let mut wanted = None;
        let why = loop {
            let room = state::make_room(&self.store, &self.states.borrow().used, wanted);
            if let (Err(why), None) = (room, wanted) {
                break why;
            }
            match self.save(guest, request, &name).await? {
                Err(report) => return Ok(Err(report)),
                Ok(Ok(())) => return Ok(Ok((name.clone(), state::find(&self.store, &name)))),
                Ok(Err(why)) if wanted.is_some() || !why.contains(DISK_FULL) => break why,
                Ok(Err(_)) => wanted = Some(guest.memory.as_u64()),
            }
        };
        self.events.note(format!("{}: cold boots, since {why}", request.task));
        self.states.borrow_mut().unsaved.insert(name.clone());
        Ok(Ok((name, None)))
    }

    /// Boots the machine of `request` and saves it. The outer of the inner errors is
    /// the report of a guest that did not come up, the inner one why it was not saved.
    async fn save(
        &self,
        guest: &Guest,
        request: &BootRequest,
        name: &str,
    ) -> Result<Result<Result<(), String>, BootReport>, Fault> {
        let scratch = self.store.scratch()?;
        let saving = BootRequest {
            task: format!("{} (to save its start)", request.task),
            start: Start::Save(state::memory_file(&scratch)),
            ..request.clone()
        };
        let report = self.boot_now(guest, &saving).await?;
        self.learn(&request.spec, &report);
        match report.halt {
            HaltReason::Saved => {
                let kept = state::keep(&self.store, name, &scratch, &saving.folder, &self.version);
                Ok(Ok(kept.map_err(|fault| fault.what)))
            }
            HaltReason::NotSaved { why } => Ok(Ok(Err(why))),
            _ => Ok(Err(report)),
        }
    }

    /// Boots from a saved machine, or cold where that is asked for or cannot be had.
    async fn boot_somehow(
        &self,
        guest: &Guest,
        image_sha256: &str,
        mut request: BootRequest,
    ) -> Result<BootReport, Fault> {
        if !self.cold {
            match self.state(guest, &request, image_sha256).await? {
                Ok((_, None)) => {}
                Ok((name, Some(state))) => {
                    request.start = Start::Restored(state);
                    let report = self.boot_now(guest, &request).await?;
                    let HaltReason::NotRestored { why, .. } = &report.halt else {
                        return Ok(report);
                    };
                    self.events.note(format!("{}: a cold boot, since {why}", request.task));
                    state::forget(&self.store, &name);
                    request.start = Start::Cold;
                }
                Err(report) => return Ok(report),
            }
        }
        let report = self.boot_now(guest, &request).await?;
        self.learn(&request.spec, &report);
        Ok(report)
    }

    /// Boots as soon as the host has room for it.
    async fn boot_now(&self, guest: &Guest, request: &BootRequest) -> Result<BootReport, Fault> {
        if self.stop.is_cancelled() {
            return Err(Fault::interrupted());
        }
        let claiming = self.budget.claim(&request.task, need(guest), &self.events);
        let claim = self.stop.run_until_cancelled(claiming).await;
        let claim = claim.unwrap_or_else(|| Err(Fault::interrupted()))?;
        boot(request, Some(claim), &self.events, &self.stop).await
    }

    fn learn(&self, spec: &VmSpec, report: &BootReport) {
        // A counted guest is slow everywhere.
        if let Some(seconds) = report.boot_seconds.filter(|_| !spec.counted) {
            Measured::read(&self.store, &host_key(&self.qemu), spec.accelerator).learn(seconds);
        }
    }
}

impl Boot for Booter {
    async fn boot(
        &self,
        task: &str,
        cell: &Cell,
        bootable: Bootable<'_>,
        job: Job,
        plan: &Plan,
        folder: PathBuf,
    ) -> Result<BootReport, Fault> {
        let counted = job.measure.as_deref() == Some(MEASURE_INSTRUCTIONS);
        let spec = |accelerator| {
            VmSpec::new(
                task,
                &cell.guest,
                self.qemu.clone(),
                accelerator,
                bootable.image.kernel(),
                bootable.initramfs.to_owned(),
                counted,
            )
        };
        let accelerator = match counted {
            // Whatever the host has: KVM executes what nobody counts.
            true => self.accelerator_for_counts()?,
            false => self.accelerator_for(&spec(Accelerator::Kvm)).await?,
        };
        let measured = Measured::read(&self.store, &host_key(&self.qemu), accelerator);
        let request = BootRequest {
            task: task.to_owned(),
            spec: spec(accelerator),
            start: Start::Cold,
            job,
            limits: limits(&plan.deadlines, accelerator, measured.boot_seconds(), counted),
            vmlinux: bootable.image.vmlinux(),
            folder,
        };
        let image = &bootable.image.image_sha256;
        let inputs = Inputs::new(&request.spec, image, &self.version, &request.job, self.cold);
        if self.resume
            && let Some(report) = journal::kept(&request.folder, &inputs)?
        {
            self.events.note(format!("{task}: finished before the run was interrupted"));
            return Ok(report);
        }
        let folder = request.folder.clone();
        let report = self.boot_somehow(&cell.guest, image, request).await?;
        journal::keep(&folder, inputs, &report)?;
        Ok(report)
    }

    fn at_once(&self, cell: &Cell) -> usize {
        self.budget.at_once(need(&cell.guest))
    }

    fn accelerator(&self) -> Option<Chosen> {
        self.chosen.get().cloned()
    }
}

/// QEMU's program in `PATH`.
///
/// # Errors
/// An `infra` fault that says how to install it.
pub fn find_qemu() -> Result<PathBuf, Fault> {
    require_program(x86_64::QEMU, x86_64::QEMU_PACKAGE)
}

/// What figures of this host depend on. `qemu` is none when nothing is booted.
pub async fn environment(qemu: Option<&Path>) -> Environment {
    let uname = rustix::system::uname();
    let version = match qemu {
        Some(qemu) => {
            capture(command(qemu).arg("--version"), b"").await.map(|output| output.text())
        }
        None => Ok(String::new()),
    };
    Environment {
        kvet: env!("CARGO_PKG_VERSION").to_owned(),
        host: format!(
            "{} {} {}",
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy(),
            uname.machine().to_string_lossy()
        ),
        qemu: version.unwrap_or_default().lines().next().unwrap_or_default().to_owned(),
        sandbox: None,
        accelerator: None,
    }
}
