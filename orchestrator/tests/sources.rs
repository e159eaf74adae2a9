// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where kernels come from: a user's clone, which stays as it was whatever
//! happens; a tarball; a folder.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::tiny::{Tiny, git, said};

/// A one-patch series for any source of the tiny kernel.
const PATCH: &str = "Subject: [PATCH] mm: seven\n\n--- a/mm/b.c\n+++ b/mm/b.c\n@@ -3,5 +3,5 @@ int four(int x)\n {\n \tint unused_four;\n \n-\treturn x + 4;\n+\treturn x + 7;\n }\n";

/// Everything below a folder: what it holds, and when it was written. Access
/// times are left out; reading is allowed.
fn state(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let data = std::fs::symlink_metadata(&path).unwrap();
            let content = if data.is_dir() {
                folders.push(path.clone());
                String::new()
            } else {
                format!("{:?}", std::fs::read(&path).unwrap_or_default())
            };
            let stamp =
                (data.mode(), data.ino(), data.mtime(), data.mtime_nsec(), data.ctime_nsec());
            all.insert(path.display().to_string(), format!("{stamp:?} {content}"));
        }
    }
    all
}

#[track_caller]
fn unchanged(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
    let differs = |name: &&String| before.get(*name) != after.get(*name);
    let names: Vec<&String> = before.keys().chain(after.keys()).filter(differs).collect();
    assert!(names.is_empty(), "changed: {names:?}");
}

/// A clone in which every program that git could be made to run leaves a mark.
fn trapped() -> Tiny {
    let tiny = Tiny::new();
    let trap = tiny.path("trap");
    tiny.write(
        "trap",
        &format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", tiny.path("sprung").display()),
    );
    std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o755)).unwrap();
    let trap = trap.to_string_lossy().into_owned();
    tiny.write(
        "linux/.gitattributes",
        "*.c filter=trap diff=trap\n*.h text eol=crlf\nmm/b.c ident\n",
    );
    tiny.change("mm/b.c", "int four", "/* $Id$ */\nint four");
    tiny.git(&["config", "core.autocrlf", "false"]);
    tiny.commit("attributes");
    tiny.git(&["tag", "trapped"]);
    for key in [
        "core.fsmonitor",
        "filter.trap.clean",
        "filter.trap.smudge",
        "filter.trap.process",
        "diff.trap.textconv",
        "diff.trap.command",
        "diff.external",
        "core.pager",
        "core.sshCommand",
        "uploadpack.packObjectsHook",
    ] {
        git(&tiny.path("linux"), &["config", key, &trap]);
    }
    for hook in
        ["pre-commit", "post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"]
    {
        let hook = tiny.path("linux/.git/hooks").join(hook);
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&trap, hook).unwrap();
    }
    tiny.kernel("git: {repository: linux, revision: trapped}");
    let patch = PATCH.replace("@@ -3,5 +3,5 @@", "@@ -4,5 +4,5 @@");
    tiny.write("one/0001.patch", &patch);
    tiny.plan("./one", "");
    let _ = std::fs::remove_file(tiny.path("sprung"));
    tiny
}

#[test]
fn a_users_clone_is_left_alone_and_runs_nothing() {
    let tiny = trapped();
    let before = state(&tiny.path("linux"));
    said(&tiny.build(&[]), 0, &["linux trapped", "patched"]);
    said(&tiny.build(&["--series", "linux:trapped~1..trapped"]), 6, &["nothing to do"]);
    tiny.plan("{git: linux, range: trapped~1..trapped}", "");
    said(&tiny.kvet(&["run", "mine", "--dry-run"]), 0, &["\"input\": \"trapped~1..trapped in"]);
    unchanged(&before, &state(&tiny.path("linux")));
    assert!(!tiny.path("sprung").exists(), "{:?}", std::fs::read_to_string(tiny.path("sprung")));
    // The traps are set: git itself falls into them.
    let _ = Command::new("git").current_dir(tiny.path("linux")).args(["status"]).output();
    assert!(tiny.path("sprung").exists());
    // What is built is what the commit holds, byte for byte.
    let source = std::fs::read_dir(tiny.path("cache/trees")).unwrap().flatten();
    let tree = source.map(|entry| entry.path()).find(|path| path.join("mm").is_dir()).unwrap();
    let built = std::fs::read_to_string(tree.join("mm/b.c")).unwrap();
    assert!(built.contains("/* $Id$ */"), "{built}");
}

#[test]
fn a_users_clone_is_left_alone_when_kvet_is_killed() {
    let tiny = trapped();
    let before = state(&tiny.path("linux"));
    for millis in [5, 20, 50, 90, 140, 200, 300, 450] {
        let mut child = tiny.command(&["build", "mine"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        let _ = child.kill();
        child.wait().unwrap();
        unchanged(&before, &state(&tiny.path("linux")));
    }
    said(&tiny.build(&[]), 0, &["patched"]);
    let killed = tiny.image("patched");
    unchanged(&before, &state(&tiny.path("linux")));
    assert!(!tiny.path("sprung").exists());
    let fresh = tiny.path("fresh");
    let mut command = tiny.command(&["build", "mine"]);
    let ended = command.env("KVET_CACHE_DIR", &fresh).output().unwrap();
    assert!(ended.status.success());
    assert_eq!(tiny.image("patched"), killed);
}

#[test]
fn uncommitted_changes_are_refused_or_taken_and_said() {
    let tiny = Tiny::new();
    tiny.write("one/0001.patch", PATCH);
    tiny.plan("./one", "");
    said(&tiny.build(&[]), 0, &["linux v6.12.3"]);
    let clean = tiny.image("base");
    tiny.change("mm/a.c", "x + 1", "x + 100");
    tiny.write("linux/untracked.c", "nothing\n");
    tiny.git(&["status"]);
    let before = state(&tiny.path("linux"));
    let words = [
        "the work tree is at v6.12.3 and has uncommitted changes in 1 file(s)",
        "mm/a.c",
        "--dirty",
    ];
    said(&tiny.build(&[]), 2, &[]);
    said(&tiny.build(&[]), 2, &words);
    said(&tiny.build(&["--dirty"]), 0, &["with 1 changed file(s) of its work tree"]);
    assert_ne!(tiny.image("base"), clean);
    unchanged(&before, &state(&tiny.path("linux")));
    // Another revision than HEAD has nothing to do with the work tree.
    tiny.git(&["stash", "--quiet"]);
    tiny.change("init/main.c", "return 0", "return 3");
    tiny.commit("init: three");
    tiny.change("mm/a.c", "x + 1", "x + 100");
    said(&tiny.build(&[]), 0, &["linux v6.12.3"]);
    assert_eq!(tiny.image("base"), clean);
    tiny.kernel("git: {repository: linux, revision: master}");
    said(&tiny.build(&[]), 2, &["the work tree is at master and has uncommitted changes"]);
}

#[test]
fn linked_work_trees_bare_repositories_and_shallow_clones_are_read() {
    let tiny = Tiny::new();
    tiny.change("init/main.c", "return 0", "return 3");
    tiny.commit("init: three");
    tiny.write("one/0001.patch", PATCH);
    tiny.plan("./one", "");
    said(&tiny.build(&[]), 0, &["patched"]);
    let image = tiny.image("patched");
    tiny.git(&["worktree", "add", "--quiet", "../linked", "v6.12.3"]);
    let top = tiny.path("");
    git(&top, &["clone", "--quiet", "--bare", "linux", "bare.git"]);
    let url = format!("file://{}", tiny.path("linux").display());
    git(&top, &["clone", "--quiet", "--depth=1", "--branch=v6.12.3", &url, "shallow"]);
    git(&top, &["clone", "--quiet", "--shared", "linux", "sha:red"]);
    for (repository, revision) in
        [("linked", "HEAD"), ("bare.git", "v6.12.3"), ("shallow", "HEAD"), ("sha:red", "HEAD~1")]
    {
        tiny.kernel(&format!("git: {{repository: \"{repository}\", revision: {revision}}}"));
        said(&tiny.build(&[]), 0, &["patched"]);
        assert_eq!(tiny.image("patched"), image, "{repository}");
    }
}

#[test]
fn what_is_no_repository_or_no_revision_is_said() {
    let tiny = Tiny::new();
    tiny.write("one/0001.patch", PATCH);
    tiny.plan("./one", "");
    for (source, words) in [
        ("git: {repository: nowhere, revision: v1}", ["kernels/tiny.yaml:2:19", "No such file"]),
        (
            "git: {repository: one, revision: v1}",
            ["no git repository", "name the top of a work tree"],
        ),
        ("git: {repository: linux, revision: v9}", ["no commit \"v9\"", "git rev-parse"]),
        (
            "git: {repository: linux, revision: --all}",
            ["\"--all\" is not a revision", "tiny.yaml:2"],
        ),
        ("git: {repository: linux, revision: a..b}", ["is a range", "tiny.yaml:2"]),
        (
            "directory: linux\ngit: {repository: linux, revision: v9}",
            ["names 2 sources", "give one"],
        ),
        ("# none", ["names no source", "give one of"]),
        ("git: {repo: linux}", ["unknown field `repo`", "repository"]),
    ] {
        tiny.kernel(source);
        said(&tiny.build(&[]), 2, &words);
    }
}

#[test]
fn a_tarball_and_a_folder_give_the_image_of_the_clone() {
    let tiny = Tiny::new();
    tiny.write("one/0001.patch", PATCH);
    tiny.plan("./one", "");
    said(&tiny.build(&[]), 0, &["patched"]);
    let image = tiny.image("patched");
    tiny.git(&["archive", "--prefix=linux-6.12.3/", "--output=../linux.tar.gz", "v6.12.3"]);
    let sum = Command::new("sha256sum").arg(tiny.path("linux.tar.gz")).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    let sum = sum.split(' ').next().unwrap();
    tiny.kernel(&format!("tarball: {{path: linux.tar.gz, sha256: {sum}}}"));
    said(&tiny.build(&[]), 0, &["linux.tar.gz", "patched"]);
    assert_eq!(tiny.image("patched"), image);
    // Another series on the same tree from another source builds in a tree of its own.
    tiny.write("two/0001.patch", &PATCH.replace("x + 7", "x + 8"));
    said(&tiny.build(&["--series", "./two"]), 0, &["patched"]);
    tiny.kernel(&format!("tarball: {{path: linux.tar.gz, sha256: {}}}", "0".repeat(64)));
    said(&tiny.build(&[]), 2, &[&format!("SHA-256 is {sum}, not 000"), "linux.tar.gz"]);
    tiny.kernel("tarball: {path: linux.tar.gz, sha256: abc}");
    said(&tiny.build(&[]), 2, &["64 hexadecimal digits", "tiny.yaml:2"]);

    let tar = Command::new("tar").current_dir(tiny.path("")).args(["xzf", "linux.tar.gz"]).status();
    assert!(tar.unwrap().success());
    tiny.kernel("directory: linux-6.12.3");
    let before = state(&tiny.path("linux-6.12.3"));
    said(&tiny.build(&[]), 0, &["folder linux-6.12.3", "patched"]);
    assert_eq!(tiny.image("patched"), image);
    unchanged(&before, &state(&tiny.path("linux-6.12.3")));
    // What changes in the folder changes the source.
    let text = std::fs::read_to_string(tiny.path("linux-6.12.3/mm/a.c")).unwrap();
    tiny.write("linux-6.12.3/mm/a.c", &text.replace("x + 2", "x + 22"));
    said(&tiny.build(&[]), 0, &["patched"]);
    assert_ne!(tiny.image("patched"), image);
    tiny.write("linux-6.12.3/.config", "");
    said(&tiny.build(&[]), 2, &["was built in: it has .config", "make mrproper"]);
    tiny.kernel("directory: one");
    said(&tiny.build(&[]), 2, &["the source has no Makefile"]);
}
