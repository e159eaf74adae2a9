// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a boot while it runs, and what follows from it at its end.

use std::io::Write;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::Instant;

use super::console::Console;
use super::halt::{BootReport, HaltReason};
use super::machine::BootRequest;
use super::qmp::QmpEvent;
use super::splat::{Findings, SplatKind};
use super::state::Start;
use crate::host::process::ending;
use crate::run::event::{Events, RunEvent};
use crate::transport::virtio::{Session, Stage};

/// How long evidence is gathered after the first: a panic prints its stacks and
/// resets within a second, also under TCG.
const GATHER: Duration = Duration::from_secs(2);
/// How long a guest that reported its end may take to leave.
const LEAVE: Duration = Duration::from_secs(20);
/// A guest that is alive sends a heartbeat every second; three missed are none.
const HEARTBEAT_SILENCE: Duration = Duration::from_secs(10);

/// What is known of a boot while it runs.
pub(super) struct Watch<'a> {
    request: &'a BootRequest,
    session: Session,
    /// The first evidence; nothing replaces it but the user's interrupt.
    pub(super) decided: Option<HaltReason>,
    pub(super) deadline: Instant,
    began: Instant,
    hello_at: Option<Instant>,
    started_at: Option<Instant>,
    heartbeat_at: Instant,
    heartbeats: u64,
    stage: Stage,
    reset_seen: bool,
    told_to_leave: bool,
    /// A counted guest is about to stop itself.
    stopping: bool,
    /// It has.
    stands: bool,
    /// Where each vCPU of a hung guest stood.
    pub(super) hang: Vec<String>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(request: &'a BootRequest, began: Instant) -> Self {
        Self {
            request,
            session: Session::new(request.job.clone()),
            decided: None,
            deadline: began + request.limits.boot,
            began,
            hello_at: None,
            started_at: None,
            heartbeat_at: began,
            heartbeats: 0,
            stage: Stage::Silent,
            reset_seen: false,
            told_to_leave: false,
            stopping: false,
            stands: false,
            hang: Vec::new(),
        }
    }

    pub(super) fn records(&mut self, bytes: &[u8]) {
        self.session.push(bytes);
        if self.session.heartbeats() != self.heartbeats {
            self.heartbeats = self.session.heartbeats();
            self.heartbeat_at = Instant::now();
        }
    }

    pub(super) fn event(&mut self, event: &QmpEvent) {
        // By the port that only its init writes to; it stands when QEMU says so.
        self.stopping |= event.name == "GUEST_PANICKED" && self.request.spec.counted;
        if event.name == "STOP" && std::mem::take(&mut self.stopping) {
            self.stands = true;
        }
        // With -no-reboot a guest's reset, intended or a triple fault, is a shutdown.
        if event.name == "SHUTDOWN" {
            let reason = event.data["reason"].as_str().unwrap_or_default();
            self.reset_seen |= reason == "guest-reset";
            // A signal to QEMU, or whoever else on the host told it to leave.
            self.told_to_leave |= reason.starts_with("host-");
        }
    }

    /// Draws conclusions from what has arrived.
    pub(super) fn look<W: Write>(&mut self, screen: &Console<W>, events: &Events) {
        let stage = self.session.stage();
        if stage != self.stage {
            let now = Instant::now();
            self.stage = stage;
            match stage {
                Stage::Silent => {}
                Stage::Up => {
                    self.hello_at = Some(now);
                    self.heartbeat_at = now;
                    self.deadline = now + self.request.limits.test;
                }
                Stage::Running => {
                    // `hello` and `start` may arrive together.
                    self.hello_at.get_or_insert(now);
                    self.started_at.get_or_insert(now);
                    self.deadline = now + self.request.limits.test;
                }
                Stage::Ended => {
                    self.hello_at.get_or_insert(now);
                    self.deadline = now + LEAVE;
                }
            }
            let phase = match stage {
                Stage::Silent => "boot",
                Stage::Up => "up",
                Stage::Running => "test",
                Stage::Ended => "end",
            };
            events.send(&RunEvent::BootPhase {
                task: self.request.task.clone(),
                phase: phase.to_owned(),
            });
        }
        if self.decided.is_some() {
            return;
        }
        if let Some(violation) = self.session.violation() {
            let (what, line) = (violation.what.clone(), violation.line.clone());
            self.decide(HaltReason::Violation { what, line });
        } else if let Some(evidence) = screen.fatal() {
            let (kind, title) = (evidence.kind, evidence.text.clone());
            self.decide(HaltReason::Kernel { kind, title });
        }
    }

    /// Whether the guest waits for its job and nothing is wrong with it.
    pub(super) fn can_be_saved(&self) -> bool {
        let stands = self.stands || !self.request.spec.counted;
        self.stage == Stage::Up && self.decided.is_none() && stands
    }

    /// Whether a counted guest that booted from power-on stands where others are saved,
    /// and is to go on now. Asking takes note of it.
    pub(super) fn goes_on(&mut self) -> bool {
        let stands = matches!(self.request.start, Start::Cold) && self.stands;
        self.stands &= !stands;
        stands
    }

    /// Whether the last record that came is whole.
    pub(super) fn between_records(&self) -> bool {
        self.session.between_records()
    }

    /// Everything that the boot left. `exit` is QEMU's status when it left
    /// without being told to.
    pub(super) fn finish(
        mut self,
        tail: Vec<String>,
        findings: Findings,
        exit: Option<ExitStatus>,
        greeted: bool,
        stderr: String,
    ) -> BootReport {
        self.session.finish();
        let halt = self.verdict(&findings, exit, greeted, stderr);
        let since_began = |at: Instant| (at - self.began).as_secs_f64();
        BootReport {
            halt,
            report: self.session.report().clone(),
            splats: findings.splats,
            tail,
            hang: self.hang,
            boot_seconds: self.hello_at.map(since_began),
            start_seconds: self.started_at.map(since_began),
            seconds: self.began.elapsed().as_secs_f64(),
        }
    }

    fn decide(&mut self, halt: HaltReason) {
        self.decided = Some(halt);
        self.deadline = self.deadline.min(Instant::now() + GATHER);
    }

    /// The deadline passed: whether to stop waiting at once. A guest that hangs
    /// is examined first.
    pub(super) fn timeout<W: Write>(&mut self, screen: &Console<W>) -> bool {
        if self.decided.is_some() {
            return true;
        }
        let seconds = self.request.limits.test.as_secs();
        self.decided = Some(match self.stage {
            Stage::Ended => HaltReason::ExitHang { seconds: LEAVE.as_secs() },
            Stage::Silent => HaltReason::BootHang {
                phase: screen.phase(),
                seconds: self.request.limits.boot.as_secs(),
            },
            _ if self.heartbeat_at.elapsed() > HEARTBEAT_SILENCE => {
                HaltReason::GuestHang { seconds }
            }
            _ => HaltReason::TestHang { seconds },
        });
        false
    }

    /// The halt reason once everything is in. `exit` is QEMU's status when it
    /// left without being told to.
    fn verdict(
        &self,
        findings: &Findings,
        exit: Option<ExitStatus>,
        greeted: bool,
        stderr: String,
    ) -> HaltReason {
        let fatal = findings.splats.iter().find(|splat| splat.fatal);
        // A guest that hung after saying what is stuck hung of that.
        let stuck = || findings.splats.iter().find(|splat| is_stuck(splat.kind));
        let cause = match &self.decided {
            Some(decided @ (HaltReason::Interrupted | HaltReason::Saved)) => {
                return decided.clone();
            }
            Some(HaltReason::QemuDied { how, .. }) => {
                return HaltReason::QemuDied { how: how.clone(), stderr };
            }
            Some(HaltReason::NotRestored { why, .. }) => {
                return HaltReason::NotRestored { why: why.clone(), stderr };
            }
            Some(HaltReason::Kernel { .. }) | None => fatal,
            Some(
                HaltReason::BootHang { .. }
                | HaltReason::GuestHang { .. }
                | HaltReason::TestHang { .. },
            ) => fatal.or_else(stuck),
            Some(_) => None,
        };
        match (cause, &self.decided) {
            (Some(splat), _) => {
                return HaltReason::Kernel { kind: splat.kind, title: splat.title.clone() };
            }
            (None, Some(decided)) => return decided.clone(),
            (None, None) => {}
        }
        if let Some(violation) = self.session.violation() {
            return HaltReason::Violation {
                what: violation.what.clone(),
                line: violation.line.clone(),
            };
        }
        let out_of_memory =
            || findings.splats.iter().find(|splat| splat.kind == SplatKind::OomKill);
        let outcome = self.session.report().outcome.as_ref();
        if let Some(kvet_records::Outcome::Killed { .. }) = outcome
            && let Some(splat) = out_of_memory()
        {
            return HaltReason::Kernel { kind: splat.kind, title: splat.title.clone() };
        }
        let clean = exit.is_none_or(|status| status.success());
        if self.stage == Stage::Ended && clean {
            return HaltReason::Completed;
        }
        match exit {
            // Whoever refuses arguments exits; a signal comes from elsewhere.
            Some(status) if !greeted && status.code().is_some_and(|code| code != 0) => {
                HaltReason::QemuRefused { how: ending(status), stderr }
            }
            Some(status) if !status.success() => {
                HaltReason::QemuDied { how: ending(status), stderr }
            }
            Some(_) if self.told_to_leave => {
                let how = "something on the host told it to end".to_owned();
                HaltReason::QemuDied { how, stderr }
            }
            Some(_) if !self.reset_seen => HaltReason::UnexpectedEnd,
            _ => HaltReason::Reset,
        }
    }
}

/// Whether a splat says that something does not get on.
fn is_stuck(kind: SplatKind) -> bool {
    use SplatKind as Kind;
    matches!(
        kind,
        Kind::HungTask
            | Kind::SoftLockup
            | Kind::HardLockup
            | Kind::RcuStall
            | Kind::Spinlock
            | Kind::WorkqueueLockup
    )
}
