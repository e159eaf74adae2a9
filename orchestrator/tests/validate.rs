// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet validate` on a kernel that is built in a second: what needs no guest.

mod common;

use common::tiny::{Tiny, said};

/// Builds only, so that nothing is booted.
const TABLE: &str = "schema: kvet/validate/1
guests: {up: {}}
configs:
  - {name: tiny, base: tinyconfig, patches: every, checks: [builds]}
  - {name: ends, base: tinyconfig, patches: ends, checks: [builds]}
rules:
  - {paths: ['*'], reason: it must boot, tests: [{name: selftest_pass, guests: [up]}]}
  - {paths: [mm/b*], reason: b is read, tests: [{name: selftest_skip, guests: [up]}]}
";

/// As checkpatch.pl answers with `--terse --show-types`: an error for each added line
/// with BAD in it, a warning for each with ODD.
const SCRIPT: &str = r#"my $file = $ARGV[-1];
open(my $in, "<", $file) or die "no $file";
my ($errors, $warnings) = (0, 0);
while (<$in>) {
	if (/^\+.*BAD/) { $errors++; print "$file:$.: ERROR:BAD_WORD: bad\n"; }
	if (/^\+.*ODD/) { $warnings++; print "$file:$.: WARNING:ODD_WORD: odd\n"; }
}
exit(0) unless $errors + $warnings;
print "total: $errors errors, $warnings warnings, 9 lines checked\n";
exit($errors + $warnings > 0);
"#;

fn tiny() -> Tiny {
    let tiny = Tiny::new();
    tiny.write("configs/validate.yaml", TABLE);
    tiny.git(&["checkout", "--quiet", "-b", "topic"]);
    tiny
}

fn validate(tiny: &Tiny, more: &[&str]) -> common::Ended {
    tiny.git(&["checkout", "--quiet", "master"]);
    let arguments = ["validate", "--kernel", "tiny", "--series", "linux:v6.12.3..topic"];
    tiny.kvet(&[&arguments, more].concat())
}

fn result(tiny: &Tiny) -> serde_json::Value {
    let text = std::fs::read(tiny.path("kvet-runs/latest/validate.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The check of that name and config.
fn check(tiny: &Tiny, name: &str, config: Option<&str>) -> serde_json::Value {
    let result = result(tiny);
    let checks = result["checks"].as_array().unwrap();
    let found = checks.iter().find(|one| one["name"] == name && one["config"].as_str() == config);
    found.unwrap_or_else(|| panic!("no {name} in {result:#}")).clone()
}

#[test]
fn a_series_that_applies_and_builds_passes_and_says_what_was_not_checked() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    let words = [
        "1 patch",
        "touches mm/b.c",
        "runs selftest_pass in up: it must boot",
        "runs selftest_skip in up: mm/b.c: b is read",
        "the patch, every hunk where it says",
        "the tree without the series has no scripts/checkpatch.pl",
        "2 kernels, no new warnings",
        "exit 0: acceptable; 3 of 4 checks passed, 0 failed, 1 skipped",
    ];
    said(&validate(&tiny, &[]), 0, &words);
    assert_eq!(check(&tiny, "checkpatch", None)["outcome"], "skipped");
    let again = tiny.kvet(&["report", "kvet-runs/latest"]);
    said(&again, 0, &words);
    // Another life of the run finds its images, and refuses to be about something else.
    let run = std::fs::read_link(tiny.path("kvet-runs/latest")).unwrap();
    let run = format!("kvet-runs/{}", run.display());
    said(&validate(&tiny, &["--resume", &run]), 0, &["2 from the store"]);
    said(&validate(&tiny, &["--resume", &run, "--config", "ends"]), 2, &["cannot be resumed"]);
}

#[test]
fn hunks_that_moved_are_told() {
    let tiny = tiny();
    tiny.change("mm/a.c", "x + 3", "x + 30");
    tiny.commit("mm: thirty for three");
    tiny.folder("moved", "topic", "");
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny.change("mm/a.c", "int one(int x)", "/*\n * one\n */\nint one(int x)");
    tiny.commit("mm: say what one is");
    tiny.kernel("git: {repository: linux, revision: master}");
    let ended = tiny.kvet(&["validate", "--kernel", "tiny", "--series", "moved"]);
    said(&ended, 0, &["the patch, 1 hunk in another line than it says"]);
    assert!(check(&tiny, "applies", None)["details"][0].as_str().unwrap().contains("(+3 lines)"));
}

#[test]
fn a_series_that_is_there_already_is_nothing_to_do() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    tiny.git(&["checkout", "--quiet", "topic"]);
    let arguments = ["validate", "--kernel", "linux", "--series", "linux:v6.12.3..topic"];
    said(&tiny.kvet(&arguments), 6, &["already", "skipped", "there is nothing to check"]);
    // The user's tree at another revision has it not.
    let arguments = ["validate", "--kernel", "linux@v6.12.3", "--series", "linux:v6.12.3..topic"];
    said(&tiny.kvet(&arguments), 0, &["on linux", "2 kernels"]);
}

#[test]
fn a_series_that_does_not_apply_stops_the_rest() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    tiny.folder("stale", "topic", "");
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny.change("mm/b.c", "return x + 4", "return x * 4");
    tiny.commit("mm: times four");
    tiny.kernel("git: {repository: linux, revision: master}");
    let ended = tiny.kvet(&["validate", "--kernel", "tiny", "--series", "stale"]);
    said(&ended, 5, &["applies", "failed", "mm/b.c", "the series does not apply"]);
    assert_eq!(check(&tiny, "builds", Some("tiny"))["outcome"], "skipped");
}

#[test]
fn a_patch_in_the_middle_that_does_not_build_is_named() {
    let tiny = tiny();
    tiny.change("mm/a.c", "x + 1", "x + 10");
    tiny.commit("mm: ten for one");
    tiny.change("mm/a.c", "return x + 3", "return no_such_name + 3");
    tiny.commit("mm: name what is not there");
    tiny.change("mm/a.c", "no_such_name + 3", "x + 30");
    tiny.commit("mm: name what is there");
    let ended = validate(&tiny, &[]);
    said(
        &ended,
        5,
        &[
            "does not build at patch 2 of 3 (mm: name what is not there)",
            "'no_such_name' undeclared",
        ],
    );
    assert_eq!(check(&tiny, "builds", Some("tiny"))["patch"], 2);
    assert_eq!(check(&tiny, "builds", Some("ends"))["outcome"], "ok");

    said(&validate(&tiny, &["--fail-fast"]), 5, &["--fail-fast, after builds tiny"]);
    assert_eq!(check(&tiny, "builds", Some("ends"))["outcome"], "skipped");
}

#[test]
fn where_only_the_ends_are_built_the_prefixes_are_when_it_must_be_known() {
    let tiny = tiny();
    tiny.change("mm/a.c", "x + 1", "x + 10");
    tiny.commit("mm: ten for one");
    tiny.change("mm/a.c", "return x + 3", "return no_such_name + 3");
    tiny.commit("mm: name what is not there");
    tiny.change("init/main.c", "return 0", "return 1");
    tiny.commit("init: return one");
    let ended = validate(&tiny, &["--config", "ends"]);
    said(&ended, 5, &["does not build at patch 2 of 3 (mm: name what is not there)"]);
    assert_eq!(check(&tiny, "builds", Some("ends"))["patch"], 2);
}

#[test]
fn a_new_warning_fails_at_the_patch_that_brings_it_even_if_a_later_one_mends_it() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    tiny.change("mm/a.c", "\treturn x + 2;", "\tint unused_two;\n\n\treturn x + 2;");
    tiny.commit("mm: declare what is not used");
    tiny.change("mm/a.c", "\tint unused_two;\n\n", "");
    tiny.commit("mm: take it out again");
    let ended = validate(&tiny, &["--config", "tiny"]);
    let words = "new warning at patch 2 of 3 (mm: declare what is not used): mm/a.c:13: two: unused variable 'unused_two'";
    said(&ended, 5, &[words]);
    assert_eq!(check(&tiny, "builds", Some("tiny"))["patch"], 2);
    // The warnings that base has are no matter.
    assert!(!ended.stdout.contains("unused_one"), "{}", ended.stdout);

    // The ends alone do not show it.
    said(&validate(&tiny, &["--config", "ends"]), 0, &["no new warnings"]);
}

#[test]
fn checkpatch_is_the_one_of_the_tree_without_the_series() {
    let tiny = Tiny::new();
    tiny.write("configs/validate.yaml", TABLE);
    tiny.write("linux/scripts/checkpatch.pl", SCRIPT);
    tiny.commit("scripts: add checkpatch");
    tiny.git(&["branch", "with-script"]);
    tiny.kernel("git: {repository: linux, revision: with-script}");
    tiny.git(&["checkout", "--quiet", "-b", "topic"]);
    tiny.change("mm/b.c", "x + 4;", "x + 40; /* ODD */");
    tiny.commit("mm: forty for four");
    tiny.change("mm/b.c", "ODD", "BAD");
    tiny.change(
        "scripts/checkpatch.pl",
        "my $file",
        "print \"total: 0 errors, 0 warnings\\n\"; exit 0;\nmy $file",
    );
    tiny.commit("mm: say something bad");
    tiny.git(&["checkout", "--quiet", "master"]);
    let arguments = ["validate", "--kernel", "tiny", "--series", "linux:with-script..topic"];
    let ended = tiny.kvet(&arguments);
    said(
        &ended,
        5,
        &["1 errors, 1 warnings; at patch 2 of 2 (mm: say something bad): error, line "],
    );
    assert_eq!(check(&tiny, "checkpatch", None)["patch"], 2);
    // Warnings do not fail.
    let arguments = ["validate", "--kernel", "tiny", "--series", "linux:with-script..topic~1"];
    said(&tiny.kvet(&arguments), 0, &["0 errors, 1 warnings"]);
}

#[test]
fn what_is_not_there_is_said_before_anything_is_done() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    said(&validate(&tiny, &["--config", "big"]), 2, &["no config \"big\"", "tiny, ends"]);
    let none = ["validate", "--kernel", "timy", "--series", "linux:v6.12.3..topic"];
    said(
        &tiny.kvet(&none),
        2,
        &["neither a kernel in kernels/ nor a git repository", "did you mean `tiny`?"],
    );
    let odd = ["validate", "--kernel", "linux@-x", "--series", "linux:v6.12.3..topic"];
    said(&tiny.kvet(&odd), 2, &["\"-x\" is not a revision"]);
    let gone = ["validate", "--kernel", "tiny", "--series", "gone"];
    said(&tiny.kvet(&gone), 2, &["no series \"gone\""]);
    said(&validate(&tiny, &["--resume", "kvet-runs/none"]), 2, &["validate.json"]);
    tiny.write("configs/validate.yaml", &TABLE.replace("selftest_skip", "selftest_skap"));
    said(
        &validate(&tiny, &[]),
        2,
        &["no guest test \"selftest_skap\"", "did you mean `selftest_skip`?"],
    );
    std::fs::remove_file(tiny.path("configs/validate.yaml")).unwrap();
    said(&validate(&tiny, &[]), 2, &["no configs/validate.yaml here"]);
}

#[test]
fn a_dry_run_says_what_would_be_checked() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    let ended = validate(&tiny, &["--dry-run"]);
    said(&ended, 0, &["\"reason\": \"mm/b.c: b is read\"", "\"selftest_skip\"", "\"every\""]);
    assert!(!tiny.path("kvet-runs").exists());
}

#[test]
fn what_was_checked_before_an_interrupt_is_kept_and_the_run_goes_on() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    tiny.change("Makefile", "\t@gcc -O1", "\t@sleep 3; gcc -O1");
    tiny.change("mm/a.c", "x + 3", "x + 30");
    tiny.commit("build: take longer");
    tiny.git(&["checkout", "--quiet", "master"]);
    let arguments = ["validate", "--kernel", "tiny", "--series", "linux:v6.12.3..topic"];
    let began = std::time::Instant::now();
    let child = tiny.command(&arguments).spawn().unwrap();
    let events = tiny.path("kvet-runs/latest/events.jsonl");
    let started = "\"build_started\",\"task\":\"patched";
    common::wait_until("the slow build", || {
        std::fs::read_to_string(&events).is_ok_and(|text| text.contains(started))
    });
    let pid = child.id().to_string();
    std::process::Command::new("kill").args(["-INT", &pid]).output().unwrap();
    let ended = common::finish(child, began);
    said(&ended, 130, &["applies", "--resume"]);
    let first = result(&tiny);
    assert_eq!(first["complete"], false);
    let checks = first["checks"].as_array().unwrap();
    let outcomes: Vec<&str> =
        checks.iter().map(|check| check["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["ok", "skipped", "skipped", "skipped"], "{first:#}");
    assert!(ended.stdout.contains("1 of 4 checks passed, 0 failed, 3 skipped"), "{}", ended.stdout);
    let run = std::fs::read_link(tiny.path("kvet-runs/latest")).unwrap();
    let run = format!("kvet-runs/{}", run.display());
    let ended = tiny.kvet(&[&arguments[..], &["--resume", &run]].concat());
    said(&ended, 0, &["3 kernels, no new warnings, 2 from the store"]);
    assert_eq!(result(&tiny)["complete"], true);
}

#[test]
fn a_validation_that_is_killed_before_its_first_check_ends_goes_on() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    tiny.git(&["checkout", "--quiet", "master"]);
    let arguments = ["validate", "--kernel", "tiny", "--series", "linux:v6.12.3..topic"];
    let mut child = tiny.command(&arguments).spawn().unwrap();
    let written = tiny.path("kvet-runs/latest/validate.json");
    common::wait_until("the first word of it", || written.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let run = std::fs::read_link(tiny.path("kvet-runs/latest")).unwrap();
    let run = format!("kvet-runs/{}", run.display());
    let ended = tiny.kvet(&[&arguments[..], &["--resume", &run]].concat());
    said(&ended, 0, &["2 kernels, no new warnings"]);
    assert_eq!(result(&tiny)["complete"], true);
}

#[test]
fn the_tests_of_a_plan_are_taken_instead() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    tiny.plan("{git: linux, range: v6.12.3..topic}", "");
    let ended = validate(&tiny, &["--plan", "mine"]);
    said(&ended, 0, &["runs selftest_pass in up: plan mine"]);
    assert!(!ended.stdout.contains("selftest_skip"), "{}", ended.stdout);
    said(&validate(&tiny, &["--plan", "yours"]), 2, &["no plan \"yours\""]);
}

#[test]
fn a_series_comes_from_standard_input() {
    let tiny = tiny();
    tiny.change("mm/b.c", "x + 4", "x + 40");
    tiny.commit("mm: forty for four");
    let mail = tiny.git(&["format-patch", "--stdout", "v6.12.3..topic"]);
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny.write("series.mbox", &mail);
    let mut command = tiny.command(&["validate", "--kernel", "tiny", "--series", "-"]);
    command.stdin(std::fs::File::open(tiny.path("series.mbox")).unwrap());
    let ended = common::finish(command.spawn().unwrap(), std::time::Instant::now());
    said(&ended, 0, &["stdin (1 patch) on tiny", "2 kernels, no new warnings"]);
}

#[test]
fn a_run_does_not_go_on_with_another_revision() {
    let tiny = tiny();
    tiny.change("mm/b.c", "return x + 4;", "return x + 40;");
    tiny.commit("mm: forty for four");
    tiny.git(&["checkout", "--quiet", "master"]);
    let arguments = ["validate", "--kernel", "linux", "--series", "linux:v6.12.3..topic"];
    said(&tiny.kvet(&arguments), 0, &[]);
    let run = std::fs::canonicalize(tiny.path("kvet-runs/latest")).unwrap();
    let again = [&arguments[..], &["--resume", run.to_str().unwrap()]].concat();
    said(&tiny.kvet(&again), 0, &["2 from the store"]);
    let before = result(&tiny);
    tiny.change("mm/a.c", "return x + 2;", "return x + 20;");
    tiny.commit("mm: twenty for two");
    said(&tiny.kvet(&again), 2, &["is now", "REPOSITORY@REV"]);
    assert_eq!(result(&tiny), before);
}

#[test]
fn what_there_is_nothing_to_check_for_is_said() {
    let tiny = tiny();
    tiny.git(&["commit", "--quiet", "--allow-empty", "--message", "mm: nothing"]);
    said(&validate(&tiny, &[]), 6, &["the series changes no file"]);
    let wanted = ["validate", "--kernel", "linux@nosuch", "--series", "linux:v6.12.3..topic"];
    let ended = tiny.kvet(&wanted);
    said(&ended, 2, &["no commit \"nosuch\"", "no source to apply the series to"]);
    let ended = tiny.kvet(&["validate", "--kernel", "tiny", "--series", ""]);
    said(&ended, 2, &["a value is required for '--series <INPUT>'"]);
}

#[test]
fn what_only_looks_leaves_the_cache_folder_usable() {
    let tiny = tiny();
    tiny.change("mm/b.c", "return x + 4;", "return x + 40;");
    tiny.commit("mm: forty for four");
    tiny.git(&["checkout", "--quiet", "master"]);
    // As of a user without a runtime folder, who has used no kvet yet.
    let home = tiny.path("home");
    let kvet = |arguments: &[&str]| {
        let mut command = tiny.command(arguments);
        command.env("HOME", &home).env_remove("KVET_CACHE_DIR");
        command.env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR");
        common::finish(command.spawn().unwrap(), std::time::Instant::now())
    };
    let arguments = ["validate", "--kernel", "tiny", "--series", "linux:v6.12.3..topic"];
    let ended = kvet(&[&arguments[..], &["--dry-run"]].concat());
    said(&ended, 0, &["\"stages\""]);
    assert!(home.join(".cache/kvet/budget").is_dir(), "it does not look as it did");
    said(&kvet(&["clean", "--keep", "1GB"]), 0, &[]);
}
