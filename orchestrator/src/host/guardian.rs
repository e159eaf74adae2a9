// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends what a killed kvet leaves. The parent-death signal reaches kvet's children,
//! but not theirs, nor a sandbox that is just being set up: bubblewrap asks for the
//! signal only after it has forked, and waits for ever for a parent that is gone.
//!
//! The guardian is a shell that reads the numbers of process groups from kvet, over
//! a socket that ends with kvet, and then kills those that are left.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{SendFlags, Shutdown};
use rustix::process::Pid;

/// Reads `+ GROUP` of a child that is about to execute its program, `- GROUP` of one
/// that has ended, `( 0` before a child is started, and `) 0` when it could not be: the
/// number that it had may be anybody's soon. It is not to end before kvet, whoever asks.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM TSTP
groups= begun=
without() {
    rest=
    for one in $groups; do
        [ "$one" = "$1" ] || rest="$rest $one"
    done
    groups=$rest
}
while read -r sign group; do
    case $sign in
    '(') begun= ;;
    ')') for failed in $begun; do without "$failed"; done ;;
    +) without "$group"; groups="$groups $group" begun="$begun $group" ;;
    -) without "$group" ;;
    esac
done
for group in $groups; do
    kill -KILL "-$group"
done
"#;

/// How long kvet waits for the guardian in the end: it only has to notice.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest line: a sign, a number of 32 bits, a line end.
const LINE: usize = 16;

/// The least number of kvet's end of the socket, the first that `ulimit -n` allows.
/// Children get files under small numbers of their own before they announce themselves
/// (QEMU's sockets, for one), and theirs must not be taken for it.
const LEAST_FDS: [i32; 4] = [500, 200, 50, 20];

struct Guardian {
    line: OwnedFd,
    shell: Mutex<Option<Child>>,
}

/// The one of this process; none where it could not be started, which only loses what
/// it is for.
static GUARDIAN: OnceLock<Option<Guardian>> = OnceLock::new();

fn start() -> io::Result<Guardian> {
    let (line, other) = UnixStream::pair()?;
    let high = LEAST_FDS.iter().find_map(|&least| fcntl_dupfd_cloexec(&line, least).ok());
    let line = high.ok_or(rustix::io::Errno::MFILE)?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", SCRIPT]).env_clear().current_dir("/");
    shell.stdin(OwnedFd::from(other)).stdout(Stdio::null()).stderr(Stdio::null());
    // Not with kvet at a terminal's Ctrl-C.
    let shell = shell.process_group(0).spawn()?;
    Ok(Guardian { line, shell: Mutex::new(Some(shell)) })
}

/// Where a child that is about to execute its program announces itself; starts the
/// guardian when there is none.
pub(super) fn line() -> Option<BorrowedFd<'static>> {
    let guardian = GUARDIAN.get_or_init(|| start().ok());
    guardian.as_ref().map(|guardian| guardian.line.as_fd())
}

/// Announces the calling process, the leader of its group. Async-signal-safe.
pub(super) fn announce(line: BorrowedFd<'_>) {
    tell(line, '+', rustix::process::getpid().as_raw_nonzero().get());
}

/// A child is about to be started.
pub(super) fn begin() {
    if let Some(line) = line() {
        tell(line, '(', 0);
    }
}

/// It could not be started.
pub(super) fn failed() {
    if let Some(line) = line() {
        tell(line, ')', 0);
    }
}

/// The group needs no guardian any more.
pub(super) fn forget(group: Pid) {
    if let Some(line) = line() {
        tell(line, '-', group.as_raw_nonzero().get());
    }
}

fn tell(line: BorrowedFd<'_>, sign: char, group: i32) {
    let mut text = [0; LINE];
    let mut rest = &mut text[..];
    // On the stack: between fork and exec nothing may be allocated.
    if writeln!(rest, "{sign} {group}").is_ok() {
        let length = LINE - rest.len();
        // A guardian that was killed is nobody to wait for.
        let _ = rustix::net::send(line, &text[..length], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Ends the guardian, and what it still has, and waits for it: at the end of a kvet
/// that was not killed nothing is left of it.
pub fn dismiss() {
    if let Some(Some(guardian)) = GUARDIAN.get() {
        let _ = rustix::net::shutdown(&guardian.line, Shutdown::Both);
        let shell = guardian.shell.lock().ok().and_then(|mut shell| shell.take());
        let began = Instant::now();
        if let Some(mut shell) = shell {
            while matches!(shell.try_wait(), Ok(None)) && began.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is a group, and has another in it.
    fn start_group() -> (Child, i32) {
        let mut command = Command::new("sh");
        let child = command.args(["-c", "sleep 985 & wait"]).process_group(0).spawn().unwrap();
        let group = child.id().cast_signed();
        (child, group)
    }

    #[test]
    fn when_the_line_ends_the_groups_that_are_left_are_killed_and_no_others() {
        let guardian = start().unwrap();
        let (mut left, left_group) = start_group();
        let (mut ended, ended_group) = start_group();
        let (mut other, other_group) = start_group();
        let said = [
            ('(', 0),
            ('+', left_group),
            ('(', 0),
            ('+', ended_group),
            // As if the number of a child that could not be started were another's now.
            ('(', 0),
            ('+', other_group),
            (')', 0),
            ('-', ended_group),
        ];
        for (sign, group) in said {
            tell(guardian.line.as_fd(), sign, group);
        }
        drop(guardian.line);
        let pid = |group| Pid::from_raw(group).unwrap();
        let began = Instant::now();
        while rustix::process::test_kill_process_group(pid(left_group)).is_ok() {
            let _ = left.try_wait();
            assert!(began.elapsed() < Duration::from_secs(10), "it lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
        guardian.shell.lock().unwrap().take().unwrap().wait().unwrap();
        for (child, group) in [(&mut ended, ended_group), (&mut other, other_group)] {
            assert!(child.try_wait().unwrap().is_none(), "{group} is killed");
            rustix::process::kill_process_group(pid(group), rustix::process::Signal::KILL).unwrap();
            child.wait().unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_child_gets_under_a_number_of_its_own_is_not_taken_for_the_line() {
        use command_fds::{CommandFdExt as _, FdMapping};
        // Before the files below take the small numbers.
        assert!(line().is_some());
        let (mine, theirs) = UnixStream::pair().unwrap();
        let mut command = crate::host::process::command("true");
        let mapped =
            |child_fd| FdMapping { parent_fd: theirs.try_clone().unwrap().into(), child_fd };
        command.as_std_mut().fd_mappings((3..20).map(mapped).collect()).unwrap();
        crate::host::process::capture(&mut command, b"").await.unwrap();
        drop((command, theirs));
        assert_eq!(std::io::read_to_string(mine).unwrap(), "");
    }

    #[test]
    fn the_longest_number_fits() {
        let (mine, theirs) = UnixStream::pair().unwrap();
        tell(mine.as_fd(), '-', i32::MAX);
        drop(mine);
        assert_eq!(std::io::read_to_string(theirs).unwrap(), format!("- {}\n", i32::MAX));
    }
}
