// SPDX-License-Identifier: MIT OR Apache-2.0
//! One search: takes what trials found, says what to try next or how it ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::beliefs::{Beliefs, Weights};
use super::choice::{choose, forecast, groups};
use super::history::{Candidate, History};
use super::outcome::{Confidence, Likely, Outcome};
use super::rates::{Rates, Rule};
use super::step::{Finding, Same, Step};
use crate::fault::Fault;

/// Sums of probabilities may be off by this much.
const ROUNDING: f64 = 1e-9;
/// How many suspects an undecided search names.
const NAMED: usize = 10;

/// What was found at one point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// Trials that found it good.
    pub good: u32,
    /// Trials that found it bad.
    pub bad: u32,
    /// Why it cannot be tried.
    pub skip: Option<String>,
    /// The image that it is.
    pub image: Option<String>,
    /// It is the image of another candidate, whose trials count for it.
    pub same: bool,
}

impl Record {
    /// How many trials said something.
    #[must_use]
    pub fn tried(&self) -> u32 {
        self.good + self.bad
    }
}

/// All that is known.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) beliefs: Beliefs,
    points: BTreeMap<usize, Record>,
    /// The points that were tried, in the order of their first trials.
    order: Vec<usize>,
}

impl State {
    pub(super) fn new(history: &History) -> Self {
        Self { beliefs: Beliefs::new(history), points: BTreeMap::new(), order: Vec::new() }
    }

    pub(super) fn record(&self, point: usize) -> Option<&Record> {
        self.points.get(&point)
    }

    /// The suspects that cannot be tried.
    pub(super) fn skipped(&self, history: &History) -> impl Iterator<Item = usize> {
        let suspects = history.suspects().len();
        let skipped = self.points.iter().filter(|(_, record)| record.skip.is_some());
        skipped.map(|(&point, _)| point).filter(move |&point| point < suspects)
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Try this one.
    Try(Candidate),
    /// There is an answer.
    Done(Outcome),
}

/// A candidate that is likely to be tried soon.
#[derive(Debug, Clone, PartialEq)]
pub struct Ahead {
    /// It.
    pub candidate: Candidate,
    /// The probability that it is tried, unless something is skipped.
    pub probability: f64,
}

/// A search in progress.
#[derive(Debug, Clone)]
pub struct Search {
    history: History,
    rule: Rule,
    state: State,
    trials: u32,
}

impl Search {
    /// Begins a search.
    ///
    /// # Errors
    /// A `plan` fault when the rule makes no sense.
    pub fn new(history: History, rule: Rule) -> Result<Self, Fault> {
        rule.check()?;
        let state = State::new(&history);
        Ok(Self { history, rule, state, trials: 0 })
    }

    /// What is searched.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How sure trials are.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// How many trials said good, bad or skip.
    #[must_use]
    pub fn trials(&self) -> u32 {
        self.trials
    }

    /// What was found at a candidate.
    #[must_use]
    pub fn record(&self, id: &str) -> Option<&Record> {
        self.state.record(self.history.point(id)?)
    }

    /// What comes next.
    #[must_use]
    pub fn next(&self) -> Next {
        match self.next_of(&self.state) {
            Ok(point) => Next::Try(self.history.candidate(point).clone()),
            Err(outcome) => Next::Done(outcome),
        }
    }

    /// Takes the result of a trial.
    ///
    /// # Errors
    /// A `plan` fault when the candidate is none of the range, or when no hypothesis
    /// allows the result: a predicate that is called exact was not, or the trial is
    /// of another range.
    pub fn record_step(&mut self, step: &Step) -> Result<(), Fault> {
        let point = self.known(&step.candidate.id)?;
        let mut state = self.state.clone();
        let record = state.points.entry(point).or_default();
        record.image = step.image.clone().or(record.image.take());
        match &step.finding {
            Finding::Skip { reason } => record.skip = Some(reason.clone()),
            Finding::Good => record.good += 1,
            Finding::Bad => record.bad += 1,
        }
        if !matches!(step.finding, Finding::Skip { .. }) {
            state.beliefs.add(&self.history, point, step.finding == Finding::Bad);
            if state.beliefs.weights(&self.history, &self.rule).total <= 0.0 {
                let what = format!(
                    "{} cannot be {} after the trials before it",
                    step.candidate.id,
                    step.finding.word()
                );
                return Err(Fault::plan(what).help(
                    "the predicate is not exact, or trials of different ranges were mixed: state its rates",
                ));
            }
        }
        if !state.order.contains(&point) {
            state.order.push(point);
        }
        self.state = state;
        self.trials += 1;
        Ok(())
    }

    /// The candidate that was found to be this image.
    #[must_use]
    pub fn of_image(&self, image: &str) -> Option<&Candidate> {
        let is = |record: &Record| {
            record.image.as_deref() == Some(image)
                && !record.same
                && (record.tried() > 0 || record.skip.is_some())
        };
        let found = self.state.points.iter().find(|(_, record)| is(record));
        found.map(|(&point, _)| self.history.candidate(point))
    }

    /// Takes the trials of another candidate for those of one that is the same image.
    /// False when the search has to try it itself: a good and a bad candidate would
    /// have to be the same, as where a change was taken back and made again.
    ///
    /// # Errors
    /// A `plan` fault when either is none of the range.
    pub fn record_same(&mut self, same: &Same) -> Result<bool, Fault> {
        let (point, other) = (self.known(&same.candidate.id)?, self.known(&same.as_id)?);
        let Some(earlier) = self.state.record(other).cloned() else {
            return Err(Fault::plan(format!("{} was not tried yet", same.as_id)));
        };
        if let Some(reason) = earlier.skip {
            let reason = format!("the same image as {}: {reason}", same.as_id);
            let record = self.state.points.entry(point).or_default();
            *record = Record {
                skip: Some(reason),
                image: Some(same.image.clone()),
                same: true,
                ..record.clone()
            };
            self.state.order.push(point);
            return Ok(true);
        }
        if point == other || !self.state.beliefs.same(&self.history, &self.rule, point, other) {
            return Ok(false);
        }
        let record = self.state.points.entry(point).or_default();
        *record = Record { image: Some(same.image.clone()), same: true, ..record.clone() };
        self.state.order.push(point);
        Ok(true)
    }

    /// What an end without an answer looks like, when as many trials as are allowed
    /// were made.
    #[must_use]
    pub fn undecided(&self) -> Outcome {
        let weights = self.state.beliefs.weights(&self.history, &self.rule);
        let mut order: Vec<usize> = (0..self.history.suspects().len()).collect();
        order.sort_by(|&a, &b| weights.of[b].total_cmp(&weights.of[a]));
        let likely = order.into_iter().take(NAMED).filter(|&at| weights.of[at] > 0.0);
        Outcome::Undecided {
            likely: likely
                .map(|at| Likely {
                    candidate: self.history.candidate(at).clone(),
                    probability: weights.probability(at),
                })
                .collect(),
            trials: self.trials,
        }
    }

    /// The candidates that are likely to be tried after the next one and were not
    /// built yet, at most `most`, the likeliest first: the middles of what either
    /// result leaves, then the middles of what follows from those.
    #[must_use]
    pub fn ahead(&self, most: usize) -> Vec<Ahead> {
        let mut found: BTreeMap<usize, f64> = BTreeMap::new();
        let mut states = vec![(self.state.clone(), 1.0)];
        // The next one itself, then its two results, then their four.
        for depth in 0..3 {
            let mut after = Vec::new();
            for (state, probability) in states {
                let Ok(point) = self.next_of(&state) else { continue };
                let new = state.record(point).is_none_or(|record| record.image.is_none());
                if depth > 0 && new {
                    *found.entry(point).or_default() += probability;
                }
                after.extend(
                    self.results(&state, point).map(|(state, of)| (state, probability * of)),
                );
            }
            states = after;
            if found.len() >= most {
                break;
            }
        }
        if let Ok(next) = self.next_of(&self.state) {
            found.remove(&next);
        }
        let key =
            |(&point, &probability): (&usize, &f64)| ((probability * 1e9) as u64, Reverse(point));
        let mut order: BinaryHeap<_> = found.iter().map(key).collect();
        std::iter::from_fn(|| order.pop())
            .take(most)
            .map(|(_, Reverse(point))| Ahead {
                candidate: self.history.candidate(point).clone(),
                probability: found[&point],
            })
            .collect()
    }

    /// What is known after either result of a trial, and how likely each is.
    fn results(&self, state: &State, point: usize) -> impl Iterator<Item = (State, f64)> {
        let weights = state.beliefs.weights(&self.history, &self.rule);
        let rates = &self.rule.rates;
        let forecast = forecast(&self.history, rates, state, &weights, |at| at == point);
        let looks_bad = forecast.looks_bad[point];
        [(true, looks_bad), (false, 1.0 - looks_bad)].into_iter().map(move |(bad, probability)| {
            let mut state = state.clone();
            state.beliefs.add(&self.history, point, bad);
            let record = state.points.entry(point).or_default();
            if bad {
                record.bad += 1
            } else {
                record.good += 1
            }
            (state, probability)
        })
    }

    /// What is believed of each candidate that was tried or needed no trial, in the
    /// order in which that happened: good, bad, skip, or nothing certain enough.
    pub(super) fn verdicts(&self) -> Vec<(usize, Option<&'static str>)> {
        let weights = self.state.beliefs.weights(&self.history, &self.rule);
        let bad = weights.bad(&self.history);
        let doubt = self.rule.allowed() + ROUNDING;
        let verdict = |point: usize| {
            let record = self.state.record(point)?;
            match bad[point] {
                _ if record.skip.is_some() => Some("skip"),
                sure if sure >= 1.0 - doubt => Some("bad"),
                unlikely if unlikely <= doubt => Some("good"),
                _ => None,
            }
        };
        self.state.order.iter().map(|&point| (point, verdict(point))).collect()
    }

    fn known(&self, id: &str) -> Result<usize, Fault> {
        self.history.point(id).ok_or_else(|| {
            Fault::plan(format!("{id} is no suspect and no end of this range"))
                .help("use a log only with the range that it is of")
        })
    }

    /// The point to try next, or how the search ended.
    fn next_of(&self, state: &State) -> Result<usize, Outcome> {
        let weights = state.beliefs.weights(&self.history, &self.rule);
        self.settled(state, &weights)?;
        if let Some(end) = self.unverified(state, &weights) {
            return Ok(end);
        }
        let suspects = groups(&self.history, state, &weights);
        let mass =
            |group: &Vec<usize>| group.iter().map(|&at| weights.probability(at)).sum::<f64>();
        let best = suspects.iter().max_by(|a, b| mass(a).total_cmp(&mass(b)));
        let sure = 1.0 - self.rule.allowed() - ROUNDING;
        if let Some(group) = best.filter(|group| mass(group) >= sure) {
            return Err(self.answer(group, mass(group)));
        }
        match choose(&self.history, &self.rule.rates, state, &weights) {
            Some(point) => Ok(point),
            // Everything that could tell suspects apart was skipped.
            None => {
                let possible: Vec<usize> =
                    (0..self.history.suspects().len()).filter(|&at| weights.of[at] > 0.0).collect();
                let mass = mass(&possible);
                Err(self.answer(&possible, mass))
            }
        }
    }

    fn answer(&self, group: &[usize], mass: f64) -> Outcome {
        let confidence = self.confidence(mass);
        match group {
            [at] => Outcome::Found { first_bad: self.history.candidate(*at).clone(), confidence },
            _ => Outcome::Among {
                candidates: group.iter().map(|&at| self.history.candidate(at).clone()).collect(),
                confidence,
            },
        }
    }

    fn confidence(&self, mass: f64) -> Confidence {
        Confidence(if self.rule.is_exact() { 1.0 } else { mass.min(1.0 - f64::EPSILON) })
    }

    /// Whether an end is not what it has to be.
    fn settled(&self, state: &State, weights: &Weights) -> Result<(), Outcome> {
        let history = &self.history;
        let (bad, suspects) = (history.bad(), history.suspects().len());
        let image = |point| state.record(point).and_then(|record| record.image.as_deref());
        for point in (suspects..history.len()).chain([bad]) {
            let end = || history.candidate(point).clone();
            if let Some(reason) = state.record(point).and_then(|record| record.skip.clone()) {
                return Err(Outcome::EndUntestable { end: end(), reason });
            }
            if point != bad && image(point).is_some() && image(point) == image(bad) {
                let bad = history.candidate(bad).clone();
                return Err(Outcome::EndsIdentical { good: end(), bad });
            }
        }
        // An unknown rate may be so low that it never shows: no confidence to be had.
        let tip = state.record(bad).cloned().unwrap_or_default();
        let estimated = matches!(self.rule.rates, Rates::Estimated { .. });
        if estimated && tip.bad == 0 && tip.good >= self.rule.at_ends() {
            let end = history.candidate(bad).clone();
            return Err(Outcome::NotReproduced { end, trials: tip.good });
        }
        let sure = 1.0 - self.rule.allowed() - ROUNDING;
        let wrong = |hypothesis| {
            let probability = weights.probability(hypothesis);
            (probability >= sure).then(|| self.confidence(probability))
        };
        for point in suspects..history.len() {
            if let Some(confidence) = wrong(point) {
                let end = history.ends()[point - suspects].clone();
                return Err(Outcome::GoodEndIsBad {
                    end: end.candidate,
                    role: end.role,
                    confidence,
                });
            }
        }
        match wrong(Beliefs::bad_end_is_good(history)) {
            Some(confidence) => {
                Err(Outcome::BadEndIsGood { end: history.candidate(bad).clone(), confidence })
            }
            None => Ok(()),
        }
    }

    /// An end that is not certain enough yet: the bad one first, since a fault that
    /// does not show is the most common mistake.
    fn unverified(&self, state: &State, weights: &Weights) -> Option<usize> {
        let suspects = self.history.suspects().len();
        let bad = self.history.bad();
        let tried = |point: usize| state.record(point).map_or(0, Record::tried);
        let ends = || std::iter::once(bad).chain(suspects..self.history.len());
        let few = |&end: &usize| {
            let same = state.record(end).is_some_and(|record| record.same);
            tried(end) < self.rule.at_ends() && !same
        };
        if let Some(end) = ends().find(few) {
            return Some(end);
        }
        // Leaves most of the stated error to the search.
        let allowed = self.rule.allowed() / 4.0 + ROUNDING;
        let doubtful = |&end: &usize| {
            let wrong = if end == bad { Beliefs::bad_end_is_good(&self.history) } else { end };
            weights.probability(wrong) > allowed
        };
        let doubt = ends().find(doubtful)?;
        match self.rule.rates {
            Rates::Exact | Rates::Stated { .. } => Some(doubt),
            // One rate is known from the one end, the other from the other.
            Rates::Estimated { .. } => ends().min_by_key(|&end| tried(end)),
        }
    }
}
