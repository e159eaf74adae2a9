// SPDX-License-Identifier: MIT OR Apache-2.0
//! kvet killed while it unpacks, builds and stores: what comes next is right, and
//! nothing goes on behind its back.
//!
//! `KVET_BUILD_KILLS` says how often for a kernel of three files, `KVET_LINUX_KILLS`
//! for Linux, which plain test runs leave alone; `make kills` sets both.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use common::Moments;
use common::tiny::Tiny;

/// What is built, in a cache of its own.
struct Subject {
    project: PathBuf,
    cache: PathBuf,
    runtime: PathBuf,
    plan: &'static str,
    _folder: tempfile::TempDir,
    _tiny: Option<Tiny>,
}

/// What the builds are compared by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Right {
    source: String,
    images: [[String; 2]; 2],
}

impl Subject {
    fn tiny() -> Self {
        let tiny = Tiny::new();
        tiny.change("mm/a.c", "x + 3", "x + 4");
        tiny.commit("mm: add one more");
        tiny.folder("more", "HEAD", "direction: forward");
        tiny.plan("more", "");
        // A source that is unpacked.
        tiny.git(&["archive", "--prefix=linux/", "--output=../tiny.tar", "v6.12.3"]);
        let output = Command::new("sha256sum").arg(tiny.path("tiny.tar")).output().unwrap();
        let sum = String::from_utf8_lossy(&output.stdout)[..64].to_owned();
        tiny.kernel(&format!("tarball: {{path: tiny.tar, sha256: {sum}}}"));
        let folder = tempfile::tempdir().unwrap();
        let project = tiny.path("");
        Self::at(project, folder, "mine", Some(tiny))
    }

    fn linux() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self::at(common::root(), folder, "khugepaged-cold", None)
    }

    fn at(
        project: PathBuf,
        folder: tempfile::TempDir,
        plan: &'static str,
        tiny: Option<Tiny>,
    ) -> Self {
        let (cache, runtime) = (folder.path().join("cache"), folder.path().join("runtime"));
        std::fs::create_dir(&runtime).unwrap();
        Self { project, cache, runtime, plan, _folder: folder, _tiny: tiny }
    }

    fn runs(&self) -> PathBuf {
        self.cache.with_file_name("runs")
    }

    fn start(&self, more: &[&str]) -> Child {
        // What an earlier run said is not to be taken for this one's.
        let _ = std::fs::remove_dir_all(self.runs());
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvet"));
        command.current_dir(&self.project).args(["-q", "build", self.plan]).args(more);
        command.env("KVET_CACHE_DIR", &self.cache).env("KVET_RUNS_DIR", self.runs());
        command.env("XDG_RUNTIME_DIR", &self.runtime).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn said(&self, what: &str) -> bool {
        let events = std::fs::read_to_string(self.runs().join("latest/events.jsonl"));
        events.is_ok_and(|events| events.contains(what))
    }

    /// Builds both variants to the end; what they are.
    fn build(&self) -> Right {
        let began = SystemTime::now();
        self.finish();
        let text = std::fs::read(self.runs().join("latest/result.json")).unwrap();
        let result: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let images = ["base", "patched"].map(|variant| {
            let built = &result["cells"][0]["variants"][variant];
            let key = built["build"]["key"].as_str().unwrap();
            // What is in the store, not what is said of it.
            let image = std::fs::read(self.cache.join("images").join(key).join("image")).unwrap();
            [key.to_owned(), blake3::hash(&image).to_hex().to_string()]
        });
        self.assert_tidy(began);
        Right { source: self.source(), images }
    }

    fn finish(&self) {
        let ended = common::finish(self.start(&[]), Instant::now());
        assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    }

    /// Nothing is left of the kvet that was started at `began`, nor of those before it.
    /// Where the kernel had not buried a killed one when that kvet looked, the next one
    /// removes what is left.
    fn assert_tidy(&self, began: SystemTime) {
        let scratch = self.cache.join("scratch");
        let left = below(&scratch);
        if left.is_empty() {
            return;
        }
        let own = |path: &PathBuf| std::fs::metadata(path).unwrap().created().unwrap() > began;
        let own: Vec<&PathBuf> = left.iter().filter(|path| own(path)).collect();
        assert!(own.is_empty(), "left by a kvet that was not killed: {own:#?}");
        self.finish();
        let left = below(&scratch);
        assert!(left.is_empty(), "left in scratch: {left:#?}");
    }

    /// Commit of the one source.
    fn source(&self) -> String {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.cache.join("sources")).unwrap().flatten() {
            if let Ok(text) = std::fs::read(entry.path().join("source.json")) {
                let source: serde_json::Value = serde_json::from_slice(&text).unwrap();
                found.push(source["commit"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn children(&self, part: &str) -> usize {
        std::fs::read_dir(self.cache.join(part)).unwrap().count()
    }

    fn forget(&self, parts: &[&str]) {
        for part in parts {
            let _ = std::fs::remove_dir_all(self.cache.join(part));
        }
    }

    /// Kills kvet and waits until none of its processes is left, which must not take
    /// long.
    fn kill(&self, mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
        let killed = Instant::now();
        loop {
            let left = at_work_in(&self.cache);
            if left.is_empty() {
                break;
            }
            assert!(killed.elapsed() < Duration::from_secs(5), "a process goes on: {left:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Everything in a folder and the folders in it.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&entry.path()));
        }
    }
    found
}

/// Processes that have their working folder, or a file for writing, below `folder`.
/// One that is killed and only waits for the disk does nothing more.
fn at_work_in(folder: &Path) -> Vec<String> {
    let leads = |link: PathBuf| std::fs::read_link(link).is_ok_and(|to| to.starts_with(folder));
    let works = |place: &Path| {
        let files = std::fs::read_dir(place.join("fd")).into_iter().flatten().flatten();
        common::shows(place, folder)
            || leads(place.join("cwd"))
            || files.map(|file| file.path()).any(leads)
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let place = entry.path();
        let process = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
        if process && works(&place) {
            let status = std::fs::read_to_string(place.join("status")).unwrap_or_default();
            if !is_dying(&status) {
                let command = std::fs::read_to_string(place.join("cmdline")).unwrap_or_default();
                found.push(format!("{} {}", place.display(), command.replace('\0', " ")));
            }
        }
    }
    found
}

/// Whether SIGKILL is pending for a process, by its `/proc/PID/status`.
fn is_dying(status: &str) -> bool {
    const KILL: u64 = 1 << (9 - 1);
    let pending = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
    ["SigPnd:", "ShdPnd:"]
        .iter()
        .filter_map(|name| pending(*name))
        .any(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & KILL != 0))
}

/// Starts a build, waits until `event` was said, and then for `after`, kills it.
fn start_and_kill(subject: &Subject, more: &[&str], event: &str, after: Duration) {
    let mut child = subject.start(more);
    let began = Instant::now();
    while !event.is_empty() && !subject.said(event) && child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(1200), "{event} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(after);
    subject.kill(child);
}

/// Seconds of one event's stretch in the last run.
fn stretch(subject: &Subject, from: &str, to: &str) -> Duration {
    let events = std::fs::read_to_string(subject.runs().join("latest/events.jsonl")).unwrap();
    let at = |what: &str| {
        let line = events.lines().find(|line| line.contains(what)).unwrap_or_default();
        let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        Duration::from_millis(event["elapsed_ms"].as_u64().unwrap_or_default())
    };
    at(to).saturating_sub(if from.is_empty() { Duration::ZERO } else { at(from) })
}

const STARTED: &str = "\"build_started\"";
const FINISHED: &str = "\"build_finished\"";

fn count(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|count| count.parse().unwrap())
}

#[test]
fn killed_at_any_moment_of_a_build_the_next_one_is_right() {
    kill(&Subject::tiny(), count("KVET_BUILD_KILLS").unwrap_or(12));
}

/// A killed git leaves what the others stumble over: a worktree of which only a part
/// is noted.
#[test]
fn a_worktree_that_is_half_made_is_in_nobodys_way() {
    let subject = Subject::tiny();
    let right = subject.build();
    let source = std::fs::read_dir(subject.cache.join("sources")).unwrap().flatten();
    let git = source.map(|entry| entry.path().join("git")).find(|git| git.is_dir()).unwrap();
    let half = git.join("worktrees/half");
    std::fs::create_dir(&half).unwrap();
    for (name, text) in
        [("locked", "initializing"), ("gitdir", "/nowhere/.git\n"), ("commondir", "")]
    {
        std::fs::write(half.join(name), text).unwrap();
    }
    // Without it git takes no notice of the folder.
    std::fs::write(half.join("HEAD"), format!("{}\n", right.source)).unwrap();
    subject.forget(&["trees", "images"]);
    assert_eq!(subject.build(), right);
    assert!(!half.exists());
}

#[test]
fn killed_at_any_moment_of_a_build_of_linux_the_next_one_is_right() {
    match count("KVET_LINUX_KILLS") {
        Some(kills) => kill(&Subject::linux(), kills),
        None => println!("skipped: minutes for each kill; KVET_LINUX_KILLS=12 does it"),
    }
}

fn kill(subject: &Subject, kills: usize) {
    let mut moments = Moments(1);
    let right = subject.build();
    let unpack = stretch(subject, "", "\"ready\"");
    let full = stretch(subject, STARTED, FINISHED);
    let check = |what: &str| {
        assert_eq!(subject.build(), right, "{what}");
    };
    let each = kills / 4;
    let rest = kills - 3 * each;
    let began = Instant::now();
    let told = |what: &str| println!("{:6.0} s: {what}", began.elapsed().as_secs_f64());

    for _ in 0..each {
        subject.forget(&["sources", "trees", "images", "applied"]);
        start_and_kill(subject, &[], "", moments.between(Duration::ZERO, unpack));
        // What follows is right when the source is; the last one is followed to the end.
        let child = subject.start(&[]);
        common::wait_until("the source", || subject.said("\"ready\"") || subject.said(STARTED));
        subject.kill(child);
        assert_eq!(subject.source(), right.source);
    }
    check("after kills while unpacking");
    told("killed while unpacking");

    for _ in 0..each {
        subject.forget(&["trees", "images"]);
        let more = ["--variant", "base"];
        start_and_kill(subject, &more, STARTED, moments.between(Duration::ZERO, full));
        check("after a kill in a full build");
    }
    told("killed in full builds");

    let patched = ["--variant", "patched"];
    let base = ["--variant", "base"];
    let back = || {
        subject.forget(&["images"]);
        let ended = common::finish(subject.start(&base), Instant::now());
        assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    };
    back();
    let ended = common::finish(subject.start(&patched), Instant::now());
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let some = stretch(subject, STARTED, FINISHED);
    for number in 0..each + rest {
        back();
        // The last fifth is linking and storing.
        let (from, to, what) = match number < each {
            true => (Duration::ZERO, some, "after a kill in an incremental build"),
            false => (some.mul_f64(0.8), some.mul_f64(1.05), "after a kill while storing"),
        };
        start_and_kill(subject, &patched, STARTED, moments.between(from, to));
        check(what);
    }
    told("killed in incremental builds and while storing");
    println!("{kills} kills: source {unpack:.1?}, full build {full:.1?}, patched {some:.1?}");
    assert!(subject.children("images") >= 2);
}
