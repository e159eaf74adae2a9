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
use crate::host::budget::Need;
use crate::host::process::{capture, check, command, require_program};
use crate::plan::manifest::Compiler;
use crate::plan::{Cell, Program, ProgramSource};
use crate::run::event::RunEvent;
use crate::store::key;

/// Changes to how programs are built change this.
const RECIPE: &str = "kselftest/1";
/// Where the tests are in the tree.
const FOLDER: &str = "tools/testing/selftests";
/// Memory that a compiler of one test takes at most.
const JOB_BYTES: u64 = 256 * 1024 * 1024;
/// What `make headers` and the tests' makefiles read: less than a quarter of a tree.
const PATHS: [&str; 10] =
    ["Makefile", "Kbuild", "Kconfig", "arch", "include", "lib", "mm", "scripts", "tools", "usr"];

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
        let version = check(command(self.compiler.program()).arg("--version"), b"").await?.text();
        let version = version.lines().next().unwrap_or_default().to_owned();
        let place = |target: &str| {
            let parts = [RECIPE, self.patched.tree.as_str(), target, &version];
            builder.store.path("kselftests", &key(parts.map(str::as_bytes)))
        };
        let places: BTreeMap<String, PathBuf> =
            self.targets.keys().map(|target| (target.clone(), place(target))).collect();
        let there = || places.values().all(|place| place.is_file());
        if there() {
            return Ok(places);
        }
        for (target, program) in self.targets {
            self.check_target(target, program).await?;
        }
        let name = key([RECIPE.as_bytes(), self.patched.tree.as_bytes()]);
        let _lock = builder.store.lock("kselftests", &name, &builder.events).await?;
        if there() {
            return Ok(places);
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
            },
            Err(_) => RunEvent::BuildFailed { task: self.task.clone() },
        });
        built.map(|_| places)
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
        let mut log = File::create(&self.log)
            .map_err(|error| Fault::io(format!("write {}", self.log.display()), &error))?;
        let mut headers = self.make(&tree);
        headers.arg(format!("--jobs={}", builder.jobs)).arg("headers");
        let mut steps =
            match run(&mut headers, &mut log, &builder.stop, &mut Heard::new("headers"), |_| {})
                .await?
            {
                Made::Done { steps } => steps,
                Made::Interrupted => return Err(Fault::interrupted()),
                Made::Failed { error, .. } => {
                    return Err(self.failed(
                        Blame::Infra,
                        "make headers does not work".into(),
                        &error,
                    ));
                }
            };
        for (target, place) in places {
            if place.is_file() {
                continue;
            }
            let (file, more) = self.build_one(builder, &tree, target, &mut log).await?;
            steps += more;
            builder.store.publish(&file, "kselftests", &file_name(place))?;
        }
        Ok(steps)
    }

    /// Builds one program as `make` in its folder would. Some stable trees use
    /// kselftest.h without including it: a build that fails is tried once more
    /// with that included.
    async fn build_one(
        &self,
        builder: &Builder,
        tree: &Path,
        target: &str,
        log: &mut File,
    ) -> Result<(PathBuf, u32), Fault> {
        let selftests = tree.join(FOLDER);
        let (folder, _) = target.rsplit_once('/').unwrap_or(("", target));
        let out = tree.join("kvet-out");
        let file = out.join(target);
        let made = std::fs::create_dir_all(out.join(folder));
        made.map_err(|error| Fault::io(format!("make {}", out.display()), &error))?;
        leave_out_libraries(&selftests.join(folder))?;
        let include = format!("-include {}/kselftest.h", selftests.display());
        let mut first = None;
        for flags in ["", &include] {
            let mut build = self.make(&selftests.join(folder));
            build.arg(format!("--jobs={}", builder.jobs));
            // Neither is to be made: both are there.
            build.args(["-o", "local_config.h", "-o", "local_config.mk"]);
            build.arg(format!("OUTPUT={}", out.join(folder).display()));
            build.args(["USERLDFLAGS=-static", &format!("USERCFLAGS={flags}")]).arg(&file);
            let heading = format!("\n{target}, USERCFLAGS={flags:?}\n");
            log.write_all(heading.as_bytes())
                .map_err(|error| Fault::io("write the build log", &error))?;
            match run(&mut build, log, &builder.stop, &mut Heard::new(target), |_| {}).await? {
                Made::Done { steps } if file.is_file() => return Ok((file, steps)),
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
    fn make(&self, folder: &Path) -> tokio::process::Command {
        let mut make = make(folder);
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
        let object = format!("{commit}:{FOLDER}/{target}.c");
        if git::has_object(&self.source.git_dir, &object).await {
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
}

/// mm's makefile asks by these files whether liburing is there, which would make
/// the same test another on another host; empty ones say that it is not.
fn leave_out_libraries(folder: &Path) -> Result<(), Fault> {
    if !folder.join("check_config.sh").is_file() {
        return Ok(());
    }
    for name in ["local_config.h", "local_config.mk"] {
        std::fs::write(folder.join(name), "")
            .map_err(|error| Fault::io(format!("write {name}"), &error))?;
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
