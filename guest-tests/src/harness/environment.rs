// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the machine that could explain why a test came out differently,
//! as log records: `environment.NAME = VALUE`. They are for people and take no
//! part in a comparison, since some depend on the host.

use std::fs;
use std::path::Path;

use kvet_records::ENVIRONMENT_PREFIX;
use rustix::system::uname;

use super::{Context, TestResult, proc, quiet, thp};

/// Longest value in bytes; the rest is cut off.
const MAX_VALUE_BYTES: usize = 256;

/// Files with one short value, by what they say.
const FILES: [(&str, &str); 12] = [
    ("cpu.online", "/sys/devices/system/cpu/online"),
    ("cpu.smt", "/sys/devices/system/cpu/smt/control"),
    ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("numa.nodes", "/sys/devices/system/node/online"),
    ("numa.balancing", "/proc/sys/kernel/numa_balancing"),
    ("preemption", "/sys/kernel/debug/sched/preempt"),
    ("swap.swappiness", "/proc/sys/vm/swappiness"),
    ("memory.overcommit", "/proc/sys/vm/overcommit_memory"),
    ("memory.min_free_kib", "/proc/sys/vm/min_free_kbytes"),
    ("memory.lru_gen", "/sys/kernel/mm/lru_gen/enabled"),
    ("memory.ksm", "/sys/kernel/mm/ksm/run"),
    ("hugetlb.pages", "/proc/sys/vm/nr_hugepages"),
];

/// Folder with a file for each hardware vulnerability.
const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";

/// Logs the state of the machine.
///
/// # Errors
/// A record cannot be written. What cannot be read is left out.
pub fn log(context: &mut Context) -> TestResult {
    let version = uname().version().to_string_lossy().into_owned();
    // The words SMP, PREEMPT, PREEMPT_RT and PREEMPT_DYNAMIC stand in there.
    send(context, "kernel.version", &version)?;
    for (name, value) in cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) {
        send(context, name, &value)?;
    }
    for (name, path) in FILES {
        file(context, name, Path::new(path))?;
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    send(context, "swap.devices", &swap_devices(&swaps))?;
    if let Ok(total) = proc::meminfo("MemTotal") {
        send(context, "memory.total_kib", &(total >> 10).to_string())?;
    }
    folder(context, "mitigations", Path::new(VULNERABILITIES))?;
    log_thp(context)
}

/// Logs the settings that keep a machine quiet, and those of huge pages.
///
/// # Errors
/// A record cannot be written. What cannot be read is left out.
pub fn log_quiet(context: &mut Context) -> TestResult {
    for (path, _) in quiet::SETTINGS {
        let name = path.trim_start_matches("/proc/sys/").trim_start_matches("/sys/kernel/");
        file(context, &format!("quiet.{}", name.replace('/', ".")), Path::new(path))?;
    }
    log_thp(context)
}

/// Logs the settings of transparent huge pages as they are now.
///
/// # Errors
/// A record cannot be written. What cannot be read is left out.
pub fn log_thp(context: &mut Context) -> TestResult {
    let path = Path::new(thp::FOLDER);
    if !path.exists() {
        return send(context, "thp", "none");
    }
    folder(context, "thp", path)?;
    folder(context, "thp.khugepaged", &path.join("khugepaged"))?;
    for size in thp::sizes(path)? {
        let name = size.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for setting in ["enabled", "shmem_enabled"] {
            file(context, &format!("thp.{name}.{setting}"), &size.join(setting))?;
        }
    }
    Ok(())
}

/// Every file of a folder that has a value, in order.
fn folder(context: &mut Context, name: &str, path: &Path) -> TestResult {
    let mut files: Vec<_> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    for path in files {
        let part = path.file_name().unwrap_or_default().to_string_lossy();
        file(context, &format!("{name}.{part}"), &path)?;
    }
    Ok(())
}

fn file(context: &mut Context, name: &str, path: &Path) -> TestResult {
    match fs::read_to_string(path) {
        Ok(value) => send(context, name, &value),
        Err(_) => Ok(()),
    }
}

fn send(context: &mut Context, name: &str, value: &str) -> TestResult {
    context.log(format!("{ENVIRONMENT_PREFIX}{name} = {}", short(value)))
}

/// `value` on one line and not too long.
fn short(value: &str) -> String {
    let mut line = value.split_whitespace().collect::<Vec<_>>().join(" ");
    while line.len() > MAX_VALUE_BYTES {
        line.pop();
    }
    line
}

/// Model and microcode of the first CPU.
fn cpu(cpuinfo: &str) -> impl Iterator<Item = (&'static str, String)> {
    const KEYS: [(&str, &str); 6] = [
        ("cpu.vendor", "vendor_id"),
        ("cpu.model", "model name"),
        ("cpu.family", "cpu family"),
        ("cpu.number", "model"),
        ("cpu.stepping", "stepping"),
        ("cpu.microcode", "microcode"),
    ];
    KEYS.into_iter().filter_map(move |(name, key)| {
        let value = cpuinfo.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found.trim() == key).then(|| value.trim().to_owned())
        })?;
        Some((name, value))
    })
}

/// Names of the devices in /proc/swaps, or `none`.
fn swap_devices(swaps: &str) -> String {
    let names: Vec<_> =
        swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

#[cfg(test)]
mod tests {
    use kvet_records::{Parameters, Record};

    use super::super::context::tests::Shared;
    use super::*;

    #[test]
    fn the_first_cpu_is_described() {
        let text = "processor\t: 0\nvendor_id\t: V\nmodel\t\t: 94\nmodel name\t: A: B\n\n\
                    processor\t: 1\nvendor_id\t: W\n";
        let found: Vec<_> = cpu(text).collect();
        let expected = [("cpu.vendor", "V"), ("cpu.model", "A: B"), ("cpu.number", "94")];
        assert_eq!(found, expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn swap_devices_are_named() {
        assert_eq!(swap_devices(""), "none");
        assert_eq!(swap_devices("Filename Type Size\n"), "none");
        assert_eq!(swap_devices("Filename Type\n/dev/vda partition 1\n/f file 2\n"), "/dev/vda /f");
    }

    #[test]
    fn values_are_short_lines() {
        assert_eq!(short("always [madvise]\nnever\n"), "always [madvise] never");
        assert!(short(&"é".repeat(MAX_VALUE_BYTES)).len() <= MAX_VALUE_BYTES);
    }

    #[test]
    fn everything_that_is_sent_is_a_log_record() {
        let out = Shared::default();
        let mut context = Context::new(Parameters::new(), Box::new(out.clone()));
        log(&mut context).unwrap();
        let records = out.records();
        assert!(records.len() > 5, "{records:?}");
        for record in records {
            assert!(
                matches!(&record, Record::Log { text } if text.starts_with("environment.") && text.contains(" = ")),
                "{record:?}"
            );
        }
    }
}
