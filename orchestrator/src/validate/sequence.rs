// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of all configs. On a host with CPUs for the guests of several configs, those
//! are checked side by side, and each check is taken as soon as it is made. Kernels are
//! built one after another everywhere: a build uses every CPU, and the tree of the next
//! config begins as a copy of the one before.

use std::time::Instant;

use futures_util::{StreamExt, stream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::checkpatch::Checkpatch;
use super::result::{Finding, ValidateResult};
use super::stages::Stage;
use super::table::StageCheck;
use super::{Driver, Stop, missing, name};
use crate::fault::Fault;
use crate::run::pipeline::{Boot, Build};

/// A check that was made.
struct Made<'a> {
    stage: &'a Stage,
    check: StageCheck,
    began: Instant,
    found: Result<Finding, Fault>,
    runs: Vec<String>,
}

/// What a config's checks share.
struct Shared<'a> {
    /// Whose turn it is to build.
    turn: Mutex<()>,
    /// Tests that cannot be run, told with what could be.
    absent: &'a [String],
}

impl<B: Build, V: Boot, C: Checkpatch> Driver<'_, B, V, C> {
    /// Makes the checks of every config.
    pub(super) async fn stages(
        &self,
        result: &mut ValidateResult,
        stages: &[Stage],
        absent: &[String],
    ) -> Result<(), Stop> {
        let shared = Shared { turn: Mutex::new(()), absent };
        let (done, mut made) = unbounded_channel();
        // Gone with the last config, so that there is an end to what is taken.
        let making = stream::iter(stages)
            .map(move |stage| (stage, done.clone()))
            .for_each_concurrent(self.at_once, |(stage, done)| self.stage(stage, &shared, done));
        let taking = async {
            let taken = self.take_all(result, &mut made).await;
            if taken.is_err() {
                self.stop.cancel();
            }
            taken
        };
        let ((), taken) = tokio::join!(making, taking);
        if matches!(taken, Err(Stop::Interrupted)) {
            // What was made beside the one that did not end.
            while let Err(Stop::Interrupted) = self.take_all(result, &mut made).await {}
        }
        taken
    }

    /// Takes what is made, as long as something is.
    async fn take_all(
        &self,
        result: &mut ValidateResult,
        made: &mut UnboundedReceiver<Made<'_>>,
    ) -> Result<(), Stop> {
        let mut since = Instant::now();
        while let Some(one) = made.recv().await {
            let (name, config) = (name(one.check), Some(one.stage.config.as_str()));
            // Of checks side by side, each has the time since the one before it ended:
            // together they are the time that all of them took.
            let began = one.began.max(since);
            self.take(result, name, config, began, one.found, one.runs)?;
            since = Instant::now();
        }
        Ok(())
    }

    /// Makes the checks of one config.
    async fn stage<'s>(
        &self,
        stage: &'s Stage,
        shared: &Shared<'_>,
        done: UnboundedSender<Made<'s>>,
    ) {
        let missing = missing(&stage.plan);
        let mut unbuilt = None;
        for &check in &stage.checks {
            let turn = match check {
                StageCheck::Builds => Some(shared.turn.lock().await),
                _ => None,
            };
            let began = Instant::now();
            let mut runs = Vec::new();
            let found = match (&missing, &unbuilt) {
                _ if self.stop.is_cancelled() => Err(Fault::interrupted()),
                (Some(why), _) => Ok(Finding::skipped(why.clone())),
                (None, Some(why)) => {
                    Ok(Finding::skipped(format!("not every kernel is there: {why}")))
                }
                (None, None) => self.check(check, stage, shared, &mut runs, &mut unbuilt).await,
            };
            drop(turn);
            let _ = done.send(Made { stage, check, began, found, runs });
            // It is taken before the next one begins, which may then be one too many.
            tokio::task::yield_now().await;
        }
    }

    /// Makes one check; `unbuilt` is why a kernel is missing.
    async fn check(
        &self,
        check: StageCheck,
        stage: &Stage,
        shared: &Shared<'_>,
        runs: &mut Vec<String>,
        unbuilt: &mut Option<String>,
    ) -> Result<Finding, Fault> {
        let told = |finding: Finding| finding.with(shared.absent.iter().cloned());
        match check {
            StageCheck::Builds => {
                let found = self.builds(stage, runs).await;
                *unbuilt = match &found {
                    Ok((finding, true)) => Some(finding.evidence.clone()),
                    Err(fault) => Some(fault.what.clone()),
                    Ok(_) => None,
                };
                found.map(|(finding, _)| finding)
            }
            StageCheck::Behaviour => self.behaviour(stage, runs).await.map(told),
            StageCheck::Performance => self.performance(stage, runs).await,
            StageCheck::Boots => self.boots(stage, runs).await.map(told),
        }
    }
}
