// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where `make` runs. A kernel's makefiles, and the programs that they build and
//! run, come from the series under test, so they see nothing of the host but its
//! programs: no home folder, no network, no other process, and they can write only
//! to the build's own tree. bubblewrap builds that room; what is tried in it
//! against the walls is told in the report.

mod cage;
mod ccache;
mod decoy;
mod network;
mod session;
mod watchdog;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use tokio::process::Command;

use super::process::{check, command, find_program};
use crate::fault::Fault;
use crate::store::Store;
use cage::Cage;
pub use ccache::{Cached, CompilerCache, compiler_cache};
use decoy::Decoy;
pub use session::Session;
pub use watchdog::{POLL, Watchdog};

/// bubblewrap's program.
const PROGRAM: &str = "bwrap";
/// The Debian package that brings it.
const PACKAGE: &str = "bubblewrap";
/// Room in /tmp, for what compilers and `make --output-sync` put there.
const TMP_BYTES: u64 = 2 << 30;
/// Room in /dev/shm, where some programs share memory.
const SHM_BYTES: u64 = 64 << 20;
/// The host's programs and what they need to start, all read-only. Not /etc: it has
/// more than that, some of it secret.
const HOST: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf.d",
];

/// Whether builds run in a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// In bubblewrap where it works.
    #[default]
    Auto,
    /// In bubblewrap or not at all.
    Require,
    /// With the rights of the user.
    Off,
}

/// How builds run.
#[derive(Debug, Clone)]
pub struct Sandbox {
    kind: Arc<Kind>,
    required: bool,
}

#[derive(Debug)]
enum Kind {
    Bubblewrap {
        version: String,
        /// Words that make the room, but for what is a session's own.
        room: Vec<String>,
    },
    None {
        why: String,
    },
}

/// What a sandbox is called in the record of what was built in it.
const NAME: &str = "bubblewrap";

impl Sandbox {
    /// Builds with the rights of the user, and why.
    #[must_use]
    pub fn none(why: impl Into<String>) -> Self {
        Self { kind: Arc::new(Kind::None { why: why.into() }), required: false }
    }

    /// Finds out what this host can do: bubblewrap may be there, and the kernel
    /// may still not let it work.
    ///
    /// # Errors
    /// An `infra` fault when a sandbox is required and cannot be had.
    pub async fn choose(choice: Choice) -> Result<Self, Fault> {
        if choice == Choice::Off {
            return Ok(Self::none("--sandbox off"));
        }
        let why = match find_program(PROGRAM) {
            None => format!("{PROGRAM} is not installed"),
            Some(program) => match Self::bubblewrap(&program).await {
                Ok(sandbox) => {
                    return Ok(Self { required: choice == Choice::Require, ..sandbox });
                }
                Err(fault) => {
                    let words = fault.evidence.first().cloned().unwrap_or(fault.what);
                    format!("{PROGRAM} does not work here: {words}")
                }
            },
        };
        if choice == Choice::Auto {
            return Ok(Self::none(why));
        }
        Err(Fault::infra(format!("no sandbox for builds: {why}")).help(format!(
            "sudo apt-get install {PACKAGE}, let users make namespaces \
             (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), \
             or trust the series and say --sandbox auto"
        )))
    }

    async fn bubblewrap(program: &Path) -> Result<Self, Fault> {
        let version = check(command(program).arg("--version"), b"").await?.text();
        let room = room(program);
        let mut probe = command(&room[0]);
        probe.args(&room[1..]).args(["--remount-ro", "/", "--", "/bin/sh", "-c", "exit 0"]);
        check(&mut probe, b"").await?;
        Ok(Self { kind: Arc::new(Kind::Bubblewrap { version, room }), required: false })
    }

    /// A program of the host as a build would find it, to be asked for its version.
    #[must_use]
    pub fn program(&self, program: &str) -> Command {
        match &*self.kind {
            Kind::Bubblewrap { room, .. } => {
                let mut wrapped = command(&room[0]);
                wrapped.args(&room[1..]).args(toolchains(&[program]));
                wrapped.args(["--remount-ro", "/", "--", program]);
                wrapped
            }
            Kind::None { .. } => command(program),
        }
    }

    /// For the report: `bubblewrap 0.8.0`, or `none (why)`.
    #[must_use]
    pub fn description(&self) -> String {
        match &*self.kind {
            Kind::Bubblewrap { version, .. } => version.clone(),
            Kind::None { why } => format!("none ({why})"),
        }
    }

    /// Whether what was built in `record` is as good as what is built now: not where a
    /// sandbox is required and there was none.
    #[must_use]
    pub fn accepts(&self, record: Option<&str>) -> bool {
        !self.required || record.is_some_and(|record| record.starts_with(NAME))
    }

    /// Why there is none; `None` where there is one.
    #[must_use]
    pub fn missing(&self) -> Option<&str> {
        match &*self.kind {
            Kind::Bubblewrap { .. } => None,
            Kind::None { why } => Some(why),
        }
    }

    /// A room for commands that work on the tree `tree`.
    ///
    /// # Errors
    /// An `infra` fault when the session's folder cannot be made.
    pub fn session(
        &self,
        store: &Store,
        tree: &Path,
        compilers: &[&'static str],
        cache: Option<CompilerCache>,
        jobs: usize,
    ) -> Result<Session, Fault> {
        let scratch = store.scratch()?;
        let failed = |error| Fault::io("make a folder for a build", &error);
        for name in ["out", "bin"] {
            std::fs::create_dir(scratch.path().join(name)).map_err(failed)?;
        }
        // Without a name, so that what is counted there cannot be put out of sight.
        let network = tempfile::tempfile_in(scratch.path()).map_err(failed)?;
        if let Some(cache) = &cache {
            for name in &cache.compilers {
                let script = scratch.path().join("bin").join(name);
                std::fs::write(&script, cache.stand_in(name)).map_err(failed)?;
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&script, mode).map_err(failed)?;
            }
        }
        let decoy = match &*self.kind {
            Kind::Bubblewrap { .. } => Some(Decoy::new(&scratch.path().join("home"))?),
            // Programs that keep something there must not put it where nobody looks.
            Kind::None { .. } => {
                std::fs::create_dir(scratch.path().join("home")).map_err(failed)?;
                None
            }
        };
        let watchdog = Watchdog::new(tree, jobs);
        let cage = match &*self.kind {
            Kind::Bubblewrap { .. } => Cage::new(watchdog.limits()),
            Kind::None { .. } => Cage::default(),
        };
        Ok(Session {
            sandbox: self.clone(),
            tree: tree.to_owned(),
            toolchains: toolchains(compilers),
            watchdog,
            cage,
            network,
            cache,
            decoy,
            scratch,
        })
    }
}

/// The room that all sessions share: other namespaces for everything, the host's
/// programs, an empty /tmp.
fn room(program: &Path) -> Vec<String> {
    let mut words = vec![program.to_string_lossy().into_owned()];
    let mut push = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    // Nothing outlives kvet. It has a session of its own already, so that there is no
    // terminal to type on, and stays in it: its process group is how kvet's guardian
    // finds it.
    push(&["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]);
    push(&["--hostname", "kvet", "--proc", "/proc", "--dev", "/dev"]);
    push(&["--size", &SHM_BYTES.to_string(), "--tmpfs", "/dev/shm"]);
    // Root may write most of /proc/sys, whatever its capabilities: the kernel asks for
    // the user alone.
    push(&["--remount-ro", "/dev", "--remount-ro", "/proc"]);
    push(&["--size", &TMP_BYTES.to_string(), "--tmpfs", "/tmp"]);
    for path in HOST {
        // /bin and its like may be links into /usr.
        match std::fs::read_link(path) {
            Ok(target) => push(&["--symlink", &target.to_string_lossy(), path]),
            Err(_) => push(&["--ro-bind-try", path, path]),
        }
    }
    words
}

/// Whether a path is absolute, not the root, and has no `..` that would lead elsewhere.
fn is_plain(path: &Path) -> bool {
    use std::path::Component;
    path.is_absolute()
        && path.components().count() > 1
        && !path.components().any(|part| matches!(part, Component::ParentDir))
}

/// Words that show compilers which are not among the host's: the folder with their
/// `bin` where it has a `lib` to go with it, as an unpacked toolchain does, otherwise
/// the folder of the program alone. Never a home folder.
fn toolchains(programs: &[&str]) -> Vec<OsString> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let mut words = Vec::new();
    for program in programs.iter().filter_map(|program| find_program(program)) {
        let program = std::fs::canonicalize(&program).unwrap_or(program);
        let Some(bin) = program.parent().filter(|bin| !HOST.iter().any(|of| bin.starts_with(of)))
        else {
            continue;
        };
        let whole = bin.parent().filter(|top| bin.ends_with("bin") && top.join("lib").is_dir());
        let shown = whole.filter(|top| !home.starts_with(top)).unwrap_or(bin);
        if !home.starts_with(shown) && !words.contains(&OsString::from(shown)) {
            words.extend(["--ro-bind".into(), shown.into(), shown.into()]);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::capture;

    struct Room {
        _folder: tempfile::TempDir,
        session: Session,
        tree: PathBuf,
    }

    /// None, with the reason printed, where bubblewrap is missing.
    async fn room() -> Option<Room> {
        let sandbox = Sandbox::choose(Choice::Auto).await.unwrap();
        if let Some(why) = sandbox.missing() {
            println!("not run: {why}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("cache")).unwrap();
        let tree = folder.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join(".git"), "gitdir: /nowhere").unwrap();
        let session = sandbox.session(&store, &tree, &["gcc"], None, 2).unwrap();
        Some(Room { _folder: folder, session, tree })
    }

    async fn run(room: &Room, script: &str) -> String {
        let mut command = room.session.command("sh", "");
        let output = command.args(["-c", script]).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    #[tokio::test]
    async fn only_the_tree_can_be_written() {
        let Some(room) = room().await else { return };
        let said = run(
            &room,
            "echo x >made; for file in /x /usr/x /etc/x /kvet/x .git /dev/x /proc/sys/kernel/core_pattern /proc/sys/vm/overcommit_memory; do (echo x >$file) 2>/dev/null && echo $file; done; pwd",
        )
        .await;
        assert_eq!(said, "/kvet/tree");
        assert!(room.tree.join("made").is_file());
        assert_eq!(std::fs::read_to_string(room.tree.join(".git")).unwrap(), "gitdir: /nowhere");
    }

    #[tokio::test]
    async fn nothing_of_an_honest_command_is_refused() {
        let Some(mut room) = room().await else { return };
        run(&room, "echo 'int main(void) { return 0; }' >a.c && gcc -o a a.c && ./a").await;
        assert!(room.tree.join("a").is_file());
        assert_eq!(room.session.refused(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn homes_keys_and_networks_are_out_of_reach_and_attempts_are_told() {
        let Some(mut room) = room().await else { return };
        run(&room, "echo x >~/evil; cat ~/.ssh/id_ed25519 >stolen").await;
        run(&room, "perl -e 'use IO::Socket::INET; IO::Socket::INET->new(\"192.0.2.1:80\")'").await;
        let refused = room.session.refused();
        assert_eq!(
            refused,
            [
                "read from the home folder: ~/.ssh/id_ed25519 (a decoy)",
                "wrote to the home folder: ~/evil",
                "tried to reach a network (1 packet or connection)",
            ]
        );
    }

    #[tokio::test]
    async fn an_exit_status_comes_through() {
        let Some(room) = room().await else { return };
        let mut command = room.session.command("sh", "");
        let output = capture(command.args(["-c", "exit 7"]), b"").await.unwrap();
        assert_eq!(output.status.code(), Some(7));
    }
}
