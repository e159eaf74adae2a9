// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a VM is, apart from where it runs. Base and patched are one spec with
//! another kernel: nothing else can differ.

use std::path::PathBuf;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use crate::arch::x86_64;
use crate::host::budget::{Need, QEMU_OVERHEAD_BYTES};
use crate::plan::Guest;
use crate::plan::manifest::{MachineType, Network};

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The host's hardware virtualisation.
    Kvm,
    /// QEMU's translator: works everywhere, some ten times slower.
    Tcg,
}

impl std::fmt::Display for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// A VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmSpec {
    /// What `ps` shows of it; without commas, which QEMU would take for its own.
    pub name: String,
    /// QEMU's program.
    pub qemu: PathBuf,
    /// QEMU machine type.
    pub machine: MachineType,
    /// What executes it.
    pub accelerator: Accelerator,
    /// QEMU CPU model.
    pub cpu: String,
    /// Guest time is the number of executed instructions.
    pub counted: bool,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: ByteSize,
    /// Its network.
    pub network: Network,
    /// The bootable image.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
    /// The kernel command line.
    pub command_line: String,
    /// Seed of the random numbers that QEMU gives the guest.
    pub seed: u32,
}

/// Every guest of every run gets this seed: randomness may not be what differs
/// between two variants.
const SEED: u32 = 1;

/// The kernel command line of every guest, before the plan's own words:
/// the console; every message on it, since `quiet` hides WARN; an oops or a panic
/// ends the machine at once (`panic=-1`, and `reboot=t` because microvm has no
/// other reset), which `-no-reboot` turns into QEMU's exit; fixed addresses; and
/// `no_timer_check`, since on a busy host QEMU delivers the timer interrupt later
/// than the kernel waits for it in that check: it then went on without its IO-APIC,
/// or panicked (2 of 108 cold boots at a load of 20 on two cores).
fn command_line(guest: &Guest, accelerator: Accelerator, counted: bool) -> String {
    let mut words = vec![
        format!("console={}", x86_64::CONSOLE),
        format!("earlyprintk=serial,{},115200", x86_64::CONSOLE),
    ];
    words.extend(
        [
            "ignore_loglevel",
            "oops=panic",
            "panic=-1",
            "reboot=t",
            "nokaslr",
            "norandmaps",
            "no_timer_check",
        ]
        .map(str::to_owned),
    );
    if accelerator == Accelerator::Tcg {
        // A port has taken the last record when the guest's write returns.
        words.push("kvet.drain_ms=0".to_owned());
    }
    if counted {
        words.extend(counted_words());
    }
    words.extend(guest.append.iter().cloned());
    words.join(" ")
}

/// Words for a counted guest: no timer of kvet's own; the port by which the guest stops
/// itself when it is ready for its job; and the exact frequency of its time-stamp
/// counter, one instruction a nanosecond, which the kernel would otherwise measure, to
/// some millionths.
///
/// The kernel also measures its local timer for a tenth of a second, in a loop of
/// `rdtsc` and `pause` that takes the translator 10 s and more of a boot of 2 s. There
/// is no way round that: the other timer, with `nolapic_timer`, ticks every 838 ns only,
/// and counts depend on how its interrupts are rounded.
fn counted_words() -> [String; 3] {
    [
        "kvet.heartbeat_ms=0".to_owned(),
        format!("kvet.pause_port={PAUSE_PORT}"),
        "tsc_early_khz=1000000".to_owned(),
    ]
}

/// I/O port of the device by which a counted guest stops itself: pvpanic's own default.
pub const PAUSE_PORT: u16 = 0x505;

/// CPU model of counted guests where the plan names none: all that this QEMU can do, which
/// may be more in another version, but without ERMS, with which each 8 bytes that the kernel clears or copies would count as an instruction.
const COUNTED_CPU: &str = "max,-erms";

/// What a guest takes of the host.
#[must_use]
pub fn need(guest: &Guest) -> Need {
    let memory = guest.memory.as_u64().saturating_add(QEMU_OVERHEAD_BYTES);
    Need { cpus: guest.vcpus, memory, alone: false }
}

impl VmSpec {
    /// The VM of a guest with a kernel and an initramfs; `counted` needs TCG.
    #[must_use]
    pub fn new(
        name: &str,
        guest: &Guest,
        qemu: PathBuf,
        accelerator: Accelerator,
        kernel: PathBuf,
        initramfs: PathBuf,
        counted: bool,
    ) -> Self {
        Self {
            name: name.replace(',', " "),
            qemu,
            machine: guest.machine,
            accelerator,
            cpu: match (accelerator, &guest.cpu) {
                (Accelerator::Kvm, _) => "host".to_owned(),
                (Accelerator::Tcg, Some(cpu)) => cpu.clone(),
                (Accelerator::Tcg, None) if counted => COUNTED_CPU.to_owned(),
                (Accelerator::Tcg, None) => "max".to_owned(),
            },
            counted,
            vcpus: guest.vcpus,
            memory: guest.memory,
            network: guest.network,
            kernel,
            initramfs,
            command_line: command_line(guest, accelerator, counted),
            seed: SEED,
        }
    }
}
