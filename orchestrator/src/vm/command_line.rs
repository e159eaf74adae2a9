// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's arguments from a [`VmSpec`]: a pure function, so that a snapshot can
//! hold it.

use std::fmt::Write as _;

use super::spec::{Accelerator, PAUSE_PORT, VmSpec};
use crate::plan::manifest::{MachineType, Network};
use kvet_records::{JOB_PORT, RECORDS_PORT};

/// How the world is connected to a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channels {
    /// What QEMU inherits: nothing in any folder, nothing to guess. The console is a
    /// pair of pipes, the rest are sockets.
    Inherited {
        /// QMP.
        qmp: i32,
        /// What the serial console writes.
        console: i32,
        /// What it reads.
        keys: i32,
        /// Records from the guest.
        records: i32,
        /// The job for the guest.
        job: i32,
    },
    /// For a person: console on the terminal, records to a file, the job from
    /// the FIFO pair `job.in` and `job.out` in the folder `$dir`.
    ByHand,
}

/// What QEMU calls the descriptor that the console writes to.
pub const CONSOLE_OUT: &str = "/dev/fdset/1";
/// What it calls the one that the console reads from, once it does.
pub const CONSOLE_IN: &str = "/dev/fdset/2";

/// Descriptor numbers that QEMU gets what it inherits as.
pub const CHANNELS: Channels =
    Channels::Inherited { qmp: 3, console: 4, keys: 5, records: 6, job: 7 };

/// QEMU's arguments, without the program.
#[must_use]
pub fn arguments(spec: &VmSpec, channels: &Channels) -> Vec<String> {
    let mut out = Vec::new();
    let mut option = |name: &str, value: String| {
        out.push(format!("-{name}"));
        out.push(value);
    };
    option("name", format!("kvet {}", spec.name));
    option("machine", machine(spec));
    option("accel", accelerator(spec).to_owned());
    option("cpu", spec.cpu.clone());
    option("smp", spec.vcpus.to_string());
    option("m", format!("{}k", spec.memory.as_u64() / 1024));
    if spec.counted {
        // A nanosecond is one instruction, and idle time passes at once.
        option("icount", "shift=0,sleep=off".to_owned());
        // What the guest writes there stops it at that instruction, until kvet lets it on.
        option("device", format!("pvpanic,ioport={PAUSE_PORT}"));
        let by_hand = *channels == Channels::ByHand;
        option("action", format!("panic={}", if by_hand { "none" } else { "pause" }));
        // From 8.2 on, QEMU hands what the guest writes to a queue to another thread
        // under TCG, too: the interrupt that answers comes whenever the host gets to it.
        option("global", "virtio-mmio.ioeventfd=off".to_owned());
    }
    option("seed", spec.seed.to_string());
    option("rtc", "base=2026-01-01,clock=vm".to_owned());
    option("kernel", spec.kernel.display().to_string());
    option("initrd", spec.initramfs.display().to_string());
    option("append", spec.command_line.clone());
    option(
        "sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny".to_owned(),
    );
    option("display", "none".to_owned());
    match channels {
        Channels::Inherited { qmp, console, keys, records, job } => {
            for (set, fd) in [(1, console), (2, keys)] {
                option("add-fd", format!("fd={fd},set={set}"));
            }
            option("chardev", format!("file,id=console,path={CONSOLE_OUT},append=on"));
            for (id, fd) in [("qmp", qmp), ("records", records), ("job", job)] {
                option("chardev", format!("socket,id={id},fd={fd}"));
            }
            option("mon", "chardev=qmp,mode=control".to_owned());
        }
        Channels::ByHand => {
            option("chardev", "stdio,id=console,signal=on".to_owned());
            option("chardev", "file,id=records,path=$dir/records".to_owned());
            option("chardev", "pipe,id=job,path=$dir/job".to_owned());
        }
    }
    option("serial", "chardev:console".to_owned());
    option("device", "virtio-serial-device".to_owned());
    option("device", format!("virtserialport,chardev=records,name={RECORDS_PORT}"));
    option("device", format!("virtserialport,chardev=job,name={JOB_PORT}"));
    if spec.network == Network::User {
        // Port 0: the host's kernel chooses one that is free.
        out.push("-netdev".to_owned());
        out.push("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22".to_owned());
        out.push("-device".to_owned());
        out.push("virtio-net-device,netdev=net".to_owned());
    }
    out.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    out
}

fn machine(spec: &VmSpec) -> String {
    match spec.machine {
        MachineType::Microvm => "microvm,acpi=off,rtc=on".to_owned(),
    }
}

fn accelerator(spec: &VmSpec) -> &'static str {
    match spec.accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg => "tcg",
    }
}

/// A shell script that starts the same QEMU by hand and hands it the same job.
#[must_use]
pub fn script(spec: &VmSpec, job_line: &str) -> String {
    let mut out = String::from(
        "#!/bin/sh\n# Starts this boot's QEMU by hand: the console is this terminal (Ctrl-C ends it),\n# the guest's records are printed afterwards.\nset -eu\ndir=$(mktemp -d)\ntrap 'rm -rf \"$dir\"' EXIT\nmkfifo \"$dir/job.in\" \"$dir/job.out\"\n",
    );
    let _ = writeln!(out, "printf '%s\\n' {} >\"$dir/job.in\" &", quote(job_line));
    out.push_str("cat \"$dir/job.out\" >/dev/null &\n");
    out.push_str(&quote(&spec.qemu.display().to_string()));
    for argument in arguments(spec, &Channels::ByHand) {
        let quoted = match argument.split_once("$dir") {
            Some((before, after)) => format!("{}\"$dir\"{}", quote(before), quote(after)),
            None => quote(&argument),
        };
        let _ = write!(out, " \\\n  {quoted}");
    }
    out.push_str(" || true\ncat \"$dir/records\"\n");
    out
}

/// Quotes a word for a POSIX shell.
#[must_use]
pub fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=,:+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytesize::ByteSize;

    fn spec() -> VmSpec {
        VmSpec {
            name: "base a/b/c/up t".into(),
            qemu: "/usr/bin/qemu-system-x86_64".into(),
            machine: MachineType::Microvm,
            accelerator: Accelerator::Tcg,
            cpu: "max".into(),
            counted: false,
            vcpus: 2,
            memory: ByteSize::gib(1),
            network: Network::None,
            kernel: "/store/image".into(),
            initramfs: "/store/it's here/initramfs".into(),
            command_line: "console=ttyS0 panic=-1".into(),
            seed: 1,
        }
    }

    #[test]
    fn the_arguments_of_a_boot() {
        insta::assert_snapshot!(arguments(&spec(), &CHANNELS).join("\n"));
    }

    #[test]
    fn a_network_is_restricted_and_its_port_is_the_hosts_choice() {
        let words = |network| arguments(&VmSpec { network, ..spec() }, &CHANNELS).join(" ");
        assert!(words(Network::User).contains("restrict=on,hostfwd=tcp:127.0.0.1:0-:22"));
        assert!(!words(Network::None).contains("net"));
    }

    #[test]
    fn a_counted_guest_counts() {
        let counted = arguments(&VmSpec { counted: true, ..spec() }, &CHANNELS);
        let plain = arguments(&spec(), &CHANNELS);
        let more: Vec<&str> =
            counted.iter().filter(|word| !plain.contains(word)).map(String::as_str).collect();
        insta::assert_snapshot!(more.join("\n"));
    }

    #[test]
    fn the_script_for_a_person() {
        insta::assert_snapshot!(script(&spec(), r#"{"test":"it's"}"#));
    }
}
