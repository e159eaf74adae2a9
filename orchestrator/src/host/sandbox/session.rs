// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands in a sandbox: what each has in its room, and what they tried.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::cage::Cage;
use super::ccache::{CCACHE_SIZE, Cached, CompilerCache};
use super::decoy::Decoy;
use super::watchdog::Watchdog;
use super::{HOST, Kind, Sandbox, is_plain, network};
use crate::host::process::command;
use crate::store::Scratch;

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

/// Commands that work on one tree, in one room each but with one record of what
/// they tried.
#[derive(Debug)]
pub struct Session {
    pub(super) sandbox: Sandbox,
    pub(super) tree: PathBuf,
    /// Words that show the build compilers of the user's own.
    pub(super) toolchains: Vec<OsString>,
    pub(super) cache: Option<CompilerCache>,
    pub(super) decoy: Option<Decoy>,
    pub(super) watchdog: Watchdog,
    pub(super) cage: Cage,
    pub(super) network: File,
    pub(super) scratch: Scratch,
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
                plain.env("HOME", self.scratch.path().join("home"));
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
        // A first build preprocesses nothing twice: 1 % longer than without, instead of
        // 35 % (mm/ of 6.12, gcc 12, two runs each). What was included is in kbuild's dependency files.
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
        let stopped = self.watchdog.stopped().map(str::to_owned);
        // A bomb may end at the kernel's limit before anybody has looked.
        let limit = self.watchdog.limits().processes;
        let reached = || {
            self.cage.was_full().then(|| format!("ran {limit} processes at once, stopped there"))
        };
        refused.extend(stopped.or_else(reached));
        refused
    }

    /// Compilations that ccache had, and all; `None` where it was not used.
    #[must_use]
    pub fn cached(&self) -> Option<Cached> {
        self.cache.as_ref()?;
        Cached::read(&self.out())
    }
}
