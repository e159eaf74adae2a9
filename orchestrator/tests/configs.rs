// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a kernel comes to be configured, on a kernel of three files: the compiler,
//! the base, and what fragments ask for.

mod common;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use common::tiny::{Tiny, said};
use common::{Ended, finish};

/// A tiny kernel whose Makefile begins with `lines`, a series that does nothing to
/// speak of, and a plan with the config `tiny`.
fn kernel(lines: &str, config: &str) -> Tiny {
    let tiny = Tiny::new();
    let makefile = fs::read_to_string(tiny.path("linux/Makefile")).unwrap();
    tiny.write("linux/Makefile", &format!("{lines}{makefile}"));
    tiny.commit("what the test needs");
    tiny.git(&["tag", "--force", "v6.12.3"]);
    tiny.git(&["checkout", "--quiet", "-b", "topic"]);
    tiny.change("mm/a.c", "return x + 2;", "return x + 4;");
    tiny.commit("mm: count two further");
    tiny.folder("mine", "topic", "");
    tiny.plan("mine", "");
    let plan = fs::read_to_string(tiny.path("configs/plans/mine.yaml")).unwrap();
    tiny.write("configs/plans/mine.yaml", &plan.replace("{base: tinyconfig}", config));
    tiny
}

/// `kvet build mine` with these programs, each of which prints its name, first in `PATH`.
fn build_with(tiny: &Tiny, programs: &[&str]) -> Ended {
    let bin = tiny.path("bin");
    fs::create_dir_all(&bin).unwrap();
    for program in programs {
        fs::write(bin.join(program), format!("#!/bin/sh\necho {program} version 1\n")).unwrap();
        fs::set_permissions(bin.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut path: OsString = bin.into();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let began = Instant::now();
    finish(tiny.command(&["build", "mine"]).env("PATH", path).spawn().unwrap(), began)
}

#[test]
fn every_make_is_told_of_clang() {
    // Each call leaves what it was asked for beside the tree.
    let lines = "$(shell echo '$(MAKECMDGOALS) by $(or $(LLVM),0)' >> ../calls)\n";
    let tiny = kernel(lines, "{base: tinyconfig, compiler: clang}");
    let ended = build_with(&tiny, &["clang", "ld.lld", "llvm-ar"]);
    said(&ended, 0, &[]);
    let compiler = &tiny.variant("base")["build"]["compiler"];
    assert_eq!(compiler, "clang version 1");
    let calls = fs::read_to_string(tiny.path("cache/trees/calls")).unwrap();
    for target in ["tinyconfig", "olddefconfig", "prepare", "bzImage vmlinux", "kernelrelease"] {
        assert!(calls.contains(&format!("{target} by 1\n")), "{target} is not in\n{calls}");
    }
    assert!(!calls.contains("by 0"), "{calls}");

    // The same with gcc is another image, and make hears nothing of LLVM.
    fs::remove_file(tiny.path("cache/trees/calls")).unwrap();
    let key = tiny.variant("base")["build"]["key"].clone();
    let plan = fs::read_to_string(tiny.path("configs/plans/mine.yaml")).unwrap();
    tiny.write("configs/plans/mine.yaml", &plan.replace("clang", "gcc"));
    said(&tiny.build(&[]), 0, &[]);
    assert_ne!(tiny.variant("base")["build"]["key"], key);
    let calls = fs::read_to_string(tiny.path("cache/trees/calls")).unwrap();
    assert!(calls.contains("vmlinux by 0\n") && !calls.contains("by 1"), "{calls}");
}
