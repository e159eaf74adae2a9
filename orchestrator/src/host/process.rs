// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes that cannot outlive kvet: each is in a session and a process group
//! of its own, dies with kvet's main thread, and is killed when its handle is dropped.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::guardian;
use crate::fault::Fault;

/// The program of that name in `PATH`.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|file| {
        std::fs::metadata(file)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    })
}

/// The program of that name in `PATH`, or an `infra` fault that names the
/// Debian package that brings it.
///
/// # Errors
/// When there is no such program.
pub fn require_program(name: &str, package: &str) -> Result<PathBuf, Fault> {
    find_program(name).ok_or_else(|| {
        Fault::infra(format!("{name} is not installed"))
            .help(format!("run ./setup, or: sudo apt-get install {package}"))
    })
}

/// A command with a fixed, small environment: neither the user's variables nor
/// the locale can change what it does or prints. Standard input is empty.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").env("HOME", "/nonexistent").stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// A running child and its process group.
#[derive(Debug)]
pub struct Group {
    child: Child,
    group: Option<Pid>,
}

impl Group {
    /// Starts the command in a session and a process group of its own: it has no
    /// terminal to ask or to type on.
    ///
    /// The kernel delivers the parent-death signal when the *thread* that
    /// spawned the child ends, so this must be called from a thread that lives
    /// as long as kvet; kvet's runtime has one thread, the main one.
    ///
    /// # Errors
    /// What `spawn` reports.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.kill_on_drop(true);
        die_with_parent(command.as_std_mut());
        guardian::begin();
        let child = command.spawn().inspect_err(|_| guardian::failed())?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { child, group })
    }

    /// The child's process id while it has not been waited for.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the child. Safe to cancel and call again.
    ///
    /// # Errors
    /// What `wait` reports.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks the group to end, then makes it: SIGTERM, `grace`, SIGKILL.
    pub async fn terminate(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        let _ = tokio::time::timeout(grace, self.child.wait()).await;
        self.kill().await;
    }

    /// Kills the whole group and reaps the child.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait().await;
    }

    fn signal(&self, signal: Signal) {
        // The group outlives its leader while other members live, and its
        // number is not reused until the last is gone, so signalling after the
        // child was reaped still only reaches what the child left behind.
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(group) = self.group {
            guardian::forget(group);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "only the child itself can ask for a parent-death signal, leave its session and \
              its keyring, and announce itself before it does anything"
)]
fn die_with_parent(command: &mut std::process::Command) {
    let parent = std::process::id();
    let line = guardian::line();
    // SAFETY: the closure runs between fork and exec and calls only setsid(2), send(2),
    // getpid(2), prctl(2), keyctl(2) and getppid(2), which are async-signal-safe; it
    // allocates nothing.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            if let Some(line) = line {
                guardian::announce(line);
            }
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The keys of the user's session are not for it: from here on it has a session
            // of its own. It may fail where the kernel has no keys.
            libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, 0);
            // kvet may have died between fork and prctl; then nobody would send the signal.
            let alive = rustix::process::getppid()
                .is_some_and(|pid| pid.as_raw_nonzero().get().cast_unsigned() == parent);
            if alive {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()))
            }
        });
    }
}

/// What a command that ran to its end printed.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, as text.
    pub stderr: String,
}

impl Output {
    /// Standard output as text without the line end.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

/// Runs a command to its end with standard input `input`, however it ends.
///
/// # Errors
/// An `infra` fault when it cannot be started.
pub async fn capture(command: &mut Command, input: &[u8]) -> Result<Output, Fault> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let failed = |error: &io::Error| Fault::io(format!("run {program}"), error);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    let mut group = Group::spawn(command).map_err(|error| failed(&error))?;
    let stdin = group.child().stdin.take();
    let stdout = group.child().stdout.take();
    let stderr = group.child().stderr.take();
    let feed = async move {
        if let Some(mut pipe) = stdin {
            // A program that does not read all of its input is not in error for that.
            let _ = pipe.write_all(input).await;
        }
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let read_out = async {
        if let Some(mut pipe) = stdout {
            let _ = pipe.read_to_end(&mut out).await;
        }
    };
    let read_err = async {
        if let Some(mut pipe) = stderr {
            let _ = pipe.read_to_end(&mut err).await;
        }
    };
    tokio::join!(feed, read_out, read_err);
    let status = group.wait().await.map_err(|error| failed(&error))?;
    Ok(Output { status, stdout: out, stderr: String::from_utf8_lossy(&err).into_owned() })
}

/// Runs a command that must succeed.
///
/// # Errors
/// An `infra` fault with what it wrote to standard error.
pub async fn check(command: &mut Command, input: &[u8]) -> Result<Output, Fault> {
    let output = capture(command, input).await?;
    if output.status.success() {
        return Ok(output);
    }
    let command = command.as_std();
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().take(6).map(|word| word.to_string_lossy().into_owned()));
    let fault = Fault::infra(format!("`{}` failed: {}", words.join(" "), ending(output.status)));
    let fault = fault.evidence(&last_lines(&output.stderr, 12));
    // git does not say why a file of a tree cannot be written.
    let full = ["No space left on device", "error: unable to write file "];
    Err(if full.iter().any(|words| output.stderr.contains(words)) {
        fault.help("make space on that file system and run again; finished work is kept")
    } else {
        fault
    })
}

/// How a process ended, in words.
#[must_use]
pub fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}{}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

/// ` (SIGSEGV)` for 11, and nothing for a signal without a name here.
#[must_use]
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        31 => " (SIGSYS)",
        _ => "",
    }
}

/// The last `count` lines of a text.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_and_input_larger_than_a_pipe_do_not_deadlock() {
        let input = vec![b'x'; 1 << 20];
        let output = capture(&mut command("cat"), &input).await.unwrap();
        assert_eq!(output.stdout.len(), input.len());
    }

    #[tokio::test]
    async fn dropping_a_group_kills_grandchildren() {
        let mut group = Group::spawn(command("sh").args(["-c", "sleep 987 & wait"])).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let pid = group.id().unwrap();
        let members = || {
            std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
                let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
                let rest = stat.rsplit(") ").next().unwrap_or_default();
                let fields: Vec<&str> = rest.split(' ').collect();
                fields.get(2) == Some(&pid.to_string().as_str()) && fields.first() != Some(&"Z")
            })
        };
        assert_eq!(members().count(), 2);
        group.kill().await;
        drop(group);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(members().count(), 0);
    }

    #[tokio::test]
    async fn a_full_disk_is_told_by_the_words_of_git_too() {
        let script = "echo 'error: unable to write file mm/a.c' >&2; exit 128";
        let fault = check(command("sh").args(["-c", script]), b"").await.unwrap_err();
        assert!(fault.help.unwrap().starts_with("make space"));
    }

    #[tokio::test]
    async fn a_failing_command_is_shown_with_its_last_words() {
        let fault =
            check(command("sh").args(["-c", "echo because >&2; exit 3"]), b"").await.unwrap_err();
        assert_eq!(fault.evidence, ["because"]);
        assert!(fault.what.ends_with("exit status 3"), "{}", fault.what);
    }
}
