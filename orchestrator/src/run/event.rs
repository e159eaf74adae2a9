// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream of typed events: the only thing that progress displays and
//! `events.jsonl` see. Nothing inside the pipeline prints.

use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::host::sandbox::Cached;

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// A kernel source is being made ready.
    Source {
        /// Name in `kernels/`.
        kernel: String,
        /// What is being done.
        step: String,
    },
    /// Another kvet holds what this one needs.
    Waiting {
        /// What is waited for.
        what: String,
    },
    /// A kernel build began.
    BuildStarted {
        /// Which image.
        task: String,
    },
    /// A build went on.
    BuildProgress {
        /// Which image.
        task: String,
        /// Steps done: compiled, assembled and linked objects.
        done: u32,
        /// All steps, where it is known.
        total: Option<u32>,
        /// Seconds that the rest will take, where it can be told.
        left_seconds: Option<u32>,
    },
    /// A build ended, or its image was in the store.
    BuildFinished {
        /// Which image.
        task: String,
        /// Whether the image came from the store.
        stored: bool,
        /// Steps that were done.
        steps: u32,
        /// Wall-clock seconds.
        seconds: f64,
        /// What ccache had of it; none where it was not used or was not needed.
        #[serde(skip_serializing_if = "Option::is_none")]
        ccache: Option<Cached>,
    },
    /// A build failed.
    BuildFailed {
        /// Which image.
        task: String,
    },
    /// A guest was started.
    BootStarted {
        /// Which boot.
        task: String,
    },
    /// A guest went on to its next phase.
    BootPhase {
        /// Which boot.
        task: String,
        /// The phase that began.
        phase: String,
    },
    /// A guest ended.
    BootFinished {
        /// Which boot.
        task: String,
        /// The halt reason, in words.
        halt: String,
        /// Wall-clock seconds.
        seconds: f64,
    },
    /// Something that the user should know.
    Note {
        /// One line.
        text: String,
    },
}

type Sink = Box<dyn FnMut(&RunEvent) + Send>;

/// Where events go. Cheap to clone.
#[derive(Clone, Default)]
pub struct Events {
    sinks: Arc<Mutex<Vec<Sink>>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Adds a receiver; it sees what is sent from now on.
    pub fn subscribe(&self, sink: impl FnMut(&RunEvent) + Send + 'static) {
        self.lock().push(Box::new(sink));
    }

    /// Hands an event to every receiver before it returns.
    pub fn send(&self, event: &RunEvent) {
        for sink in self.lock().iter_mut() {
            sink(event);
        }
    }

    /// Lets every receiver go, so that they finish what they show.
    pub fn close(&self) {
        self.lock().clear();
    }

    /// Sends a [`RunEvent::Note`].
    pub fn note(&self, text: impl Into<String>) {
        self.send(&RunEvent::Note { text: text.into() });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sink>> {
        self.sinks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
