// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C and its like. The first asks the run to end in its own way; the second
//! ends kvet at once, with its children and its unfinished folders.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::fault::{ExitCode, Fault};

/// How long what is unfinished may take to remove; the next run removes the rest.
const TIDYING: Duration = Duration::from_secs(2);

/// What signals ask of kvet.
#[derive(Debug, Clone, Default)]
pub(super) struct Signals {
    stop: CancellationToken,
    at_once: CancellationToken,
}

impl Signals {
    /// A token that the first SIGINT, SIGTERM or SIGHUP from now on cancels.
    ///
    /// # Errors
    /// An `infra` fault when signals cannot be listened for.
    pub(super) fn stop(&self) -> Result<CancellationToken, Fault> {
        let failed = |error: std::io::Error| Fault::io("listen for signals", &error);
        // A thread of its own: the main one may be busy when the second signal comes.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listening = {
            let _inside = runtime.enter();
            Listening::begin(&ignored()).map_err(failed)?
        };
        let signals = self.clone();
        let listen = move || runtime.block_on(signals.listen(listening));
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
        Ok(self.stop.clone())
    }

    /// Returns when kvet is to end at once.
    pub(super) async fn at_once(&self) {
        self.at_once.cancelled().await;
    }

    async fn listen(&self, mut listening: Listening) {
        listening.next().await;
        self.stop.cancel();
        listening.next().await;
        // The main thread drops what it is at, which ends children and removes
        // folders. It may be busy, or have much to remove.
        self.at_once.cancel();
        let _ = tokio::time::timeout(TIDYING, listening.next()).await;
        crate::host::children::end_all(Duration::from_millis(200));
        std::process::exit(i32::from(u8::from(ExitCode::Interrupted)));
    }
}

struct Listening(Vec<Signal>);

impl Listening {
    /// Listens to the signals that stop kvet, except those that whoever started it
    /// has it ignore, as nohup does. Needs a runtime.
    fn begin(ignored: &[SignalKind]) -> std::io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let kinds = kinds.into_iter().filter(|kind| !ignored.contains(kind));
        kinds.map(signal).collect::<std::io::Result<_>>().map(Self)
    }

    /// Waits for the next of them.
    async fn next(&mut self) {
        std::future::poll_fn(|context| {
            let mut came = false;
            for signal in &mut self.0 {
                came |= signal.poll_recv(context).is_ready();
            }
            if came { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// The signals that this process ignores.
fn ignored() -> Vec<SignalKind> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // Bit 0 is signal 1.
    (1..=64).filter(|number| mask >> (number - 1) & 1 == 1).map(SignalKind::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rust_ignores_itself_is_seen() {
        let ignored = ignored();
        assert!(ignored.contains(&SignalKind::from_raw(13)), "SIGPIPE: {ignored:?}");
        assert!(!ignored.contains(&SignalKind::terminate()), "{ignored:?}");
    }
}
