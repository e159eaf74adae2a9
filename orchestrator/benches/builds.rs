// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds against what a developer would do by hand in one tree, `git am` and
//! `make`, in one invocation on one host; and what kvet itself takes of it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One line each that changes what is compiled: the object files of the tree are
/// many, a patch's are few.
const PATCHES: [(&str, &str, &str); 4] = [
    (
        "mm/madvise.c",
        "static int madvise_need_mmap_write(",
        "static noinline int madvise_need_mmap_write(",
    ),
    ("mm/mincore.c", "static inline bool can_do_mincore(", "static noinline bool can_do_mincore("),
    ("mm/mlock.c", "bool can_do_mlock(void)", "bool __weak can_do_mlock(void)"),
    (
        "mm/khugepaged.c",
        "static bool hugepage_pmd_enabled(",
        "static noinline bool hugepage_pmd_enabled(",
    ),
];
/// What the last patch becomes when it is edited.
const EDITED: &str = "static noinline __cold bool hugepage_pmd_enabled(";
/// How often kvet's own memory and time are looked at.
const LOOK: Duration = Duration::from_millis(50);

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let bench = Bench { folder: folder.path().to_owned() };
    bench.prepare();
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();

    let whole = bench.kvet(&["build", "bench"]);
    let series: Vec<String> = (1..=4).map(|number| bench.mail(number)).collect();
    // Both start from a repository, with nothing checked out.
    let began = Instant::now();
    let tree = bench.hand_tree();
    let config = bench.config();
    std::fs::copy(config, tree.join(".config")).expect("a config");
    bench.make(&tree, &jobs);
    for patch in &series {
        bench.git(&tree, &["am", "--quiet", patch]);
        bench.make(&tree, &jobs);
    }
    let by_hand = began.elapsed();

    bench.write_series(EDITED);
    let edited = bench.kvet(&["build", "bench"]);
    let began = Instant::now();
    bench.git(&tree, &["reset", "--quiet", "--hard", "HEAD~1"]);
    bench.git(&tree, &["am", "--quiet", &bench.mail(4)]);
    bench.make(&tree, &jobs);
    let edited_by_hand = began.elapsed();
    let stored = bench.kvet(&["build", "bench"]);

    let seconds = |time: Duration| time.as_secs_f64();
    println!("linux 6.12, microvm, {jobs} jobs     kvet       by hand    ratio");
    for (what, own, hand) in [
        ("base and four patches", whole.took, by_hand),
        ("one patch edited", edited.took, edited_by_hand),
    ] {
        let (own, hand) = (seconds(own), seconds(hand));
        println!("  {what:28}{own:8.2} s {hand:8.2} s {:8.2}", own / hand);
    }
    println!("  {:28}{:8.2} s", "everything in the store", seconds(stored.took));
    bench.kvet(&["clean", "--keep", "0"]);
    bench.take_source();
    let demo = bench.kvet(&["run", "khugepaged-cold"]);
    for (what, run) in [("the five builds", &whole), ("a demo from its source", &demo)] {
        println!(
            "kvet itself over {what} ({:.0} s): {:.1} MiB resident at most, {:.2} % of one core",
            seconds(run.took),
            run.resident as f64 / f64::from(1 << 20),
            100.0 * seconds(run.cpu) / seconds(run.took)
        );
    }
}

/// What a run of kvet took, its children not counted.
struct Run {
    took: Duration,
    cpu: Duration,
    resident: u64,
}

struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn prepare(&self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        for part in ["kernels", "configs", "patches"] {
            run(Command::new("cp").arg("-r").arg(root.join(part)).arg(&self.folder));
        }
        let plan = "schema: kvet/plan/1\nseries: [bench]\nvariants: per-patch\nkernels: [debian-6.12]\nconfigs:\n  microvm: {base: tinyconfig, fragments: [microvm]}\nguests: {up: {}}\ntests: [{name: selftest_pass}]\n";
        std::fs::write(self.path("configs/plans/bench.yaml"), plan).expect("a plan");
        std::fs::create_dir(self.path("runtime")).expect("a folder");
        self.take_source();
        self.write_series(PATCHES[3].2);
    }

    /// The unpacked source, which a developer has, too.
    fn take_source(&self) {
        let shared = match std::env::var_os("KVET_TEST_CACHE") {
            Some(folder) => PathBuf::from(folder),
            None => Path::new(env!("CARGO_TARGET_TMPDIR")).join("kvet-cache"),
        };
        if !shared.join("sources").is_dir() {
            let mut command = Command::new(env!("CARGO_BIN_EXE_kvet"));
            command.args(["-q", "build", "khugepaged-cold", "--variant", "base"]);
            run(command.current_dir(&self.folder).env("KVET_CACHE_DIR", &shared));
        }
        std::fs::create_dir_all(self.path("cache/sources")).expect("a folder");
        for entry in std::fs::read_dir(shared.join("sources")).expect("sources").flatten() {
            if entry.file_name().to_string_lossy().starts_with("debian-linux-source-6.12_") {
                run(Command::new("cp").arg("-a").arg(entry.path()).arg(self.path("cache/sources")));
            }
        }
    }

    /// The repository of the source, and its commit.
    fn source(&self) -> (PathBuf, String) {
        let mut entries = std::fs::read_dir(self.path("cache/sources")).expect("sources").flatten();
        let entry = entries.next().expect("a source").path();
        let text = std::fs::read(entry.join("source.json")).expect("a source");
        let source: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        (entry.join("git"), source["commit"].as_str().expect("a commit").to_owned())
    }

    /// A series in which the last patch makes of its line what `last` says.
    fn write_series(&self, last: &str) {
        let folder = self.path("patches/bench");
        std::fs::create_dir_all(&folder).expect("a folder");
        let yaml = "schema: kvet/series/1\ntitle: a bench\nkernels: {debian-6.12: {}}\n";
        std::fs::write(folder.join("series.yaml"), yaml).expect("a series");
        for (at, (file, from, to)) in PATCHES.iter().enumerate() {
            let to = if at == 3 { last } else { to };
            let (git, commit) = self.source();
            let mut show = Command::new("git");
            show.arg("--git-dir").arg(git).arg("show").arg(format!("{commit}:{file}"));
            let text = String::from_utf8(show.output().expect("git").stdout).expect("text");
            let lines: Vec<&str> = text.lines().collect();
            let line = lines.iter().position(|line| line.starts_with(from)).expect(from);
            let mut patch = format!(
                "From: A Bench <bench@example.org>\nSubject: [PATCH {}/4] mm: change {file}\n\nA line.\n\n---\n--- a/{file}\n+++ b/{file}\n@@ -{},7 +{},7 @@\n",
                at + 1,
                line - 2,
                line - 2
            );
            for (number, old) in lines.iter().enumerate().skip(line - 3).take(7) {
                let changed = format!("-{old}\n+{}\n", old.replacen(from, to, 1));
                patch += &if number == line { changed } else { format!(" {old}\n") };
            }
            std::fs::write(folder.join(format!("{:04}-bench.patch", at + 1)), patch)
                .expect("a patch");
        }
    }

    fn mail(&self, number: usize) -> String {
        self.path(&format!("patches/bench/{number:04}-bench.patch")).display().to_string()
    }

    fn hand_tree(&self) -> PathBuf {
        let (git, commit) = self.source();
        let tree = self.path("tree");
        run(Command::new("git")
            .args(["clone", "--quiet", "--shared", "--no-checkout"])
            .arg(git)
            .arg(&tree));
        self.git(&tree, &["checkout", "--quiet", "-B", "bench", &commit]);
        tree
    }

    /// The `.config` that kvet built with.
    fn config(&self) -> PathBuf {
        let mut images = std::fs::read_dir(self.path("cache/images")).expect("images").flatten();
        images.next().expect("an image").path().join("config")
    }

    fn git(&self, tree: &Path, arguments: &[&str]) {
        let identity = ["-c", "user.name=A Bench", "-c", "user.email=bench@example.org"];
        run(Command::new("git").current_dir(tree).args(identity).args(arguments));
    }

    fn make(&self, tree: &Path, jobs: &str) {
        let mut make = Command::new("make");
        make.current_dir(tree).args(["-s", "-j", jobs, "bzImage", "vmlinux"]);
        run(make.env("KBUILD_BUILD_TIMESTAMP", "Thu Jan  1 00:00:00 UTC 2026"));
    }

    fn kvet(&self, arguments: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvet"));
        command.current_dir(&self.folder).arg("-q").args(arguments).stdin(Stdio::null());
        command.env("KVET_CACHE_DIR", self.path("cache")).env_remove("KVET_RUNS_DIR");
        command.env("XDG_RUNTIME_DIR", self.path("runtime"));
        let began = Instant::now();
        let mut child = command.stdout(Stdio::null()).spawn().expect("kvet starts");
        let (mut cpu, mut resident) = (Duration::ZERO, 0);
        let status = loop {
            if let Some(status) = child.try_wait().expect("kvet can be waited for") {
                break status;
            }
            (cpu, resident) = own(&child).unwrap_or((cpu, resident));
            std::thread::sleep(LOOK);
        };
        assert!(status.success(), "kvet {arguments:?} ended with {status}");
        Run { took: began.elapsed(), cpu, resident }
    }
}

/// CPU time (proc_pid_stat(5): utime, stime) and highest resident size of a process.
fn own(child: &Child) -> Option<(Duration, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let resident: u64 = line.trim_end_matches("kB").trim().parse().ok()?;
    // USER_HZ is 100 on every architecture that kvet runs on.
    Some((Duration::from_millis(ticks * 10), resident * 1024))
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {words}");
}
