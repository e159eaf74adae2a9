// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user gets wrong before anything is built: exit code, place, and what
//! to do next.

mod common;

use common::{Ended, Project, plan, series_yaml};

fn run(text: &str) -> Ended {
    let project = Project::new();
    project.write("configs/plans/mine.yaml", text);
    project.kvet(&["run", "configs/plans/mine.yaml"])
}

fn demo_plan(test: &str) -> String {
    plan("khugepaged-cold", "", test, "")
}

#[track_caller]
fn refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "{word:?} is not in\n{}", ended.stderr);
    }
}

#[test]
fn a_misspelt_key_is_shown_with_its_place_and_a_suggestion() {
    let ended = run(&demo_plan("{name: khugepaged_cold}").replace("series: [", "sereis: ["));
    refused(&ended, 2, &["mine.yaml:2:1", "unknown field `sereis`", "did you mean `series`?"]);
}

#[test]
fn a_misspelt_key_deep_inside_is_shown_too() {
    let ended = run(&demo_plan("{name: khugepaged_cold, guest: [up]}"));
    refused(&ended, 2, &["mine.yaml:9:29", "did you mean `guests`?"]);
}

#[test]
fn names_that_nobody_has_are_all_reported_at_once() {
    let text =
        demo_plan("{name: khugepaged_colt, guests: [upp]}").replace("debian-6.12", "debian-6.122");
    let ended = run(&text);
    refused(
        &ended,
        2,
        &[
            "mine.yaml:3:11: no kernel \"debian-6.122\"",
            "did you mean `debian-6.12`?",
            "mine.yaml:9:12: no guest test \"khugepaged_colt\"",
            "did you mean `khugepaged_cold`?",
        ],
    );
}

#[test]
fn wrong_values_are_explained() {
    let test = "{name: khugepaged_cold, parameters: {pmdz: 4}}";
    let text =
        demo_plan(test).replace("memory: 512MiB", "memory: 1KiB, vcpus: 0, append: [\"a b\"]");
    let ended = run(&text);
    refused(
        &ended,
        2,
        &["no parameter of khugepaged_cold \"pmdz\"", "0 vCPUs", "of memory", "one word"],
    );
    refused(
        &run(&demo_plan("{name: khugepaged_cold}\ndeadlines: {boot: soon}")),
        2,
        &["\"soon\" is not a duration"],
    );
    refused(
        &run("schema: kvet/plan/9\nseries: []\nkernels: []\nconfigs: {}\nguests: {}\ntests: []\n"),
        2,
        &["this kvet reads kvet/plan/1"],
    );
    refused(&run("{"), 2, &["mine.yaml:"]);
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_can() {
    let counted =
        |test: &str, guest: &str, rest: &str| run(&plan("madvise-batch-tlb", guest, test, rest));
    let ended = counted("{name: process_madvise, measure: [wallclock]}", "", "");
    refused(
        &ended,
        2,
        &["mine.yaml:9:", "under TCG it is the emulator's", "measure: [instructions]"],
    );
    let ended = counted("{name: selftest_pass, measure: [instructions]}", "", "");
    refused(&ended, 2, &["measures nothing", "khugepaged_cold, process_madvise, thp_disable"]);
    let ended = counted("{name: process_madvise, measure: [instructions]}", ", vcpus: 2", "");
    refused(&ended, 2, &["on one vCPU, and guest \"up\" has 2"]);
    let test = "{name: process_madvise, measure: [instructions], parameters: {vlan: 1}}";
    refused(&counted(test, "", ""), 2, &["no parameter of process_madvise \"vlan\"", "`vlen`"]);
    let rest = "measures:\n  instructions: {phases: 1, threshold: 1}\n";
    let ended = counted("{name: selftest_pass}", "", rest);
    refused(&ended, 2, &["is not a percentage such as 0.1%"]);
    let rest = "measures:\n  instructions: {phases: 1}\n";
    refused(&counted("{name: selftest_pass}", "", rest), 2, &["1 phases; 2 to 256 are possible"]);
    let ended = counted("{name: selftest_pass}", ", cpu: \"a b\"", "");
    refused(&ended, 2, &["\"a b\" is not a CPU model of QEMU's"]);
}

#[test]
fn a_plan_that_is_not_there_is_named_with_those_that_are() {
    let project = Project::new();
    refused(&project.kvet(&["run", "khugepaged-colt"]), 2, &["did you mean `khugepaged-cold`?"]);
    refused(&project.kvet(&["run", "none/such.yaml"]), 2, &["no plan"]);
    let (plan, dotted) = ("configs/plans/khugepaged-cold.yaml", "configs/plans/cold-6.12.yaml");
    std::fs::copy(project.path().join(plan), project.path().join(dotted)).unwrap();
    refused(&project.kvet(&["run", "cold-6.1"]), 2, &["did you mean `cold-6.12`?"]);
    refused(&project.kvet(&["run", "cold-6.12", "-t", "other"]), 2, &["its tests are:"]);
    refused(
        &project.kvet(&["run", "khugepaged-cold", "-t", "other"]),
        2,
        &["its tests are: khugepaged_cold"],
    );
    refused(&project.kvet(&["frobnicate"]), 2, &["unrecognized subcommand"]);
    refused(
        &project.kvet(&["report", "kvet-runs/none"]),
        2,
        &["cannot be read", "name a run's folder"],
    );
}

#[test]
fn a_series_with_a_wrong_series_yaml_is_refused() {
    let project = Project::new();
    project.write("configs/plans/mine.yaml", &plan("mine", "", "{name: selftest_pass}", ""));
    project.write(
        "patches/mine/series.yaml",
        &series_yaml(
            "prerequisites: [none]",
            "expect:\n  - {test: nothing, observation: a, base: 1, patched: 2}\n",
        ),
    );
    let ended = project.kvet(&["run", "mine"]);
    refused(
        &ended,
        2,
        &["no guest test \"nothing\"", "no prerequisite \"none\"", "no *.patch file"],
    );
    project.write("patches/mine/series.yaml", &series_yaml("directoin: reverse", ""));
    refused(
        &project.kvet(&["run", "mine"]),
        2,
        &["patches/mine/series.yaml:4:17", "did you mean `direction`?"],
    );
}

#[test]
fn without_qemu_nothing_is_built_and_the_package_is_named() {
    let project = Project::new();
    let empty = tempfile::tempdir().unwrap();
    let mut command = project.command(&["run", "khugepaged-cold"]);
    command.env("PATH", empty.path());
    let ended = common::finish(command.spawn().unwrap(), std::time::Instant::now());
    refused(&ended, 3, &["qemu-system-x86_64 is not installed", "apt-get install qemu-system-x86"]);
    assert!(!project.path().join("kvet-runs").exists());
}

#[test]
fn a_dry_run_prints_the_resolved_plan() {
    let project = Project::new();
    let ended = project.kvet(&["run", "khugepaged-cold", "--dry-run"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let text = ended.stdout.replace(&project.path().display().to_string(), "ROOT");
    insta::assert_snapshot!(text);
}

#[test]
fn what_is_wrong_with_a_program_is_said_at_its_place() {
    refused(
        &run(&demo_plan("{exec: /no/such/program}")),
        2,
        &[
            "mine.yaml:9:12: no file \"/no/such/program\"",
            "relative to the folder that the plan is in",
        ],
    );
    refused(&run(&demo_plan("{exec: /bin/sh, script: x.sh}")), 2, &["either `exec:` or `script:`"]);
    refused(&run(&demo_plan("{args: [x]}")), 2, &["names no test", "`exec:`"]);
    refused(
        &run(&demo_plan("{name: khugepaged_cold, args: [x]}")),
        2,
        &["mine.yaml:9:35: `args:` is for programs"],
    );
    refused(
        &run(&demo_plan("{name: khugepaged_cold, exec: /bin/sh}")),
        2,
        &["one of kvet's own tests"],
    );
    refused(&run(&demo_plan("{exec: /bin/sh, format: xml}")), 2, &["unknown variant `xml`"]);
    refused(
        &run(&demo_plan("{exec: /bin/sh}\n  - {exec: /bin/sh}")),
        2,
        &["listed twice", "`name:`"],
    );
    refused(
        &run(&demo_plan("{kselftest: ../evil}")),
        2,
        &["not a test below tools/testing/selftests"],
    );
    refused(&run(&demo_plan("{kselftest: mm/run_vmtests.sh}")), 2, &["is a script"]);
    refused(
        &run(&demo_plan("{exec: mine.yaml, name: x}")),
        2,
        &["mine.yaml:9:12", "not an ELF file"],
    );
}

#[test]
fn a_program_without_its_library_is_refused_before_anything_is_built() {
    use std::process::Command;
    let project = Project::new();
    project.write("lib.c", "int nothing(void) { return 0; }\n");
    project.write("main.c", "int nothing(void);\nint main(void) { return nothing(); }\n");
    let gcc = |arguments: &[&str]| {
        let status = Command::new("gcc").current_dir(project.path()).args(arguments).status();
        assert!(status.unwrap().success());
    };
    gcc(&["-shared", "-fPIC", "-o", "libkvetnothing.so", "lib.c"]);
    gcc(&["-o", "configs/plans/needy", "main.c", "-L.", "-lkvetnothing"]);
    project.write("configs/plans/mine.yaml", &demo_plan("{exec: ./needy}"));
    let ended = project.kvet(&["run", "mine"]);
    refused(
        &ended,
        2,
        &["mine.yaml:9:12", "needs libkvetnothing.so", "link the program statically"],
    );
    // With a run path it is found, and the plan is good.
    gcc(&[
        "-o",
        "configs/plans/needy",
        "main.c",
        "-L.",
        "-lkvetnothing",
        "-Wl,-rpath,$ORIGIN/../..",
    ]);
    let ended = project.kvet(&["run", "mine", "--dry-run"]);
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn results_in_a_log_are_shown_and_a_log_that_is_not_there_is_named() {
    let project = Project::new();
    project.write("log", "[ 1.0] KTAP version 1\n[ 1.0] 1..2\n[ 1.0] ok 1 a\n[ 1.0] not ok 2 b\n");
    let ended = project.kvet(&["inspect", "ktap", "log"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.ends_with("1 passed, 1 failed\n"), "{ended:?}");
    let json: serde_json::Value =
        serde_json::from_str(&project.kvet(&["inspect", "ktap", "log", "--json"]).stdout).unwrap();
    assert_eq!(json["subtests"][1]["status"], "failed");
    assert_eq!(json["counts"]["passed"], 1);
    refused(&project.kvet(&["inspect", "ktap", "no-log"]), 2, &["no-log", "cannot be read"]);
}

#[test]
fn a_new_test_is_written_once_and_its_plan_is_good() {
    let project = Project::new();
    let ended = project.kvet(&["new-test", "first_touch"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(project.kvet(&["run", "first-touch", "--dry-run"]).code, 0);
    refused(&project.kvet(&["new-test", "first_touch"]), 2, &["there already"]);
    refused(&project.kvet(&["new-test", "First-Touch"]), 2, &["small letters"]);
}
