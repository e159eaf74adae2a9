// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots by the hundred in one process (`make soak`): none may fail, and nothing
//! may pile up. `KVET_SOAK` says how many; without it there are a few.

mod common;

use std::path::{Path, PathBuf};

use common::guests::{Guests, job};
use common::{Project, plan, processes};
use kvet::host::budget::Budget;
use kvet_records::Outcome;

/// Boots after which the process is taken to have all that it keeps.
const SETTLED: usize = 50;

fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn boots_by_the_hundred_leave_nothing() {
    let boots: usize =
        std::env::var("KVET_SOAK").map_or(6, |text| text.parse().expect("KVET_SOAK is a number"));
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: selftest_pass}", "");
    project.write("configs/plans/mine.yaml", &text);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(soak(&project, boots));
}

async fn soak(project: &Project, boots: usize) {
    let own = project.path().join("budget");
    let mut guests = Guests::new(project, Budget::open(&own, 2, None).unwrap()).await;
    let folder = project.path().join("boot");
    let mut settled: Option<(usize, u64, usize)> = None;
    for number in 1..=boots {
        guests.booter.cold = number % 2 == 0;
        let task = format!("soak-{}-{number}", std::process::id());
        let report = guests.boot(&task, job(&task, "selftest_pass"), folder.clone()).await;
        assert_eq!(report.report.outcome, Some(Outcome::Completed), "boot {number}: {report:?}");
        assert_eq!(report.fault(&task), None, "boot {number}");
        let traces = folder.join("qemu-arguments");
        let restored = std::fs::read_to_string(traces).unwrap().contains("-incoming");
        assert_eq!(restored, !guests.booter.cold, "boot {number}");
        std::fs::remove_dir_all(&folder).unwrap();
        let open = count(Path::new("/proc/self/fd"));
        match settled {
            None if number == SETTLED.min(boots / 2).max(2) => {
                settled = Some((open, resident(), number));
            }
            Some((before, ..)) => assert_eq!(open, before, "descriptors at boot {number}"),
            None => {}
        }
    }
    let (_, before, at) = settled.unwrap();
    let after = resident();
    println!("resident memory: {before} KiB at boot {at}, {after} KiB at boot {boots}");
    if boots >= 2 * SETTLED {
        assert!(after * 100 <= before * 105, "{before} KiB at boot {at}, {after} KiB at {boots}");
    }
    let left = processes(&format!("soak-{}-", std::process::id()));
    assert!(left.is_empty(), "{left:?}");
    let claims: Vec<PathBuf> = own
        .join("budget")
        .read_dir()
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    assert!(claims.iter().all(|path| path.ends_with("lock")), "{claims:?}");
}
