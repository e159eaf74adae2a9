// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real kernels, built and booted. The first test to come builds the kernel;
//! the others compile only what their patches touch.

mod common;

use std::time::Instant;

use common::{Ended, Project, finish, plan, processes, series_yaml, wait_until};

/// A change to init/main.c, where kernel_init() begins.
fn patch_kernel_init(line: &str) -> String {
    format!(
        "Subject: [PATCH] init: test\n\n---\n--- a/init/main.c\n+++ b/init/main.c\n@@ -1431,6 +1431,7 @@ static int __ref kernel_init(void *unused)\n {{\n \tint ret;\n \n+{line}\n \t/*\n \t * Wait until kthreadd is all set-up.\n \t */\n"
    )
}

#[track_caller]
fn ended_with(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "stdout:\n{}\nstderr:\n{}", ended.stdout, ended.stderr);
    for word in words {
        assert!(ended.stdout.contains(word), "{word:?} is not in\n{}", ended.stdout);
    }
}

/// Runs a series with one patch and one test.
fn run(name: &str, patch: &str, guest: &str, test: &str, rest: &str) -> (Project, Ended) {
    let project = Project::new();
    project.series(name, patch);
    project.write("configs/plans/mine.yaml", &plan(name, guest, test, rest));
    let ended = project.kvet(&["run", "mine"]);
    (project, ended)
}

#[test]
fn the_demo_sees_what_the_series_changes_and_a_second_run_builds_nothing() {
    let project = Project::new();
    let ended = project.kvet(&["run", "khugepaged-cold"]);
    ended_with(&ended, 0, &["behaviour expected", "snapshots: base pending, patched pending"]);
    let result = project.result();
    let observed = |variant: &str, name: &str| {
        result["cells"][0]["tests"][0]["behaviour"]["observations"][variant][name].clone()
    };
    for (name, base, patched) in [("kicks.none", 9, 9), ("kicks.cold", 9, 5), ("kicks.free", 9, 5)]
    {
        assert_eq!(observed("base", name), base, "{name}");
        assert_eq!(observed("patched", name), patched, "{name}");
    }
    let images = &result["cells"][0]["variants"];
    assert_ne!(images["base"]["image_sha256"], images["patched"]["image_sha256"]);

    assert_eq!(project.kvet(&["accept", "khugepaged-cold"]).code, 0);
    let again = project.kvet(&["run", "khugepaged-cold"]);
    ended_with(&again, 0, &["from the store", "snapshots: base matches, patched matches"]);
    assert!(!project.events().contains("build_started"));

    // The accepted behaviour is what the workspace accepted, too.
    let accepted = common::root().join("snapshots/khugepaged-cold");
    for entry in std::fs::read_dir(accepted).unwrap().flatten() {
        let ours = project.path().join("snapshots/khugepaged-cold").join(entry.file_name());
        assert_eq!(std::fs::read(&ours).unwrap(), std::fs::read(entry.path()).unwrap());
    }

    let report = project.kvet(&["report", "kvet-runs/latest", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!((report.code, json["schema"].as_str()), (0, Some("kvet/run/1")));
    let letter = project.kvet(&["report", "kvet-runs/latest", "--format", "cover-letter"]);
    assert_eq!(letter.code, 0);
    assert!(letter.stdout.contains("\n    kicks.cold: 9 -> 5\n"), "{}", letter.stdout);
    assert!(letter.stdout.contains("This run measured nothing"), "{}", letter.stdout);
    for file in ["console.log", "kvet.sh", "qemu-arguments", "qmp.log", "records.jsonl"] {
        let folder =
            "kvet-runs/latest/boots/khugepaged-cold.debian-6.12.microvm.up/base/khugepaged_cold";
        assert!(project.path().join(folder).join(file).is_file(), "{file}");
    }
}

#[test]
fn behaviour_that_differs_from_what_was_accepted_is_an_exit_of_1() {
    let project = Project::new();
    let name = "khugepaged-cold.debian-6.12.microvm.up.khugepaged_cold.base.snap";
    project.write(
        &format!("snapshots/khugepaged-cold/{name}"),
        "---\nsource: x\n---\nkicks.none = 8\n",
    );
    let ended = project.kvet(&["run", "khugepaged-cold"]);
    ended_with(&ended, 1, &["behaviour expected", "base differs"]);
    let review = project.kvet(&["review", "khugepaged-cold"]);
    assert!(review.stdout.contains("-kicks.none = 8\n"), "{}", review.stdout);
}

#[test]
fn a_symbol_that_kconfig_drops_is_named() {
    let project = Project::new();
    project
        .write("configs/kconfig/swap.config", "# Swapping needs a block device.\nCONFIG_SWAP=y\n");
    let text = plan("khugepaged-cold", "", "{name: selftest_pass}", "");
    project.write("configs/plans/mine.yaml", &text.replace("[microvm]", "[microvm, swap]"));
    let ended = project.kvet(&["run", "mine"]);
    let words = [
        "swap.config:2:1",
        "kconfig does not grant CONFIG_SWAP",
        "it depends on BLOCK, which is n (mm/Kconfig:",
        "CONFIG_BLOCK=y can be asked for (block/Kconfig:",
    ];
    ended_with(&ended, 2, &words);
}

#[test]
fn a_hunk_that_does_not_match_is_shown_with_what_is_there() {
    let patch = patch_kernel_init("\tcpu_relax();").replace("kthreadd is all", "kthreadd was all");
    let (_project, ended) = run("stale", &patch, "", "{name: selftest_pass}", "");
    ended_with(
        &ended,
        5,
        &["0001-test.patch", "init/main.c:1431", "kthreadd was all", "kthreadd is all"],
    );
}

#[test]
fn a_series_that_does_not_build_is_shown_with_the_compilers_first_error() {
    let patch = patch_kernel_init("\tno_such_function_anywhere();");
    let (project, ended) = run("broken", &patch, "", "{name: selftest_pass}", "");
    ended_with(
        &ended,
        5,
        &[
            "patched broken/debian-6.12/microvm does not build",
            "init/main.c:1435",
            "no_such_function_anywhere",
        ],
    );
    // What was done before the fault is not lost.
    assert!(project.result()["cells"][0]["variants"]["base"]["image_sha256"].is_string());
}

#[test]
fn a_kernel_that_panics_at_boot_is_shown_with_its_last_words() {
    let project = Project::new();
    let text = plan("khugepaged-cold", ", append: [rdinit=/nowhere]", "{name: selftest_pass}", "");
    project.write("configs/plans/mine.yaml", &text);
    let ended = project.kvet(&["run", "mine"]);
    ended_with(&ended, 4, &["Kernel panic - not syncing: ", "kernel panic: "]);
    assert!(ended.took.as_secs() < 1200);
}

#[test]
fn a_kernel_that_hangs_at_boot_is_given_up_at_its_deadline() {
    let patch = patch_kernel_init("\tfor (;;)\n+\t\tcpu_relax();").replace("1431,7", "1431,8");
    let (project, ended) =
        run("hang", &patch, "", "{name: selftest_pass}", "deadlines: {boot: 15s}\n");
    ended_with(&ended, 4, &["boot hung in phase kernel (deadline 15 s)"]);
    let result = project.result();
    let tests = &result["cells"][0]["tests"][0];
    assert_eq!(tests["faults"].as_array().unwrap().len(), 1, "base boots, patched hangs: {tests}");
    assert!(processes("hang/debian-6.12").is_empty());
}

#[test]
fn a_kernel_that_hangs_after_its_test_is_no_pass() {
    let patch = "Subject: [PATCH] reboot: hang\n\n---\n--- a/kernel/reboot.c\n+++ b/kernel/reboot.c\n@@ -284,5 +284,7 @@\n  */\n void kernel_restart(char *cmd)\n {\n+\tfor (;;)\n+\t\tcpu_relax();\n \tkernel_restart_prepare(cmd);\n \tdo_kernel_restart_prepare();\n";
    let (_project, ended) = run("restart", patch, "", "{name: selftest_pass}", "");
    ended_with(&ended, 4, &["the guest hung after its job", "vCPU 0 is at __do_sys_reboot+"]);
}

#[test]
fn guest_tests_that_go_wrong_are_test_faults() {
    let project = Project::new();
    let tests = "{name: selftest_kill}\n  - {name: selftest_exit}\n  - {name: selftest_hang}\n  - {name: selftest_pass}";
    project.write(
        "configs/plans/mine.yaml",
        &plan("khugepaged-cold", "", tests, "deadlines: {test: 12s}\n"),
    );
    let ended = project.kvet(&["run", "mine", "--variant", "base"]);
    ended_with(
        &ended,
        7,
        &["killed by signal 11 (SIGSEGV)", "exited with status", "was not done after 12 s"],
    );
    // The others' results are kept.
    assert_eq!(project.result()["cells"][0]["tests"][3]["faults"], serde_json::json!([]));
}

#[test]
fn a_kernel_that_panics_during_a_test_is_a_kernel_fault() {
    let project = Project::new();
    project.write(
        "configs/plans/mine.yaml",
        &plan("khugepaged-cold", "", "{name: selftest_panic}", ""),
    );
    let ended = project.kvet(&["run", "mine", "--variant", "base"]);
    ended_with(&ended, 4, &["sysrq", "panic"]);
}

#[test]
fn a_series_that_changes_nothing_is_identical_and_no_pass() {
    let (_project, ended) = run(
        "empty",
        "Subject: [PATCH] nothing\n\nnothing\n---\n",
        "",
        "{name: khugepaged_cold}",
        "",
    );
    ended_with(&ended, 6, &["identical: the series changes nothing"]);
}

#[test]
fn a_series_that_undoes_the_declared_change_is_no_pass() {
    // The source gets the series as a prerequisite; what is under test takes it out.
    let project = Project::new();
    let folder = project.path().join("patches/khugepaged-cold");
    let patch = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "patch"))
        .unwrap();
    let forward = std::fs::read_to_string(&patch).unwrap();
    project.write("patches/prerequisites/cold/0001.patch", &forward);
    let declared = std::fs::read_to_string(folder.join("series.yaml")).unwrap();
    let expect = &declared[declared.find("expect:").unwrap()..];
    project.write("patches/undo/series.yaml", &series_yaml("prerequisites: [cold]", expect));
    project.write("patches/undo/0001-undo.patch", &reversed(&forward));
    project.write("configs/plans/mine.yaml", &plan("undo", "", "{name: khugepaged_cold}", ""));
    let ended = project.kvet(&["run", "mine"]);
    ended_with(&ended, 1, &["behaviour unexpected", "declared for kicks.cold: 9 -> 5"]);
}

/// A unified diff the other way round.
fn reversed(patch: &str) -> String {
    let mut out = String::new();
    let (mut inside, mut pending): (bool, Vec<String>) = (false, Vec::new());
    for line in patch.lines() {
        inside = if line.starts_with("@@") {
            true
        } else {
            inside && !line.starts_with("diff --git") && line != "-- "
        };
        let added = inside.then(|| line.strip_prefix('+')).flatten();
        match added {
            // What was added is removed, and stands before what it replaced.
            Some(rest) => out.push_str(&format!("-{rest}\n")),
            None => {
                let removed = inside.then(|| line.strip_prefix('-')).flatten();
                match removed {
                    Some(rest) => pending.push(format!("+{rest}\n")),
                    None => {
                        out.extend(pending.drain(..));
                        let swapped = line
                            .strip_prefix("@@ -")
                            .and_then(|rest| rest.split_once(" @@"))
                            .and_then(|(range, tail)| Some((range.split_once(" +")?, tail)))
                            .map(|((old, new), tail)| format!("@@ -{new} +{old} @@{tail}"));
                        out.push_str(&swapped.unwrap_or_else(|| line.to_owned()));
                        out.push('\n');
                    }
                }
            }
        }
    }
    out.extend(pending);
    out
}

#[test]
fn a_source_that_already_holds_the_series_leaves_nothing_to_do() {
    let project = Project::new();
    let forward = std::fs::read_dir(project.path().join("patches/khugepaged-cold"))
        .unwrap()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().ends_with(".patch"))
        .map(|entry| std::fs::read_to_string(entry.path()).unwrap())
        .unwrap();
    project.write("patches/prerequisites/cold/0001.patch", &forward);
    project.write("patches/again/series.yaml", &series_yaml("prerequisites: [cold]", ""));
    project.write("patches/again/0001-again.patch", &forward);
    project.write("configs/plans/mine.yaml", &plan("again", "", "{name: khugepaged_cold}", ""));
    let ended = project.kvet(&["run", "mine"]);
    ended_with(&ended, 6, &["nothing to do", "already holds the series again"]);
}

/// A QEMU that hangs with KVM and works without, first in `PATH`.
fn hanging_kvm(project: &Project) -> std::ffi::OsString {
    use std::os::unix::fs::PermissionsExt;
    project.write(
        "bin/qemu-system-x86_64",
        "#!/bin/sh\ncase \"$*\" in\n*'-accel kvm'*) exec sleep 1000 ;;\nesac\nPATH=${PATH#*:} exec qemu-system-x86_64 \"$@\"\n",
    );
    let path = project.path().join("bin/qemu-system-x86_64");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut folders = vec![project.path().join("bin")];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    std::env::join_paths(folders).unwrap()
}

#[test]
fn a_kvm_whose_guests_hang_is_found_out_and_the_translator_used() {
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        println!(
            "not run: /dev/kvm cannot be opened here ({error}), so there is nothing to find out"
        );
        return;
    }
    let project = Project::new();
    let path = hanging_kvm(&project);
    let began = Instant::now();
    let doctor = project.command(&["doctor"]).env("PATH", &path).spawn().unwrap();
    let doctor = finish(doctor, began);
    assert!(doctor.took.as_secs() < 15, "{:?}", doctor.took);
    let words =
        "KVM                  not used: a guest of a hundred instructions was not done after 4 s";
    assert!(doctor.stdout.contains(words), "{}", doctor.stdout);

    project.write(
        "configs/plans/mine.yaml",
        &plan("khugepaged-cold", "", "{name: selftest_pass}", ""),
    );
    let mut command = project.command(&["run", "mine", "--variant", "base"]);
    let ended = finish(command.env("PATH", &path).spawn().unwrap(), Instant::now());
    ended_with(
        &ended,
        6,
        &["tcg (no KVM: a guest of a hundred instructions", "nothing was compared"],
    );
}

#[test]
fn ctrl_c_during_a_boot_ends_everything_at_once() {
    let project = Project::new();
    project.series("stopped", "Subject: [PATCH] mm: nothing\n\n--- a/mm/khugepaged.c\n+++ b/mm/khugepaged.c\n@@ -1,3 +1,4 @@\n // SPDX-License-Identifier: GPL-2.0\n+/* a line that moves the others */\n #define pr_fmt(fmt) KBUILD_MODNAME \": \" fmt\n \n");
    project.write("configs/plans/mine.yaml", &plan("stopped", "", "{name: selftest_hang}", ""));
    let began = Instant::now();
    let child = project.command(&["run", "mine"]).spawn().unwrap();
    wait_until("a running guest test", || project.events().contains(r#""phase":"test""#));
    // One guest of each variant, where the host has room for both.
    assert!((1..=2).contains(&processes("stopped/debian-6.12").len()));
    interrupt(&child);
    let stopped = Instant::now();
    let ended = finish(child, began);
    assert!(stopped.elapsed().as_secs() < 5, "{:?}", stopped.elapsed());
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(processes("stopped/debian-6.12").is_empty());
    assert_eq!(project.result()["exit_code"], 130);
    let scratch = std::fs::read_dir(common::cache().join("scratch")).unwrap().count();
    assert!(scratch <= 2, "only other tests may be at work: {scratch}");
}

#[test]
fn ctrl_c_during_a_build_does_not_damage_the_next() {
    let project = Project::new();
    // Another patch each time, so that there is something to build.
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    project.series("resumed", &patch_kernel_init(&format!("\tpr_info(\"kvet: {now}\\n\");")));
    project.write("configs/plans/mine.yaml", &plan("resumed", "", "{name: selftest_pass}", ""));
    let began = Instant::now();
    let child = project.command(&["run", "mine"]).spawn().unwrap();
    wait_until("the patched build", || {
        project
            .events()
            .lines()
            .any(|line| line.contains("build_progress") && line.contains("patched"))
    });
    interrupt(&child);
    let ended = finish(child, began);
    assert_eq!(ended.code, 130, "{ended:?}");
    ended_with(&project.kvet(&["run", "mine"]), 0, &["behaviour same"]);
}

fn interrupt(child: &std::process::Child) {
    let status =
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// Programs of every kind, with a series that breaks reading /proc/version.
#[test]
fn what_a_series_breaks_for_any_program_is_told_from_what_always_fails() {
    let project = Project::new();
    project.series(
        "mute",
        "Subject: [PATCH] proc: test\n\n---\n--- a/fs/proc/version.c\n+++ b/fs/proc/version.c\n@@ -9,6 +9,7 @@\n \n static int version_proc_show(struct seq_file *m, void *v)\n {\n+\treturn -EIO;\n \tseq_printf(m, linux_proc_banner,\n \t\tutsname()->sysname,\n \t\tutsname()->release,\n",
    );
    // Only what is built into any shell.
    project.write(
        "configs/plans/t.sh",
        "echo TAP version 13\necho 1..3\nif read -r version </proc/version; then echo ok 1 version; else echo not ok 1 version; fi\necho not ok 2 always\necho ok 3 never '# SKIP no reason'\nexit 1\n",
    );
    let mut tests = String::from(
        "{script: t.sh, format: tap}\n  - {kselftest: mm/madv_populate}\n  - {exec: /bin/cat, args: [/proc/version], name: dynamic}",
    );
    let stress = std::path::Path::new("/usr/bin/stress-ng").is_file();
    if stress {
        tests.push_str("\n  - {exec: /usr/bin/stress-ng, args: [--madvise, 1, --timeout, 2]}");
    } else {
        println!("not run: stress-ng, which is not installed here (./setup installs it)");
    }
    project.write("configs/plans/mine.yaml", &plan("mute", "", &tests, ""));
    let ended = project.kvet(&["run", "mine"]);
    ended_with(&ended, 1, &["behaviour unexpected", "behaviour same"]);
    let result = project.result();
    let cell = &result["cells"][0];
    let observed =
        |at: usize, variant: &str| cell["tests"][at]["behaviour"]["observations"][variant].clone();
    let base = serde_json::json!({
        "version": "ok", "always": "not ok", "never": "skip", "exit": "status 1"
    });
    assert_eq!(observed(0, "base"), base);
    let verdicts = cell["tests"][0]["behaviour"]["rows"].as_array().unwrap();
    let unexpected: Vec<&str> = verdicts
        .iter()
        .filter(|row| row["verdict"] == "unexpected")
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(unexpected, ["version"]);
    let populate = observed(1, "patched");
    let passed = populate.as_object().unwrap().values().filter(|value| **value == "ok").count();
    assert_eq!((passed, &populate["exit"]), (16, &serde_json::json!("pass")), "{populate}");
    assert_eq!(observed(2, "base"), serde_json::json!({"exit": "pass"}));
    assert_eq!(observed(2, "patched"), serde_json::json!({"exit": "status 1"}));
    if stress {
        assert_eq!(observed(3, "base"), serde_json::json!({"exit": "pass"}));
        assert_eq!(observed(3, "patched"), observed(3, "base"));
    }
    // Every guest of the cell started from the same bytes.
    assert_eq!(cell["initramfs"].as_str().unwrap().len(), 32);
}
