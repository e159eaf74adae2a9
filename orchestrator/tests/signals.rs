// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C, once and twice, wherever a run is: it ends with 130, soon or at once, and
//! leaves no process, no claim and no unfinished folder.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::tiny::Tiny;
use common::{Ended, Project, finish, own_cache, plan};

/// A run in folders that nobody else uses.
struct Scene {
    child: Child,
    /// The cache, which may have more than one name.
    cache: PathBuf,
    /// Where claims are.
    runtime: PathBuf,
    /// What `TMPDIR` names.
    temporary: PathBuf,
    /// The project.
    project: PathBuf,
}

impl Scene {
    fn start(mut command: Command, project: &Path, cache: &Path) -> Self {
        let (runtime, temporary) = (project.join("runtime"), project.join("tmp"));
        fs::create_dir_all(&runtime).unwrap();
        fs::create_dir_all(&temporary).unwrap();
        command.env("XDG_RUNTIME_DIR", &runtime).env("TMPDIR", &temporary);
        let child = command.env("KVET_CACHE_DIR", cache).spawn().unwrap();
        let (cache, project) = (cache.to_owned(), project.to_owned());
        Self { child, cache, runtime, temporary, project }
    }

    fn events(&self) -> String {
        let file = self.project.join("kvet-runs/latest/events.jsonl");
        fs::read_to_string(file).unwrap_or_default()
    }

    fn signal(&self, name: &str) {
        // It may have ended by itself after the first signal.
        let pid = self.child.id().to_string();
        Command::new("kill").args([&format!("-{name}"), &pid]).output().unwrap();
    }

    /// Sends signals, one after another, and gives what kvet came to. It has to end
    /// within `limit` and to leave nothing.
    #[track_caller]
    fn stop(self, signals: &[&str], limit: Duration) -> Ended {
        let began = Instant::now();
        for (number, name) in signals.iter().enumerate() {
            if number > 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
            self.signal(name);
        }
        let (cache, project) = (self.cache.clone(), self.project.clone());
        let (runtime, temporary) = (self.runtime.clone(), self.temporary.clone());
        let ended = finish(self.child, began);
        assert_eq!(ended.code, 130, "{signals:?}: {ended:?}");
        assert!(ended.took < limit, "{signals:?} took {:?}", ended.took);
        // The kernel takes a moment to bury what was killed.
        let deadline = Instant::now() + Duration::from_secs(1);
        while !of(&[&project, &cache]).is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let left = of(&[&project, &cache]);
        assert!(left.is_empty(), "{signals:?} left {left:?}");
        for (folder, may) in [
            (cache.join("scratch"), &[][..]),
            (temporary, &[]),
            (runtime.join("kvet"), &["lock"]),
            (project.join("kvet-runs"), &["latest"]),
        ] {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let run = |name: &str| folder.join(name).join("intent.json").exists();
            let left: Vec<_> =
                names.filter(|name| !may.contains(&name.as_str()) && !run(name)).collect();
            assert!(left.is_empty(), "{signals:?} left {left:?} in {}", folder.display());
        }
        ended
    }
}

/// Processes that work in one of these folders or name it, zombies excepted.
fn of(folders: &[&Path]) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let cwd = fs::read_link(entry.path().join("cwd")).ok()?;
            let here = |folder: &&Path| {
                cwd.starts_with(folder)
                    || line.contains(&*folder.to_string_lossy())
                    || common::shows(&entry.path(), folder)
            };
            (!line.is_empty() && folders.iter().any(here)).then_some(line)
        })
        .collect()
}

/// Waits until `done` says so.
#[track_caller]
fn soon(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const SOON: Duration = Duration::from_secs(8);
/// What a kvet has that ends at once, on a busy host.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A build whose compiler never ends and does not listen to SIGTERM.
fn building(tiny: &Tiny) -> Scene {
    tiny.change("Makefile", "@gcc -O1", "@trap '' TERM; touch compiling; sleep 4321; gcc -O1");
    tiny.commit("never");
    tiny.kernel("git: {repository: linux, revision: master}");
    tiny.plan("./one", "");
    let patch = "Subject: [PATCH] mm: two\n\n---\n--- a/mm/b.c\n+++ b/mm/b.c\n@@ -4,4 +4,4 @@ int four(int x)\n \tint unused_four;\n \n-\treturn x + 4;\n+\treturn x + 5;\n }\n";
    tiny.write("one/0001-test.patch", patch);
    let scene = Scene::start(tiny.command(&["build", "mine"]), &tiny.path(""), &tiny.path("cache"));
    soon("a compiler", || of(&[&tiny.path("cache")]).iter().any(|line| line == "sleep 4321 "));
    scene
}

#[test]
fn a_build_ends_soon_after_one_signal_and_at_once_after_two() {
    for signals in
        [&["INT"][..], &["INT", "INT"], &["TERM", "TERM"], &["HUP", "HUP"], &["INT", "TERM"]]
    {
        let tiny = Tiny::new();
        let limit = if signals.len() > 1 { AT_ONCE } else { SOON };
        let ended = building(&tiny).stop(signals, limit);
        if signals.len() == 1 {
            assert!(ended.stdout.contains("interrupted"), "{}", ended.stdout);
        }
    }
}

#[test]
fn a_build_that_waits_for_another_kvets_ends_without_it() {
    let tiny = Tiny::new();
    let first = building(&tiny);
    let command = tiny.command(&["build", "mine", "--runs-dir", "others"]);
    let second = Scene::start(command, &tiny.path(""), &tiny.path("cache"));
    let events = tiny.path("others/latest/events.jsonl");
    soon("a wait", || {
        fs::read_to_string(&events).unwrap_or_default().contains("being made already")
    });
    let began = Instant::now();
    second.signal("INT");
    let ended = finish(second.child, began);
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(ended.took < SOON, "{:?}", ended.took);
    first.stop(&["INT", "INT"], AT_ONCE);
}

#[test]
fn unpacking_ends_at_once_and_leaves_nothing() {
    for signals in [&["INT"][..], &["INT", "INT"]] {
        let tiny = Tiny::new();
        tiny.write("linux.tar", "any");
        let hash = Command::new("sha256sum").arg(tiny.path("linux.tar")).output().unwrap().stdout;
        let hash = String::from_utf8_lossy(&hash[..64]).into_owned();
        tiny.kernel(&format!("tarball: {{path: linux.tar, sha256: {hash}}}"));
        tiny.write("one/0001-test.patch", "Subject: [PATCH] nothing\n\nnothing\n");
        tiny.plan("./one", "");
        // It writes without end where kvet has it unpack, and so does its child.
        let tar = "#!/bin/sh\nfor to; do :; done\nwrite() { n=0; while :; do n=$((n + 1)); echo >\"$to/$1-$n\"; done; }\nwrite child & write own\n";
        tiny.write("bin/tar", tar);
        fs::set_permissions(tiny.path("bin/tar"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = tiny.command(&["build", "mine"]);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", tiny.path("bin").display()));
        let scene = Scene::start(command, &tiny.path(""), &tiny.path("cache"));
        soon("tar", || {
            let mut running = of(&[&tiny.path("cache")]);
            running.retain(|line| line.contains("bin/tar"));
            running.len() == 2
        });
        let ended = scene.stop(signals, AT_ONCE);
        assert!(signals.len() > 1 || ended.stdout.contains("interrupted"), "{}", ended.stdout);
    }
}

#[test]
fn a_guest_that_runs_boots_or_is_saved_ends_with_kvet() {
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: selftest_hang}", "");
    project.write("configs/plans/mine.yaml", &text);
    assert_eq!(project.kvet(&["build", "mine", "--variant", "base"]).code, 0);
    for signals in [&["INT"][..], &["INT", "INT"], &["TERM", "HUP"]] {
        for phase in ["boot", "save", "test"] {
            let cache = own_cache();
            let command = project.command(&["run", "mine", "--variant", "base"]);
            let scene = Scene::start(command, project.path(), cache.path());
            soon(phase, || match phase {
                "boot" => !of(&[project.path()])
                    .iter()
                    .filter(|line| line.contains("qemu-system"))
                    .collect::<Vec<_>>()
                    .is_empty(),
                "save" => {
                    let folders = fs::read_dir(cache.path().join("scratch"));
                    let mut folders = folders.into_iter().flatten().flatten();
                    folders.any(|folder| folder.path().join("state/memory").exists())
                }
                _ => scene.events().contains(r#""phase":"test""#),
            });
            let ended = scene.stop(signals, AT_ONCE);
            if signals.len() == 1 {
                assert!(ended.stdout.contains("interrupted"), "{phase}: {}", ended.stdout);
                assert_eq!(project.result()["exit_code"], 130, "{phase}");
            }
        }
    }
}

#[test]
fn the_second_signal_is_heard_when_kvet_itself_is_stuck() {
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: selftest_pass}", "");
    project.write("configs/plans/mine.yaml", &text);
    let cache = own_cache();
    let arguments = ["run", "mine", "--variant", "base"];
    let mut first = project.command(&arguments);
    let first = finish(first.env("KVET_CACHE_DIR", cache.path()).spawn().unwrap(), Instant::now());
    assert_eq!(first.code, 6, "{}{}", first.stdout, first.stderr);
    // A file that nobody ever writes: whoever opens it waits.
    let states = fs::read_dir(cache.path().join("states")).unwrap();
    let meta = states.flatten().next().unwrap().path().join("state.json");
    fs::remove_file(&meta).unwrap();
    assert!(Command::new("mkfifo").arg(&meta).status().unwrap().success());
    let scene = Scene::start(project.command(&arguments), project.path(), cache.path());
    soon("the last image", || scene.events().contains("build_finished"));
    std::thread::sleep(Duration::from_millis(500));
    scene.stop(&["INT", "INT"], Duration::from_secs(4));
}

#[test]
fn a_signal_that_is_to_be_ignored_is_ignored() {
    let tiny = Tiny::new();
    let prepared = building(&tiny);
    prepared.stop(&["INT", "INT"], AT_ONCE);
    // As nohup starts a program.
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal=INT,TERM", "sh"]);
    command.args(["-c", "trap '' HUP; exec \"$0\" build mine", env!("CARGO_BIN_EXE_kvet")]);
    command.current_dir(tiny.path("")).stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let scene = Scene::start(command, &tiny.path(""), &tiny.path("cache"));
    soon("a compiler", || of(&[&tiny.path("cache")]).iter().any(|line| line == "sleep 4321 "));
    scene.signal("HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(!scene.events().contains("build_failed"), "{}", scene.events());
    scene.stop(&["INT", "INT"], AT_ONCE);
}
