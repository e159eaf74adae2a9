// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's arguments from a [`VmSpec`]: a pure function, so that a snapshot can
//! hold it.

use std::fmt::Write as _;

use super::spec::{Accelerator, VmSpec};
use crate::plan::manifest::{MachineType, Network};
use kvet_records::{JOB_PORT, RECORDS_PORT};

/// How the world is connected to a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channels {
    /// Sockets that QEMU inherits: nothing in any folder, nothing to guess.
    Inherited {
        /// QMP.
        qmp: i32,
        /// The serial console.
        console: i32,
        /// Records from the guest.
        records: i32,
        /// The job for the guest.
        job: i32,
    },
    /// For a person: console on the terminal, records to a file, the job from
    /// the FIFO pair `job.in` and `job.out` in the folder `$dir`.
    ByHand,
}

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
        Channels::Inherited { qmp, console, records, job } => {
            for (id, fd) in [("qmp", qmp), ("console", console), ("records", records), ("job", job)]
            {
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
        let channels = Channels::Inherited { qmp: 3, console: 4, records: 5, job: 6 };
        insta::assert_snapshot!(arguments(&spec(), &channels).join("\n"));
    }

    #[test]
    fn a_network_is_restricted_and_its_port_is_the_hosts_choice() {
        let channels = Channels::Inherited { qmp: 3, console: 4, records: 5, job: 6 };
        let words = |network| arguments(&VmSpec { network, ..spec() }, &channels).join(" ");
        assert!(words(Network::User).contains("restrict=on,hostfwd=tcp:127.0.0.1:0-:22"));
        assert!(!words(Network::None).contains("net"));
    }

    #[test]
    fn a_counted_guest_counts() {
        let channels = Channels::Inherited { qmp: 3, console: 4, records: 5, job: 6 };
        let words = |counted| arguments(&VmSpec { counted, ..spec() }, &channels).join(" ");
        assert!(words(true).contains("-icount shift=0,sleep=off"));
        assert!(!words(false).contains("icount"));
    }

    #[test]
    fn the_script_for_a_person() {
        insta::assert_snapshot!(script(&spec(), r#"{"test":"it's"}"#));
    }
}
