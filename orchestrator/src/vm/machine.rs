// SPDX-License-Identifier: MIT OR Apache-2.0
//! One life of a VM: QEMU is started, watched from every side at once, and gone
//! at the end.
//!
//! QEMU's exit, its QMP events, the console, the guest's records, the deadline
//! and the user race. The first evidence decides; the rest is gathered for two
//! seconds more.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use kvet_records::Job;
use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::command_line::{CHANNELS, arguments, script};
use super::console::Console;
use super::control::Control;
use super::deadline::Limits;
use super::halt::{BootReport, HaltReason};
use super::spec::VmSpec;
use super::state::{self, SavedState, Start};
use super::watch::Watch;
use crate::fault::{Fault, escape};
use crate::host::budget::Claim;
use crate::host::process::{Group, command, ending, last_lines};
use crate::run::event::{Events, RunEvent};
use crate::store::write_atomically;

/// How long a hung guest may take to print its stacks, if it still can.
const STACKS: Duration = Duration::from_millis(1500);
/// How long a guest in the middle of a record runs on before it is stopped again.
const STEP: Duration = Duration::from_millis(20);
/// How long QEMU may take to write a state.
const SAVE: Duration = Duration::from_secs(60);
/// How long QEMU may take to exit once its streams have ended.
const EXIT: Duration = Duration::from_secs(2);
/// Most of QEMU's standard error that is kept.
const MAX_STDERR_BYTES: usize = 64 * 1024;
/// On a scale to 1000; a user's programs have 0, or 200 in some desktops.
const OOM_SCORE: &str = "500";
/// Room for what a guest prints before kvet reads it: the most that the system gives
/// any user (pipe(7), `pipe-max-size`), and some ninety times what a boot prints.
const CONSOLE_BYTES: usize = 1 << 20;

/// What to boot, for what, and where to leave the traces.
#[derive(Debug, Clone)]
pub struct BootRequest {
    /// Which boot, for people.
    pub task: String,
    /// The VM.
    pub spec: VmSpec,
    /// How it starts.
    pub start: Start,
    /// What its guest is to do.
    pub job: Job,
    /// How long each phase may take.
    pub limits: Limits,
    /// The kernel with symbols, for a hang's evidence.
    pub vmlinux: PathBuf,
    /// Folder for the console, the QMP transcript and the scripts.
    pub folder: PathBuf,
}

/// Boots a VM, gives it its job, and watches it to its end. `claim` is its part
/// of the host, given back then.
///
/// # Errors
/// An `infra` fault when the host cannot start QEMU or keep its traces;
/// everything that happens once QEMU runs is in the report.
pub async fn boot(
    request: &BootRequest,
    claim: Option<Claim>,
    events: &Events,
    stop: &CancellationToken,
) -> Result<BootReport, Fault> {
    events.send(&RunEvent::BootStarted { task: request.task.clone() });
    let machine = Machine::start(request)?;
    let mut claim = claim;
    if let (Some(claim), Some(process)) = (&mut claim, machine.qemu.id()) {
        claim.used_by(process);
    }
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
    console: Receiver,
    keys: Sender,
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
        let mut arguments = arguments(&request.spec, &CHANNELS);
        if matches!(request.start, Start::Restored(_)) {
            arguments.extend(["-incoming", "defer"].map(str::to_owned));
        }
        write_atomically(&request.folder.join("qemu-arguments"), arguments.join("\n").as_bytes())?;

        let mut ours = Vec::new();
        let mut mappings = Vec::new();
        for child_fd in [3, 6, 7] {
            let (our_end, their_end) = StdUnixStream::pair().map_err(failed)?;
            our_end.set_nonblocking(true).map_err(failed)?;
            ours.push(UnixStream::from_std(our_end).map_err(failed)?);
            mappings.push(FdMapping { parent_fd: OwnedFd::from(their_end), child_fd });
        }
        let (console, their_end) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        // QEMU writes one byte at a time; one that nobody has read yet would take a
        // guest's time, and then be dropped.
        let _ = fcntl_setpipe_size(&console, CONSOLE_BYTES);
        mappings.push(FdMapping { parent_fd: their_end, child_fd: 4 });
        let (their_end, keys) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        mappings.push(FdMapping { parent_fd: their_end, child_fd: 5 });
        for end in [&console, &keys] {
            ioctl_fionbio(end, true).map_err(|e| failed(e.into()))?;
        }
        let console = Receiver::from_owned_fd(console).map_err(failed)?;
        let keys = Sender::from_owned_fd(keys).map_err(failed)?;
        let mut qemu = command(&request.spec.qemu);
        qemu.args(&arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        qemu.as_std_mut()
            .fd_mappings(mappings)
            .map_err(|error| Fault::infra(format!("hand QEMU its sockets: {error}")))?;
        let began = Instant::now();
        let group = Group::spawn(&mut qemu).map_err(failed)?;
        if let Some(process) = group.id() {
            // When memory runs out, the user's own programs are not what goes.
            let _ = std::fs::write(format!("/proc/{process}/oom_score_adj"), OOM_SCORE);
        }
        let mut next = || ours.remove(0);
        let (qmp, records, job) = (next(), next(), next());
        Ok(Self { qemu: group, qmp, console, keys, records, job, began })
    }

    async fn watch(
        self,
        request: &BootRequest,
        events: &Events,
        stop: &CancellationToken,
    ) -> Result<BootReport, Fault> {
        let Self { mut qemu, qmp, console, mut keys, records, mut job, began } = self;
        let create = |name: &str| {
            let path = request.folder.join(name);
            File::create(&path)
                .map_err(|error| Fault::io(format!("write {}", path.display()), &error))
        };
        let mut control = Control::connect(qmp, create("qmp.log")?);
        let mut streams = Streams {
            console,
            records,
            screen: Console::new(BufWriter::new(create("console.log")?)),
            record_log: create("records.jsonl")?,
        };
        let stderr = qemu.child().stderr.take();
        let stderr = tokio::spawn(read_bounded(stderr));
        let mut watch = Watch::new(request, began);
        let wait_failed = |error: io::Error| Fault::io("wait for QEMU", &error);
        let mut status: Option<ExitStatus> = None;

        let mut line = serde_json::to_vec(&request.job).unwrap_or_default();
        line.push(b'\n');
        // A counted guest that boots gets it where others are restored.
        let later = request.spec.counted && matches!(request.start, Start::Cold);
        if !later && !matches!(request.start, Start::Save(_)) {
            // The bytes wait in the socket until the guest opens its port.
            let _ = job.write_all(&line).await;
        }
        if let Start::Restored(state) = &request.start {
            let deadline = watch.deadline;
            watch.decided = tokio::select! {
                restored = streams.restore(&mut control, state, &mut watch) => {
                    restored?.err().map(|why| HaltReason::NotRestored { why, stderr: String::new() })
                }
                () = sleep_until(deadline) => Some(HaltReason::QemuStuck),
                () = stop.cancelled() => Some(HaltReason::Interrupted),
            };
            // A QEMU that ended takes its connection along: whoever was killed did
            // not refuse the state.
            if matches!(watch.decided, Some(HaltReason::NotRestored { .. }))
                && let Ok(exit) = tokio::time::timeout(EXIT, qemu.wait()).await
            {
                let exit = exit.map_err(wait_failed)?;
                status = Some(exit);
                if exit.signal().is_some() {
                    watch.decided =
                        Some(HaltReason::QemuDied { how: ending(exit), stderr: String::new() });
                }
            }
        }

        let (mut from_console, mut from_records) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        let (mut console_open, mut records_open) = (true, true);
        let mut over = watch.decided.is_some();
        while !over {
            watch.look(&streams.screen, events);
            if watch.goes_on() {
                let going = async {
                    let _ = job.write_all(&line).await;
                    if let Some(qmp) = control.qmp().await {
                        let _ = qmp.execute(&qapi::qmp::cont {}).await;
                    }
                };
                // A QEMU that does not answer is noticed below.
                tokio::select! {
                    () = going => {}
                    () = sleep_until(watch.deadline) => {}
                    () = stop.cancelled() => {}
                }
            }
            if status.is_some() && !console_open && !records_open {
                break;
            }
            if let Start::Save(memory) = &request.start
                && watch.can_be_saved()
            {
                let saved = tokio::select! {
                    saved = streams.save(&mut control, memory, &mut watch) => saved?,
                    exit = qemu.wait() => {
                        let exit = status.insert(exit.map_err(wait_failed)?);
                        Err(format!("QEMU ended, {}", ending(*exit)))
                    }
                    () = sleep(SAVE) => Err(format!("it took longer than {} s", SAVE.as_secs())),
                    () = stop.cancelled() => Ok(false),
                };
                watch.decided = Some(match saved {
                    Ok(true) => HaltReason::Saved,
                    Ok(false) => HaltReason::Interrupted,
                    Err(why) => HaltReason::NotSaved { why },
                });
                break;
            }
            tokio::select! {
                exit = qemu.wait(), if status.is_none() => {
                    status = Some(exit.map_err(wait_failed)?);
                    // What QEMU wrote before it left is still in the sockets.
                    watch.deadline = watch.deadline.min(Instant::now() + EXIT);
                }
                count = streams.console.read(&mut from_console), if console_open => match count {
                    Ok(count @ 1..) => streams.take_console(&from_console[..count])?,
                    _ => console_open = false,
                },
                count = streams.records.read(&mut from_records), if records_open => match count {
                    Ok(count @ 1..) => streams.take_records(&from_records[..count], &mut watch)?,
                    _ => records_open = false,
                },
                event = control.next() => watch.event(&event),
                () = sleep_until(watch.deadline) => {
                    if status.is_some() || watch.timeout(&streams.screen) {
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
                    control.ask_for_stacks(&mut keys).await;
                    watch.deadline = Instant::now() + STACKS;
                }
                () = stop.cancelled() => {
                    watch.decided = Some(HaltReason::Interrupted);
                    over = true;
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
        let (tail, findings) = streams.screen.finish();
        Ok(watch.finish(tail, findings, alone.then_some(status).flatten(), greeted, stderr))
    }
}

/// What a guest says, and where it is kept.
struct Streams {
    console: Receiver,
    records: UnixStream,
    screen: Console<BufWriter<File>>,
    record_log: File,
}

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

impl Streams {
    fn take_console(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.screen.push(bytes).map_err(lost)
    }

    fn take_records(&mut self, bytes: &[u8], watch: &mut Watch<'_>) -> Result<(), Fault> {
        self.record_log.write_all(bytes).map_err(lost)?;
        watch.records(bytes);
        Ok(())
    }

    /// Takes what is there by now.
    fn take_all(&mut self, watch: &mut Watch<'_>) -> Result<(), Fault> {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = self.console.try_read(&mut buffer) {
            self.take_console(&buffer[..count])?;
        }
        while let Ok(count @ 1..) = self.records.try_read(&mut buffer) {
            self.take_records(&buffer[..count], watch)?;
        }
        Ok(())
    }

    /// Stops the guest between two records and saves it. The inner error is why
    /// it could not be saved.
    async fn save(
        &mut self,
        control: &mut Control,
        memory: &Path,
        watch: &mut Watch<'_>,
    ) -> Result<Result<bool, String>, Fault> {
        let Some(qmp) = control.qmp().await else {
            return Ok(Err("QEMU does not answer".to_owned()));
        };
        let command = |error: super::qmp::QmpError| error.to_string();
        loop {
            if let Err(why) = qmp.execute(&qapi::qmp::stop {}).await.map_err(command) {
                return Ok(Err(why));
            }
            self.take_all(watch)?;
            if watch.between_records() {
                break;
            }
            if let Err(why) = qmp.execute(&qapi::qmp::cont {}).await.map_err(command) {
                return Ok(Err(why));
            }
            sleep(STEP).await;
        }
        Ok(state::save(qmp, memory).await.map(|()| true).map_err(|error| error.to_string()))
    }

    /// Restores a guest, replays what it had said, and lets it run. The inner
    /// error is why it could not be restored.
    async fn restore(
        &mut self,
        control: &mut Control,
        saved: &SavedState,
        watch: &mut Watch<'_>,
    ) -> Result<Result<(), String>, Fault> {
        let Some(qmp) = control.qmp().await else {
            return Ok(Err("QEMU does not answer".to_owned()));
        };
        if let Err(error) = state::restore(qmp, saved).await {
            return Ok(Err(error.to_string()));
        }
        self.take_console(&saved.console)?;
        self.take_records(&saved.records, watch)?;
        let running = qmp.execute(&qapi::qmp::cont {}).await;
        Ok(running.map(drop).map_err(|error| error.to_string()))
    }
}

fn lost(error: io::Error) -> Fault {
    Fault::io("keep the boot's traces", &error)
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
