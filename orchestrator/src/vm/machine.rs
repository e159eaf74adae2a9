// SPDX-License-Identifier: MIT OR Apache-2.0
//! One life of a VM: QEMU is started, watched from every side at once, and gone
//! at the end.
//!
//! QEMU's exit, its QMP events, the console, the guest's records, the deadline
//! and the user race. The first evidence decides; the rest is gathered for
//! [`GATHER`] more.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use kvet_records::Job;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::command_line::{Channels, arguments, script};
use super::console::Console;
use super::control::Control;
use super::deadline::Limits;
use super::halt::{BootReport, HaltReason};
use super::qmp::QmpEvent;
use super::spec::VmSpec;
use super::splat::SplatKind;
use crate::fault::{Fault, escape};
use crate::host::process::{Group, command, ending, last_lines};
use crate::run::event::{Events, RunEvent};
use crate::store::write_atomically;
use crate::transport::virtio::{Session, Stage};

/// How long evidence is gathered after the first: a panic prints its stacks and
/// resets within a second, also under TCG.
const GATHER: Duration = Duration::from_secs(2);
/// How long a guest that reported its end may take to leave.
const LEAVE: Duration = Duration::from_secs(20);
/// A guest that is alive sends a heartbeat every second; three missed are none.
const HEARTBEAT_SILENCE: Duration = Duration::from_secs(10);
/// How long a hung guest may take to print its stacks, if it still can.
const STACKS: Duration = Duration::from_millis(1500);
/// How long QEMU may take to exit once its streams have ended.
const EXIT: Duration = Duration::from_secs(2);
/// Most of QEMU's standard error that is kept.
const MAX_STDERR_BYTES: usize = 64 * 1024;
/// Descriptor numbers that QEMU gets its sockets as.
const CHANNELS: Channels = Channels::Inherited { qmp: 3, console: 4, records: 5, job: 6 };

/// What to boot, for what, and where to leave the traces.
#[derive(Debug, Clone)]
pub struct BootRequest {
    /// Which boot, for people.
    pub task: String,
    /// The VM.
    pub spec: VmSpec,
    /// What its guest is to do.
    pub job: Job,
    /// How long each phase may take.
    pub limits: Limits,
    /// The kernel with symbols, for a hang's evidence.
    pub vmlinux: PathBuf,
    /// Folder for the console, the QMP transcript and the scripts.
    pub folder: PathBuf,
}

/// Boots a VM, gives it its job, and watches it to its end.
///
/// # Errors
/// An `infra` fault when the host cannot start QEMU or keep its traces;
/// everything that happens once QEMU runs is in the report.
pub async fn boot(
    request: &BootRequest,
    events: &Events,
    stop: &CancellationToken,
) -> Result<BootReport, Fault> {
    events.send(&RunEvent::BootStarted { task: request.task.clone() });
    let machine = Machine::start(request)?;
    let report = machine.watch(request, events, stop).await?;
    events.send(&RunEvent::BootFinished {
        task: request.task.clone(),
        halt: report.halt.to_string(),
        seconds: report.seconds,
    });
    Ok(report)
}

/// A running QEMU. Dropping it kills it.
struct Machine {
    qemu: Group,
    qmp: UnixStream,
    console: UnixStream,
    records: UnixStream,
    job: UnixStream,
    began: Instant,
}

impl Machine {
    fn start(request: &BootRequest) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| Fault::io("start QEMU", &error);
        std::fs::create_dir_all(&request.folder)
            .map_err(|error| Fault::io(format!("make {}", request.folder.display()), &error))?;
        let job_line = serde_json::to_string(&request.job)
            .map_err(|error| Fault::infra(format!("write the job: {error}")))?;
        write_atomically(
            &request.folder.join("kvet.sh"),
            script(&request.spec, &job_line).as_bytes(),
        )?;
        let arguments = arguments(&request.spec, &CHANNELS);
        write_atomically(&request.folder.join("qemu-arguments"), arguments.join("\n").as_bytes())?;

        let mut ours = Vec::new();
        let mut mappings = Vec::new();
        for child_fd in 3..=6 {
            let (our_end, their_end) = StdUnixStream::pair().map_err(failed)?;
            our_end.set_nonblocking(true).map_err(failed)?;
            ours.push(UnixStream::from_std(our_end).map_err(failed)?);
            mappings.push(FdMapping { parent_fd: OwnedFd::from(their_end), child_fd });
        }
        let mut qemu = command(&request.spec.qemu);
        qemu.args(&arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        qemu.as_std_mut()
            .fd_mappings(mappings)
            .map_err(|error| Fault::infra(format!("hand QEMU its sockets: {error}")))?;
        let began = Instant::now();
        let group = Group::spawn(&mut qemu).map_err(failed)?;
        let mut next = || ours.remove(0);
        Ok(Self { qemu: group, qmp: next(), console: next(), records: next(), job: next(), began })
    }

    async fn watch(
        self,
        request: &BootRequest,
        events: &Events,
        stop: &CancellationToken,
    ) -> Result<BootReport, Fault> {
        let Self { mut qemu, qmp, mut console, mut records, mut job, began } = self;
        let create = |name: &str| {
            let path = request.folder.join(name);
            File::create(&path)
                .map_err(|error| Fault::io(format!("write {}", path.display()), &error))
        };
        let transcript = create("qmp.log")?;
        let mut screen = Console::new(BufWriter::new(create("console.log")?));
        let mut record_log = create("records.jsonl")?;
        let stderr = qemu.child().stderr.take();
        let stderr = tokio::spawn(read_bounded(stderr));

        let mut line = serde_json::to_vec(&request.job).unwrap_or_default();
        line.push(b'\n');
        // The bytes wait in the socket until the guest opens its port.
        let _ = job.write_all(&line).await;

        let mut watch = Watch::new(request, began);
        let mut control = Control::connect(qmp, transcript);
        let (mut from_console, mut from_records) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let (mut console_open, mut records_open) = (true, true);
        let lost = |error: std::io::Error| Fault::io("keep the boot's traces", &error);
        let mut status: Option<ExitStatus> = None;
        loop {
            watch.look(&screen, events);
            if status.is_some() && !console_open && !records_open {
                break;
            }
            tokio::select! {
                exit = qemu.wait(), if status.is_none() => {
                    status = Some(exit.map_err(|error| Fault::io("wait for QEMU", &error))?);
                    // What QEMU wrote before it left is still in the sockets.
                    watch.deadline = watch.deadline.min(Instant::now() + EXIT);
                }
                count = console.read(&mut from_console), if console_open => match count {
                    Ok(count @ 1..) => screen.push(&from_console[..count]).map_err(lost)?,
                    _ => console_open = false,
                },
                count = records.read(&mut from_records), if records_open => match count {
                    Ok(count @ 1..) => {
                        record_log.write_all(&from_records[..count]).map_err(lost)?;
                        watch.records(&from_records[..count]);
                    }
                    _ => records_open = false,
                },
                event = control.next() => watch.event(&event),
                () = sleep_until(watch.deadline) => {
                    if status.is_some() || watch.timeout(&screen) {
                        break;
                    }
                    match control.examine(request).await {
                        Some(evidence) => {
                            let path = request.folder.join("hang.txt");
                            write_atomically(&path, evidence.full.as_bytes())?;
                            watch.hang = evidence.short;
                        }
                        None => {
                            watch.decided = Some(HaltReason::QemuStuck);
                            break;
                        }
                    }
                    control.ask_for_stacks(&mut console).await;
                    watch.deadline = Instant::now() + STACKS;
                }
                () = stop.cancelled(), if !matches!(watch.decided, Some(HaltReason::Interrupted)) => {
                    watch.decided = Some(HaltReason::Interrupted);
                    break;
                }
            }
        }
        let alone = status.is_some();
        if alone {
            // Why QEMU left may still be in its socket.
            for event in control.rest().await {
                watch.event(&event);
            }
        }
        if status.is_none() {
            control.quit().await;
            qemu.kill().await;
        }
        drop(qemu);
        let greeted = control.greeted();
        let stderr = escape_lines(&last_lines(&stderr.await.unwrap_or_default(), 12));
        watch.session.finish();
        let (tail, findings) = screen.finish();
        let halt = watch.verdict(&findings, alone.then_some(status).flatten(), greeted, stderr);
        Ok(BootReport {
            halt,
            report: watch.session.report().clone(),
            splats: findings.splats,
            tail,
            hang: watch.hang,
            boot_seconds: watch.hello_at.map(|at| (at - began).as_secs_f64()),
            seconds: began.elapsed().as_secs_f64(),
        })
    }
}

/// What is known of a boot while it runs.
struct Watch<'a> {
    request: &'a BootRequest,
    session: Session,
    /// The first evidence; nothing replaces it but the user's interrupt.
    decided: Option<HaltReason>,
    deadline: Instant,
    hello_at: Option<Instant>,
    heartbeat_at: Instant,
    heartbeats: u64,
    stage: Stage,
    reset_seen: bool,
    told_to_leave: bool,
    /// Where each vCPU of a hung guest stood.
    hang: Vec<String>,
}

impl<'a> Watch<'a> {
    fn new(request: &'a BootRequest, began: Instant) -> Self {
        Self {
            request,
            session: Session::new(request.job.clone()),
            decided: None,
            deadline: began + request.limits.boot,
            hello_at: None,
            heartbeat_at: began,
            heartbeats: 0,
            stage: Stage::Silent,
            reset_seen: false,
            told_to_leave: false,
            hang: Vec::new(),
        }
    }

    fn records(&mut self, bytes: &[u8]) {
        self.session.push(bytes);
        if self.session.heartbeats() != self.heartbeats {
            self.heartbeats = self.session.heartbeats();
            self.heartbeat_at = Instant::now();
        }
    }

    fn event(&mut self, event: &QmpEvent) {
        // With -no-reboot a guest's reset, intended or a triple fault, is a shutdown.
        if event.name == "SHUTDOWN" {
            let reason = event.data["reason"].as_str().unwrap_or_default();
            self.reset_seen |= reason == "guest-reset";
            // A signal to QEMU, or whoever else on the host told it to leave.
            self.told_to_leave |= reason.starts_with("host-");
        }
    }

    /// Draws conclusions from what has arrived.
    fn look<W: Write>(&mut self, screen: &Console<W>, events: &Events) {
        let stage = self.session.stage();
        if stage != self.stage {
            let now = Instant::now();
            self.stage = stage;
            match stage {
                Stage::Silent => {}
                Stage::Up => {
                    self.hello_at = Some(now);
                    self.heartbeat_at = now;
                    self.deadline = now + self.request.limits.test;
                }
                Stage::Running => {
                    // `hello` and `start` may arrive together.
                    self.hello_at.get_or_insert(now);
                    self.deadline = now + self.request.limits.test;
                }
                Stage::Ended => {
                    self.hello_at.get_or_insert(now);
                    self.deadline = now + LEAVE;
                }
            }
            let phase = match stage {
                Stage::Silent => "boot",
                Stage::Up => "up",
                Stage::Running => "test",
                Stage::Ended => "end",
            };
            events.send(&RunEvent::BootPhase {
                task: self.request.task.clone(),
                phase: phase.to_owned(),
            });
        }
        if self.decided.is_some() {
            return;
        }
        if let Some(violation) = self.session.violation() {
            let (what, line) = (violation.what.clone(), violation.line.clone());
            self.decide(HaltReason::Violation { what, line });
        } else if let Some(evidence) = screen.fatal() {
            let (kind, title) = (evidence.kind, evidence.text.clone());
            self.decide(HaltReason::Kernel { kind, title });
        }
    }

    fn decide(&mut self, halt: HaltReason) {
        self.decided = Some(halt);
        self.deadline = self.deadline.min(Instant::now() + GATHER);
    }

    /// The deadline passed: whether to stop waiting at once. A guest that hangs
    /// is examined first.
    fn timeout<W: Write>(&mut self, screen: &Console<W>) -> bool {
        if self.decided.is_some() {
            return true;
        }
        let seconds = self.request.limits.test.as_secs();
        self.decided = Some(match self.stage {
            Stage::Ended => HaltReason::ExitHang { seconds: LEAVE.as_secs() },
            Stage::Silent => HaltReason::BootHang {
                phase: screen.phase(),
                seconds: self.request.limits.boot.as_secs(),
            },
            _ if self.heartbeat_at.elapsed() > HEARTBEAT_SILENCE => {
                HaltReason::GuestHang { seconds }
            }
            _ => HaltReason::TestHang { seconds },
        });
        false
    }

    /// The halt reason once everything is in. `exit` is QEMU's status when it
    /// left without being told to.
    fn verdict(
        &self,
        findings: &super::splat::Findings,
        exit: Option<ExitStatus>,
        greeted: bool,
        stderr: String,
    ) -> HaltReason {
        let fatal = findings.splats.iter().find(|splat| splat.fatal);
        // A guest that hung after saying what is stuck hung of that.
        let stuck = || findings.splats.iter().find(|splat| is_stuck(splat.kind));
        let cause = match &self.decided {
            Some(HaltReason::Interrupted) => return HaltReason::Interrupted,
            Some(HaltReason::Kernel { .. }) | None => fatal,
            Some(
                HaltReason::BootHang { .. }
                | HaltReason::GuestHang { .. }
                | HaltReason::TestHang { .. },
            ) => fatal.or_else(stuck),
            Some(_) => None,
        };
        match (cause, &self.decided) {
            (Some(splat), _) => {
                return HaltReason::Kernel { kind: splat.kind, title: splat.title.clone() };
            }
            (None, Some(decided)) => return decided.clone(),
            (None, None) => {}
        }
        if let Some(violation) = self.session.violation() {
            return HaltReason::Violation {
                what: violation.what.clone(),
                line: violation.line.clone(),
            };
        }
        let out_of_memory =
            || findings.splats.iter().find(|splat| splat.kind == SplatKind::OomKill);
        let outcome = self.session.report().outcome.as_ref();
        if let Some(kvet_records::Outcome::Killed { .. }) = outcome
            && let Some(splat) = out_of_memory()
        {
            return HaltReason::Kernel { kind: splat.kind, title: splat.title.clone() };
        }
        let clean = exit.is_none_or(|status| status.success());
        if self.stage == Stage::Ended && clean {
            return HaltReason::Completed;
        }
        match exit {
            // Whoever refuses arguments exits; a signal comes from elsewhere.
            Some(status) if !greeted && status.code().is_some_and(|code| code != 0) => {
                HaltReason::QemuRefused { how: ending(status), stderr }
            }
            Some(status) if !status.success() => {
                HaltReason::QemuDied { how: ending(status), stderr }
            }
            Some(_) if self.told_to_leave => {
                let how = "something on the host told it to end".to_owned();
                HaltReason::QemuDied { how, stderr }
            }
            Some(_) if !self.reset_seen => HaltReason::UnexpectedEnd,
            _ => HaltReason::Reset,
        }
    }
}

/// Whether a splat says that something does not get on.
fn is_stuck(kind: SplatKind) -> bool {
    use SplatKind as Kind;
    matches!(
        kind,
        Kind::HungTask
            | Kind::SoftLockup
            | Kind::HardLockup
            | Kind::RcuStall
            | Kind::Spinlock
            | Kind::WorkqueueLockup
    )
}

async fn read_bounded(stream: Option<tokio::process::ChildStderr>) -> String {
    let Some(mut stream) = stream else {
        return String::new();
    };
    let mut kept = Vec::new();
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if kept.len() < MAX_STDERR_BYTES {
            kept.extend_from_slice(&buffer[..count]);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn escape_lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}
