// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is killed or stopped from outside: kvet leaves no QEMU behind, and a
//! QEMU that dies or stops is told from a kernel that does.
//!
//! `KVET_KILLS` sets how often kvet is killed; `make kills` asks for 100.

mod common;

use std::time::{Duration, Instant};

use common::{Moments, Project, finish, plan, wait_until};

/// Process ids of the QEMUs whose name holds `text`.
fn qemus(text: &str) -> Vec<i32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_string_lossy().parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (line.contains("qemu-system") && line.contains(text)).then_some(pid)
        })
        .collect()
}

fn signal(signal: &str, pid: i32) {
    let status = std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

/// A plan of a series that nobody else has, so that its QEMUs can be told apart.
fn project(series: &str, tests: &str, deadlines: &str) -> Project {
    let project = Project::new();
    project.series(series, "Subject: [PATCH] nothing\n\nnothing\n");
    project.write("configs/plans/mine.yaml", &plan(series, "", tests, deadlines));
    project
}

#[test]
fn killing_kvet_at_any_moment_leaves_no_qemu() {
    let kills: usize = std::env::var("KVET_KILLS").map_or(5, |count| count.parse().unwrap());
    let mut moments = Moments(1);
    let project = project("killed", "{name: selftest_hang}", "");
    // Builds the image, so that what is killed below is a boot.
    assert_eq!(project.kvet(&["build", "mine", "--variant", "base"]).code, 0);
    let start = || project.command(&["run", "mine", "--variant", "base", "-q"]).spawn().unwrap();
    // The moments are spread over all that comes before a guest and as long again.
    let began = Instant::now();
    let mut child = start();
    wait_until("a boot", || project.events().contains("boot_started"));
    let range = 2 * began.elapsed() + Duration::from_secs(1);
    child.kill().unwrap();
    child.wait().unwrap();
    let (mut with_qemu, mut worst) = (0, Duration::ZERO);
    for _ in 0..kills {
        let mut child = start();
        std::thread::sleep(moments.between(Duration::ZERO, range));
        with_qemu += usize::from(!qemus("killed/debian-6.12").is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        let killed = Instant::now();
        while !qemus("killed/debian-6.12").is_empty() {
            assert!(killed.elapsed() < Duration::from_secs(1), "QEMU outlives kvet");
            std::thread::sleep(Duration::from_millis(5));
        }
        worst = worst.max(killed.elapsed());
    }
    println!(
        "kvet killed {kills} times, {with_qemu} with QEMU running; QEMU gone within {worst:?}"
    );
    assert!(with_qemu > kills / 10, "too few moments hit a running guest");
}

/// Runs two tests, does `what` to the first one's QEMU in the given phase, and
/// expects an infra fault for it and a result for the second.
#[track_caller]
fn disturb(series: &str, phase: &str, signal_name: &str, words: &str) {
    let tests = "{name: selftest_hang}\n  - {name: selftest_pass}";
    let project = project(series, tests, "deadlines: {boot: 20s, test: 6s}\n");
    let began = Instant::now();
    let child = project.command(&["run", "mine", "--variant", "base"]).spawn().unwrap();
    let name = format!("{series}/debian-6.12");
    wait_until("QEMU", || !qemus(&name).is_empty());
    if phase == "test" {
        wait_until("a running test", || project.events().contains(r#""phase":"test""#));
    }
    signal(signal_name, qemus(&name)[0]);
    let ended = finish(child, began);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stdout.contains(words), "{words:?} is not in\n{}", ended.stdout);
    let result = project.result();
    let second = &result["cells"][0]["tests"][1];
    assert_eq!(second["faults"], serde_json::json!([]), "{second}");
    assert!(qemus(&name).is_empty());
}

#[test]
fn a_qemu_killed_while_it_boots_is_an_infra_fault() {
    disturb("dead-boot", "boot", "-KILL", "QEMU died: killed by signal 9 (SIGKILL)");
}

#[test]
fn a_qemu_killed_during_a_test_is_an_infra_fault() {
    disturb("dead-test", "test", "-KILL", "QEMU died: killed by signal 9 (SIGKILL)");
}

#[test]
fn a_qemu_stopped_during_a_test_is_an_infra_fault_and_goes() {
    disturb("stopped-test", "test", "-STOP", "QEMU no longer answers");
}

#[test]
fn a_qemu_stopped_while_it_boots_is_an_infra_fault_and_goes() {
    disturb("stopped-boot", "boot", "-STOP", "QEMU no longer answers");
}

/// What a child has started gets no signal when kvet dies; the guardian ends it.
#[test]
fn killing_kvet_ends_what_its_children_have_started() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let qemu = folder.path().join("qemu-system-x86_64");
    // A name that no other process has.
    let length = format!("{}.5", 10_000_000 + std::process::id());
    std::fs::write(&qemu, format!("#!/bin/sh\nsleep {length} &\nwait\n")).unwrap();
    std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o755)).unwrap();
    let sleeping = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines =
            entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.any(|line| line == format!("sleep\0{length}\0").into_bytes())
    };
    let path = std::env::join_paths(
        std::iter::once(folder.path().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut command = common::kvet_command();
    command.arg("doctor").env("PATH", path.unwrap()).current_dir(common::root());
    command.env("KVET_CACHE_DIR", folder.path().join("cache"));
    command.stdout(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_until("the child's child", || {
        assert_eq!(child.try_wait().unwrap(), None, "kvet has ended without it");
        sleeping()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while sleeping() {
        assert!(killed.elapsed() < Duration::from_secs(5), "it outlives kvet");
        std::thread::sleep(Duration::from_millis(5));
    }
}
