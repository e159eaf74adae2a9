// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of a search: asks for images and runs, keeps every result at once.

use super::history::Candidate;
use super::log::{Entry, Journal};
use super::outcome::Outcome;
use super::search::{Next, Search};
use super::step::{Finding, Same, Step, bounded, bounded_fault};
use crate::fault::{Blame, Fault};

/// What building a candidate gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Built {
    /// An image; the same key is the same image.
    Image(String),
    /// The build itself says it: what is searched for is a build failure, or the
    /// candidate cannot be built for a reason that is not searched for.
    Decided {
        /// What it says.
        finding: Finding,
        /// What was seen.
        evidence: String,
    },
}

/// What one run of an image found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it says.
    pub finding: Finding,
    /// What was seen.
    pub evidence: String,
}

/// Tries candidates.
///
/// A fault of the series, the kernel or the test skips the candidate; any other ends
/// the search, which can be resumed from its log. A commit that does not build is
/// such a skip, whatever a run of a plan would call it.
pub trait Trial {
    /// Makes a candidate's image. Called once for each candidate, and again for those
    /// of a resumed search that are run again without one at hand.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn build(
        &self,
        candidate: &Candidate,
        search: &Search,
    ) -> impl Future<Output = Result<Built, Fault>>;

    /// Runs an image once. While a guest runs, what [`Search::ahead`] names may be
    /// built, the likeliest first. After a resume `image` is one that an earlier
    /// process built.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn run(
        &self,
        candidate: &Candidate,
        image: &str,
        search: &Search,
    ) -> impl Future<Output = Result<Seen, Fault>>;
}

/// What a search took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Calls of [`Trial::build`], ends and failures included.
    pub builds: u32,
    /// Calls of [`Trial::run`], ends included.
    pub runs: u32,
}

/// Searches until there is an answer or `most` trials were made, counted with those
/// of earlier lives of the search. Every result is kept in `journal` before anything
/// else happens; `cost` counts what this call did.
///
/// # Errors
/// The fault that ended it, which is the journal's last entry: the search goes on
/// from there when it is driven again, or [replayed](super::log::replay).
pub async fn drive(
    search: &mut Search,
    trial: &impl Trial,
    journal: &mut impl Journal,
    most: u32,
    cost: &mut Cost,
) -> Result<Outcome, Fault> {
    let result = until_done(search, trial, journal, most, cost).await;
    let last = match &result {
        Ok(outcome) => Entry::Outcome(outcome.clone()),
        Err(fault) => Entry::Stopped { fault: bounded_fault(fault) },
    };
    let kept = journal.keep(&last);
    let outcome = result?;
    kept.map(|()| outcome)
}

async fn until_done(
    search: &mut Search,
    trial: &impl Trial,
    journal: &mut impl Journal,
    most: u32,
    cost: &mut Cost,
) -> Result<Outcome, Fault> {
    loop {
        let candidate = match search.next() {
            Next::Done(outcome) => return Ok(outcome),
            Next::Try(_) if search.trials() >= most => return Ok(search.undecided()),
            Next::Try(candidate) => candidate,
        };
        let record = search.record(&candidate.id).cloned().unwrap_or_default();
        let mut image = record.image;
        let mut decided = None;
        if image.is_none() {
            cost.builds += 1;
            match skipping(trial.build(&candidate, search).await)? {
                Ok(Built::Image(key)) => image = Some(key),
                Ok(Built::Decided { finding, evidence }) => {
                    decided = Some(Seen { finding, evidence })
                }
                Err(seen) => decided = Some(seen),
            }
            if let Some(same) = same(search, &candidate, image.as_deref())
                && search.record_same(&same)?
            {
                journal.keep(&Entry::Same(same))?;
                continue;
            }
        }
        let seen = match (decided, &image) {
            (Some(seen), _) => seen,
            (None, Some(image)) => {
                cost.runs += 1;
                let seen = skipping(trial.run(&candidate, image, search).await)?;
                seen.unwrap_or_else(|skip| skip)
            }
            (None, None) => return Err(Fault::infra("a build gave neither an image nor a reason")),
        };
        let Seen { finding, evidence } = seen;
        let evidence = bounded(evidence);
        let repeat = record.good + record.bad + 1;
        let step = Step { candidate, finding, repeat, evidence, image };
        search.record_step(&step)?;
        journal.keep(&Entry::Trial(step))?;
    }
}

/// The candidate that a new image was tried as.
fn same(search: &Search, candidate: &Candidate, image: Option<&str>) -> Option<Same> {
    let other = search.of_image(image?)?;
    Some(Same { candidate: candidate.clone(), as_id: other.id.clone(), image: image?.to_owned() })
}

/// Tells what skips a candidate from what ends the search.
pub(super) fn skipping<T>(result: Result<T, Fault>) -> Result<Result<T, Seen>, Fault> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(fault) => match fault.blame {
            Blame::Series | Blame::Kernel | Blame::Test => Ok(Err(Seen {
                evidence: fault.evidence.join("\n"),
                finding: Finding::Skip { reason: format!("{} fault: {}", fault.blame, fault.what) },
            })),
            Blame::Infra | Blame::Plan | Blame::Interrupt => Err(fault),
        },
    }
}
