// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one tree of a (source, config, compiler), in which its variants are built
//! one after another.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::fence::what_runs;
use super::record::{Heard, Record};
use super::seed::{Kin, Seed};
use super::{BuildRequest, Builder, Image};
use crate::arch::x86_64;
use crate::fault::{Blame, Fault};
use crate::host::beneath;
use crate::host::budget::{Claim, Need};
use crate::host::process::{check, require_program};
use crate::host::sandbox::{Session, compiler_cache};
use crate::kernel::git;
use crate::kernel::kconfig::Request;
use crate::kernel::make::{Made, answer, count_steps, make, run};
use crate::kernel::source::{Sharing, sha256_of};
use crate::plan::Base;
use crate::run::event::RunEvent;
use crate::store::estimate::Estimate;
use crate::store::{key, remove, touch, write_atomically};

/// Memory of a compiler: 100 to 150 MB for the largest files of 6.12.
const JOB_BYTES: u64 = 150 << 20;
/// Memory of the link of vmlinux, and of make.
const LINK_BYTES: u64 = 512 << 20;

/// Largest `.config`; one of a distribution has 300 kB.
const MAX_CONFIG_BYTES: u64 = 16 << 20;
/// ENOSPC.
const NO_SPACE: i32 = rustix::io::Errno::NOSPC.raw_os_error();
/// Longest kernel release that is shown; the kernel's own limit is 64.
const MAX_RELEASE: usize = 128;

/// What `make` is asked for.
const TARGETS: [&str; 2] = [x86_64::MAKE_TARGET, "vmlinux"];

/// What the file says that a tree is whole by.
const COPIED: &[u8] = b"a copy";

/// How a tree begins that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// As a copy of another config's, where there is one.
    AsCopy,
    /// As a checkout.
    FromNothing,
}

/// The tree of one (source, config, compiler), locked.
pub(super) struct BuildTree<'a> {
    builder: &'a Builder,
    request: &'a BuildRequest,
    folder: PathBuf,
    /// Exists while a build runs: objects younger than it may be damaged.
    marker: PathBuf,
    /// What each step of the tree's builds had to warn about.
    record: PathBuf,
    /// Hash of the `.config` that holds for every variant that changes nothing of what
    /// a build runs.
    configured: PathBuf,
    /// What else has to be as it was for that `.config` to hold.
    configured_for: String,
    /// Exists while the tree is whole; says [`COPIED`] until the first build of a copy
    /// has ended well.
    ready: PathBuf,
    /// The variant changes what a build runs.
    fenced: bool,
    first: bool,
    /// It is a copy of another in which nothing was built yet.
    copied: bool,
    session: Session,
    /// What earlier builds like this one took.
    estimate: Estimate,
    _lock: crate::store::Lock,
}

impl<'a> BuildTree<'a> {
    pub(super) async fn open(
        builder: &'a Builder,
        request: &'a BuildRequest,
        config: &Request,
        compiler: &str,
        begin: Begin,
    ) -> Result<Self, Fault> {
        let runs = what_runs(&request.source, &request.tree).await?;
        let sharing = request.source.sharing;
        let fenced = runs.is_some() && sharing != Sharing::Revisions;
        let text = config.text();
        let (commit, base) = (&request.source.commit, request.config.base.key());
        // Equal trees of two sources are in two repositories.
        let mut parts = vec![request.source.key.as_bytes()];
        parts.push(match sharing {
            Sharing::Revisions => b"revisions",
            Sharing::Variants | Sharing::Configs => commit.as_bytes(),
        });
        match sharing {
            Sharing::Configs => parts.push(b"configs"),
            Sharing::Variants | Sharing::Revisions => {
                parts.extend([base.as_bytes(), text.as_bytes()]);
            }
        }
        parts.push(compiler.as_bytes());
        parts.extend(runs.as_ref().filter(|_| fenced).map(String::as_bytes));
        let name = key(parts);
        let configured_for = match sharing {
            Sharing::Variants => String::new(),
            Sharing::Revisions | Sharing::Configs => {
                let runs = runs.as_deref().unwrap_or_default();
                format!(" {}", key([commit, base, &text, runs].map(str::as_bytes)))
            }
        };
        for (program, package) in
            [("make", "make"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc")]
        {
            require_program(program, package)?;
        }
        let lock = builder.store.lock("trees", &name, &builder.events).await?;
        let folder = builder.store.path("trees", &name);
        let marker = builder.store.path("trees", &format!("{name}.building"));
        let ready = builder.store.path("trees", &format!("{name}.ready"));
        let record = builder.store.path("trees", &format!("{name}.warnings.json"));
        let configured = builder.store.path("trees", &format!("{name}.configured"));
        let first = !ready.exists();
        let family = |runs: &str| {
            let source = request.source.key.as_str();
            key([source, commit, base, compiler, runs].map(str::as_bytes))
        };
        let own = family(runs.as_deref().unwrap_or_default());
        // Trees that go from one revision or config to another are no beginning for others.
        let kin = Kin { family: own.clone(), config: text.clone() };
        let kin = (sharing == Sharing::Variants).then_some(kin);
        let mut copied = std::fs::read(&ready).is_ok_and(|text| text == COPIED);
        if first {
            // A checkout that was cut short is not worth repairing.
            remove(&folder)?;
            remove(&configured)?;
            remove(&record)?;
            let (store, source) = (&builder.store, &request.source);
            // What runs nothing of its own is no danger to what does; never the reverse.
            let families = [own, family("")];
            let seed = match (begin, sharing) {
                (Begin::AsCopy, Sharing::Variants | Sharing::Configs) => {
                    Seed::nearest(store, &families, &text).await
                }
                (Begin::FromNothing, _) | (_, Sharing::Revisions) => None,
            };
            if let Some(seed) = seed {
                let planting = seed.plant(source, &folder, &record, store, &builder.events);
                let planted = builder.stop.run_until_cancelled(planting).await;
                copied = planted.ok_or_else(Fault::interrupted)?.is_ok();
            }
            if !copied {
                remove(&folder)?;
                // git reads what it has noted of all worktrees while it makes one, and
                // takes it ill when another is half made.
                let lock = store.lock("worktrees", &source.key, &builder.events).await?;
                git::add_worktree(&source.git_dir, &folder, &source.commit).await?;
                drop(lock);
                // Before the first build nothing was said; without a record it is not known.
                Record::default().write(&record)?;
            }
            write_atomically(&ready, if copied { COPIED } else { b"" })?;
        }
        if let Some(kin) = kin {
            kin.write(&Kin::file(&builder.store, &name))?;
        }
        touch(&folder);
        let compiler_program = request.config.compiler.program();
        let programs: Vec<_> =
            request.config.compiler.programs().iter().map(|(program, _)| *program).collect();
        let cache = compiler_cache(&builder.store, &[compiler_program], fenced);
        let (store, jobs) = (&builder.store, builder.jobs);
        let session = builder.sandbox.session(store, &folder, &programs, cache, jobs)?;
        let extent = match (first, copied) {
            (true, true) => "differences",
            (true, false) => "all",
            (false, _) => "changes",
        };
        let jobs = builder.jobs.to_string();
        let kind = [request.config.base.key(), &text, compiler, &jobs, extent];
        let estimate = Estimate::read(&builder.store, &key(kind.map(str::as_bytes)));
        let tree = Self {
            builder,
            request,
            folder,
            marker,
            record,
            configured,
            configured_for,
            ready,
            fenced,
            first,
            copied,
            session,
            estimate,
            _lock: lock,
        };
        tree.discard_damaged().await?;
        tree.checkout().await?;
        Ok(tree)
    }

    /// Gives a copied tree up where what another config has left in it may be why it does
    /// not build; whether that is so.
    pub(super) fn discard_copy(&self, fault: &Fault) -> bool {
        let suspect = self.copied
            && matches!(fault.blame, Blame::Series | Blame::Infra)
            && !self.builder.stop.is_cancelled();
        if suspect {
            let _ = std::fs::remove_file(&self.ready);
        }
        suspect
    }

    /// A build that was killed may have left half an object with a fresh time
    /// stamp, which `make` would take for a good one.
    async fn discard_damaged(&self) -> Result<(), Fault> {
        let Ok(began) = std::fs::metadata(&self.marker).and_then(|data| data.modified()) else {
            return Ok(());
        };
        // Time stamps come from the kernel's coarse clock, up to 10 ms behind.
        let began = began - Duration::from_secs(1);
        let mut list = self.git();
        let output = check(list.args(["ls-files", "--others", "-z"]), b"").await?;
        for name in output.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let path = self.folder.join(std::ffi::OsStr::from_bytes(name));
            let young = std::fs::symlink_metadata(&path)
                .and_then(|data| data.modified())
                .is_ok_and(|modified| modified >= began);
            if young {
                let _ = std::fs::remove_file(&path);
            }
        }
        Ok(())
    }

    async fn checkout(&self) -> Result<(), Fault> {
        let commit = &self.request.tree.commit;
        // Where a worktree's index and HEAD are: .git says.
        let link = std::fs::read_to_string(self.folder.join(".git")).unwrap_or_default();
        if let Some(inner) = link.trim_end().strip_prefix("gitdir: ") {
            let inner = Path::new(inner);
            git::remove_stale_locks([&*inner.join("index"), &*inner.join("HEAD")]);
        }
        check(self.git().args(["checkout", "--quiet", "--force", "--detach", commit]), b"")
            .await
            .map(drop)
    }

    fn git(&self) -> tokio::process::Command {
        let mut git = git::git(&self.folder.join(".git"));
        git.arg("--work-tree").arg(&self.folder).current_dir(&self.folder);
        git
    }

    pub(super) async fn build(
        &mut self,
        key: &str,
        config: &Request,
        compiler: &str,
    ) -> Result<Image, Fault> {
        write_atomically(&self.marker, b"")?;
        let file = File::create(&self.request.log)
            .map_err(|error| Fault::io(format!("write {}", self.request.log.display()), &error))?;
        let mut log = BufWriter::new(file);
        let _claim = self.claim().await?;
        let began = Instant::now();
        let mut heard = self.configure(config, &mut log).await?;
        let (steps, compiled) = self.compile(&mut log).await?;
        heard.extend(compiled);
        drop(log);
        let mut warnings = None;
        if let Some(mut record) = Record::read(&self.record) {
            heard.into_iter().for_each(|run| record.update(run));
            let linked = self.linked().await;
            record.forget_gone(&self.folder, linked);
            record.write(&self.record)?;
            warnings = Some(record.warnings());
        }
        let image = Image {
            key: key.to_owned(),
            image_sha256: String::new(),
            vmlinux_sha256: String::new(),
            release: self.release().await?,
            compiler: compiler.to_owned(),
            steps,
            seconds: u32::try_from(began.elapsed().as_secs()).unwrap_or(u32::MAX),
            warnings,
            sandbox: Some(self.builder.sandbox.description()),
            refused: self.session.refused(),
            ccache: self.session.cached(),
            folder: PathBuf::new(),
            stored: false,
        };
        let image = self.publish(image).await?;
        if self.copied {
            write_atomically(&self.ready, b"")?;
        }
        self.estimate.clone().learn(image.seconds);
        let _ = std::fs::remove_file(&self.marker);
        Ok(image)
    }

    /// The part of the host that `make` keeps busy.
    async fn claim(&self) -> Result<Claim, Fault> {
        let Builder { budget, events, stop, jobs, .. } = self.builder;
        let jobs = *jobs as u64;
        let need = Need {
            cpus: u32::try_from(jobs).unwrap_or(u32::MAX),
            memory: jobs * JOB_BYTES + LINK_BYTES,
            alone: false,
        };
        let claiming = budget.claim(&self.request.task, need, events);
        stop.run_until_cancelled(claiming).await.unwrap_or_else(|| Err(Fault::interrupted()))
    }

    /// The objects of vmlinux.a, an archive that only names them; nothing where
    /// the kernel has none.
    async fn linked(&mut self) -> BTreeSet<String> {
        let mut list = self.session.command("ar", "");
        list.args(["t", "vmlinux.a"]);
        let stop = &self.builder.stop;
        let names = answer(&mut list, self.session.watchdog(), stop).await.unwrap_or_default();
        names.lines().map(str::to_owned).collect()
    }

    /// The kernel release, as `uname -r` will say: what the build wrote down
    /// (Makefile, `include/config/kernel.release`), or what make says.
    async fn release(&mut self) -> Result<String, Fault> {
        let written = beneath::read(&self.folder, "include/config/kernel.release", 4096);
        if let Some(release) = written.ok().and_then(|text| String::from_utf8(text).ok())
            && !release.trim().is_empty()
        {
            return Ok(release.trim().chars().take(MAX_RELEASE).collect());
        }
        let mut ask = self.plain_make();
        ask.args(["--silent", "kernelrelease"]);
        let stop = &self.builder.stop;
        let release = answer(&mut ask, self.session.watchdog(), stop).await?;
        Ok(release.lines().next_back().unwrap_or_default().chars().take(MAX_RELEASE).collect())
    }

    /// Runs the build; the number of its steps, and what its runs said.
    async fn compile(&mut self, log: &mut BufWriter<File>) -> Result<(u32, Vec<Heard>), Fault> {
        let (builder, request) = (self.builder, self.request);
        let stop = &builder.stop;
        let mut heard = Vec::new();
        let (mut done, mut total) = (0, None);
        let (began, usual) = (Instant::now(), self.estimate.seconds());
        let progress = |before: u32, total: Option<u32>| {
            move |now: u32| {
                let done = before + now;
                // A dry run stops short of the last links, so it may be a little low.
                let total = total.map(|total| total.max(done));
                let task = request.task.clone();
                let left_seconds = left(began.elapsed(), now, total.map(|all| all - before), usual);
                builder.events.send(&RunEvent::BuildProgress { task, done, total, left_seconds });
            }
        };
        if self.first {
            // A dry run needs the tools that this target builds.
            let mut preparing = Heard::new("prepare");
            let mut make = self.make(&["prepare"]);
            let watchdog = self.session.watchdog();
            let made = run(&mut make, watchdog, log, stop, &mut preparing, progress(0, None));
            let made = made.await?;
            done = self.expect_done(made, "cannot be prepared (make prepare)")?;
            heard.push(preparing);
            let mut dry = self.make(&TARGETS);
            let rest = count_steps(&mut dry, self.session.watchdog(), stop).await;
            total = rest.map(|rest| done + rest);
        }
        let mut building = Heard::new("all");
        let mut make = self.make(&TARGETS);
        let watchdog = self.session.watchdog();
        let made =
            run(&mut make, watchdog, log, stop, &mut building, progress(done, total)).await?;
        heard.push(building);
        Ok((done + self.expect_done(made, "does not build")?, heard))
    }

    fn make(&self, targets: &[&str]) -> tokio::process::Command {
        let mut make = self.plain_make();
        make.arg(format!("--jobs={}", self.builder.jobs)).args(targets);
        make
    }

    /// `make` with the config's compiler.
    fn plain_make(&self) -> tokio::process::Command {
        let mut make = make(&self.session, "");
        make.args(self.request.config.compiler.make_arguments());
        make
    }

    /// Writes `.config`; one that comes out as it was keeps its time stamp, so
    /// that kbuild does not look at every symbol again.
    async fn configure(
        &mut self,
        config: &Request,
        log: &mut BufWriter<File>,
    ) -> Result<Vec<Heard>, Fault> {
        if self.is_configured() {
            return Ok(Vec::new());
        }
        let path = self.folder.join(".config");
        let read = |folder: &Path| beneath::read(folder, ".config", MAX_CONFIG_BYTES);
        let before = read(&self.folder).ok();
        let stamp: Option<SystemTime> =
            std::fs::symlink_metadata(&path).and_then(|data| data.modified()).ok();
        let mut heard = Vec::new();
        let mut text = match &self.request.config.base {
            Base::Made(base) => {
                heard.push(self.make_config(base.target(), log).await?);
                read(&self.folder).map_err(|error| self.spoilt(".config", &error))?
            }
            Base::Given { text, .. } => format!("{}\n", text.trim_end()).into_bytes(),
        };
        text.extend_from_slice(config.text().as_bytes());
        beneath::write(&self.folder, ".config", &text)
            .map_err(|error| self.spoilt(".config", &error))?;
        heard.push(self.make_config("olddefconfig", log).await?);
        let after = read(&self.folder).map_err(|error| self.spoilt(".config", &error))?;
        if let (Some(before), Some(stamp)) = (before, stamp)
            && before == after
        {
            let file = beneath::open(&self.folder, ".config")
                .map_err(|error| self.spoilt(".config", &error))?;
            file.set_modified(stamp).map_err(|error| self.spoilt(".config", &error))?;
        }
        config.check(&String::from_utf8_lossy(&after), &self.folder)?;
        if !self.fenced {
            write_atomically(&self.configured, self.configured_as(&after).as_bytes())?;
        }
        Ok(heard)
    }

    /// Whether `.config` is what making it again would give: neither Kconfig files nor
    /// what reads them differ between variants that are not fenced.
    fn is_configured(&self) -> bool {
        let config = beneath::read(&self.folder, ".config", MAX_CONFIG_BYTES);
        let right = std::fs::read_to_string(&self.configured);
        !self.fenced
            && matches!((config, right), (Ok(config), Ok(right))
                if self.configured_as(&config) == right)
    }

    fn configured_as(&self, config: &[u8]) -> String {
        format!("{}{}", blake3::hash(config).to_hex(), self.configured_for)
    }

    /// Whether the source itself is built, which is not to blame when that fails.
    fn is_bare(&self) -> bool {
        let BuildRequest { source, tree, .. } = self.request;
        tree.commit == source.commit && source.sharing == Sharing::Variants
    }

    async fn make_config(
        &mut self,
        target: &str,
        log: &mut BufWriter<File>,
    ) -> Result<Heard, Fault> {
        let (mut heard, stop) = (Heard::new(target), &self.builder.stop);
        let mut make = self.plain_make();
        make.arg(target);
        let watchdog = self.session.watchdog();
        let made = run(&mut make, watchdog, log, stop, &mut heard, |_| {}).await?;
        self.expect_done(made, &format!("cannot be configured (make {target})"))?;
        Ok(heard)
    }

    /// A file of the tree cannot be used: the next build begins with a new tree.
    fn spoilt(&self, name: &str, error: &std::io::Error) -> Fault {
        let host = matches!(error.raw_os_error(), Some(code) if code == NO_SPACE);
        if !host {
            let _ = std::fs::remove_file(&self.ready);
        }
        let bare = self.is_bare();
        let blame = if bare || host { Blame::Infra } else { Blame::Series };
        let what = format!("{}: {name} is not what a build leaves: {error}", self.request.task);
        let fault = Fault::new(blame, what).at(self.request.log.display());
        match host {
            true => fault.help("make space on the cache folder's file system and run again"),
            false => fault.help("see what the series' makefiles do to it; the tree is made anew"),
        }
    }

    fn expect_done(&mut self, made: Made, what: &str) -> Result<u32, Fault> {
        let bare = self.is_bare();
        match made {
            Made::Done { steps } => Ok(steps),
            Made::Interrupted => Err(Fault::interrupted()),
            Made::Failed { error, disk_full } => {
                let blame = if bare || disk_full { Blame::Infra } else { Blame::Series };
                let help = if disk_full {
                    "make space on the cache folder's file system and run again"
                } else if bare {
                    "the source does not build without the series: see the log for what the host lacks"
                } else {
                    match self.request.source.sharing {
                        Sharing::Variants => "mend the patch at the place of the first error",
                        Sharing::Revisions => {
                            "see the log; is it the revision or the host's compiler?"
                        }
                        Sharing::Configs => "see the log; is it the config or the host's compiler?",
                    }
                };
                let fault = Fault::new(blame, format!("{} {what}", self.request.task))
                    .at(self.request.log.display())
                    .evidence(&error.join("\n"));
                let refused = self.session.refused();
                let told = |fault: Fault, line: &String| match error.contains(line) {
                    true => fault,
                    false => fault.evidence(&format!("the build {line}")),
                };
                Err(refused.iter().fold(fault, told).help(help))
            }
        }
    }

    async fn publish(&self, mut image: Image) -> Result<Image, Fault> {
        let scratch = self.builder.store.scratch()?;
        let entry = scratch.path().join("entry");
        let copy = |from: &str, to: &str| {
            beneath::copy(&self.folder, from, &entry.join(to))
                .map_err(|error| self.spoilt(from, &error))
        };
        std::fs::create_dir(&entry).map_err(|error| Fault::io("make a store entry", &error))?;
        super::payload::check(&self.folder)?;
        copy(x86_64::IMAGE_PATH, "image")?;
        copy("vmlinux", "vmlinux")?;
        copy(".config", "config")?;
        std::fs::copy(&self.request.log, entry.join("build.log"))
            .map_err(|error| Fault::io("store the build's log", &error))?;
        image.image_sha256 = sha256_of(&entry.join("image")).await?;
        image.vmlinux_sha256 = sha256_of(&entry.join("vmlinux")).await?;
        write_atomically(&entry.join("image.json"), &crate::report::json::pretty(&image))?;
        image.folder = self.builder.store.publish(&entry, "images", &image.key)?;
        Ok(image)
    }
}

/// Steps after which a build's own pace says more than what others took.
const MANY_STEPS: u32 = 50;

/// Seconds that a build will still take: by its own pace where its steps are known,
/// otherwise by what builds of its kind took.
fn left(elapsed: Duration, done: u32, total: Option<u32>, usual: Option<u32>) -> Option<u32> {
    match total {
        Some(total) if done >= MANY_STEPS => {
            let pace = elapsed.as_secs_f64() / f64::from(done);
            Some((pace * f64::from(total.saturating_sub(done))).round() as u32)
        }
        _ => usual?.checked_sub(u32::try_from(elapsed.as_secs()).ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_comes_from_the_pace_or_from_earlier_builds() {
        let after = Duration::from_secs;
        assert_eq!(left(after(10), 100, Some(300), Some(500)), Some(20));
        assert_eq!(left(after(10), 10, Some(300), Some(500)), Some(490));
        assert_eq!(left(after(10), 10, None, Some(15)), Some(5));
        assert_eq!(left(after(20), 10, None, Some(15)), None);
        assert_eq!(left(after(20), 10, None, None), None);
    }
}
