// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds tests of the kernel's own `tools/testing/selftests`, from the tree under
//! test and with its own makefiles, so that they come as upstream means them.
//!
//! They are built from the tree with the series, which may bring a test of its
//! own, and run in every variant: only the kernel may differ. Programs are linked
//! statically, and finished ones are kept in the store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::build::{Builder, Heard};
use super::git;
use super::make::{Made, make, run};
use super::series::Tree;
use super::source::Source;
use crate::fault::{Blame, Fault};
use crate::host::beneath;
use crate::host::budget::Need;
use crate::host::process::{capture, check, require_program};
use crate::host::sandbox::Session;
use crate::plan::manifest::Compiler;
use crate::plan::{Cell, Program, ProgramSource};
use crate::run::event::RunEvent;
use crate::store::{Scratch, key, touch};

/// Changes to how programs are built change this.
const RECIPE: &str = "kselftest/2";
/// Where the tests are in the tree.
const FOLDER: &str = "tools/testing/selftests";
/// Where they are built, below the tree.
const OUT: &str = "kvet-out";
/// Memory that a compiler of one test takes at most.
const JOB_BYTES: u64 = 256 * 1024 * 1024;
/// What `make headers` and the tests' makefiles read: less than a quarter of a tree.
const PATHS: [&str; 10] =
    ["Makefile", "Kbuild", "Kconfig", "arch", "include", "lib", "mm", "scripts", "tools", "usr"];

/// Whether a tree has a selftest.
pub async fn is_there(git_dir: &Path, commit: &str, target: &str) -> bool {
    git::has_object(git_dir, &format!("{commit}:{FOLDER}/{target}.c")).await
}

/// The selftests that a cell's tests name, each with the entry that names it.
#[must_use]
pub fn targets(cell: &Cell) -> BTreeMap<String, Program> {
    let programs = cell.tests.iter().filter_map(|test| test.program.as_ref());
    programs
        .filter_map(|program| match &program.source {
            ProgramSource::Kselftest(target) => Some((target.clone(), program.clone())),
            ProgramSource::Exec(_) | ProgramSource::Script(_) => None,
        })
        .collect()
}

/// What is to be built, and from what.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Which builds these are, for people.
    pub task: String,
    /// Where the trees are.
    pub source: &'a Source,
    /// The tree without the series.
    pub base: &'a Tree,
    /// The tree with the series.
    pub patched: &'a Tree,
    /// The compiler.
    pub compiler: Compiler,
    /// What is built, by target.
    pub targets: &'a BTreeMap<String, Program>,
    /// Where the builds' output goes.
    pub log: PathBuf,
}

impl Request<'_> {
    /// Builds what the store does not have; gives the program of each target.
    ///
    /// # Errors
    /// A `plan` fault for a target that the tree does not have; a `series` fault
    /// when a test that the series changes does not build, an `infra` fault when
    /// another does not.
    pub async fn build(&self, builder: &Builder) -> Result<BTreeMap<String, PathBuf>, Fault> {
        if self.targets.is_empty() {
            return Ok(BTreeMap::new());
        }
        for (program, package) in self.compiler.programs() {
            require_program(program, package)?;
        }
        let mut ask = builder.sandbox.program(self.compiler.program());
        let version = check(ask.arg("--version"), b"").await?.text();
        let version = version.lines().next().unwrap_or_default().to_owned();
        let place = |target: &str| {
            let parts = [RECIPE, self.patched.tree.as_str(), target, &version];
            builder.store.path("kselftests", &key(parts.map(str::as_bytes)))
        };
        let places: BTreeMap<String, PathBuf> =
            self.targets.keys().map(|target| (target.clone(), place(target))).collect();
        let there = || places.values().all(|place| Finished::read(place).is_some());
        if there() {
            return Ok(programs(places));
        }
        for (target, program) in self.targets {
            self.check_target(target, program).await?;
        }
        let name = key([RECIPE.as_bytes(), self.patched.tree.as_bytes()]);
        let _lock = builder.store.lock("kselftests", &name, &builder.events).await?;
        if there() {
            return Ok(programs(places));
        }
        let began = Instant::now();
        builder.events.send(&RunEvent::BuildStarted { task: self.task.clone() });
        let built = self.build_missing(builder, &places).await;
        builder.events.send(&match &built {
            Ok(steps) => RunEvent::BuildFinished {
                task: self.task.clone(),
                stored: false,
                steps: *steps,
                seconds: began.elapsed().as_secs_f64(),
                ccache: None,
            },
            Err(_) => RunEvent::BuildFailed { task: self.task.clone() },
        });
        built.map(|_| programs(places))
    }

    async fn build_missing(
        &self,
        builder: &Builder,
        places: &BTreeMap<String, PathBuf>,
    ) -> Result<u32, Fault> {
        let need = Need {
            cpus: u32::try_from(builder.jobs).unwrap_or(u32::MAX),
            memory: builder.jobs as u64 * JOB_BYTES,
            alone: false,
        };
        let claiming = builder.budget.claim(&self.task, need, &builder.events);
        let claim = builder.stop.run_until_cancelled(claiming).await;
        let _claim = claim.unwrap_or_else(|| Err(Fault::interrupted()))?;
        let scratch = builder.store.scratch()?;
        let tree = scratch.path().join("tree");
        self.checkout(&tree, &scratch.path().join("index")).await?;
        self.make_ready(&tree)?;
        let mut log = File::create(&self.log)
            .map_err(|error| Fault::io(format!("write {}", self.log.display()), &error))?;
        let programs: Vec<_> = self.compiler.programs().iter().map(|(name, _)| *name).collect();
        let (store, jobs) = (&builder.store, builder.jobs);
        let mut session = builder.sandbox.session(store, &tree, &programs, None, jobs)?;
        let mut headers = self.make(&session, "");
        headers.arg(format!("--jobs={}", builder.jobs)).arg("headers");
        let (mut heard, stop) = (Heard::new("headers"), &builder.stop);
        let made = run(&mut headers, session.watchdog(), &mut log, stop, &mut heard, |_| {});
        let tell = |session: &mut Session| {
            for line in session.refused() {
                builder.events.note(format!("{}: the build {line}", self.task));
            }
        };
        let steps = match made.await? {
            Made::Done { steps } => steps,
            Made::Interrupted => return Err(Fault::interrupted()),
            Made::Failed { error, .. } => {
                tell(&mut session);
                let what = "make headers does not work".to_owned();
                return Err(self.failed(Blame::Infra, what, &error));
            }
        };
        let built = self.build_all(builder, &mut session, &scratch, &mut log, places).await;
        tell(&mut session);
        built.map(|more| steps + more)
    }

    async fn build_all(
        &self,
        builder: &Builder,
        session: &mut Session,
        scratch: &Scratch,
        log: &mut File,
        places: &BTreeMap<String, PathBuf>,
    ) -> Result<u32, Fault> {
        let tree = scratch.path().join("tree");
        let mut steps = 0;
        for (number, (target, place)) in places.iter().enumerate() {
            if Finished::read(place).is_some() {
                continue;
            }
            steps += self.build_one(builder, session, &tree, target, log).await?;
            let finished = scratch.path().join(format!("finished-{number}"));
            let finished = Finished::make(&tree, target, &finished)
                .map_err(|error| Fault::io(format!("store the selftest {target}"), &error))?;
            builder.store.publish(&finished, "kselftests", &file_name(place))?;
        }
        Ok(steps)
    }

    /// Builds one program as `make` in its folder would. Some stable trees use
    /// kselftest.h without including it: a build that fails is tried once more
    /// with that included.
    async fn build_one(
        &self,
        builder: &Builder,
        session: &mut Session,
        tree: &Path,
        target: &str,
        log: &mut File,
    ) -> Result<u32, Fault> {
        let (folder, _) = target.rsplit_once('/').unwrap_or(("", target));
        // As the build sees them.
        let (selftests, out) = (session.place().join(FOLDER), session.place().join(OUT));
        let file = out.join(target);
        let found = || beneath::open(tree, Path::new(OUT).join(target)).is_ok();
        let include = format!("-include {}/kselftest.h", selftests.display());
        let mut first = None;
        for flags in ["", &include] {
            let mut build = self.make(session, &format!("{FOLDER}/{folder}"));
            build.arg(format!("--jobs={}", builder.jobs));
            // Neither is to be made: both are there.
            build.args(["-o", "local_config.h", "-o", "local_config.mk"]);
            build.arg(format!("OUTPUT={}", out.join(folder).display()));
            build.args(["USERLDFLAGS=-static", &format!("USERCFLAGS={flags}")]).arg(&file);
            let heading = format!("\n{target}, USERCFLAGS={flags:?}\n");
            log.write_all(heading.as_bytes())
                .map_err(|error| Fault::io("write the build log", &error))?;
            let (mut heard, stop) = (Heard::new(target), &builder.stop);
            let made = run(&mut build, session.watchdog(), log, stop, &mut heard, |_| {});
            match made.await? {
                Made::Done { steps } if found() => return Ok(steps),
                Made::Done { .. } => {
                    let words = vec![format!("make made no {}", file.display())];
                    first.get_or_insert(words);
                }
                Made::Interrupted => return Err(Fault::interrupted()),
                Made::Failed { error, .. } => drop(first.get_or_insert(error)),
            }
        }
        let what = format!("selftest {target} does not build");
        let blame = if self.series_changes(folder).await { Blame::Series } else { Blame::Infra };
        Err(self.failed(blame, what, &first.unwrap_or_default()))
    }

    /// `make` in a folder, with the config's compiler.
    fn make(&self, session: &Session, below: &str) -> tokio::process::Command {
        let mut make = make(session, below);
        make.args(self.compiler.make_arguments());
        make
    }

    fn failed(&self, blame: Blame, what: String, error: &[String]) -> Fault {
        let help = match blame {
            Blame::Series => "mend the series at the place of the first error",
            _ => "the series does not touch this test: see the log for what the host lacks",
        };
        Fault::new(blame, format!("{}: {what}", self.task))
            .at(self.log.display())
            .evidence(&error.join("\n"))
            .help(help)
    }

    /// Whether the series touches what the tests of a folder are made of.
    async fn series_changes(&self, folder: &str) -> bool {
        let folder = format!("{FOLDER}/{folder}");
        let mut diff = git::git(&self.source.git_dir);
        diff.args(["diff", "--quiet", &self.base.commit, &self.patched.commit, "--"]);
        diff.args([folder.as_str(), "include/uapi"]);
        capture(&mut diff, b"").await.is_ok_and(|output| !output.status.success())
    }

    async fn check_target(&self, target: &str, program: &Program) -> Result<(), Fault> {
        let commit = &self.patched.commit;
        if is_there(&self.source.git_dir, commit, target).await {
            return Ok(());
        }
        let (folder, name) = target.rsplit_once('/').unwrap_or(("", target));
        let list = ["ls-tree", "--name-only", &format!("{commit}:{FOLDER}/{folder}")];
        let names = git::run(&self.source.git_dir, list).await.unwrap_or_default();
        let names: Vec<&str> = names.lines().filter_map(|name| name.strip_suffix(".c")).collect();
        let help = match crate::plan::yaml::closest(name, names.iter().copied()) {
            Some(right) => format!("did you mean `{folder}/{right}`?"),
            None if names.is_empty() => format!("there is no {FOLDER}/{folder} with C programs"),
            None => format!("{folder} has: {}", names.join(", ")),
        };
        Err(Fault::plan(format!("{} has no selftest {target}", self.source.origin))
            .at(&program.place)
            .help(help))
    }

    async fn checkout(&self, tree: &Path, index: &Path) -> Result<(), Fault> {
        std::fs::create_dir(tree)
            .map_err(|error| Fault::io(format!("make {}", tree.display()), &error))?;
        let mut checkout = git::git(&self.source.git_dir);
        checkout.env("GIT_INDEX_FILE", index).arg("--work-tree").arg(tree).current_dir(tree);
        checkout.args(["checkout", "--quiet", &self.patched.commit, "--"]).args(PATHS);
        check(&mut checkout, b"").await.map(drop)
    }

    /// Makes the folders of what will be built. mm's makefile asks by two files
    /// whether liburing is there, which would make the same test another on another
    /// host; empty ones say that it is not.
    fn make_ready(&self, tree: &Path) -> Result<(), Fault> {
        for target in self.targets.keys() {
            let (folder, _) = target.rsplit_once('/').unwrap_or(("", target));
            std::fs::create_dir_all(tree.join(OUT).join(folder))
                .map_err(|error| Fault::io("make a folder for selftests", &error))?;
            let selftests = Path::new(FOLDER).join(folder);
            if beneath::open(tree, selftests.join("check_config.sh")).is_err() {
                continue;
            }
            for name in ["local_config.h", "local_config.mk"] {
                beneath::write(tree, selftests.join(name), b"")
                    .map_err(|error| Fault::io(format!("write {name}"), &error))?;
            }
        }
        Ok(())
    }
}

/// The program of each target from the folder of each.
fn programs(places: BTreeMap<String, PathBuf>) -> BTreeMap<String, PathBuf> {
    let program = |place: PathBuf| place.join(Finished::PROGRAM);
    places.into_iter().map(|(target, place)| (target, program(place))).collect()
}

/// A built program in the store: a folder with it and its hash.
struct Finished;

impl Finished {
    const PROGRAM: &str = "program";
    const HASH: &str = "blake3";

    /// The program, if its bytes are what was published; a damaged one is removed.
    fn read(place: &Path) -> Option<PathBuf> {
        let program = place.join(Self::PROGRAM);
        let hash = std::fs::read_to_string(place.join(Self::HASH)).ok()?;
        if std::fs::read(&program).is_ok_and(|bytes| blake3::hash(&bytes).to_hex()[..] == *hash) {
            touch(place);
            return Some(program);
        }
        let _ = std::fs::remove_dir_all(place);
        None
    }

    /// The folder `to` for the program of `target`, which was built in `tree`.
    fn make(tree: &Path, target: &str, to: &Path) -> std::io::Result<PathBuf> {
        std::fs::create_dir(to)?;
        let program = to.join(Self::PROGRAM);
        beneath::copy(tree, Path::new(OUT).join(target), &program)?;
        let hash = blake3::hash(&std::fs::read(&program)?);
        std::fs::write(to.join(Self::HASH), hash.to_hex().as_str())?;
        Ok(to.to_owned())
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
