// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several kvets on one host, and a host that runs out of disk or memory.

mod common;

use std::fs;
use std::path::Path;
use std::time::Instant;

use common::tmpfs::{can_mount, unshare};
use common::{Ended, Project, cache, finish, plan};

const TESTS: &str = "{name: selftest_pass}\n  - {name: khugepaged_cold}\n  - {name: selftest_fail}";

#[test]
fn four_runs_at_once_in_one_folder_are_all_right() {
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: khugepaged_cold}", "");
    project.write("configs/plans/mine.yaml", &text);
    assert_eq!(project.kvet(&["build", "mine"]).code, 0);
    // One of them dies while it holds whatever it holds.
    let mut dying = project.command(&["run", "mine", "-q"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(900));
    let runs: Vec<_> = (0..4)
        .map(|_| (project.command(&["run", "mine"]).spawn().unwrap(), Instant::now()))
        .collect();
    dying.kill().unwrap();
    dying.wait().unwrap();
    for (child, began) in runs {
        let ended = finish(child, began);
        assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("behaviour expected"), "{}", ended.stdout);
    }
    let runs = fs::read_dir(project.path().join("kvet-runs")).unwrap().flatten();
    let names: Vec<String> =
        runs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // `latest`, the build, four runs, and the dead one's if it got that far.
    assert!((6..=7).contains(&names.len()), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
}

#[test]
fn guests_that_do_not_fit_wait_and_those_that_never_will_are_refused() {
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: selftest_pass}", "");
    project.write("configs/plans/mine.yaml", &text);
    let refused = project.kvet(&["run", "mine", "--memory", "600MiB"]);
    assert_eq!(refused.code, 2, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("guest up does not fit"), "{}", refused.stderr);
    assert!(!project.path().join("kvet-runs").exists());
}

/// Runs a script in the project with a small tmpfs as `folder`; `$KVET` is kvet.
fn run_with_tmpfs(
    project: &Project,
    cache: &Path,
    folder: &Path,
    size: &str,
    script: &str,
) -> Ended {
    let mut command = unshare(script, folder, size);
    command.current_dir(project.path()).env("KVET_CACHE_DIR", cache);
    command.env("KVET", env!("CARGO_BIN_EXE_kvet")).env_remove("KVET_RUNS_DIR");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    finish(command.spawn().unwrap(), Instant::now())
}

#[test]
fn a_full_disk_is_an_infra_fault_and_the_run_goes_on_when_there_is_space() {
    if !can_mount() {
        return;
    }
    let project = Project::new();
    project.write("configs/plans/mine.yaml", &plan("khugepaged-cold", "", TESTS, ""));
    assert_eq!(project.kvet(&["build", "mine"]).code, 0);
    let runs = project.path().join("small");
    fs::create_dir(&runs).unwrap();
    // Room for some boots' traces and not for all of them.
    let script = r#"
        head -c 4050000 /dev/zero >small/filler
        code=0; $KVET run mine -q --runs-dir small || code=$?
        echo "first: $code"
        echo "kept: $(find small -name boot.json | wc -l)"
        rm small/filler
        code=0; $KVET run mine -q --runs-dir small --resume small/latest || code=$?
        echo "second: $code"
    "#;
    let ended = run_with_tmpfs(&project, &cache(), &runs, "4m", script);
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(text.contains("first: 3"), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    assert!(text.contains("make space on that file system"), "{text}");
    let kept = text.split("kept: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    assert!((1..6).contains(&kept.unwrap().parse::<u32>().unwrap()), "{text}");
    assert!(text.contains("second: 7"), "{text}");
    assert!(text.contains("behaviour expected"), "{text}");
}

/// Shell commands that make `small` a cache like [`common::own_cache`].
fn links() -> String {
    let parts = ["applied", "images", "initramfs", "probes", "sources", "trees"];
    let tag = format!("cp '{}' small; ", cache().join("CACHEDIR.TAG").display());
    let link = |part| format!("ln -s '{}' small/{part}; ", cache().join(part).display());
    tag + &parts.map(link).concat()
}

/// With `count` saved machines of `megabytes` each in a cache of 160 MiB, `fewer` of
/// them, the oldest, go so that a new one has room.
fn older_machines_go_first(count: u32, megabytes: u32, fewer: std::ops::RangeInclusive<u32>) {
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: selftest_pass}", "");
    project.write("configs/plans/mine.yaml", &text);
    assert_eq!(project.kvet(&["build", "mine", "--variant", "base"]).code, 0);
    let small = project.path().join("small");
    fs::create_dir(&small).unwrap();
    let script = format!(
        r#"{} mkdir small/states
        for n in $(seq {count}); do
            mkdir small/states/old-$n
            head -c {megabytes}000000 /dev/zero >small/states/old-$n/memory
            touch -d "-$((1000 - n)) minutes" small/states/old-$n
        done
        code=0; $KVET run mine --variant base || code=$?
        echo "exit: $code"
        echo "left:" $(ls -v small/states)"#,
        links()
    );
    let ended = run_with_tmpfs(&project, &small, &small, "160m", &script);
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(text.contains("exit: 6"), "{text}");
    assert!(!text.contains("cold boots, since"), "{text}");
    assert!(!project.events().contains("cold boots, since"), "{}", project.events());
    let left = ended.stdout.split("left: ").nth(1).unwrap();
    let (old, new): (Vec<_>, Vec<_>) =
        left.split_whitespace().partition(|name| name.starts_with("old-"));
    assert_eq!(new.len(), 1, "{left}");
    let gone = count - u32::try_from(old.len()).unwrap();
    assert!(fewer.contains(&gone), "{left}");
    let youngest: Vec<_> = (gone + 1..=count).map(|number| format!("old-{number}")).collect();
    assert_eq!(old, youngest);
}

#[test]
fn older_machines_make_room_for_new_ones_before_these_are_saved() {
    if can_mount() {
        older_machines_go_first(3, 45, 1..=1);
    }
}

#[test]
fn older_machines_make_room_when_a_new_one_is_larger_than_was_expected() {
    if can_mount() {
        // Free are 10 MB, the largest has 2 MB.
        older_machines_go_first(78, 2, 78..=78);
    }
}

#[test]
fn a_cache_without_room_for_a_machine_means_cold_boots() {
    if !can_mount() {
        return;
    }
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: khugepaged_cold}", "");
    project.write("configs/plans/mine.yaml", &text);
    assert_eq!(project.kvet(&["build", "mine"]).code, 0);
    let small = project.path().join("small");
    fs::create_dir(&small).unwrap();
    let mut script = links();
    script.push_str("$KVET run mine; echo \"left: $(ls small/scratch small/states)\"");
    let ended = run_with_tmpfs(&project, &small, &small, "8m", &script);
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, 0, "{text}");
    assert!(text.contains("behaviour expected"), "{text}");
    assert!(text.contains("cold boots, since"), "{text}");
    let left = ended.stdout.split("left: ").nth(1).unwrap();
    assert!(!left.contains("kvet-"), "a scratch folder is left: {text}");
}
