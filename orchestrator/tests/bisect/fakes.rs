// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that are numbers: which is bad, which cannot be tried, and who lies.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use kvet::bisect::drive::{Built, Cost, Seen, Trial, drive};
use kvet::bisect::history::{Candidate, History};
use kvet::bisect::log::Entry;
use kvet::bisect::outcome::Outcome;
use kvet::bisect::rates::Rule;
use kvet::bisect::search::{Ahead, Search};
use kvet::bisect::step::Finding;
use kvet::fault::Fault;

use super::dice::Dice;

/// A line of `length` suspects after its good end: 0 is good, `length` bad.
pub fn line(length: usize) -> History {
    History::line((0..=length).map(candidate).collect()).unwrap()
}

pub fn candidate(number: usize) -> Candidate {
    Candidate::new(number.to_string(), format!("change {number}"))
}

pub fn number(candidate: &Candidate) -> usize {
    candidate.id.parse().unwrap()
}

/// Tries numbers.
pub struct Fake {
    pub bad: BTreeSet<usize>,
    pub unbuildable: BTreeSet<usize>,
    pub oopses: BTreeSet<usize>,
    /// Rates of false positives and negatives.
    pub lies: (f64, f64),
    pub dice: Dice,
    /// Numbers that are the same image as another.
    pub same: BTreeMap<usize, usize>,
    /// The run of this count, from 1, is a fault of this kind.
    pub fault_at: Option<(usize, Fault)>,
    pub looks_ahead: bool,
    pub built: RefCell<Vec<usize>>,
    pub ran: RefCell<Vec<usize>>,
    pub ahead: RefCell<Vec<Vec<Ahead>>>,
}

impl Fake {
    /// Everything from `first` on is bad, of a line of so many.
    pub fn new(first: usize, length: usize) -> Self {
        Self::of((first..=length).collect())
    }

    pub fn of(bad: BTreeSet<usize>) -> Self {
        Self {
            bad,
            unbuildable: BTreeSet::new(),
            oopses: BTreeSet::new(),
            lies: (0.0, 0.0),
            dice: Dice::new(1),
            same: BTreeMap::new(),
            fault_at: None,
            looks_ahead: false,
            built: RefCell::default(),
            ran: RefCell::default(),
            ahead: RefCell::default(),
        }
    }

    /// Searches to the end, without a limit that a test would reach.
    pub fn search(&self, search: &mut Search) -> (Outcome, Vec<Entry>, Cost) {
        let (result, log, cost) = self.until(search, 2000);
        (result.unwrap(), log, cost)
    }

    pub fn until(
        &self,
        search: &mut Search,
        most: u32,
    ) -> (Result<Outcome, Fault>, Vec<Entry>, Cost) {
        let mut log: Vec<Entry> = Vec::new();
        let mut cost = Cost::default();
        let result = drive(search, self, &mut log, most, &mut cost).now_or_never().unwrap();
        assert_eq!(cost.builds as usize, self.built.borrow().len());
        (result, log, cost)
    }

    pub fn search_line(&self, length: usize, rule: Rule) -> (Outcome, Cost) {
        let (outcome, _, cost) = self.search(&mut Search::new(line(length), rule).unwrap());
        (outcome, cost)
    }
}

impl Trial for Fake {
    async fn build(&self, candidate: &Candidate, search: &Search) -> Result<Built, Fault> {
        let number = number(candidate);
        self.built.borrow_mut().push(number);
        if self.looks_ahead {
            self.ahead.borrow_mut().push(search.ahead(6));
        }
        if self.unbuildable.contains(&number) {
            return Err(Fault::series("does not build"));
        }
        Ok(Built::Image(self.same.get(&number).unwrap_or(&number).to_string()))
    }

    async fn run(&self, candidate: &Candidate, image: &str, _: &Search) -> Result<Seen, Fault> {
        let number = number(candidate);
        assert_eq!(image, self.same.get(&number).unwrap_or(&number).to_string());
        self.ran.borrow_mut().push(number);
        if let Some((at, fault)) = &self.fault_at
            && *at == self.ran.borrow().len()
        {
            return Err(fault.clone());
        }
        if self.oopses.contains(&number) {
            let reason = "oops elsewhere".to_owned();
            return Ok(Seen { finding: Finding::Skip { reason }, evidence: String::new() });
        }
        let truly = self.bad.contains(&number);
        let rate = if truly { self.lies.1 } else { self.lies.0 };
        let lies = self.dice.share() < rate;
        let finding = if truly != lies { Finding::Bad } else { Finding::Good };
        Ok(Seen { finding, evidence: format!("ran {number}") })
    }
}
