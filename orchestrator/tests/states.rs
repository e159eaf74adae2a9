// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saved machines, with a real kernel: saved once, restored for every test, and
//! never believed when damaged.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::guests::{Guests, job};
use common::{Ended, Project, finish, own_cache, plan};
use kvet::host::budget::Budget;
use kvet_records::{Job, Outcome};

fn run(project: &Project, cache: &Path, arguments: &[&str]) -> Ended {
    let mut command = project.command(&[&["run", "mine"], arguments].concat());
    command.env("KVET_CACHE_DIR", cache);
    let ended = finish(command.spawn().unwrap(), std::time::Instant::now());
    assert_eq!(ended.code, 6, "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("selftest_pass"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("fault"), "{}", ended.stdout);
    ended
}

fn states(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache.join("states")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// The hash that a state's `state.json` holds.
fn hash(state: &Path) -> String {
    let mut hasher = blake3::Hasher::new();
    for name in ["memory", "console", "records"] {
        let bytes = fs::read(state.join(name)).unwrap();
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    hasher.finalize().to_hex().to_string()
}

#[test]
fn a_machine_is_saved_once_restored_often_and_never_believed_when_damaged() {
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: selftest_pass}", "variants: [base, patched]\n");
    project.write("configs/plans/mine.yaml", &text);
    assert_eq!(project.kvet(&["build", "mine"]).code, 0);
    let folder = own_cache();
    let cache = folder.path();
    let saves = || project.events().matches("to save its start)\",\"halt\":\"saved\"").count();

    run(&project, cache, &["--variant", "base"]);
    assert_eq!(saves(), 1, "{}", project.events());
    assert_eq!(states(cache).len(), 1);

    let ended = run(&project, cache, &["--variant", "base", "--boots", "3"]);
    assert_eq!(saves(), 0);
    assert_eq!(project.events().matches("boot_finished").count(), 3);
    assert!(ended.stdout.contains("the same in 3 boots"), "{}", ended.stdout);

    run(&project, cache, &["--variant", "base", "--cold"]);
    assert_eq!(saves(), 0);
    let arguments = |test: &str| {
        let cell = "kvet-runs/latest/boots/khugepaged-cold.debian-6.12.microvm.up";
        fs::read_to_string(project.path().join(cell).join(test).join("qemu-arguments")).unwrap()
    };
    assert!(!arguments("base/selftest_pass").contains("-incoming"));

    // A flipped byte: saved anew.
    let memory = states(cache)[0].join("memory");
    let mut bytes = fs::read(&memory).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&memory, &bytes).unwrap();
    run(&project, cache, &["--variant", "base"]);
    assert_eq!(saves(), 1);
    assert!(arguments("base/selftest_pass").contains("-incoming"));

    // Whole by its hash, but QEMU does not take it: a cold boot, which is said.
    let state = &states(cache)[0];
    bytes.truncate(middle);
    fs::write(state.join("memory"), &bytes).unwrap();
    let meta = fs::read_to_string(state.join("state.json")).unwrap();
    let mut meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    meta["hash"] = hash(state).into();
    fs::write(state.join("state.json"), meta.to_string()).unwrap();
    run(&project, cache, &["--variant", "base"]);
    assert!(project.events().contains("a cold boot, since"), "{}", project.events());
    assert!(!arguments("base/selftest_pass").contains("-incoming"));
    assert_eq!(states(cache).len(), 0);
}

#[test]
fn what_the_kernel_said_before_the_save_belongs_to_every_boot() {
    let project = Project::new();
    let patch = "Subject: [PATCH] init: test\n\n---\n--- a/init/main.c\n+++ b/init/main.c\n@@ -1431,6 +1431,7 @@ static int __ref kernel_init(void *unused)\n {\n \tint ret;\n \n+\tWARN_ON(1);\n \t/*\n \t * Wait until kthreadd is all set-up.\n \t */\n";
    project.series("warns", patch);
    project.write("configs/plans/mine.yaml", &plan("warns", "", "{name: selftest_pass}", ""));
    for _ in 0..2 {
        let ended = project.kvet(&["run", "mine"]);
        assert_eq!(ended.code, 1, "{}", ended.stdout);
        assert!(ended.stdout.contains("splat (new): WARNING in kernel_init"), "{}", ended.stdout);
    }
    assert!(!project.events().contains("to save its start"), "{}", project.events());
}

#[test]
fn a_job_starts_at_the_guests_own_time_or_fails_when_that_is_past() {
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: selftest_pass}", "");
    project.write("configs/plans/mine.yaml", &text);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let budget = Budget::open(&project.path().join("budget"), 2, None).unwrap();
        let mut guests = Guests::new(&project, budget).await;
        let folder = project.path().join("boot");
        let at = |start_at_ms| Job { start_at_ms, ..job("j", "selftest_pass") };
        // A restored guest is up for as long as it was when it was saved.
        let plain = guests.boot("plain", at(None), folder.clone()).await;
        let waited = guests.boot("waited", at(Some(20_000)), folder.clone()).await;
        for report in [&plain, &waited] {
            assert_eq!(report.report.outcome, Some(Outcome::Completed), "{report:?}");
        }
        let (plain, waited) = (plain.start_seconds.unwrap(), waited.start_seconds.unwrap());
        assert!(waited > plain + 1.0, "{plain} s and {waited} s");
        guests.booter.cold = true;
        let cold = guests.boot("cold", at(Some(20_000)), folder.clone()).await;
        assert!(cold.start_seconds.unwrap() >= 20.0, "{cold:?}");
        let late = guests.boot("late", at(Some(1)), folder).await;
        assert!(
            matches!(&late.report.outcome, Some(Outcome::Failed { reason }) if reason.contains("is to start 1 ms after the boot")),
            "{late:?}"
        );
        assert!(late.fault("late").is_some());
    });
}
