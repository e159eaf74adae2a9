// SPDX-License-Identifier: MIT OR Apache-2.0
//! How soon a guest works: from power-on, from a saved machine, and, for
//! comparison, with virtme-ng, all under TCG on this host and of one kernel source.
//!
//! virtme-ng is taken from PyPI into a virtual environment of its own; without
//! python3 or a network that part is left out, which is said.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Boots of each kind; the median counts.
const BOOTS: usize = 15;
/// virtme-ng's runs, which take longer.
const RUNS: usize = 5;

/// What virtme-ng's guests need on top of `microvm`: the host's files over 9p with
/// an overlay (a root without `root=` is mounted as if it were a block device),
/// sockets, and PCI, which its QEMU machine has.
const VIRTME: &str = "# For virtme-ng.\nCONFIG_BLOCK=y\nCONFIG_NET=y\nCONFIG_UNIX=y\nCONFIG_INET=y\nCONFIG_NETWORK_FILESYSTEMS=y\nCONFIG_NET_9P=y\nCONFIG_NET_9P_VIRTIO=y\nCONFIG_9P_FS=y\nCONFIG_FUSE_FS=y\nCONFIG_VIRTIO_FS=y\nCONFIG_OVERLAY_FS=y\nCONFIG_PCI=y\nCONFIG_VIRTIO_PCI=y\nCONFIG_ACPI=y\nCONFIG_BINFMT_SCRIPT=y\nCONFIG_DEVTMPFS=y\nCONFIG_DEVTMPFS_MOUNT=y\nCONFIG_TMPFS=y\nCONFIG_TMPFS_XATTR=y\nCONFIG_MULTIUSER=y\nCONFIG_FILE_LOCKING=y\nCONFIG_POSIX_TIMERS=y\nCONFIG_FUTEX=y\nCONFIG_EPOLL=y\nCONFIG_SIGNALFD=y\nCONFIG_TIMERFD=y\nCONFIG_EVENTFD=y\nCONFIG_INOTIFY_USER=y\nCONFIG_FHANDLE=y\nCONFIG_CGROUPS=y\nCONFIG_SYSVIPC=y\nCONFIG_PACKET=y\nCONFIG_RTC_CLASS=y\nCONFIG_RTC_DRV_CMOS=y\nCONFIG_UNIX98_PTYS=y\n";

fn main() {
    let folder = tempfile::tempdir().expect("a folder for the project");
    let project = folder.path();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    for part in ["kernels", "configs", "patches"] {
        let copied = Command::new("cp").arg("-r").arg(root.join(part)).arg(project).status();
        assert!(copied.is_ok_and(|status| status.success()), "{part} can be copied");
    }
    let plan = |name: &str, config: &str| {
        let text = format!(
            "schema: kvet/plan/1\nseries: [khugepaged-cold]\nkernels: [debian-6.12]\nconfigs:\n  {config}: {{base: tinyconfig, fragments: [{}]}}\nguests:\n  up: {{memory: 512MiB}}\ntests:\n  - {{exec: /bin/uname, args: [-r], format: exit}}\n",
            if config == "virtme" { "microvm, virtme" } else { "microvm" }
        );
        std::fs::write(project.join(format!("configs/plans/{name}.yaml")), text).expect("a plan");
    };
    std::fs::write(project.join("configs/kconfig/virtme.config"), VIRTME).expect("a fragment");
    plan("boots", "microvm");
    plan("virtme", "virtme");

    kvet(project, &["build", "boots", "--variant", "base"]);
    let cold = boots(project, &["--cold"]);
    // Saves the machine.
    kvet(project, &["run", "boots", "--variant", "base", "-q"]);
    let restored = boots(project, &[]);
    println!("guest of 512 MiB, linux 6.12, TCG; medians of {BOOTS} boots");
    println!("                              cold     restored   ratio");
    for (what, at) in [("QEMU's start to first record", 0), ("QEMU's start to its end", 1)] {
        let (a, b) = (median(&cold, at), median(&restored, at));
        println!("  {what:28}{a:6.3} s  {b:6.3} s  {:6.1}", a / b);
    }
    match virtme_ng(project) {
        Ok(seconds) => {
            println!("virtme-ng, boot to `uname -r` to exit, median of {RUNS}: {seconds:.3} s");
            for (what, kind, more) in
                [("cold", &cold, &["--cold"][..]), ("restored", &restored, &[])]
            {
                let (guest, whole) = (median(kind, 1), whole(project, more));
                for (part, own) in [("QEMU's start to end", guest), ("the whole `kvet run`", whole)]
                {
                    println!(
                        "  kvet {what:9} {part:21} {own:6.3} s: {:5.1} times faster",
                        seconds / own
                    );
                }
            }
        }
        Err(why) => println!("virtme-ng: left out, since {why}"),
    }
}

fn cache() -> PathBuf {
    std::env::var_os("KVET_TEST_CACHE")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("kvet-cache"), PathBuf::from)
}

fn kvet(project: &Path, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvet"));
    command.args(arguments).current_dir(project).env("KVET_CACHE_DIR", cache());
    let status = command.stdout(Stdio::null()).status().expect("kvet starts");
    assert!(matches!(status.code(), Some(0 | 6)), "kvet {arguments:?} ended with {status}");
}

/// Seconds to the first record and to the end, of each boot.
fn boots(project: &Path, arguments: &[&str]) -> Vec<[f64; 2]> {
    let count = BOOTS.to_string();
    let fixed = ["run", "boots", "--variant", "base", "-q", "--boots", &count];
    kvet(project, &[&fixed, arguments].concat());
    let latest = project.join("kvet-runs/latest/boots");
    let mut found = Vec::new();
    visit(&latest, &mut found);
    assert_eq!(found.len(), BOOTS, "every boot left its report");
    found
}

/// Median seconds of a whole kvet that does one boot, from its start to its end: it
/// also reads the plan, verifies the kernel, packs the guest's files and reports.
fn whole(project: &Path, arguments: &[&str]) -> f64 {
    let fixed = ["run", "boots", "--variant", "base", "-q"];
    let mut seconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            kvet(project, &[&fixed, arguments].concat());
            began.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[RUNS / 2]
}

fn visit(folder: &Path, found: &mut Vec<[f64; 2]>) {
    for entry in std::fs::read_dir(folder).expect("a run's folder").flatten() {
        if entry.path().is_dir() {
            visit(&entry.path(), found);
        } else if entry.file_name() == "boot.json" {
            let text = std::fs::read(entry.path()).expect("a report");
            let boot: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            let seconds = |name: &str| boot["report"][name].as_f64().expect("seconds");
            found.push([seconds("start_seconds"), seconds("seconds")]);
        }
    }
}

fn median(boots: &[[f64; 2]], at: usize) -> f64 {
    let mut values: Vec<f64> = boots.iter().map(|boot| boot[at]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median seconds of virtme-ng for the same, or why it cannot be had.
fn virtme_ng(project: &Path) -> Result<f64, String> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("virtme-ng");
    let vng = venv.join("bin/vng");
    if !vng.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        run(Command::new(venv.join("bin/pip")).args(["install", "-q", "virtme-ng"]))?;
    }
    kvet(project, &["build", "virtme", "--variant", "base"]);
    let result = std::fs::read(project.join("kvet-runs/latest/result.json"))
        .map_err(|error| format!("the build left no result: {error}"))?;
    let result: serde_json::Value = serde_json::from_slice(&result).map_err(|e| e.to_string())?;
    let key = result["cells"][0]["variants"]["base"]["build"]["key"].as_str().unwrap_or_default();
    let image = cache().join("images").join(key).join("image");
    // It starts a program of its own by name.
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", venv.join("bin").display());
    let start = |more: &[&str]| {
        let mut command = Command::new(&vng);
        command.args(more).args(["--disable-kvm", "--force-9p", "--memory", "512M", "--cpus", "1"]);
        command.arg("-r").arg(&image).args(["--", "uname", "-r"]).env("PATH", &path);
        let began = Instant::now();
        finish(&mut command).map(|output| (output, began.elapsed().as_secs_f64()))
    };
    // On a host without udev its guests find no ports: what a command says is on the
    // console alone, which costs time to show, and its status is lost. Such a guest
    // does less than usual, and is compared all the same.
    let (output, _) = start(&["--verbose"])?;
    // The guest's console comes on standard error.
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    if said.contains("skip udev") {
        println!("virtme-ng finds no udev here, so its guests start without it, which is faster");
    }
    if !said.lines().any(|line| line.starts_with("6.12.")) {
        let last: Vec<&str> = said.lines().rev().take(4).collect();
        return Err(format!("its guest did not say its release: {}", last.join(" / ")));
    }
    let mut seconds = Vec::new();
    for _ in 0..RUNS {
        let (again, took) = start(&[])?;
        if again.status != output.status {
            return Err(format!("a run of it ended with {}, not {}", again.status, output.status));
        }
        seconds.push(took);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[RUNS / 2])
}

/// Runs a command that must succeed; gives its output, or why it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let output = finish(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = words.lines().rev().take(4).collect();
    Err(format!("{} failed: {}", command.get_program().display(), last.join(" / ")))
}

/// Runs a command to its end, however it ends.
fn finish(command: &mut Command) -> Result<Output, String> {
    let limit = Duration::from_secs(300);
    let mut limited = Command::new("timeout");
    limited.arg(limit.as_secs().to_string()).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.stdin(Stdio::null()).output().map_err(|error| error.to_string())
}
