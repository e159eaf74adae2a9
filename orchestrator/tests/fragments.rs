// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every fragment of `configs/kconfig/`: granted by kconfig, and a kernel with it
//! boots and shows that it is on. A new file there is covered without a word here.
//!
//! Kernels take minutes each: `KVET_FRAGMENTS=all` (`make fragments`) builds and
//! boots them all, or those that it names (`kasan,clang`); without it, microvm alone.

mod common;

use std::fmt::Write as _;

use common::Project;
use common::fragments::{configure, fragments, kconfig_trees};
use kvet::kernel::kconfig::Request;
use kvet::plan::manifest::{Compiler, ConfigBase};
use kvet::plan::{Config, Fragment};

/// A kernel to boot.
struct Target {
    name: String,
    kernel: &'static str,
    compiler: &'static str,
    chain: Vec<String>,
}

/// What only a kernel with a fragment shows: conditions of a shell in the guest,
/// and words on the console.
fn proof(name: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match name {
        "microvm" => (&["[ -d /sys/kernel/mm/transparent_hugepage ]"], &[]),
        "clang" => (&["grep -q 'clang version' /proc/version"], &["clang version"]),
        "microvm-6.1" => (&["uname -r | grep -q '^6[.]1[.]'"], &["Linux version 6.1."]),
        "debug-vm" => (
            &[
                "[ -e /sys/module/kfence/parameters/sample_interval ]",
                "[ -e /sys/kernel/slab/kmalloc-64/red_zone ]",
                "grep -q ' check_new_page\\| free_page_is_bad_report\\| __dump_page' /proc/kallsyms",
            ],
            &[],
        ),
        "faults" => {
            (&["[ -d /sys/kernel/debug/fail_page_alloc ]", "[ -e /proc/self/make-it-fail ]"], &[])
        }
        "kasan" => (
            &["grep -q ' kasan_report$' /proc/kallsyms", "grep -q ' __ubsan_' /proc/kallsyms"],
            &["KernelAddressSanitizer initialized"],
        ),
        "kmemleak" => (&["[ -e /sys/kernel/debug/kmemleak ]"], &[]),
        "lockdep" => (
            &[
                "grep -q '^ lock-classes: *[1-9]' /proc/lockdep_stats",
                "grep -q ' __might_sleep$' /proc/kallsyms",
                "uname -v | grep -q ' PREEMPT '",
            ],
            &["Lock dependency validator"],
        ),
        "distribution" => (
            &["[ -e /proc/pressure/memory ]", "[ -d /sys/kernel/mm/lru_gen ]"],
            &["Spectre V2 : Mitigation"],
        ),
        "no-thp" => (&["[ ! -e /sys/kernel/mm/transparent_hugepage ]"], &[]),
        "numa" => (
            &[
                "[ -d /sys/devices/system/node/node1 ]",
                "[ \"$(cat /proc/sys/kernel/numa_balancing)\" = 0 ]",
                "grep -q '^numa_pages_migrated ' /proc/vmstat",
            ],
            &["Faking node 1 at"],
        ),
        "pci-net" => (
            &[
                "[ -d /sys/bus/pci/drivers/virtio-pci ]",
                "[ -d /sys/bus/virtio/drivers/virtio_blk ]",
                "grep -q 'ext4$' /proc/filesystems",
                "[ -e /sys/class/net/eth0/address ]",
                "ifconfig lo 127.0.0.1 up && ping -c 1 127.0.0.1",
                "[ -e /proc/net/unix ] && [ -e /proc/net/packet ]",
                "[ -e /dev/ptmx ]",
            ],
            &["ACPI: "],
        ),
        "preempt" => (&["uname -v | grep -q ' PREEMPT '"], &["Preemptible hierarchical RCU"]),
        "selftest" => (&["[ -e /proc/kvet_selftest ]"], &[]),
        "swap" => (&["[ -e /proc/swaps ]", "[ -b /dev/zram0 ]"], &[]),
        _ => (&[], &[]),
    }
}

/// More of a plan's guest than 512 MiB.
fn guest(name: &str) -> &'static str {
    match name {
        "numa" => ", append: [numa=fake=2]",
        "pci-net" => ", network: user",
        _ => "",
    }
}

fn targets() -> Vec<Target> {
    let mut targets: Vec<Target> = fragments()
        .into_iter()
        .map(|fragment| Target {
            name: fragment.name,
            kernel: "debian-6.12",
            compiler: "gcc",
            chain: fragment.chain,
        })
        .collect();
    for (name, kernel, compiler) in
        [("clang", "debian-6.12", "clang"), ("microvm-6.1", "debian-6.1", "gcc")]
    {
        let chain = vec!["microvm".to_owned()];
        targets.push(Target { name: name.to_owned(), kernel, compiler, chain });
    }
    targets
}

/// A script that says for each condition whether it holds.
fn script(conditions: &[&str]) -> String {
    let mut script = format!("#!/bin/sh\necho 1..{}\n", conditions.len());
    for (index, condition) in conditions.iter().enumerate() {
        let _ = writeln!(
            script,
            "if {condition} >/dev/null; then echo 'ok {0} c{0}'; else echo 'not ok {0} c{0}'; fi",
            index + 1
        );
    }
    script
}

/// Builds a kernel, boots it, and asks for its proof; what is wrong.
fn check(target: &Target) -> Result<String, String> {
    let Target { name, kernel, compiler, chain } = target;
    let (conditions, words) = proof(name);
    let project = Project::new();
    let (series, variant) = match name.as_str() {
        // Its symbol is brought by its patch.
        "selftest" => ("selftest", "patched"),
        _ => ("nothing", "base"),
    };
    project.write(
        "patches/nothing/series.yaml",
        &format!("schema: kvet/series/1\ntitle: a test\nkernels: {{{kernel}: {{}}}}\n"),
    );
    project.write("patches/nothing/0001-test.patch", "Subject: [PATCH] init: test\n\n---\n--- a/init/main.c\n+++ b/init/main.c\n@@ -1,2 +1,3 @@\n // SPDX-License-Identifier: GPL-2.0-only\n+/* a comment */\n /*\n");
    let mut tests = "  - {name: selftest_pass}\n".to_owned();
    if !conditions.is_empty() {
        project.write("configs/plans/proof.sh", &script(conditions));
        tests.push_str("  - {script: ./proof.sh, format: tap}\n");
    }
    let fragments = chain.join(", ");
    let guest = guest(name);
    let plan = format!(
        "schema: kvet/plan/1\nseries: [{series}]\nkernels: [{kernel}]\nconfigs:\n  {name}: {{base: tinyconfig, fragments: [{fragments}], compiler: {compiler}}}\nguests:\n  up: {{memory: 512MiB{guest}}}\ntests:\n{tests}"
    );
    project.write("configs/plans/mine.yaml", &plan);
    let ended = project.kvet(&["run", "mine", "--variant", variant]);
    // 6: one variant is compared with nothing.
    if ended.code != 6 {
        return Err(format!("exit {}\n{}\n{}", ended.code, ended.stdout, ended.stderr));
    }
    let result = project.result();
    let cell = &result["cells"][0];
    for test in cell["tests"].as_array().unwrap() {
        let observed = &test["behaviour"]["observations"][variant];
        let good = match test["name"].as_str() {
            Some("selftest_pass") => observed["passed"] == true,
            _ => (1..=conditions.len()).all(|number| observed[format!("c{number}")] == "ok"),
        };
        if !good {
            return Err(format!("{conditions:?}: {test:#}"));
        }
    }
    let id = format!("{series}.{kernel}.{name}.up");
    let log = format!("kvet-runs/latest/boots/{id}/{variant}/selftest_pass/console.log");
    let console = std::fs::read(project.path().join(&log)).unwrap();
    let console = String::from_utf8_lossy(&console);
    match words.iter().find(|word| !console.contains(**word)) {
        Some(word) => Err(format!("{word:?} is not in\n{console}")),
        None => Ok(format!(
            "{} of linux {}, {} proofs",
            cell["variants"][variant]["build"]["compiler"].as_str().unwrap_or_default(),
            cell["variants"][variant]["release"].as_str().unwrap_or_default(),
            conditions.len() + words.len(),
        )),
    }
}

#[test]
fn every_fragment_boots_and_shows_that_it_is_on() {
    let wanted = std::env::var("KVET_FRAGMENTS").unwrap_or_else(|_| {
        println!("not run: every fragment but microvm; `make fragments` builds and boots them all");
        "microvm".to_owned()
    });
    let wanted: Vec<&str> = wanted.split(',').collect();
    let targets = targets();
    for name in wanted.iter().filter(|name| **name != "all") {
        assert!(targets.iter().any(|target| target.name == *name), "there is no {name}");
    }
    let mut wrong = Vec::new();
    for target in &targets {
        if !wanted.contains(&"all") && !wanted.contains(&target.name.as_str()) {
            continue;
        }
        match check(target) {
            Ok(what) => println!("{}: {what}", target.name),
            Err(why) => {
                println!("{}: FAILED\n{why}", target.name);
                wrong.push(&target.name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn kconfig_grants_every_fragment() {
    let folder = tempfile::tempdir().unwrap();
    let trees = match kconfig_trees(folder.path()) {
        Ok(trees) => trees,
        Err(why) => return println!("not run: {why}"),
    };
    let text = |name: &str| {
        let path = common::root().join(format!("configs/kconfig/{name}.config"));
        std::fs::read_to_string(path).unwrap()
    };
    for tree in trees.iter().filter(|tree| tree.to_string_lossy().contains("linux-source-6.12")) {
        let base = configure(tree, "tinyconfig");
        for found in fragments() {
            if found.name == "selftest" {
                println!("not run: selftest, whose symbol only its patch brings");
                continue;
            }
            let fragment = |name: &String| Fragment {
                name: name.clone(),
                path: format!("{name}.config").into(),
                text: text(name),
            };
            let config = Config {
                name: found.name.clone(),
                base: ConfigBase::Tinyconfig.into(),
                compiler: Compiler::Gcc,
                fragments: found.chain.iter().map(fragment).collect(),
                overrides: Vec::new(),
            };
            let request = Request::read(&config).unwrap();
            std::fs::write(tree.join(".config"), format!("{base}{}", request.text())).unwrap();
            if let Err(fault) = request.check(&configure(tree, "olddefconfig"), tree) {
                panic!("{}: {fault}", found.name);
            }
            println!("{}: granted, {} overrides", found.name, request.overrides().len());
        }
    }
}
