// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which accelerator works here. A `/dev/kvm` that opens can still hang every
//! guest, so KVM is believed only after a probe boot of a real kernel to `hello`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvet_records::{Job, PROTOCOL_VERSION, Parameters};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::deadline::Limits;
use super::halt::HaltReason;
use super::machine::{BootRequest, boot};
use super::probe_rom;
use super::spec::{Accelerator, VmSpec};
use super::state::Start;
use crate::fault::Fault;
use crate::run::event::Events;
use crate::store::{Store, key, write_atomically};

/// What the user asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// KVM where a probe boot works, TCG elsewhere.
    #[default]
    Auto,
    /// KVM, or nothing.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

/// What was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The accelerator.
    pub accelerator: Accelerator,
    /// One line for people.
    pub reason: String,
}

/// A KVM guest is up in well under a second; ten leave room for a loaded host.
const PROBE_DEADLINE: Duration = Duration::from_secs(10);

/// Chooses the accelerator. `spec` is a VM that the run is about to boot; the
/// probe boots it under KVM. The answer is kept for this boot of the host and
/// this QEMU.
///
/// # Errors
/// An `infra` fault when KVM is demanded and does not work.
pub async fn choose(
    choice: Choice,
    spec: &VmSpec,
    folder: &Path,
    store: &Store,
    stop: &CancellationToken,
) -> Result<Chosen, Fault> {
    if choice == Choice::Tcg {
        return Ok(Chosen { accelerator: Accelerator::Tcg, reason: "asked for".to_owned() });
    }
    let verdict = match device() {
        Err(reason) => Err(reason),
        Ok(()) => {
            let file = store.path("probes", &format!("{}.json", host_key(&spec.qemu)));
            let kept =
                std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
            match kept {
                Some(verdict) => verdict,
                None => {
                    let verdict = probe(spec, folder, stop).await?;
                    write_atomically(&file, &crate::report::json::pretty(&verdict))?;
                    verdict
                }
            }
        }
    };
    match (verdict, choice) {
        (Ok(()), _) => {
            Ok(Chosen { accelerator: Accelerator::Kvm, reason: "a probe boot came up".to_owned() })
        }
        (Err(reason), Choice::Kvm) => {
            Err(Fault::infra(format!("KVM does not work here: {reason}"))
                .help("leave out `--accel kvm` to use TCG"))
        }
        (Err(reason), _) => {
            Ok(Chosen { accelerator: Accelerator::Tcg, reason: format!("no KVM: {reason}") })
        }
    }
}

/// Whether the device can be opened at all.
///
/// # Errors
/// One line: why not.
pub fn device() -> Result<(), String> {
    match std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("/dev/kvm: {error}")),
    }
}

/// Key of this boot of the host and this QEMU.
#[must_use]
pub fn host_key(qemu: &Path) -> String {
    let boot_id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let program = std::fs::canonicalize(qemu).unwrap_or_else(|_| qemu.to_owned());
    let changed = std::fs::metadata(&program).and_then(|data| data.modified()).ok();
    let changed = format!("{changed:?}");
    key([&boot_id, program.as_os_str().as_encoded_bytes(), changed.as_bytes()])
}

async fn probe(
    spec: &VmSpec,
    folder: &Path,
    stop: &CancellationToken,
) -> Result<Result<(), String>, Fault> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Fault::io(format!("make {}", folder.display()), &error))?;
    let rom = stop.run_until_cancelled(probe_rom::run(&spec.qemu, Accelerator::Kvm, folder)).await;
    if let Err(reason) = rom.ok_or_else(Fault::interrupted)? {
        return Ok(Err(reason));
    }
    let request = BootRequest {
        task: "KVM probe".to_owned(),
        spec: VmSpec { accelerator: Accelerator::Kvm, cpu: "host".to_owned(), ..spec.clone() },
        start: Start::Cold,
        // A guest refuses a job that it does not know, which is all that is asked of it here.
        job: Job {
            protocol: PROTOCOL_VERSION,
            id: "probe".to_owned(),
            test: "probe".to_owned(),
            parameters: Parameters::new(),
            measure: None,
            offset_ns: 0,
            start_at_ms: None,
            program: None,
        },
        limits: Limits { boot: PROBE_DEADLINE, test: PROBE_DEADLINE },
        vmlinux: PathBuf::new(),
        folder: folder.to_owned(),
    };
    let report = boot(&request, None, &Events::default(), stop).await?;
    if report.report.release.is_some() {
        return Ok(Ok(()));
    }
    match &report.halt {
        HaltReason::Interrupted => Err(Fault::interrupted()),
        HaltReason::QemuDied { how, stderr } | HaltReason::QemuRefused { how, stderr } => {
            let first = stderr.lines().next().unwrap_or("nothing on stderr");
            Ok(Err(format!("QEMU with KVM ends at once ({how}): {first}")))
        }
        halt => Ok(Err(format!("a probe boot failed: {halt}"))),
    }
}
