// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where `make` runs. A kernel's makefiles, and the programs that they build and
//! run, come from the series under test, so they see nothing of the host but its
//! programs: no home folder, no network, no other process, and they can write only
//! to the build's own tree. bubblewrap builds that room; what is tried in it
//! against the walls is told in the report.

mod cage;
mod decoy;
mod network;
mod watchdog;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use tokio::process::Command;

use super::process::{check, command, find_program};
use crate::fault::Fault;
use crate::store::{Scratch, Store};
use cage::Cage;
use decoy::Decoy;
pub use watchdog::{POLL, Watchdog};

/// bubblewrap's program.
const PROGRAM: &str = "bwrap";
/// The Debian package that brings it.
const PACKAGE: &str = "bubblewrap";
/// Where the tree is inside, wherever it is outside: no path of the host can get
/// into an image.
const TREE: &str = "/kvet/tree";
/// What a session's commands leave for kvet.
const OUT: &str = "/kvet/out";
/// ccache's folder.
const CCACHE: &str = "/kvet/ccache";
/// Compilers' names that are ccache.
const BIN: &str = "/kvet/bin";
/// The home folder of a build: a decoy.
const HOME: &str = "/home/kvet";
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
        // Held open, so that what is counted there cannot be put out of sight.
        // Where no command can reach it but by what it is given.
        let network = tempfile::tempfile_in(scratch.path()).map_err(failed)?;
        if let Some(cache) = &cache {
            for name in &cache.compilers {
                let link = scratch.path().join("bin").join(name);
                std::os::unix::fs::symlink(&cache.program, link).map_err(failed)?;
            }
        }
        let decoy = match &*self.kind {
            Kind::Bubblewrap { .. } => Some(Decoy::new(&scratch.path().join("home"))?),
            Kind::None { .. } => None,
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
    // No terminal to type on, and nothing that outlives kvet.
    push(&["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
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

/// ccache for a session's compilers.
#[derive(Debug, Clone)]
pub struct CompilerCache {
    /// ccache's program.
    pub program: PathBuf,
    /// Its folder, a part of the store.
    pub folder: PathBuf,
    /// The compilers that it stands for.
    pub compilers: Vec<&'static str>,
    /// Nothing may be added.
    pub read_only: bool,
}

/// Most bytes of compiled objects that are kept: some hundred full builds of a
/// small kernel.
const CCACHE_SIZE: &str = "4G";

/// Commands that work on one tree, in one room each but with one record of what
/// they tried.
#[derive(Debug)]
pub struct Session {
    sandbox: Sandbox,
    tree: PathBuf,
    /// Words that show the build compilers of the user's own.
    toolchains: Vec<OsString>,
    cache: Option<CompilerCache>,
    decoy: Option<Decoy>,
    watchdog: Watchdog,
    cage: Cage,
    network: File,
    scratch: Scratch,
}

impl Session {
    /// Where the tree is, as the session's commands see it.
    #[must_use]
    pub fn place(&self) -> &Path {
        match &*self.sandbox.kind {
            Kind::Bubblewrap { .. } => Path::new(TREE),
            Kind::None { .. } => &self.tree,
        }
    }

    /// A command in the folder `below` of the tree. Arguments that are added go to
    /// `program`.
    #[must_use]
    pub fn command(&self, program: &str, below: &str) -> Command {
        let script = self.script();
        match &*self.sandbox.kind {
            Kind::Bubblewrap { room, .. } => {
                let mut words = self.cage.entrance();
                words.extend(room.iter().map(Into::into));
                let mut wrapped = command(&words[0]);
                wrapped.args(&words[1..]);
                self.furnish(&mut wrapped);
                let place = if below.is_empty() { TREE.into() } else { format!("{TREE}/{below}") };
                wrapped.args(["--chdir", &place]);
                wrapped.args(["--remount-ro", "/", "--", "/bin/sh", "-c", &script, "sh", program]);
                wrapped.env("HOME", HOME);
                if let Ok(network) = self.network.try_clone() {
                    wrapped.stdin(network);
                }
                self.use_cache(&mut wrapped, Path::new(BIN), Path::new(CCACHE), Path::new(OUT));
                wrapped
            }
            Kind::None { .. } => {
                let words = self.cage.entrance();
                let mut plain = command(&words[0]);
                plain.args(&words[1..]);
                plain.args(["/bin/sh", "-c", &script, "sh", program]);
                plain.current_dir(self.tree.join(below));
                let (bin, out) = (self.scratch.path().join("bin"), self.out());
                let folder = self.cache.as_ref().map(|cache| cache.folder.clone());
                self.use_cache(&mut plain, &bin, &folder.unwrap_or_default(), &out);
                plain
            }
        }
    }

    /// What the room has of this session: the tree, a home that is watched, and
    /// ccache's folder.
    fn furnish(&self, wrapped: &mut Command) {
        let bind = |wrapped: &mut Command, how: &str, from: &Path, to: &Path| {
            wrapped.arg(how).arg(from).arg(to);
        };
        let home = self.scratch.path().join("home");
        bind(wrapped, "--bind", &home, Path::new(HOME));
        let own = std::env::var_os("HOME").map(PathBuf::from);
        // Where a script would look for the user's own; never over what the host brings.
        if let Some(own) = own.filter(|own| is_plain(own))
            && !HOST.iter().any(|host| own.starts_with(host) || Path::new(host).starts_with(&own))
            && !["/kvet", "/proc", "/dev"].iter().any(|taken| own.starts_with(taken))
            && own != Path::new("/tmp")
        {
            bind(wrapped, "--bind", &home, &own);
        }
        wrapped.args(&self.toolchains);
        bind(wrapped, "--bind", &self.tree, Path::new(TREE));
        // git reads it outside, and would run what it is led to.
        let link = self.tree.join(".git");
        if link.exists() {
            bind(wrapped, "--ro-bind", &link, &Path::new(TREE).join(".git"));
        }
        bind(wrapped, "--bind", &self.out(), Path::new(OUT));
        if let Some(cache) = &self.cache {
            bind(wrapped, "--ro-bind", &self.scratch.path().join("bin"), Path::new(BIN));
            let how = if cache.read_only { "--ro-bind" } else { "--bind" };
            bind(wrapped, how, &cache.folder, Path::new(CCACHE));
        }
    }

    /// Variables of ccache; its manual's section "Configuration options".
    fn use_cache(&self, to: &mut Command, bin: &Path, folder: &Path, out: &Path) {
        let Some(cache) = &self.cache else {
            return;
        };
        let mut path = bin.as_os_str().to_owned();
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        to.env("PATH", path).env("CCACHE_DIR", folder).env("CCACHE_MAXSIZE", CCACHE_SIZE);
        to.env("CCACHE_STATSLOG", out.join("ccache")).env("CCACHE_TEMPDIR", "/tmp");
        // A first build preprocesses nothing twice: 2 % longer than without, instead of
        // 35 % (mm/ of 6.12, gcc 12). What was included is in kbuild's dependency files.
        to.env("CCACHE_DEPEND", "1");
        // Trees in different folders share what is compiled in them.
        to.env("CCACHE_BASEDIR", self.place()).env("CCACHE_NOHASHDIR", "1");
        if cache.read_only {
            to.env("CCACHE_READONLY", "1").env("CCACHE_NOSTATS", "1");
        }
    }

    /// Runs its arguments with limits, and then tells what became of the network.
    fn script(&self) -> String {
        let mut script = String::new();
        let limits = self.watchdog.limits();
        script.push_str("ulimit -c 0; ");
        if let Kind::Bubblewrap { .. } = &*self.sandbox.kind {
            // dash has its own letter for it. Processes are counted for each user
            // namespace, so that only the room's count (Linux 5.14, d64696905554,
            // "Reimplement RLIMIT_NPROC on top of ucounts").
            let most = limits.processes;
            let _ = write!(
                script,
                "if (ulimit -u {most}) 2>/dev/null; then ulimit -u {most}; else ulimit -p {most}; fi; "
            );
            // Blocks of 512 bytes, and of 1024.
            let _ = write!(script, "ulimit -f {}; ", limits.disk / 512);
            let _ = write!(script, "ulimit -v {}; ", limits.memory / 1024);
            let _ = write!(
                script,
                "exec 9>&0 </dev/null; \"$@\" 9>&-; status=$?; cat /proc/net/snmp /proc/net/snmp6 >&9; exit $status"
            );
        } else {
            script.push_str("exec \"$@\"");
        }
        script
    }

    fn out(&self) -> PathBuf {
        self.scratch.path().join("out")
    }

    /// Looks whether the commands stay within their limits.
    pub fn watchdog(&mut self) -> &mut Watchdog {
        &mut self.watchdog
    }

    /// What was tried and did not reach the host, a line each.
    #[must_use]
    pub fn refused(&mut self) -> Vec<String> {
        let mut refused = self.decoy.as_mut().map(Decoy::seen).unwrap_or_default();
        refused.extend(network::attempts(&self.network));
        refused.extend(self.watchdog.stopped().map(str::to_owned));
        refused
    }

    /// Compilations that ccache had, and all; `None` where it was not used.
    #[must_use]
    pub fn cached(&self) -> Option<Cached> {
        self.cache.as_ref()?;
        let text = super::beneath::read(&self.out(), "ccache", MAX_STATS_BYTES).ok()?;
        Some(Cached::count(&String::from_utf8_lossy(&text)))
    }
}

/// A line for each compilation; an allmodconfig kernel has 30,000 of some 100 bytes.
const MAX_STATS_BYTES: u64 = 32 << 20;

/// What ccache did for a build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cached {
    /// Compilations that it had.
    pub hits: u32,
    /// Compilations that it could have had.
    pub of: u32,
}

impl Cached {
    /// Counts in a statistics log: a comment with the file, then what happened.
    fn count(text: &str) -> Self {
        let mut cached = Self::default();
        for line in text.lines() {
            match line {
                "direct_cache_hit" | "preprocessed_cache_hit" => {
                    cached.hits += 1;
                    cached.of += 1;
                }
                "cache_miss" => cached.of += 1,
                _ => {}
            }
        }
        cached
    }
}

/// Whether ccache can be used, and where.
#[must_use]
pub fn compiler_cache(
    store: &Store,
    compilers: &[&'static str],
    read_only: bool,
) -> Option<CompilerCache> {
    let program = find_program("ccache")?;
    let folder = store.path("ccache", "objects");
    std::fs::create_dir_all(&folder).ok()?;
    Some(CompilerCache { program, folder, compilers: compilers.to_vec(), read_only })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::capture;

    #[test]
    fn ccaches_log_is_counted() {
        let log = "# mm/a.c\ndirect_cache_hit\n# mm/b.c\ncache_miss\n# -\nautoconf_test\n# mm/c.c\npreprocessed_cache_hit\n";
        assert_eq!(Cached::count(log), Cached { hits: 2, of: 3 });
    }

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
