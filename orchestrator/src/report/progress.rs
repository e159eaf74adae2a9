// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress on standard error: one live line on a terminal, a line for each
//! step elsewhere.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::fault::escape;
use crate::run::event::{Events, RunEvent};

/// Off a terminal, a running build is heard of this often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(15);

/// Shows every event from now on. `verbose` also shows the steps in between.
pub fn subscribe(events: &Events, verbose: bool) {
    if std::io::stderr().is_terminal() {
        let mut live = Live::new();
        events.subscribe(move |event| live.show(event));
    } else {
        let mut plain = Plain { began: Instant::now(), said: HashMap::new(), verbose };
        events.subscribe(move |event| plain.show(event));
    }
}

/// What an event is in words; `true` when it ends a step.
fn words(event: &RunEvent) -> (String, bool) {
    match event {
        RunEvent::Source { kernel, step } => (format!("source {kernel}: {step}"), step == "ready"),
        RunEvent::Waiting { what } => (format!("waiting for {what}"), false),
        RunEvent::BuildStarted { task } => (format!("build {task}: configuring"), false),
        RunEvent::BuildProgress { task, done, total, left_seconds } => {
            let of = total.map_or_else(String::new, |total| format!(" of about {total}"));
            let left = left_seconds.map_or_else(String::new, |left| {
                format!(", about {}:{:02} left", left / 60, left % 60)
            });
            (format!("build {task}: {done}{of} steps{left}"), false)
        }
        RunEvent::BuildFinished { task, stored: true, .. } => {
            (format!("build {task}: in the store"), true)
        }
        RunEvent::BuildFinished { task, steps, seconds, ccache, .. } => {
            let cached = ccache.filter(|cached| cached.of > 0).map_or_else(String::new, |cached| {
                format!(" (ccache had {} of {} objects)", cached.hits, cached.of)
            });
            (format!("build {task}: done, {steps} steps in {seconds:.0} s{cached}"), true)
        }
        RunEvent::BuildFailed { task } => (format!("build {task}: failed"), true),
        RunEvent::BootStarted { task } => (format!("boot {task}: starting"), false),
        RunEvent::BootPhase { task, phase } => (format!("boot {task}: {phase}"), false),
        RunEvent::BootFinished { task, halt, seconds } => {
            (format!("boot {task}: {halt}, {seconds:.1} s"), true)
        }
        RunEvent::Note { text } => (text.clone(), true),
    }
}

struct Live {
    bar: ProgressBar,
}

impl Live {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    fn show(&mut self, event: &RunEvent) {
        let (text, ends) = words(event);
        let text = escape(&text);
        if ends {
            self.bar.println(&text);
            self.bar.set_message("");
        } else {
            self.bar.set_message(text);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

struct Plain {
    began: Instant,
    said: HashMap<String, Instant>,
    verbose: bool,
}

impl Plain {
    fn show(&mut self, event: &RunEvent) {
        match event {
            RunEvent::BuildProgress { task, .. } => {
                let said = self.said.entry(task.clone()).or_insert_with(Instant::now);
                if said.elapsed() < PLAIN_INTERVAL {
                    return;
                }
                *said = Instant::now();
            }
            RunEvent::BootStarted { .. } | RunEvent::BootPhase { .. } if !self.verbose => return,
            _ => {}
        }
        let (text, _) = words(event);
        let seconds = self.began.elapsed().as_secs_f64();
        // Whoever listened may have gone away; the run goes on.
        let _ = writeln!(std::io::stderr(), "{seconds:6.1}s {}", escape(&text));
    }
}
