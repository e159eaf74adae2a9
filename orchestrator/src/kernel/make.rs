// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the kernel's `make` and reads what it prints: steps, and the first error.

use std::io::Write;
use std::process::ExitStatus;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::Regex;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::build::Heard;
use crate::fault::Fault;
use crate::host::lines::LineSplitter;
use crate::host::process::Group;
use crate::host::sandbox::{POLL, Session, Watchdog};

/// Longest line of the log; a compiler's own lines are far shorter.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// Most of the log that is kept. A full build with every warning on stays under
/// a tenth of it; beyond, a series is flooding the disk.
const MAX_LOG_BYTES: u64 = 256 * 1024 * 1024;
/// Most lines of the first error that are shown.
const MAX_ERROR_LINES: usize = 8;
/// How long `make` may take to delete half-written targets after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// How long a build may say nothing: no step of a kernel takes so long, not even the
/// link of all of it with its debugging information.
const SILENCE: Duration = Duration::from_secs(30 * 60);

/// `make` in the folder `below` of a session's tree with everything fixed that could
/// make two builds of one tree differ.
pub fn make(session: &Session, below: &str) -> Command {
    let mut make = session.command("make", below);
    // kernel/gen_kheaders.sh, scripts/mkcompile_h and init/version.c use these.
    make.env("KBUILD_BUILD_TIMESTAMP", "Thu Jan  1 00:00:00 UTC 2026");
    make.env("KBUILD_BUILD_USER", "kvet").env("KBUILD_BUILD_HOST", "kvet");
    make.env("KBUILD_BUILD_VERSION", "1").env("SOURCE_DATE_EPOCH", "1767225600");
    // Without LOCALVERSION, scripts/setlocalversion adds "+" in a git tree. What
    // one step prints stays together, so that a warning has its step.
    make.args(["--no-print-directory", "--output-sync=target", "LOCALVERSION=", "ARCH=x86_64"]);
    make
}

/// What a run of `make` came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Made {
    /// It succeeded.
    Done {
        /// Steps that it printed.
        steps: u32,
    },
    /// It failed; the lines of the first error.
    Failed {
        /// The first error, at most a few lines.
        error: Vec<String>,
        /// The log says that the disk is full.
        disk_full: bool,
    },
    /// It was stopped.
    Interrupted,
}

/// Runs a `make` command, both output streams into `log`, calls `progress` with
/// the number of steps so far, and lets `heard` listen to every line. What takes
/// more of the host than `watchdog` allows is killed, and has failed.
///
/// # Errors
/// An `infra` fault when it cannot be started or the log cannot be written.
pub async fn run(
    command: &mut Command,
    watchdog: &mut Watchdog,
    log: &mut impl Write,
    stop: &CancellationToken,
    heard: &mut Heard,
    mut progress: impl FnMut(u32),
) -> Result<Made, Fault> {
    let mut splitter = LineSplitter::new(MAX_LINE_BYTES);
    let mut reading = Reading::default();
    let mut written = 0u64;
    let ended = drive(command, watchdog, stop, |bytes| {
        if written < MAX_LOG_BYTES {
            let write = |error: std::io::Error| Fault::io("write the build log", &error);
            log.write_all(bytes).map_err(write)?;
            written += bytes.len() as u64;
        }
        let before = reading.steps;
        splitter.push(bytes, |line| {
            let line = String::from_utf8_lossy(&line.bytes);
            match reading.line(&line) {
                true => heard.step(&line),
                false => heard.line(&line),
            }
        });
        if reading.steps != before {
            progress(reading.steps);
        }
        Ok(())
    });
    Ok(match ended.await? {
        Ended::Status(status) if status.success() => Made::Done { steps: reading.steps },
        Ended::Status(_) => Made::Failed { error: reading.error, disk_full: reading.disk_full },
        Ended::Stopped(why) => Made::Failed { error: vec![why], disk_full: false },
        Ended::Interrupted => Made::Interrupted,
    })
}

/// How a command ended.
enum Ended {
    Status(ExitStatus),
    /// By the watchdog, and why.
    Stopped(String),
    Interrupted,
}

/// Runs a command to its end and hands out what it writes to either stream.
async fn drive(
    command: &mut Command,
    watchdog: &mut Watchdog,
    stop: &CancellationToken,
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<Ended, Fault> {
    let failed = |error: std::io::Error| Fault::io("run make", &error);
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut reader = Receiver::from_owned_fd(reader.into()).map_err(failed)?;
    watchdog.start();
    let mut group = Group::spawn(command).map_err(failed)?;
    // The command still holds our ends for writing; without this the pipe never ends.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let leader = group.id().unwrap_or_default();
    let mut look = tokio::time::interval(POLL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut buffer = vec![0; 64 * 1024];
    let mut open = true;
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            count = reader.read(&mut buffer), if open => match count.map_err(failed)? {
                0 => open = false,
                count => {
                    heard = Instant::now();
                    take(&buffer[..count])?;
                }
            },
            status = group.wait(), if !open => return Ok(Ended::Status(status.map_err(failed)?)),
            _ = look.tick() => {
                let silent = heard.elapsed() > SILENCE;
                if silent || watchdog.must_stop(leader) {
                    group.kill().await;
                    wait_for_end(&mut reader).await;
                    let silence = format!("said nothing for {} min, stopped", SILENCE.as_secs() / 60);
                    return Ok(Ended::Stopped(watchdog.stopped().map_or(silence, str::to_owned)));
                }
            },
            () = stop.cancelled() => {
                group.terminate(GRACE).await;
                wait_for_end(&mut reader).await;
                return Ok(Ended::Interrupted);
            }
        }
    }
}

/// How long the kernel may take to end what was killed with its namespace.
const END: Duration = Duration::from_secs(10);

/// Waits until nobody is left who could write.
async fn wait_for_end(reader: &mut Receiver) {
    let mut buffer = vec![0; 64 * 1024];
    let drain = async { while reader.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
    let _ = tokio::time::timeout(END, drain).await;
}

/// Number of steps that `make` would do, by its own dry run, which cannot see the
/// steps after the last archive; `None` when it tells nothing, which is no
/// reason not to build. A dry run does run what a makefile's `$(shell)` names.
pub async fn count_steps(
    command: &mut Command,
    watchdog: &mut Watchdog,
    stop: &CancellationToken,
) -> Option<u32> {
    let mut splitter = LineSplitter::new(MAX_LINE_BYTES);
    let mut count = 0u32;
    // A step is the command that would print its short line.
    let ended = drive(command.args(["--dry-run", "--keep-going"]), watchdog, stop, |bytes| {
        splitter.push(bytes, |line| {
            count += u32::from(DRY_STEP.is_match(&String::from_utf8_lossy(&line.bytes)));
        });
        Ok(())
    });
    ended.await.ok().filter(|_| count > 0).map(|_| count)
}

/// Longest answer to a question.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// What a command prints; nothing when it fails.
///
/// # Errors
/// An `infra` fault when it cannot be started.
pub async fn answer(
    command: &mut Command,
    watchdog: &mut Watchdog,
    stop: &CancellationToken,
) -> Result<String, Fault> {
    let (status, said) = ask(command, watchdog, stop).await?;
    Ok(if status.is_some_and(|status| status.success()) { said } else { String::new() })
}

/// How a command ends, and what it prints; no status where it was stopped.
///
/// # Errors
/// An `infra` fault when it cannot be started.
pub async fn ask(
    command: &mut Command,
    watchdog: &mut Watchdog,
    stop: &CancellationToken,
) -> Result<(Option<ExitStatus>, String), Fault> {
    let mut said = Vec::new();
    let ended = drive(command, watchdog, stop, |bytes| {
        let room = MAX_ANSWER_BYTES - said.len();
        said.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    });
    let status = match ended.await? {
        Ended::Status(status) => Some(status),
        Ended::Stopped(_) | Ended::Interrupted => None,
    };
    Ok((status, String::from_utf8_lossy(&said).into_owned()))
}

/// `  CC      mm/madvise.o`: kbuild's short line for a step (scripts/Kbuild.include, `quiet_cmd`).
static STEP: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^  [A-Z][A-Z0-9_]*(?: \[M\])? +\S").expect("a constant pattern"));
static DRY_STEP: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"echo '  [A-Z][A-Z0-9_]*(?: \[M\])? +\S").expect("a constant pattern")
});
/// gcc, clang, the assembler, the linker, kconfig, modpost and objtool.
static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:^|[: ])(?:fatal )?error:|: undefined reference to |\bld: |No space left on device|^(?:scripts/\S+|/\S+): \d+: ")
        .expect("a constant pattern")
});
static MAKE_ERROR: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^make(?:\[\d+\])?: \*\*\* ").expect("a constant pattern"));

#[derive(Default)]
struct Reading {
    steps: u32,
    error: Vec<String>,
    /// `make`'s own words, shown when nothing else said why.
    disk_full: bool,
    ended: bool,
    previous: String,
}

impl Reading {
    /// Whether the line is a step's.
    fn line(&mut self, line: &str) -> bool {
        self.disk_full |= line.contains("No space left on device");
        let step = STEP.is_match(line);
        if step {
            self.steps += 1;
        }
        let make_error = MAKE_ERROR.is_match(line);
        if self.error.is_empty() {
            if ERROR.is_match(line) || make_error {
                // gcc names the function in a line of its own before the error.
                if self.previous.contains(": In function ") {
                    self.error.push(self.previous.clone());
                }
                self.error.push(line.to_owned());
                self.ended = make_error;
            }
        } else if step || make_error || self.error.len() >= MAX_ERROR_LINES {
            self.ended = true;
        } else if !self.ended {
            self.error.push(line.to_owned());
        }
        line.clone_into(&mut self.previous);
        step
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::host::process::command;

    fn read(text: &str) -> Reading {
        let mut reading = Reading::default();
        for line in text.lines() {
            reading.line(line);
        }
        reading
    }

    #[test]
    fn the_first_error_comes_with_its_function_and_its_excerpt() {
        let reading = read(
            "  CC      mm/a.o\n  CC      mm/b.o\nmm/b.c: In function 'f':\nmm/b.c:3:5: error: 'x' undeclared\n    3 | x;\n      | ^\nmake[3]: *** [scripts/Makefile.build:1: mm/b.o] Error 1\n  CC      mm/c.o\nmm/d.c:1:1: error: later\n",
        );
        assert_eq!(reading.steps, 3);
        assert_eq!(
            reading.error,
            [
                "mm/b.c: In function 'f':",
                "mm/b.c:3:5: error: 'x' undeclared",
                "    3 | x;",
                "      | ^"
            ]
        );
    }

    #[test]
    fn an_error_of_make_itself_is_shown_when_there_is_no_other() {
        let reading =
            read("make[1]: *** No rule to make target 'mm/x.o', needed by 'mm/'.  Stop.\n");
        assert_eq!(reading.error.len(), 1);
        assert!(!reading.disk_full);
        assert!(read("cc1: fatal error: a.o: No space left on device\n").disk_full);
    }

    #[test]
    fn a_linkers_error_is_an_error() {
        let reading = read(
            "  LD      .tmp_vmlinux1\nld: mm/madvise.o: in function `f':\nmadvise.c:(.text+0x1): undefined reference to `g'\n",
        );
        assert_eq!(reading.error.len(), 2);
    }

    #[tokio::test]
    async fn a_failing_command_is_read_to_its_end() {
        let mut log = Vec::new();
        let mut command = command("sh");
        command.args(["-c", "echo '  CC      a.o'; echo 'a.c:1:1: error: no' >&2; exit 2"]);
        let stop = CancellationToken::new();
        let mut watchdog = Watchdog::new(Path::new("/"), 1);
        let mut heard = Heard::new("x");
        let made = run(&mut command, &mut watchdog, &mut log, &stop, &mut heard, |_| {});
        let made = made.await.unwrap();
        assert_eq!(
            made,
            Made::Failed { error: vec!["a.c:1:1: error: no".into()], disk_full: false }
        );
        assert_eq!(log.len(), "  CC      a.o\na.c:1:1: error: no\n".len());
    }

    #[tokio::test]
    async fn a_stopped_command_ends_at_once() {
        let stop = CancellationToken::new();
        stop.cancel();
        let mut command = command("sleep");
        command.arg("1000");
        let mut watchdog = Watchdog::new(Path::new("/"), 1);
        let (mut log, mut heard) = (Vec::new(), Heard::new("x"));
        let made = run(&mut command, &mut watchdog, &mut log, &stop, &mut heard, |_| {});
        let made = made.await.unwrap();
        assert_eq!(made, Made::Interrupted);
    }
}
