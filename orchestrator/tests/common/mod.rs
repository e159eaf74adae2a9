// SPDX-License-Identifier: MIT OR Apache-2.0
//! A project in a temporary folder, and kvet run in it as a user would.
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses a part")]

pub mod case;
pub mod fragments;
pub mod guests;
pub mod tiny;
pub mod tmpfs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Kernel sources, trees and images that all tests share: the kernel is built
/// once, whoever comes first.
pub fn cache() -> PathBuf {
    match std::env::var_os("KVET_TEST_CACHE") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).join("kvet-cache"),
    }
}

/// A cache that shares with the other tests' what it takes long to make, and neither
/// saved machines nor locks.
pub fn own_cache() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for part in ["applied", "images", "initramfs", "probes", "sources", "trees"] {
        std::os::unix::fs::symlink(cache().join(part), folder.path().join(part)).unwrap();
    }
    folder
}

/// A project of its own: kernels/, configs/ and patches/ as in the workspace,
/// and whatever the test adds.
pub struct Project {
    folder: tempfile::TempDir,
}

/// How kvet ended and what it said.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

/// A plan of one series, one guest and one test on the smallest kernel.
pub fn plan(series: &str, guest: &str, test: &str, rest: &str) -> String {
    format!(
        "schema: kvet/plan/1\nseries: [{series}]\nkernels: [debian-6.12]\nconfigs:\n  microvm: {{base: tinyconfig, fragments: [microvm]}}\nguests:\n  up: {{memory: 512MiB{guest}}}\ntests:\n  - {test}\n{rest}"
    )
}

/// A `series.yaml` that declares nothing, or what `expect` says.
pub fn series_yaml(entry: &str, expect: &str) -> String {
    format!("schema: kvet/series/1\ntitle: a test\nkernels:\n  debian-6.12: {{{entry}}}\n{expect}")
}

impl Project {
    pub fn new() -> Self {
        let project = Self { folder: tempfile::tempdir().unwrap() };
        for part in ["kernels", "configs", "patches"] {
            copy(&root().join(part), &project.path().join(part));
        }
        project
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A series of one patch that declares nothing.
    pub fn series(&self, name: &str, patch: &str) {
        self.write(&format!("patches/{name}/series.yaml"), &series_yaml("", ""));
        self.write(&format!("patches/{name}/0001-test.patch"), patch);
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = kvet_command();
        command.current_dir(self.path()).args(arguments);
        command.env("KVET_CACHE_DIR", cache()).env_remove("KVET_RUNS_DIR");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn kvet(&self, arguments: &[&str]) -> Ended {
        let began = Instant::now();
        finish(self.command(arguments).spawn().unwrap(), began)
    }

    pub fn result(&self) -> serde_json::Value {
        let text = fs::read(self.path().join("kvet-runs/latest/result.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    pub fn events(&self) -> String {
        fs::read_to_string(self.path().join("kvet-runs/latest/events.jsonl")).unwrap_or_default()
    }
}

/// kvet, which hears signals even where whoever started the tests does not: a shell has
/// what it starts in the background ignore Ctrl-C.
pub fn kvet_command() -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_kvet")]);
    command
}

pub fn finish(child: Child, began: Instant) -> Ended {
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: began.elapsed(),
    }
}

/// Processes whose command line holds `text`, zombies excepted.
pub fn processes(text: &str) -> Vec<String> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
        .filter(|line| line.contains(text) && line.contains("qemu-system"))
        .collect()
}

/// Whether a process is in a sandbox that shows it a part of `folder`, in which its
/// own paths are others: its mounts name it, by its place in its file system.
pub fn shows(process: &Path, folder: &Path) -> bool {
    let names: Vec<_> = folder.components().rev().take(2).collect();
    let name = |at: usize| {
        names
            .get(at)
            .map_or_else(String::new, |name| name.as_os_str().to_string_lossy().into_owned())
    };
    let place = format!("{}/{}", name(1), name(0));
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    mounts.lines().any(|line| line.contains(&place))
}

/// A folder with everything of /usr/bin but one program.
pub fn without(program: &str, folder: &Path) -> PathBuf {
    fs::create_dir(folder).unwrap();
    for entry in fs::read_dir("/usr/bin").unwrap().flatten() {
        if entry.file_name() != program {
            std::os::unix::fs::symlink(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    folder.to_owned()
}

/// A linear congruential generator: moments only have to be spread, and the
/// same ones come again when a test is repeated (Knuth's MMIX constants).
pub struct Moments(pub u64);

impl Moments {
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        from + (to.saturating_sub(from)).mul_f64(self.part())
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        ((self.part() * limit as f64) as usize).min(limit - 1)
    }

    fn part(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Waits until `done` says so.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(1200);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
