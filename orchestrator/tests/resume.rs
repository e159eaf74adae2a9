// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run that is killed or interrupted goes on with `--resume` and comes to what
//! it would have come to. `KVET_KILLS` sets how often it is killed; `make kills`
//! asks for 100.

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Ended, Project, finish, plan, wait_until};
use serde_json::Value;

const TESTS: &str = "{name: selftest_pass}\n  - {name: khugepaged_cold}\n  - {name: selftest_fail}";

/// Three tests of which none takes most of the time, so that moments chosen at random
/// hit all that a run does: khugepaged_cold's ten seconds would take two of three.
const SHORT: &str = "{name: selftest_pass}\n  - {exec: /bin/uname, args: [-a], format: exit}\n  - {name: selftest_fail}";

fn project(tests: &str) -> Project {
    let project = Project::new();
    project.write("configs/plans/mine.yaml", &plan("khugepaged-cold", "", tests, ""));
    project
}

/// A result without what another run of the same thing may have otherwise: its
/// name, the folders in it, and how long things took.
fn essence(project: &Project) -> Value {
    let mut result = project.result();
    let id = result["id"].as_str().unwrap().to_owned();
    result["id"] = Value::Null;
    let folder = project.path().join("kvet-runs").join(id);
    let text = result.to_string().replace(&*folder.to_string_lossy(), "RUN");
    serde_json::from_str(&text).unwrap()
}

fn latest(project: &Project) -> Option<PathBuf> {
    let run = project.path().join("kvet-runs/latest").canonicalize().ok()?;
    run.join("intent.json").exists().then_some(run)
}

fn resume(project: &Project) -> Ended {
    let run = latest(project).unwrap();
    project.kvet(&["run", "mine", "-q", "--resume", run.to_str().unwrap()])
}

/// A linear congruential generator (Knuth's MMIX constants).
fn next(state: &mut u64, below: Duration) -> Duration {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    below.mul_f64((*state >> 11) as f64 / (1u64 << 53) as f64)
}

#[test]
fn a_run_killed_at_any_moment_comes_to_the_same_when_it_is_resumed() {
    let kills: usize = std::env::var("KVET_KILLS").map_or(5, |count| count.parse().unwrap());
    let project = project(SHORT);
    assert_eq!(project.kvet(&["build", "mine"]).code, 0);
    let undisturbed = project.kvet(&["run", "mine", "-q"]);
    assert_eq!(undisturbed.code, 7, "{}", undisturbed.stdout);
    let expected = essence(&project);
    let (mut resumed, mut kept) = (0, 0);
    let mut state = 1;
    for number in 0..kills {
        let before = latest(&project);
        let mut child = project.command(&["run", "mine", "-q"]).spawn().unwrap();
        std::thread::sleep(next(&mut state, undisturbed.took));
        child.kill().unwrap();
        child.wait().unwrap();
        let now = latest(&project);
        if now.is_none() || now == before {
            // Killed before it had said what it is about: there is nothing to resume.
            continue;
        }
        let ended = resume(&project);
        assert_eq!(ended.code, 7, "kill {number}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(essence(&project), expected, "kill {number}");
        resumed += 1;
        kept += project.events().matches("finished before the run was interrupted").count();
    }
    println!("killed {kills} times, resumed {resumed} times, {kept} boots were not repeated");
    assert!(resumed * 2 >= kills, "too few kills hit a run");
}

#[test]
fn an_interrupted_run_is_resumed_and_refuses_what_has_changed() {
    let project = project(TESTS);
    assert_eq!(project.kvet(&["build", "mine"]).code, 0);
    let child = project.command(&["run", "mine"]).spawn().unwrap();
    wait_until("a finished boot", || {
        project.events().matches(r#""halt":"completed""#).count() >= 2
    });
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ended = finish(child, Instant::now());
    assert_eq!(ended.code, 130, "{}", ended.stdout);
    assert!(ended.stdout.contains("--resume"), "{}", ended.stdout);

    // Another plan is not what was begun.
    let plan_file = project.path().join("configs/plans/mine.yaml");
    let text = std::fs::read_to_string(&plan_file).unwrap();
    std::fs::write(&plan_file, text.replace("512MiB", "640MiB")).unwrap();
    let refused = resume(&project);
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    assert!(refused.stderr.contains("the plan or the selection has changed"), "{}", refused.stderr);
    assert!(refused.stderr.contains("memory"), "{}", refused.stderr);
    std::fs::write(&plan_file, text).unwrap();
    let other = project.kvet(&["run", "mine", "--cold", "--resume", "kvet-runs/latest"]);
    assert_eq!(other.code, 2, "{}", other.stdout);
    assert!(other.stderr.contains("selection.cold"), "{}", other.stderr);

    // A boot of another image is not, either.
    let boots = latest(&project).unwrap().join("boots/khugepaged-cold.debian-6.12.microvm.up");
    let boot = boots.join("base/selftest_pass/boot.json");
    let kept = std::fs::read_to_string(&boot).unwrap();
    let mut changed: Value = serde_json::from_str(&kept).unwrap();
    changed["inputs"]["image"] = "another".into();
    std::fs::write(&boot, changed.to_string()).unwrap();
    let before = project.result();
    let refused = resume(&project);
    assert_eq!(project.result(), before, "what the run had come to is lost");
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    assert!(refused.stdout.contains("image: \"another\", now"), "{}", refused.stdout);
    std::fs::write(&boot, kept).unwrap();

    let ended = resume(&project);
    assert_eq!(ended.code, 7, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("behaviour expected"), "{}", ended.stdout);
}

#[test]
fn a_run_that_goes_on_cannot_be_resumed() {
    let project = Project::new();
    project.write(
        "configs/plans/mine.yaml",
        &plan("khugepaged-cold", "", "{name: selftest_hang}", ""),
    );
    let mut child = project.command(&["run", "mine", "--variant", "base"]).spawn().unwrap();
    wait_until("a run", || latest(&project).is_some());
    let arguments = ["run", "mine", "--variant", "base", "--resume", "kvet-runs/latest"];
    let refused = project.kvet(&arguments);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    assert!(refused.stderr.contains("still going on"), "{}", refused.stderr);
}
