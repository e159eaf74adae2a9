// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several configs of a validation checked side by side, with fakes that take their time.

mod common;

use std::cell::{Cell as Flag, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use common::case::{Case, completed, image, source, trees, warning};
use kvet::fault::{ExitCode, Fault};
use kvet::guest::payload::Payload;
use kvet::kernel::build::Image;
use kvet::kernel::series::{Tree, Trees};
use kvet::kernel::source::Source;
use kvet::plan::manifest::VariantName;
use kvet::plan::{Cell, Config, PatchFile, Plan};
use kvet::run::event::Events;
use kvet::run::folder::RunFolder;
use kvet::run::pipeline::{Boot, Bootable, Build};
use kvet::run::result::Environment;
use kvet::validate::Driver;
use kvet::validate::checkpatch::{Checked, Checkpatch};
use kvet::validate::result::{Outcome, ValidateResult};
use kvet::validate::stages::{Stage, Validation};
use kvet::validate::table::{Patches, StageCheck};
use kvet::vm::accel::Chosen;
use kvet::vm::halt::BootReport;
use kvet_records::Job;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const SHORT: Duration = Duration::from_millis(20);
/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(600);

/// A host that notes what it does at once.
#[derive(Default)]
struct Host {
    /// Configs whose guests take as long as that.
    slow: Vec<(&'static str, Duration)>,
    /// The config whose patched kernel warns.
    broken: Option<&'static str>,
    stop: CancellationToken,
    /// What was built and is there.
    images: RefCell<BTreeSet<String>>,
    building: Flag<usize>,
    /// Most builds that there were at once.
    built: Flag<usize>,
    running: RefCell<BTreeSet<String>>,
    /// Most configs whose guests ran at once.
    ran: Flag<usize>,
    /// Configs that were booted.
    begun: RefCell<Vec<String>>,
}

impl Build for Host {
    async fn prepare(&self, _cell: &Cell) -> Result<(Source, Trees), Fault> {
        Ok((source(), trees()))
    }

    async fn build(
        &self,
        _task: &str,
        _source: &Source,
        _trees: &Trees,
        variant: VariantName,
        config: &Config,
        _log: PathBuf,
    ) -> Result<Image, Fault> {
        let name = format!("{variant}-{}", config.name);
        if self.images.borrow_mut().insert(name.clone()) {
            self.building.set(self.building.get() + 1);
            self.built.set(self.built.get().max(self.building.get()));
            sleep(SHORT).await;
            self.building.set(self.building.get() - 1);
        }
        Ok(Image { warnings: Some(Vec::new()), ..image(&name, &name) })
    }

    async fn payload(
        &self,
        _task: &str,
        _cell: &Cell,
        _source: &Source,
        _trees: &Trees,
        _log: PathBuf,
    ) -> Result<Payload, Fault> {
        Ok(Payload { initramfs: "/store/0123.cpio".into(), programs: [].into() })
    }
}

impl Boot for Host {
    async fn boot(
        &self,
        task: &str,
        cell: &Cell,
        _bootable: Bootable<'_>,
        _job: Job,
        _plan: &Plan,
        _folder: PathBuf,
    ) -> Result<BootReport, Fault> {
        let config = cell.config.name.clone();
        self.begun.borrow_mut().push(config.clone());
        self.running.borrow_mut().insert(config.clone());
        self.ran.set(self.ran.get().max(self.running.borrow().len()));
        let slow = self.slow.iter().find(|(name, _)| *name == config);
        let time = slow.map_or(SHORT, |(_, time)| *time);
        let ended = self.stop.run_until_cancelled(sleep(time)).await;
        self.running.borrow_mut().remove(&config);
        ended.ok_or_else(Fault::interrupted)?;
        match task.starts_with("patched") && self.broken == Some(&config) {
            true => Ok(warning()),
            false => Ok(completed(&[("kicks", 9)])),
        }
    }

    fn accelerator(&self) -> Option<Chosen> {
        None
    }
}

impl Checkpatch for Host {
    async fn checkpatch(
        &self,
        _source: &Source,
        _base: &Tree,
        _patches: &[PatchFile],
    ) -> Result<Checked, Fault> {
        Ok(Checked::Skipped("there is no perl".to_owned()))
    }
}

const CONFIGS: [&str; 4] = ["one", "two", "three", "four"];

/// Validates a series of one patch in four configs, as one who gives up after a minute.
fn validate(host: &Host, at_once: usize, fail_fast: bool) -> ValidateResult {
    let mut case = Case::new();
    case.plan.cells[0].series.expect.clear();
    case.plan.cells[0].series.patches = vec![PatchFile {
        name: "0001-change.patch".to_owned(),
        subject: Some("mm: change".to_owned()),
        path: PathBuf::new(),
        strip: 1,
        bytes: Vec::new(),
    }];
    let stage = |config: &&str| {
        let mut plan = case.plan.clone();
        plan.cells[0].config.name = (*config).to_owned();
        Stage {
            config: (*config).to_owned(),
            patches: Patches::Ends,
            checks: [StageCheck::Builds, StageCheck::Boots].into(),
            plan,
            measured: None,
        }
    };
    let validation = Validation {
        cell: case.plan.cells[0].clone(),
        files: Vec::new(),
        tests: Vec::new(),
        planned: false,
        stages: CONFIGS.iter().map(stage).collect(),
    };
    let folder = RunFolder::create(&case.folder.path().join("runs"), "validate").unwrap();
    let events = Events::default();
    let driver = Driver {
        validation: &validation,
        build: host,
        boot: host,
        checkpatch: host,
        folder: &folder,
        events: &events,
        environment: Environment::default(),
        store: None,
        fail_fast,
        at_once,
        stop: host.stop.clone(),
        resume: false,
        probes: RefCell::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let patient = async { tokio::time::timeout(Duration::from_secs(60), driver.run()).await };
    let result = runtime.block_on(patient);
    assert!(host.running.borrow().is_empty() && host.building.get() == 0, "something goes on");
    result.expect("a validation that does not end")
}

/// Outcomes of the configs' checks, in the result's order.
fn outcomes(result: &ValidateResult) -> Vec<(&str, &str, Outcome)> {
    let of_configs =
        result.checks.iter().filter_map(|check| Some((check, check.config.as_deref()?)));
    of_configs.map(|(check, config)| (config, &*check.name, check.finding.outcome)).collect()
}

/// In the table's order.
fn all(outcome: impl Fn(usize) -> Outcome) -> Vec<(&'static str, &'static str, Outcome)> {
    let checks = CONFIGS.into_iter().flat_map(|config| [(config, "builds"), (config, "boots")]);
    checks.enumerate().map(|(at, (config, name))| (config, name, outcome(at))).collect()
}

#[test]
fn guests_of_several_configs_run_side_by_side_and_kernels_are_built_one_after_another() {
    // The first is the last to end, and yet the first in the result.
    let slow = vec![("one", Duration::from_millis(400))];
    let host = Host { slow: slow.clone(), ..Host::default() };
    let result = validate(&host, 3, false);
    assert_eq!(outcomes(&result), all(|_| Outcome::Ok));
    assert_eq!(host.built.get(), 1);
    assert!((2..=3).contains(&host.ran.get()), "{}", host.ran.get());
    assert_eq!(result.exit_code, ExitCode::Acceptable);
    // What took its time while another did counts once.
    let sum: f64 = result.checks.iter().map(|check| check.seconds).sum();
    assert!(sum <= result.seconds, "{sum} of {}", result.seconds);
    let host = Host { slow, ..Host::default() };
    validate(&host, 1, false);
    assert_eq!((host.built.get(), host.ran.get()), (1, 1));
    assert_eq!(*host.begun.borrow(), CONFIGS);
}

#[test]
fn the_first_failure_ends_what_runs_beside_it() {
    // Whether it comes earlier in the table or later.
    for (slow, broken) in [("two", "one"), ("one", "two")] {
        let host = Host { slow: vec![(slow, LONG)], broken: Some(broken), ..Host::default() };
        let result = validate(&host, 2, true);
        let failed = all(|_| Outcome::Skipped).into_iter().map(|(config, name, skipped)| {
            let is = match (config, name) {
                ("one" | "two", "builds") => Outcome::Ok,
                (config, "boots") if config == broken => Outcome::Failed,
                _ => skipped,
            };
            (config, name, is)
        });
        assert_eq!(outcomes(&result), failed.collect::<Vec<_>>());
        assert_eq!(result.exit_code, ExitCode::Behaviour);
        assert!(result.complete && result.faults.is_empty(), "{result:#?}");
        let skipped = result.checks.last().unwrap();
        assert_eq!(skipped.finding.evidence, format!("--fail-fast, after boots {broken}"));
        assert!(!host.begun.borrow().contains(&"three".to_owned()));
    }
}

#[test]
fn nothing_is_begun_after_the_first_failure() {
    let host = Host { broken: Some("two"), ..Host::default() };
    validate(&host, 1, true);
    // patched and then base of the broken one.
    assert_eq!(*host.begun.borrow(), ["one", "two", "two"]);
    let images: Vec<String> = host.images.borrow().iter().cloned().collect();
    assert_eq!(images, ["base-two", "patched-one", "patched-two"]);
}

#[test]
fn an_interrupt_ends_all_of_them() {
    let host = Host { slow: CONFIGS.map(|config| (config, LONG)).into(), ..Host::default() };
    let stop = host.stop.clone();
    let interrupt = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stop.cancel();
    });
    let result = validate(&host, 4, false);
    interrupt.join().unwrap();
    assert_eq!(host.ran.get(), 4);
    assert_eq!(result.exit_code, ExitCode::Interrupted);
    assert!(!result.complete);
    // What was made is not lost, whatever did not end before it.
    let kept = |at| if at % 2 == 0 { Outcome::Ok } else { Outcome::Skipped };
    assert_eq!(outcomes(&result), all(kept));
}
