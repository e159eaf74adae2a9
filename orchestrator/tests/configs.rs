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

/// A tiny kernel with a change of the test's, a series that does nothing to speak
/// of, and a plan with the config `tiny`.
fn kernel(change: impl FnOnce(&Tiny), config: &str) -> Tiny {
    let tiny = Tiny::new();
    change(&tiny);
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

/// What the calls of make left in the one tree.
fn heard(tiny: &Tiny) -> String {
    let trees = fs::read_dir(tiny.path("cache/trees")).unwrap().flatten();
    let mut found: Vec<_> = trees.map(|tree| tree.path().join("calls")).collect();
    found.retain(|file| file.is_file());
    assert_eq!(found.len(), 1, "{found:?}");
    fs::read_to_string(&found[0]).unwrap()
}

#[test]
fn every_make_is_told_of_clang() {
    // Each call leaves what it was asked for in the tree.
    let line = "$(shell echo '$(MAKECMDGOALS) by $(or $(LLVM),0)' >> calls)\nVERSION = 6";
    let change = |tiny: &Tiny| tiny.change("Makefile", "VERSION = 6", line);
    let tiny = kernel(change, "{base: tinyconfig, compiler: clang}");
    let ended = build_with(&tiny, &["clang", "ld.lld", "llvm-ar"]);
    said(&ended, 0, &[]);
    let compiler = &tiny.variant("base")["build"]["compiler"];
    assert_eq!(compiler, "clang version 1");
    let calls = heard(&tiny);
    for target in ["tinyconfig", "olddefconfig", "prepare", "bzImage vmlinux", "kernelrelease"] {
        assert!(calls.contains(&format!("{target} by 1\n")), "{target} is not in\n{calls}");
    }
    assert!(!calls.contains("by 0"), "{calls}");

    // The same with gcc is another image, and make hears nothing of LLVM.
    fs::remove_dir_all(tiny.path("cache/trees")).unwrap();
    let key = tiny.variant("base")["build"]["key"].clone();
    let plan = fs::read_to_string(tiny.path("configs/plans/mine.yaml")).unwrap();
    tiny.write("configs/plans/mine.yaml", &plan.replace("clang", "gcc"));
    said(&tiny.build(&[]), 0, &[]);
    assert_ne!(tiny.variant("base")["build"]["key"], key);
    let calls = heard(&tiny);
    assert!(calls.contains("vmlinux by 0\n") && !calls.contains("by 1"), "{calls}");
}

/// What kconfig does to `.config` here: SWAP goes where BLOCK is not.
const KCONFIG: &str = "config MMU\n\tdef_bool y\nmenu \"Enable the block layer\"\nconfig BLOCK\n\tbool \"Block layer\"\nendmenu\nif MMU\nconfig SWAP\n\tbool \"Swap\"\n\tdepends on BLOCK\nendif\n";

/// [`kernel`] with that Kconfig.
fn configured(config: &str) -> Tiny {
    let change = |tiny: &Tiny| {
        tiny.write("linux/Kconfig", KCONFIG);
        // Later lines win, as with kconfig.
        tiny.change(
            "Makefile",
            "\t@touch .config\n",
            "\t@touch .config; echo CONFIG_MMU=y >> .config; tac .config | awk -F'[= ]' '!seen[$$1 == \"\\#\" ? $$2 : $$1]++' | tac > .new\n\t@grep -q ^CONFIG_BLOCK=y .new || sed -i /CONFIG_SWAP/d .new; mv .new .config\n",
        );
    };
    kernel(change, config)
}

#[test]
fn a_dropped_symbol_comes_with_its_unmet_dependency() {
    let tiny = configured("{base: tinyconfig, fragments: [swap]}");
    tiny.write("configs/kconfig/swap.config", "# Needs a block device.\nCONFIG_SWAP=y\n");
    let words = [
        "kconfig does not grant CONFIG_SWAP",
        "swap.config:2:1: CONFIG_SWAP: asked for y, got n: it depends on BLOCK, which is n (Kconfig:10)",
        "CONFIG_BLOCK=y can be asked for (Kconfig:4)",
    ];
    said(&tiny.build(&[]), 2, &words);
    // What it says is enough.
    tiny.write("configs/kconfig/swap.config", "CONFIG_SWAP=y\nCONFIG_BLOCK=y\n");
    said(&tiny.build(&[]), 0, &[]);
}

#[test]
fn fragments_that_disagree_are_told_apart_and_the_later_one_wins() {
    let tiny = configured("{base: tinyconfig, fragments: [one, two]}");
    tiny.write("configs/kconfig/one.config", "CONFIG_BLOCK=y\nCONFIG_SWAP=y\n");
    tiny.write("configs/kconfig/two.config", "\n# CONFIG_SWAP is not set\n");
    let words = "CONFIG_SWAP: fragment two (line 2) asks for n and wins over one (line 2), which asks for y";
    said(&tiny.build(&[]), 0, &[&format!("config tiny: {words}"), &format!("\n  {words}\n")]);
    let text = fs::read_to_string(tiny.path("kvet-runs/latest/result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = &result["cells"][0]["overrides"][0];
    assert_eq!((&found["symbol"], &found["loses"]["value"]), (&"CONFIG_SWAP".into(), &"y".into()));
    let place = found["wins"]["place"].as_str().unwrap();
    assert!(place.ends_with("configs/kconfig/two.config:2:1"), "{place}");
    let events = fs::read_to_string(tiny.path("kvet-runs/latest/events.jsonl")).unwrap();
    assert!(events.contains(words), "{events}");
    let dry = tiny.kvet(&["run", "mine", "--dry-run"]);
    said(&dry, 0, &["\"overrides\"", "\"fragment\": \"two\""]);
    let image = tiny.variant("base")["build"]["key"].clone();

    // The other way round the other one wins.
    let plan = fs::read_to_string(tiny.path("configs/plans/mine.yaml")).unwrap();
    tiny.write("configs/plans/mine.yaml", &plan.replace("[one, two]", "[two, one]"));
    said(&tiny.build(&[]), 0, &["fragment one (line 2) asks for y and wins over two"]);
    assert_ne!(tiny.variant("base")["build"]["key"], image);

    // Within one fragment it is a mistake, and known before anything is built.
    tiny.write("configs/kconfig/one.config", "CONFIG_SWAP=y\nCONFIG_BLOCK=y\nCONFIG_SWAP=m\n");
    let words = ["one.config:3:1", "CONFIG_SWAP is asked for twice", "one.config:1:1"];
    said(&tiny.kvet(&["run", "mine", "--dry-run"]), 2, &words);
}

#[test]
fn a_given_config_is_a_base_of_its_own() {
    let tiny = configured("{base: ./given.config, fragments: [block]}");
    tiny.write("configs/kconfig/block.config", "CONFIG_BLOCK=y\n");
    // SWAP is the base's: that it goes is no fault.
    let given = tiny.path("configs/plans/given.config");
    fs::write(&given, "# Linux/x86 6.12.3 Kernel Configuration\nCONFIG_BASE=\"one\"\n").unwrap();
    said(&tiny.build(&[]), 0, &[]);
    let key = tiny.variant("base")["build"]["key"].clone();
    let config = |key: &serde_json::Value| {
        let path = format!("cache/images/{}/config", key.as_str().unwrap());
        fs::read_to_string(tiny.path(&path)).unwrap()
    };
    let text = config(&key);
    assert!(text.contains("CONFIG_BASE=\"one\"\n") && text.contains("CONFIG_BLOCK=y\n"), "{text}");
    said(&tiny.kvet(&["run", "mine", "--dry-run"]), 0, &["configs/plans/given.config"]);

    // Its text is what counts; what it asks for may be dropped.
    fs::write(&given, "CONFIG_BASE=\"two\"\nCONFIG_SWAP=y\n").unwrap();
    tiny.write("configs/kconfig/block.config", "# CONFIG_BLOCK is not set\n");
    said(&tiny.build(&[]), 0, &[]);
    let other = tiny.variant("base")["build"]["key"].clone();
    assert_ne!(other, key);
    assert!(!config(&other).contains("SWAP"), "{}", config(&other));

    fs::write(&given, "CONFIG_BASE=\"two\"\nint main(void);\n").unwrap();
    said(&tiny.build(&[]), 2, &["given.config:2:1", "not a .config", "int main(void);"]);
    fs::remove_file(&given).unwrap();
    said(
        &tiny.build(&[]),
        2,
        &["mine.yaml:4:24", "given.config: No such file", "`base:` is tinyconfig"],
    );
    let plan = fs::read_to_string(tiny.path("configs/plans/mine.yaml")).unwrap();
    tiny.write("configs/plans/mine.yaml", &plan.replace("./given.config", "tinyconfg"));
    said(
        &tiny.build(&[]),
        2,
        &["mine.yaml:4:17", "a path of a .config", "did you mean `tinyconfig`?"],
    );
}
