// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet selftest`: does kvet tell the truth on this host? It builds kernels
//! that break on demand, breaks them in every way of the table, and compares
//! what kvet says with what the table says it must say.

pub mod table;

use std::fmt::Write as _;
use std::path::PathBuf;

use futures_util::StreamExt;
use kvet_records::{Job, PROTOCOL_VERSION};
use tokio_util::sync::CancellationToken;

use crate::compare::splats::matches;
use crate::fault::{ExitCode, Fault};
use crate::guest::initramfs;
use crate::kernel::build::{BuildRequest, Builder, Image};
use crate::kernel::{series, source};
use crate::plan::manifest::{Compiler, DebianEntry, Direction, Network, Root, VariantName};
use crate::plan::{Config, Deadlines, Fragment, Guest, Kernel, KernelSource, PatchFile, Series};
use crate::run::event::Events;
use crate::run::folder::RunFolder;
use crate::store::Store;
use crate::vm::accel::{Choice, choose, host_key};
use crate::vm::deadline::{Limits, Measured, limits};
use crate::vm::halt::{BootReport, HaltReason};
use crate::vm::machine::{BootRequest, boot};
use crate::vm::spec::{Accelerator, VmSpec};
use crate::vm::splat::Splat;
use crate::vm::state::Start;
use table::{Expect, Phase, Row, Table};

/// The series that breaks kernels.
const PATCH: &str =
    include_str!("../../../patches/selftest/0001-lib-break-the-kernel-on-demand.patch");
/// The kernel that it is for.
const PACKAGE: &str = "linux-source-6.12";
/// The fragments that the table's configs name.
const FRAGMENTS: [(&str, &str); 6] = [
    ("microvm", include_str!("../../../configs/kconfig/microvm.config")),
    ("debug-vm", include_str!("../../../configs/kconfig/debug-vm.config")),
    ("selftest", include_str!("../../../configs/kconfig/selftest.config")),
    ("kasan", include_str!("../../../configs/kconfig/kasan.config")),
    ("lockdep", include_str!("../../../configs/kconfig/lockdep.config")),
    ("kmemleak", include_str!("../../../configs/kconfig/kmemleak.config")),
];
/// A fault that is noticed later than this after its deadline is noticed too late.
const TOLERANCE_SECONDS: f64 = 5.0;

/// What of the table is run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only these rows; all when empty.
    pub rows: Vec<String>,
    /// Only rows of these configs; all when empty.
    pub configs: Vec<String>,
}

/// What the selftest needs.
#[derive(Debug)]
pub struct Selftest {
    /// Where kernels are kept.
    pub store: Store,
    /// Where progress goes.
    pub events: Events,
    /// Ends it.
    pub stop: CancellationToken,
    /// Builds kernels.
    pub builder: Builder,
    /// The accelerator that the user asks for.
    pub choice: Choice,
    /// QEMU's program.
    pub qemu: PathBuf,
    /// Where the traces go.
    pub folder: RunFolder,
    /// Guests at once.
    pub guests: usize,
}

/// One row of the table and what kvet said.
#[derive(Debug)]
pub struct Outcome {
    name: String,
    config: String,
    expect: Expect,
    said: Said,
    seconds: f64,
    /// What is wrong; empty when nothing is.
    wrong: Vec<String>,
}

/// What kvet said of a boot, in the table's words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    halt: String,
    kinds: Vec<String>,
    functions: Vec<Option<String>>,
    exit: u8,
}

impl Selftest {
    /// Builds what the selection needs and runs it.
    ///
    /// # Errors
    /// A fault when a kernel cannot be built or a guest cannot be started; what
    /// guests do is in the outcomes.
    pub async fn run(&self, selection: &Selection) -> Result<Vec<Outcome>, Fault> {
        let table = Table::read()?;
        let rows = table.select(selection)?;
        let mut images = std::collections::BTreeMap::new();
        for row in &rows {
            if !images.contains_key(&row.config) {
                let image = self.image(&table, &row.config).await?;
                images.insert(row.config.clone(), image);
            }
        }
        let initramfs = initramfs::prepare(&self.store)?;
        let first = rows.first().ok_or_else(|| Fault::plan("nothing to run"))?;
        let spec = self.spec(first, Accelerator::Kvm, &images[&first.config], initramfs.clone());
        let probe = self.folder.path().join("probe");
        let chosen = choose(self.choice, &spec, &probe, &self.store, &self.stop).await?;
        self.events.note(format!("accelerator {}: {}", chosen.accelerator, chosen.reason));
        let work = rows.iter().map(|row| {
            let spec = self.spec(row, chosen.accelerator, &images[&row.config], initramfs.clone());
            self.row(row, spec, images[&row.config].vmlinux())
        });
        let outcomes: Vec<_> =
            futures_util::stream::iter(work).buffered(self.guests).collect().await;
        outcomes.into_iter().collect()
    }

    async fn image(&self, table: &Table, name: &str) -> Result<Image, Fault> {
        let kernel = Kernel {
            name: "debian-6.12".to_owned(),
            file: PathBuf::new(),
            source: KernelSource::Debian(DebianEntry { package: PACKAGE.to_owned() }),
        };
        let source = source::prepare(&kernel, &self.store, &self.events).await?;
        let patch = PatchFile {
            name: "0001-lib-break-the-kernel-on-demand.patch".to_owned(),
            subject: None,
            strip: 1,
            path: PathBuf::from("patches/selftest/0001-lib-break-the-kernel-on-demand.patch"),
            bytes: PATCH.as_bytes().to_vec(),
        };
        let series = Series {
            name: "selftest".to_owned(),
            input: None,
            title: String::new(),
            link: None,
            direction: Direction::Forward,
            prerequisites: Vec::new(),
            patches: vec![patch],
            passed_over: Vec::new(),
            expect: Vec::new(),
        };
        let trees = series::apply(&source, &series, &self.store).await?;
        let entry = table.config(name)?;
        let fragment = |wanted: &String| {
            let found = FRAGMENTS.iter().find(|(name, _)| name == wanted);
            let (name, text) =
                found.ok_or_else(|| Fault::plan(format!("no fragment {wanted:?}")))?;
            let path = PathBuf::from(format!("configs/kconfig/{name}.config"));
            Ok(Fragment { name: (*name).to_owned(), path, text: (*text).to_owned() })
        };
        let config = Config {
            name: name.to_owned(),
            base: entry.base.into(),
            compiler: Compiler::Gcc,
            fragments: entry.fragments.iter().map(fragment).collect::<Result<_, Fault>>()?,
            overrides: Vec::new(),
        };
        let request = BuildRequest {
            task: format!("selftest/{name}"),
            source,
            tree: trees.variants[&VariantName::Patched].clone(),
            config,
            log: self.folder.build_log("selftest", name)?,
        };
        self.builder.build(&request).await
    }

    fn spec(
        &self,
        row: &Row,
        accelerator: Accelerator,
        image: &Image,
        initramfs: PathBuf,
    ) -> VmSpec {
        let mut append = vec![format!("kvet_selftest={}", row.fault)];
        append.extend(row.append.iter().cloned());
        let guest = Guest {
            name: row.name.clone(),
            machine: Default::default(),
            vcpus: row.vcpus,
            memory: row.memory,
            cpu: None,
            root: Root::Initramfs,
            network: Network::None,
            append,
        };
        let name = format!("selftest/{}", row.name);
        VmSpec::new(&name, &guest, self.qemu.clone(), accelerator, image.kernel(), initramfs, false)
    }

    async fn row(&self, row: &Row, spec: VmSpec, vmlinux: PathBuf) -> Result<Outcome, Fault> {
        let plan = Deadlines { boot: None, test: None };
        let measured = Measured::read(&self.store, &host_key(&self.qemu), spec.accelerator);
        let usual = limits(&plan, spec.accelerator, measured.boot_seconds(), false);
        let own = std::time::Duration::from_secs(row.seconds);
        let limits = match row.phase {
            Phase::Boot => Limits { boot: own, ..usual },
            Phase::Test => Limits { test: own, ..usual },
        };
        let request = BootRequest {
            task: format!("selftest/{}", row.name),
            spec,
            start: Start::Cold,
            job: Job {
                protocol: PROTOCOL_VERSION,
                id: row.name.clone(),
                test: row.test.name.clone(),
                parameters: row.test.parameters.clone(),
                measure: None,
                offset_ns: 0,
                start_at_ms: None,
                program: None,
            },
            limits,
            vmlinux,
            folder: self.folder.path().join("boots").join(&row.name),
        };
        // `guests` says how many there may be: most only wait, so they do not
        // share the host as a run's guests do.
        let report = boot(&request, None, &self.events, &self.stop).await?;
        if report.halt == HaltReason::Interrupted {
            return Err(Fault::interrupted());
        }
        Ok(judge(row, &limits, &report))
    }
}

fn judge(row: &Row, limits: &Limits, report: &BootReport) -> Outcome {
    let said = say(report, &row.allow);
    let mut wrong = Vec::new();
    let expect = &row.expect;
    if said.halt != expect.halt {
        wrong.push(format!("halt {}, not {}", said.halt, expect.halt));
    }
    if said.exit != expect.exit {
        wrong.push(format!("exit {}, not {}", said.exit, expect.exit));
    }
    let main = said.kinds.iter().position(|kind| *kind == expect.kind);
    match main {
        None if expect.kind != "none" => {
            wrong.push(format!("no {} among [{}]", expect.kind, said.kinds.join(", ")));
        }
        Some(at) if said.functions[at] != expect.function => {
            let found = said.functions[at].as_deref().unwrap_or("no function");
            let wanted = expect.function.as_deref().unwrap_or("no function");
            wrong.push(format!("{found} is blamed, not {wanted}"));
        }
        _ => {}
    }
    for (at, kind) in said.kinds.iter().enumerate() {
        if Some(at) != main && !expect.also.contains(kind) {
            wrong.push(format!("{kind} was not expected"));
        }
    }
    let deadline = match row.phase {
        Phase::Boot => limits.boot.as_secs_f64(),
        Phase::Test => limits.test.as_secs_f64() + report.boot_seconds.unwrap_or_default(),
    };
    if report.seconds > deadline + TOLERANCE_SECONDS {
        wrong.push(format!("took {:.1} s with a deadline of {deadline:.1} s", report.seconds));
    }
    Outcome {
        name: row.name.clone(),
        config: row.config.clone(),
        expect: expect.clone(),
        said,
        seconds: report.seconds,
        wrong,
    }
}

fn say(report: &BootReport, allow: &[String]) -> Said {
    let counts = |splat: &&Splat| !allow.iter().any(|pattern| matches(pattern, &splat.title));
    let kind = |splat: &Splat| {
        serde_json::to_value(splat.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned))
    };
    let exit = match report.fault("selftest") {
        Some(fault) => fault.exit_code(),
        // As in a run whose base has no splat.
        None if report.splats.iter().any(|splat| counts(&splat)) => ExitCode::Behaviour,
        None => ExitCode::Acceptable,
    };
    Said {
        halt: report.halt.name().to_owned(),
        kinds: report.splats.iter().map(|splat| kind(splat).unwrap_or_default()).collect(),
        functions: report.splats.iter().map(|splat| splat.function.clone()).collect(),
        exit: exit as u8,
    }
}

/// The table of what was said, and how much of it is right.
#[must_use]
pub fn render(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let width = outcomes.iter().map(|outcome| outcome.name.len()).max().unwrap_or(4).max(4);
    let _ = writeln!(
        out,
        "{:<width$}  {:<8}  {:<18}  {:<24}  {:<26}  {:>4}  {:>6}",
        "row", "config", "halt", "splat", "function", "exit", "s"
    );
    for outcome in outcomes {
        let said = &outcome.said;
        let at = said.kinds.iter().position(|kind| *kind == outcome.expect.kind).unwrap_or(0);
        let kind = said.kinds.get(at).map_or("-", String::as_str);
        let function = said.functions.get(at).and_then(Option::as_deref).unwrap_or("-");
        let _ = writeln!(
            out,
            "{:<width$}  {:<8}  {:<18}  {kind:<24}  {function:<26}  {:>4}  {:>6.1}{}",
            outcome.name,
            outcome.config,
            said.halt,
            said.exit,
            outcome.seconds,
            if outcome.wrong.is_empty() { "" } else { "  WRONG" }
        );
        for wrong in &outcome.wrong {
            let _ = writeln!(out, "{:<width$}    {}", "", crate::fault::escape(wrong));
        }
    }
    let clean = |outcome: &&Outcome| outcome.expect.exit == 0;
    let right = outcomes.iter().filter(|outcome| outcome.wrong.is_empty()).count();
    let _ = writeln!(
        out,
        "\n{right} of {} right: {} faults, {} clean controls",
        outcomes.len(),
        outcomes.iter().filter(|outcome| !clean(outcome)).count(),
        outcomes.iter().filter(clean).count()
    );
    out
}

/// 0 when everything was said right.
#[must_use]
pub fn exit_code(outcomes: &[Outcome]) -> ExitCode {
    let right = outcomes.iter().all(|outcome| outcome.wrong.is_empty());
    if right { ExitCode::Acceptable } else { ExitCode::Behaviour }
}
