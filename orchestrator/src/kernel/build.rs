// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds a variant's image in the one tree of its (source, config), so that
//! each variant recompiles only what its patches touch; finished images go to
//! the store by everything that they are made from.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::git;
use super::kconfig::Request;
use super::make::{Made, count_steps, make, run};
use super::series::Tree;
use super::source::{Source, sha256_of};
use crate::arch::x86_64;
use crate::fault::{Blame, Fault};
use crate::host::budget::{Budget, Claim, Need};
use crate::host::process::{capture, check, command, require_program};
use crate::plan::Config;
use crate::run::event::{Events, RunEvent};
use crate::store::{Store, key, write_atomically};

/// Changes to how images are built change this.
const RECIPE: &str = "build/1";

/// What `make` is asked for.
const TARGETS: [&str; 2] = [x86_64::MAKE_TARGET, "vmlinux"];

/// What is to be built.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Which image, for people.
    pub task: String,
    /// Where the tree is.
    pub source: Source,
    /// What is built.
    pub tree: Tree,
    /// How it is configured.
    pub config: Config,
    /// Where the build's output goes.
    pub log: PathBuf,
}

/// A built kernel in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Key in the store.
    pub key: String,
    /// SHA-256 of the bootable image, hexadecimal.
    pub image_sha256: String,
    /// SHA-256 of vmlinux, hexadecimal.
    pub vmlinux_sha256: String,
    /// Kernel release, as `uname -r` will say.
    pub release: String,
    /// First line of the compiler's `--version`.
    pub compiler: String,
    /// Steps that the build took.
    pub steps: u32,
    /// Wall-clock seconds that the build took.
    pub seconds: u32,
    /// The folder that holds it.
    #[serde(skip)]
    pub folder: PathBuf,
    /// It was in the store before this run.
    #[serde(skip)]
    pub stored: bool,
}

impl Image {
    /// What QEMU boots.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// The ELF file with symbols.
    #[must_use]
    pub fn vmlinux(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }
}

/// Builds kernels in the store's trees.
#[derive(Debug, Clone)]
pub struct Builder {
    /// Where trees and images are.
    pub store: Store,
    /// Where progress goes.
    pub events: Events,
    /// Ends a build.
    pub stop: CancellationToken,
    /// CPUs and memory.
    pub budget: Budget,
    /// Parallel jobs of `make`.
    pub jobs: usize,
}

/// Memory of a compiler: 100 to 150 MB for the largest files of 6.12.
const JOB_BYTES: u64 = 150 << 20;
/// Memory of the link of vmlinux, and of make.
const LINK_BYTES: u64 = 512 << 20;

impl Builder {
    /// Gives the image from the store, or builds it.
    ///
    /// # Errors
    /// A `series` fault when a tree with patches does not build, an `infra`
    /// fault when the bare source does not, a `plan` fault when kconfig does not
    /// grant what the config asks for.
    pub async fn build(&self, request: &BuildRequest) -> Result<Image, Fault> {
        let config = Request::read(&request.config).map_err(first)?;
        let compiler = compiler_version(&request.config).await?;
        let key = key([
            RECIPE.as_bytes(),
            request.tree.tree.as_bytes(),
            request.config.base.target().as_bytes(),
            config.text().as_bytes(),
            compiler.as_bytes(),
            x86_64::MAKE_TARGET.as_bytes(),
        ]);
        if let Some(image) = self.stored(&key, request).await {
            return Ok(image);
        }
        let _image_lock = self.store.lock("images", &key, &self.events).await?;
        if let Some(image) = self.stored(&key, request).await {
            return Ok(image);
        }
        self.events.send(&RunEvent::BuildStarted { task: request.task.clone() });
        let tree = BuildTree::open(self, request, &config, &compiler).await?;
        let built = tree.build(&key, &config, &compiler).await;
        match &built {
            Ok(image) => self.finished(request, image, false),
            Err(_) => self.events.send(&RunEvent::BuildFailed { task: request.task.clone() }),
        }
        built
    }

    async fn stored(&self, key: &str, request: &BuildRequest) -> Option<Image> {
        let image = read_image(&self.store, key).await?;
        self.finished(request, &image, true);
        Some(image)
    }

    fn finished(&self, request: &BuildRequest, image: &Image, stored: bool) {
        self.events.send(&RunEvent::BuildFinished {
            task: request.task.clone(),
            stored,
            steps: image.steps,
            seconds: f64::from(image.seconds),
        });
    }
}

fn first(mut faults: Vec<Fault>) -> Fault {
    let rest = faults.split_off(1);
    let fault = faults.remove(0);
    rest.iter().fold(fault, |fault, other| fault.evidence(&other.to_string()))
}

/// An image whose bytes are what was published; a damaged one is removed.
async fn read_image(store: &Store, key: &str) -> Option<Image> {
    let folder = store.path("images", key);
    let text = std::fs::read(folder.join("image.json")).ok()?;
    let image: Image = serde_json::from_slice(&text).ok()?;
    let image = Image { folder: folder.clone(), stored: true, ..image };
    let whole = sha256_of(&image.kernel()).await.is_ok_and(|hash| hash == image.image_sha256)
        && sha256_of(&image.vmlinux()).await.is_ok_and(|hash| hash == image.vmlinux_sha256);
    if !whole {
        let _ = std::fs::remove_dir_all(&folder);
        return None;
    }
    Some(image)
}

async fn compiler_version(config: &Config) -> Result<String, Fault> {
    let program = config.compiler.program();
    require_program(program, program)?;
    let output = check(command(program).arg("--version"), b"").await?;
    Ok(output.text().lines().next().unwrap_or_default().to_owned())
}

/// The tree of one (source, config, compiler), locked.
struct BuildTree<'a> {
    builder: &'a Builder,
    request: &'a BuildRequest,
    folder: PathBuf,
    /// Exists while a build runs: objects younger than it may be damaged.
    marker: PathBuf,
    first: bool,
    _lock: crate::store::Lock,
}

impl<'a> BuildTree<'a> {
    async fn open(
        builder: &'a Builder,
        request: &'a BuildRequest,
        config: &Request,
        compiler: &str,
    ) -> Result<Self, Fault> {
        let name = key([
            request.source.commit.as_bytes(),
            request.config.base.target().as_bytes(),
            config.text().as_bytes(),
            compiler.as_bytes(),
        ]);
        for (program, package) in
            [("make", "make"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc")]
        {
            require_program(program, package)?;
        }
        let lock = builder.store.lock("trees", &name, &builder.events).await?;
        let folder = builder.store.path("trees", &name);
        let marker = builder.store.path("trees", &format!("{name}.building"));
        let ready = builder.store.path("trees", &format!("{name}.ready"));
        let first = !ready.exists();
        if first {
            // A checkout that was cut short is not worth repairing.
            let _ = std::fs::remove_dir_all(&folder);
            git::run(&request.source.git_dir, ["worktree", "prune"]).await?;
            let place = folder.to_string_lossy();
            let commit = &request.source.commit;
            let add = ["worktree", "add", "--quiet", "--force", "--detach", &place, commit];
            git::run(&request.source.git_dir, add).await?;
            write_atomically(&ready, b"")?;
        }
        let tree = Self { builder, request, folder, marker, first, _lock: lock };
        tree.discard_damaged().await?;
        tree.checkout().await?;
        Ok(tree)
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
        check(self.git().args(["checkout", "--quiet", "--force", "--detach", commit]), b"")
            .await
            .map(drop)
    }

    fn git(&self) -> tokio::process::Command {
        let mut git = git::git(&self.folder.join(".git"));
        git.arg("--work-tree").arg(&self.folder).current_dir(&self.folder);
        git
    }

    async fn build(&self, key: &str, config: &Request, compiler: &str) -> Result<Image, Fault> {
        let began = Instant::now();
        write_atomically(&self.marker, b"")?;
        let file = File::create(&self.request.log)
            .map_err(|error| Fault::io(format!("write {}", self.request.log.display()), &error))?;
        let mut log = BufWriter::new(file);
        let _claim = self.claim().await?;
        self.configure(config, &mut log).await?;
        let steps = self.compile(&mut log).await?;
        drop(log);
        let image = self.publish(key, compiler, steps, began.elapsed()).await?;
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

    /// Runs the build and gives the number of its steps.
    async fn compile(&self, log: &mut BufWriter<File>) -> Result<u32, Fault> {
        let stop = &self.builder.stop;
        let (mut done, mut total) = (0, None);
        let progress = |before: u32, total: Option<u32>| {
            move |now: u32| {
                let done = before + now;
                // A dry run stops short of the last links, so it may be a little low.
                let total = total.map(|total| total.max(done));
                let task = self.request.task.clone();
                self.builder.events.send(&RunEvent::BuildProgress { task, done, total });
            }
        };
        if self.first {
            // A dry run needs the tools that this target builds.
            let made = run(&mut self.make(&["prepare"]), log, stop, progress(0, None)).await?;
            done = self.expect_done(made, "cannot be prepared (make prepare)")?;
            let rest = count_steps(&mut self.make(&TARGETS), stop).await;
            total = rest.map(|rest| done + rest);
        }
        let made = run(&mut self.make(&TARGETS), log, stop, progress(done, total)).await?;
        Ok(done + self.expect_done(made, "does not build")?)
    }

    fn make(&self, targets: &[&str]) -> tokio::process::Command {
        let mut make = make(&self.folder);
        make.arg(format!("--jobs={}", self.builder.jobs)).args(targets);
        make
    }

    /// Writes `.config`; one that comes out as it was keeps its time stamp, so
    /// that kbuild does not look at every symbol again.
    async fn configure(&self, config: &Request, log: &mut BufWriter<File>) -> Result<(), Fault> {
        let path = self.folder.join(".config");
        let failed = |error: std::io::Error| Fault::io(format!("write {}", path.display()), &error);
        let before = std::fs::read(&path).ok();
        let stamp: Option<SystemTime> =
            std::fs::metadata(&path).and_then(|data| data.modified()).ok();
        self.make_config(self.request.config.base.target(), log).await?;
        let mut text = std::fs::read_to_string(&path).map_err(failed)?;
        text.push_str(&config.text());
        std::fs::write(&path, &text).map_err(failed)?;
        self.make_config("olddefconfig", log).await?;
        let after = std::fs::read(&path).map_err(failed)?;
        if let (Some(before), Some(stamp)) = (before, stamp)
            && before == after
        {
            let file = File::options().append(true).open(&path).map_err(failed)?;
            file.set_modified(stamp).map_err(failed)?;
        }
        config.check(&String::from_utf8_lossy(&after))
    }

    async fn make_config(&self, target: &str, log: &mut BufWriter<File>) -> Result<(), Fault> {
        let made = run(make(&self.folder).arg(target), log, &self.builder.stop, |_| {}).await?;
        self.expect_done(made, &format!("cannot be configured (make {target})")).map(drop)
    }

    fn expect_done(&self, made: Made, what: &str) -> Result<u32, Fault> {
        let bare = self.request.tree.commit == self.request.source.commit;
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
                    "mend the patch at the place of the first error"
                };
                Err(Fault::new(blame, format!("{} {what}", self.request.task))
                    .at(self.request.log.display())
                    .evidence(&error.join("\n"))
                    .help(help))
            }
        }
    }

    async fn publish(
        &self,
        key: &str,
        compiler: &str,
        steps: u32,
        took: Duration,
    ) -> Result<Image, Fault> {
        let scratch = self.builder.store.scratch()?;
        let entry = scratch.path().join("entry");
        let copy = |from: &Path, to: &str| {
            std::fs::copy(from, entry.join(to))
                .map_err(|error| Fault::io(format!("store {}", from.display()), &error))
        };
        std::fs::create_dir(&entry).map_err(|error| Fault::io("make a store entry", &error))?;
        copy(&self.folder.join(x86_64::IMAGE_PATH), "image")?;
        copy(&self.folder.join("vmlinux"), "vmlinux")?;
        copy(&self.folder.join(".config"), "config")?;
        copy(&self.request.log, "build.log")?;
        let release =
            capture(make(&self.folder).args(["--silent", "kernelrelease"]), b"").await?.text();
        let mut image = Image {
            key: key.to_owned(),
            image_sha256: sha256_of(&entry.join("image")).await?,
            vmlinux_sha256: sha256_of(&entry.join("vmlinux")).await?,
            release,
            compiler: compiler.to_owned(),
            steps,
            seconds: u32::try_from(took.as_secs()).unwrap_or(u32::MAX),
            folder: PathBuf::new(),
            stored: false,
        };
        write_atomically(&entry.join("image.json"), &crate::report::json::pretty(&image))?;
        image.folder = self.builder.store.publish(&entry, "images", key)?;
        Ok(image)
    }
}
