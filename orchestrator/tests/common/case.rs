// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipeline with fakes for building and booting. No kernel, no QEMU.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use kvet::fault::Fault;
use kvet::guest::payload::Payload;
use kvet::kernel::build::Image;
use kvet::kernel::series::{Tree, Trees};
use kvet::kernel::source::{Sharing, Source};
use kvet::kernel::warning::Warning;
use kvet::plan::manifest::VariantName::{Base, Patched};
use kvet::plan::manifest::{DebianEntry, Expectation, VariantName};
use kvet::plan::{Cell, Config, Deadlines, Guest, Kernel, KernelSource, Plan, Series, Test};
use kvet::report::terminal;
use kvet::run::event::Events;
use kvet::run::folder::{RunFolder, read_result};
use kvet::run::pipeline::{Boot, Bootable, Build, Selection, run};
use kvet::run::result::{Environment, RunResult};
use kvet::transport::virtio::Report;
use kvet::vm::accel::Chosen;
use kvet::vm::halt::{BootReport, HaltReason};
use kvet::vm::spec::Accelerator;
use kvet::vm::splat::scan;
use kvet_records::{Format, Job, Outcome};

/// A source that nobody fetched.
pub fn source() -> Source {
    Source {
        key: "k".into(),
        origin: "linux-source-6.12 6.12.1-1".into(),
        sha256: None,
        version: "6.12.1".into(),
        commit: "base".into(),
        tree: "base".into(),
        git_dir: PathBuf::new(),
        clone: None,
        sharing: Sharing::default(),
    }
}

/// The trees of both ends.
pub fn trees() -> Trees {
    let tree = |name: &str| Tree { commit: name.to_owned(), tree: name.to_owned() };
    let variants = [(Base, tree("base")), (Patched, tree("patched"))].into();
    Trees { variants, ..Trees::default() }
}

/// An image that nobody built.
pub fn image(key: &str, sha256: &str) -> Image {
    Image {
        key: key.into(),
        image_sha256: sha256.into(),
        vmlinux_sha256: String::new(),
        release: "6.12.1".into(),
        compiler: "gcc (Debian) 12".into(),
        steps: 1,
        seconds: 1,
        warnings: None,
        sandbox: None,
        refused: Vec::new(),
        ccache: None,
        folder: PathBuf::new(),
        stored: false,
    }
}

pub struct FakeBuild {
    /// Image hash by variant, or why there is none.
    pub images: BTreeMap<VariantName, Result<&'static str, Fault>>,
    /// The compiler's warnings by variant; not known where there are none.
    pub warnings: BTreeMap<VariantName, Vec<Warning>>,
}

impl Build for FakeBuild {
    async fn prepare(&self, _cell: &Cell) -> Result<(Source, Trees), Fault> {
        Ok((source(), trees()))
    }

    async fn build(
        &self,
        _task: &str,
        _source: &Source,
        _trees: &Trees,
        variant: VariantName,
        _config: &Config,
        _log: PathBuf,
    ) -> Result<Image, Fault> {
        let hash = self.images[&variant].clone()?;
        Ok(Image {
            steps: 100,
            seconds: 60,
            warnings: self.warnings.get(&variant).cloned(),
            stored: variant == Base,
            ..image(&format!("key-{hash}"), &hash.repeat(8))
        })
    }

    async fn payload(
        &self,
        _task: &str,
        cell: &Cell,
        _source: &Source,
        _trees: &Trees,
        _log: PathBuf,
    ) -> Result<Payload, Fault> {
        let programs = cell.tests.iter().filter(|test| test.program.is_some()).map(|test| {
            let program = kvet_records::Program {
                path: "/bin/true".into(),
                arguments: Vec::new(),
                environment: BTreeMap::new(),
                format: Format::Tap,
            };
            (test.id(), program)
        });
        Ok(Payload { initramfs: "/store/0123.cpio".into(), programs: programs.collect() })
    }
}

/// Boots give what was put in for their variant, first in, first out.
pub struct FakeBoot {
    pub reports: RefCell<Vec<(VariantName, BootReport)>>,
    /// The jobs that came.
    pub jobs: RefCell<Vec<Job>>,
}

impl Boot for FakeBoot {
    async fn boot(
        &self,
        task: &str,
        _cell: &Cell,
        _bootable: Bootable<'_>,
        job: Job,
        _plan: &Plan,
        _folder: PathBuf,
    ) -> Result<BootReport, Fault> {
        self.jobs.borrow_mut().push(job);
        let mut reports = self.reports.borrow_mut();
        let wanted: VariantName = task.split(' ').next().unwrap().parse().unwrap();
        let at = reports.iter().position(|(variant, _)| *variant == wanted);
        Ok(reports.remove(at.unwrap_or_else(|| panic!("no report for {task}"))).1)
    }

    fn accelerator(&self) -> Option<Chosen> {
        Some(Chosen { accelerator: Accelerator::Tcg, reason: "a fake".into() })
    }
}

pub fn completed(observations: &[(&str, i64)]) -> BootReport {
    BootReport {
        halt: HaltReason::Completed,
        report: Report {
            release: Some("6.12.1".into()),
            observations: observations
                .iter()
                .map(|&(name, value)| (name.into(), value.into()))
                .collect(),
            outcome: Some(Outcome::Completed),
            ..Report::default()
        },
        splats: Vec::new(),
        tail: vec!["the last line".into()],
        hang: Vec::new(),
        boot_seconds: Some(1.0),
        start_seconds: Some(1.1),
        seconds: 2.0,
    }
}

pub fn skipped() -> BootReport {
    let mut report = completed(&[]);
    report.report.outcome = Some(Outcome::Skipped);
    report.report.skips = vec!["no such file".into()];
    report
}

pub fn warning() -> BootReport {
    let log = "WARNING: CPU: 0 PID: 1 at mm/a.c:1 broken+0x1/0x2\nRIP: 0010:broken+0x1/0x2\nCall Trace:\n <TASK>\n broken+0x1/0x2\n </TASK>\n---[ end trace 0000000000000000 ]---\n";
    BootReport { splats: scan(log.as_bytes()), ..completed(&[("kicks", 9)]) }
}

pub fn halted(halt: HaltReason) -> BootReport {
    let mut report = completed(&[]);
    report.report.outcome = None;
    BootReport { halt, ..report }
}

pub fn plan(root: &Path) -> Plan {
    let cell = Cell {
        series: Series {
            name: "cold".into(),
            input: None,
            title: "a test".into(),
            link: None,
            direction: Default::default(),
            prerequisites: Vec::new(),
            patches: Vec::new(),
            passed_over: Vec::new(),
            checkpatch: Vec::new(),
            expect: vec![Expectation {
                test: "khugepaged_cold".into(),
                observation: "kicks".into(),
                base: 9i64.into(),
                patched: 5i64.into(),
            }],
        },
        kernel: Kernel {
            name: "debian-6.12".into(),
            file: PathBuf::new(),
            source: KernelSource::Debian(DebianEntry { package: "linux-source-6.12".into() }),
        },
        config: Config {
            name: "microvm".into(),
            base: kvet::plan::manifest::ConfigBase::Tinyconfig.into(),
            compiler: Default::default(),
            fragments: Vec::new(),
            overrides: Vec::new(),
        },
        guest: Guest {
            name: "up".into(),
            machine: Default::default(),
            vcpus: 1,
            memory: ByteSize::gib(1),
            cpu: None,
            root: Default::default(),
            network: Default::default(),
            append: Vec::new(),
        },
        tests: vec![Test { name: "khugepaged_cold".into(), ..Test::default() }],
        variants: vec![Base, Patched],
        variation_of: None,
    };
    Plan {
        name: "mine".into(),
        file: root.join("mine.yaml"),
        root: root.to_owned(),
        cells: vec![cell],
        skipped: Vec::new(),
        deadlines: Deadlines { boot: None, test: None },
        instructions: Default::default(),
        allow: Vec::new(),
        allow_identical: false,
    }
}

pub struct Case {
    pub folder: tempfile::TempDir,
    pub plan: Plan,
    pub build: FakeBuild,
    pub selection: Selection,
}

impl Case {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path());
        let images = [(Base, Ok("0123456789ab")), (Patched, Ok("ba9876543210"))].into();
        Self {
            folder,
            plan,
            build: FakeBuild { images, warnings: BTreeMap::new() },
            selection: Selection::default(),
        }
    }

    pub fn run(&self, reports: Vec<(VariantName, BootReport)>) -> RunResult {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let boot = FakeBoot { reports: RefCell::new(reports), jobs: RefCell::default() };
        let folder = RunFolder::create(&self.folder.path().join("runs"), "mine").unwrap();
        let result = runtime.block_on(run(
            &self.plan,
            &self.selection,
            &self.build,
            &boot,
            &folder,
            &Events::default(),
            Environment { qemu: "QEMU emulator version 7.2.22".into(), ..Environment::default() },
        ));
        // Whatever happened, it is on disk, and reads back as it was.
        let json = |result: &RunResult| serde_json::to_value(result).unwrap();
        assert_eq!(json(&read_result(folder.path()).unwrap()), json(&result));
        result
    }
}

pub fn report(result: &RunResult) -> String {
    terminal::render(result, false)
}
