// SPDX-License-Identifier: MIT OR Apache-2.0
//! More guests than fit into the memory that kvet may take, with a real kernel.

mod common;

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::guests::{Guests, job};
use common::{Project, plan};
use futures_util::future::{Either, join_all, select};
use kvet::host::budget::Budget;
use kvet::run::event::RunEvent;
use kvet_records::Outcome;

const GIB: u64 = 1 << 30;

/// Resident memory in bytes of each QEMU whose name holds `text`.
fn resident(text: &str) -> Vec<u64> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains("qemu-system") && line.contains(text)).then_some(())?;
        std::fs::read_to_string(entry.path().join("status")).ok()
    });
    lines
        .filter_map(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
        })
        .collect()
}

/// Memory in bytes that is free on this host.
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn eight_guests_of_a_gibibyte_finish_in_four() {
    if available() < 6 * GIB {
        eprintln!("skipped: less than 6 GiB are free on this host");
        return;
    }
    let project = Project::new();
    let text = plan("khugepaged-cold", "", "{name: selftest_pass}", "");
    project.write("configs/plans/mine.yaml", &text.replace("512MiB", "1GiB"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(eight(&project));
}

async fn eight(project: &Project) {
    // More CPUs than the host may have: here only memory is short.
    let budget = Budget::open(&project.path().join("budget"), 8, Some(4 * GIB)).unwrap();
    let guests = Guests::new(project, budget).await;
    let (running, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (now, highest) = (running.clone(), most.clone());
    guests.booter.events.subscribe(move |event| {
        let mut now = now.lock().unwrap();
        match event {
            RunEvent::BootStarted { .. } => *now += 1,
            RunEvent::BootFinished { .. } => *now -= 1,
            _ => return,
        }
        let mut highest = highest.lock().unwrap();
        *highest = (*highest).max(*now);
    });
    let mark = format!("eight-{}", std::process::id());
    let boots = (1..=8).map(|number| {
        let task = format!("{mark}-{number}");
        // It takes all of its machine's memory until the kernel ends it.
        let job = job(&task, "selftest_memory");
        let folder = project.path().join(&task);
        let guests = &guests;
        async move { guests.boot(&task, job, folder).await }
    });
    let (sum, single) = (Cell::new(0), Cell::new(0));
    let seen = RefCell::new(0);
    let sampling = async {
        loop {
            let each = resident(&mark);
            sum.set(sum.get().max(each.iter().sum::<u64>()));
            single.set(single.get().max(each.iter().copied().max().unwrap_or(0)));
            *seen.borrow_mut() += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let reports = match select(Box::pin(join_all(boots)), Box::pin(sampling)).await {
        Either::Left((reports, _)) => reports,
        Either::Right((never, _)) => never,
    };
    for report in &reports {
        assert_eq!(report.report.outcome, Some(Outcome::Killed { signal: 9 }), "{report:?}");
    }
    assert_eq!(reports.len(), 8);
    let most = *most.lock().unwrap();
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "at most {most} guests at once, {} MiB resident together, {} MiB the largest",
        mib(sum.get()),
        mib(single.get())
    );
    // Each has 1 GiB and what QEMU takes beside it: three fit into 4 GiB.
    assert_eq!(most, 3);
    assert!(single.get() > GIB * 9 / 10, "the guests did not use their memory");
    assert!(sum.get() <= 4 * GIB, "{} MiB", mib(sum.get()));
}
