// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a watched VM is asked through QMP, and QMP's own life: QEMU may refuse to
//! start, greet, and go at any moment.

use std::io::Write;
use std::time::Duration;

use qapi::qmp::{ChardevBackend, ChardevCommon, ChardevFile, chardev_change};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Sender;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::command_line::{CONSOLE_IN, CONSOLE_OUT};
use super::evidence::{self, Symbols};
use super::machine::BootRequest;
use super::qmp::{Qmp, QmpError, QmpEvent};

/// How long a hung guest's registers may take to read.
const EXAMINE: Duration = Duration::from_secs(3);

/// The QMP connection through its life.
pub enum Control {
    /// QEMU has not greeted yet.
    Connecting(JoinHandle<Result<(Qmp, UnboundedReceiver<QmpEvent>), QmpError>>),
    /// It can be asked, and tells events.
    Connected(Qmp, UnboundedReceiver<QmpEvent>),
    /// It closed the connection.
    Gone {
        /// It had greeted before.
        greeted: bool,
    },
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("greeted", &self.greeted()).finish_non_exhaustive()
    }
}

impl Control {
    /// Begins to connect; must be called in a runtime.
    pub fn connect(socket: UnixStream, transcript: impl Write + Send + 'static) -> Self {
        Self::Connecting(tokio::spawn(Qmp::connect(socket, transcript)))
    }

    /// Waits for QEMU's greeting; none when it is gone. Safe to cancel.
    pub async fn qmp(&mut self) -> Option<&mut Qmp> {
        if let Self::Connecting(connecting) = self {
            *self = match connecting.await {
                Ok(Ok((qmp, events))) => Self::Connected(qmp, events),
                _ => Self::Gone { greeted: false },
            };
        }
        match self {
            Self::Connected(qmp, _) => Some(qmp),
            _ => None,
        }
    }

    /// The next event; never returns once QEMU is gone. Safe to cancel.
    pub async fn next(&mut self) -> QmpEvent {
        loop {
            match self {
                Self::Connecting(_) => {
                    let _ = self.qmp().await;
                }
                Self::Connected(_, events) => match events.recv().await {
                    Some(event) => return event,
                    None => *self = Self::Gone { greeted: true },
                },
                Self::Gone { .. } => std::future::pending().await,
            }
        }
    }

    /// The events that a QEMU that is gone left unread.
    pub async fn rest(&mut self) -> Vec<QmpEvent> {
        let Self::Connected(_, events) = self else { return Vec::new() };
        let mut rest = Vec::new();
        while let Ok(Some(event)) =
            tokio::time::timeout(Duration::from_secs(1), events.recv()).await
        {
            rest.push(event);
        }
        rest
    }

    /// Where a hung guest stands; none when QEMU does not answer in time.
    pub async fn examine(&mut self, request: &BootRequest) -> Option<evidence::Evidence> {
        let Self::Connected(qmp, _) = self else { return None };
        let symbols = Symbols::load(&request.vmlinux);
        let collecting = evidence::collect(qmp, request.spec.vcpus, &symbols);
        tokio::time::timeout(EXAMINE, collecting).await.ok()?.ok()
    }

    /// Asks the kernel for every CPU's stack and every blocked task's, by sysrq
    /// on the serial line; one that is stuck with interrupts off says nothing.
    pub async fn ask_for_stacks(&mut self, console: &mut Sender) {
        let Self::Connected(qmp, _) = self else { return };
        // On its command line QEMU gives such a console no input.
        let file = ChardevFile {
            base: ChardevCommon { logfile: None, logappend: None },
            append: Some(true),
            in_: Some(CONSOLE_IN.to_owned()),
            out: CONSOLE_OUT.to_owned(),
        };
        let listen =
            chardev_change { id: "console".to_owned(), backend: ChardevBackend::file(file.into()) };
        let _ = tokio::time::timeout(EXAMINE, qmp.execute(&listen)).await;
        for key in [b"l", b"w"] {
            let send_break = qapi::qmp::chardev_send_break { id: "console".to_owned() };
            let asked = tokio::time::timeout(Duration::from_millis(200), qmp.execute(&send_break));
            if matches!(asked.await, Ok(Ok(_))) {
                let write =
                    tokio::time::timeout(Duration::from_millis(200), console.write_all(key));
                let _ = write.await;
            }
        }
    }

    /// Asks QEMU to leave; it is killed right afterwards in any case.
    pub async fn quit(&mut self) {
        if let Self::Connected(qmp, _) = self {
            let quit = qapi::qmp::quit {};
            let _ = tokio::time::timeout(Duration::from_millis(500), qmp.execute(&quit)).await;
        }
    }

    /// Whether QEMU got as far as its greeting.
    #[must_use]
    pub fn greeted(&self) -> bool {
        matches!(self, Self::Connected(..) | Self::Gone { greeted: true })
    }
}
