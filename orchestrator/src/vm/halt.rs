// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a VM ended, and whose fault that is. Only a matching `end` record makes
//! a boot complete: every other ending is a fault, whatever QEMU's exit status.

use kvet_records::{ENVIRONMENT_PREFIX, Outcome};
use serde::{Deserialize, Serialize};

use super::console::BootPhase;
use super::splat::{Splat, SplatKind};
use crate::fault::{Fault, escape};
use crate::host::process::signal_name;
use crate::transport::virtio::Report;

/// Why a VM ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum HaltReason {
    /// The guest reported the end of its job.
    Completed,
    /// The kernel said what broke: it died of that, or hung after it.
    Kernel {
        /// What broke first.
        kind: SplatKind,
        /// Its title, as the mailing lists word it.
        title: String,
    },
    /// The guest was not up by its deadline.
    BootHang {
        /// How far it had got.
        phase: BootPhase,
        /// The deadline in seconds.
        seconds: u64,
    },
    /// The job was not done by its deadline, though the guest's init lived.
    TestHang {
        /// The deadline in seconds.
        seconds: u64,
    },
    /// The job was not done by its deadline, and the guest no longer answered.
    GuestHang {
        /// The deadline in seconds.
        seconds: u64,
    },
    /// The job is done and reported, but the kernel did not get the machine to end.
    ExitHang {
        /// How long it was given, in seconds.
        seconds: u64,
    },
    /// The machine reset without a word on the console: a triple fault, or a
    /// reboot that nobody asked for.
    Reset,
    /// The guest broke the protocol.
    Violation {
        /// What it did.
        what: String,
        /// The offending line, escaped.
        line: String,
    },
    /// The machine was switched off, which nobody asked for.
    UnexpectedEnd,
    /// QEMU ended by itself in the middle of the boot.
    QemuDied {
        /// How it ended.
        how: String,
        /// What it wrote to standard error, escaped.
        stderr: String,
    },
    /// QEMU ended before it could be talked to.
    QemuRefused {
        /// How it ended.
        how: String,
        /// What it wrote to standard error, escaped.
        stderr: String,
    },
    /// QEMU is there, but it no longer answers.
    QemuStuck,
    /// The guest was up, and its state was written: what such a boot is for.
    Saved,
    /// The guest was up, but its state could not be written.
    NotSaved {
        /// Why not.
        why: String,
    },
    /// QEMU did not take a saved state.
    NotRestored {
        /// Why not.
        why: String,
        /// What QEMU wrote to standard error, escaped.
        stderr: String,
    },
    /// The user stopped kvet.
    Interrupted,
}

impl HaltReason {
    /// One word for the reason, the kind of a kernel's death included.
    #[must_use]
    pub fn name(&self) -> &'static str {
        use SplatKind as Kind;
        match self {
            Self::Completed => "completed",
            Self::Kernel { kind, .. } => match kind {
                Kind::Panic => "panic",
                Kind::KernelBug => "bug",
                Kind::GeneralProtection => "general_protection",
                Kind::HungTask => "hung_task",
                Kind::SoftLockup => "soft_lockup",
                Kind::HardLockup => "hard_lockup",
                Kind::RcuStall => "rcu_stall",
                Kind::OomKill => "oom_kill",
                Kind::Spinlock => "spinlock_lockup",
                Kind::WorkqueueLockup => "workqueue_lockup",
                Kind::BadUsercopy | Kind::ListCorruption => "bug",
                kind if kind.is_fatal() => "oops",
                // The kernel would have gone on, but was told to panic.
                _ => "panic",
            },
            Self::BootHang { .. } => "boot_hang",
            Self::TestHang { .. } => "test_hang",
            Self::GuestHang { .. } => "guest_hang",
            Self::ExitHang { .. } => "exit_hang",
            Self::Reset => "reset",
            Self::UnexpectedEnd => "unexpected_end",
            Self::Violation { .. } => "violation",
            Self::QemuDied { .. } => "qemu_died",
            Self::QemuRefused { .. } => "qemu_refused",
            Self::QemuStuck => "qemu_stuck",
            Self::Saved => "saved",
            Self::NotSaved { .. } => "not_saved",
            Self::NotRestored { .. } => "not_restored",
            Self::Interrupted => "interrupted",
        }
    }
}

impl std::fmt::Display for HaltReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::Kernel { title, .. } => f.write_str(&escape(title)),
            Self::BootHang { phase, seconds } => {
                write!(f, "boot hung in phase {phase} (deadline {seconds} s)")
            }
            Self::TestHang { seconds } => {
                write!(f, "the test was not done after {seconds} s; the guest still answered")
            }
            Self::GuestHang { seconds } => {
                write!(f, "the guest hung: no result after {seconds} s and no sign of life")
            }
            Self::ExitHang { seconds } => {
                write!(f, "the guest hung after its job: it had not left after {seconds} s")
            }
            Self::Reset => f.write_str("the machine reset without a word (triple fault or reboot)"),
            Self::UnexpectedEnd => {
                f.write_str("the machine was switched off before its job was done")
            }
            Self::Violation { what, .. } => write!(f, "the guest broke the protocol: {what}"),
            Self::QemuDied { how, .. } => write!(f, "QEMU died: {how}"),
            Self::QemuRefused { how, .. } => write!(f, "QEMU did not start: {how}"),
            Self::QemuStuck => f.write_str("QEMU no longer answers, though it is there"),
            Self::Saved => f.write_str("saved"),
            Self::NotSaved { why } => write!(f, "the machine's state was not saved: {why}"),
            Self::NotRestored { why, .. } => write!(f, "the machine was not restored: {why}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Everything that one boot left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BootReport {
    /// Why it ended.
    pub halt: HaltReason,
    /// What the guest reported.
    pub report: Report,
    /// What broke, by its console.
    pub splats: Vec<Splat>,
    /// The console's last lines, escaped.
    pub tail: Vec<String>,
    /// Where each vCPU of a hung guest stood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hang: Vec<String>,
    /// Wall-clock seconds from QEMU's start to the guest being up, if it came to that.
    pub boot_seconds: Option<f64>,
    /// Wall-clock seconds from QEMU's start to the job's first record.
    #[serde(default)]
    pub start_seconds: Option<f64>,
    /// Wall-clock seconds from QEMU's start to its end.
    pub seconds: f64,
}

impl BootReport {
    /// Why there is no result, if there is none. `task` names the boot.
    #[must_use]
    pub fn fault(&self, task: &str) -> Option<Fault> {
        let what = format!("{task}: {}", self.halt);
        let console = [self.hang.as_slice(), &self.tail].concat().join("\n");
        Some(match &self.halt {
            HaltReason::Completed => return self.outcome_fault(task),
            HaltReason::Kernel { .. } => Fault::kernel(what)
                .evidence(&console)
                .help("the whole console is in the run folder; kvet.sh beside it starts the same guest by hand"),
            HaltReason::Reset | HaltReason::UnexpectedEnd => Fault::kernel(what).evidence(&console),
            HaltReason::BootHang { .. }
            | HaltReason::GuestHang { .. }
            | HaltReason::ExitHang { .. } => {
                let what = if self.tail.is_empty() { format!("{what}; the console is empty") } else { what };
                Fault::kernel(what)
                    .evidence(&console)
                    .help("raise `deadlines:` in the plan if the guest is only slow")
            }
            HaltReason::TestHang { .. } => Fault::test(what)
                .evidence(&console)
                .help("raise `deadlines: {test: ...}` in the plan if the test is only slow"),
            HaltReason::Violation { line, .. } => Fault::test(what).evidence(line),
            HaltReason::QemuDied { stderr, .. } => Fault::infra(what).evidence(stderr),
            HaltReason::QemuRefused { stderr, .. } => Fault::infra(what)
                .evidence(stderr)
                .help("`kvet doctor` says what this host can do"),
            HaltReason::QemuStuck => Fault::infra(what)
                .help("something stopped QEMU (SIGSTOP, a debugger) or the host is overloaded"),
            HaltReason::Saved | HaltReason::NotSaved { .. } => Fault::infra(what),
            HaltReason::NotRestored { stderr, .. } => Fault::infra(what).evidence(stderr),
            HaltReason::Interrupted => Fault::interrupted(),
        })
    }

    fn outcome_fault(&self, task: &str) -> Option<Fault> {
        let fault = match self.report.outcome.as_ref()? {
            Outcome::Completed | Outcome::Skipped => return None,
            Outcome::Failed { reason } => Fault::test(format!("{task}: the test failed: {reason}")),
            Outcome::Exited { status } => Fault::test(format!(
                "{task}: the test exited with status {status} and gave no reason"
            )),
            Outcome::Killed { signal } => Fault::test(format!(
                "{task}: the test was killed by signal {signal}{}",
                signal_name(*signal)
            )),
        };
        Some(fault.evidence(&said(&self.report.logs)))
    }
}

/// What a test has said itself. What its machine was like is in the boot's records.
fn said(logs: &[String]) -> String {
    let lines: Vec<&str> = logs
        .iter()
        .map(String::as_str)
        .filter(|line| !line.starts_with(ENVIRONMENT_PREFIX))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_heard_and_its_machine_is_not() {
        let logs = ["environment.cpu.model = M", "environment = odd", "a\nb"].map(str::to_owned);
        assert_eq!(said(&logs), "environment = odd\na\nb");
        assert_eq!(said(&[]), "");
    }
}
