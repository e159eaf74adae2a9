// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of a search of configs.

use super::super::drive::{Built, Seen, skipping};
use super::super::log::Journal;
use super::super::step::{Finding, bounded, bounded_fault};
use super::log::{ConfigEntry, ConfigStep};
use super::mix::{Order, differing, digest, with};
use super::{Change, Config, ConfigOutcome, ConfigTrial, Part};
use crate::fault::Fault;

/// How many symbols, or groups that cannot be parted, are looked for that matter only
/// together.
const TOGETHER: usize = 6;
/// How many configs of one step may be skipped before it gives up.
const SKIPS: usize = 6;

/// What is searched.
#[derive(Debug, Clone, Default)]
pub struct Configs {
    /// The good end, as it is asked for.
    pub good: Config,
    /// The bad end, as it is asked for.
    pub bad: Config,
    /// Symbols that belong together, such as one and what depends on it; dependencies
    /// first. May be empty.
    pub groups: Vec<Vec<String>>,
    /// What an earlier life of the search found ([`super::replay`]).
    pub known: Vec<ConfigStep>,
    /// How many builds this call may make, ends included.
    pub most: u32,
}

/// What a search took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Calls of [`ConfigTrial::resolve`].
    pub resolved: u32,
    /// Calls of [`ConfigTrial::build`], ends and failures included.
    pub builds: u32,
    /// Calls of [`ConfigTrial::run`], ends included.
    pub runs: u32,
}

/// Searches for the symbols that make the difference. Every result is kept in
/// `journal` before anything else happens.
///
/// # Errors
/// The fault that ended it, which is the journal's last entry.
pub async fn drive(
    configs: Configs,
    trial: &impl ConfigTrial,
    journal: &mut impl Journal<ConfigEntry>,
    cost: &mut Cost,
) -> Result<ConfigOutcome, Fault> {
    let order = Order::of(&configs.groups);
    let steps = configs.known.clone();
    let mut search =
        Search { trial, order, steps, most: configs.most, good: Config::new(), cost, journal };
    let result = search.run(&configs).await;
    let last = match &result {
        Ok(outcome) => ConfigEntry::Outcome(outcome.clone()),
        Err(fault) => ConfigEntry::Stopped { fault: bounded_fault(fault) },
    };
    let kept = journal.keep(&last);
    let outcome = result?;
    kept.map(|()| outcome)
}

struct Search<'a, T, J> {
    trial: &'a T,
    order: Order,
    steps: Vec<ConfigStep>,
    most: u32,
    /// The resolved good end.
    good: Config,
    cost: &'a mut Cost,
    journal: &'a mut J,
}

/// A good and a bad config that are as near to each other as they could be brought.
struct Pair {
    good: Config,
    bad: Config,
    /// Why they could not be brought nearer, if more than one symbol is left.
    note: Option<String>,
}

impl<T: ConfigTrial, J: Journal<ConfigEntry>> Search<'_, T, J> {
    async fn run(&mut self, configs: &Configs) -> Result<ConfigOutcome, Fault> {
        self.good = self.resolve(&configs.good).await?;
        let bad = self.resolve(&configs.bad).await?;
        if self.good == bad {
            return Ok(ConfigOutcome::EndsIdentical);
        }
        let good = self.good.clone();
        let untestable =
            |which: &str, reason| ConfigOutcome::EndUntestable { which: which.to_owned(), reason };
        match self.judge(&bad).await? {
            Finding::Bad => {}
            Finding::Good => return Ok(ConfigOutcome::BadEndIsGood),
            Finding::Skip { reason } => return Ok(untestable("bad", reason)),
        }
        match self.judge(&good).await? {
            Finding::Good => {}
            Finding::Bad => return Ok(ConfigOutcome::GoodEndIsBad),
            Finding::Skip { reason } => return Ok(untestable("good", reason)),
        }
        self.narrow(good, bad).await
    }

    /// Finds symbol after symbol, until those that were found are enough.
    async fn narrow(&mut self, mut good: Config, mut bad: Config) -> Result<ConfigOutcome, Fault> {
        let mut changes: Vec<Change> = Vec::new();
        let mut notes = Vec::new();
        let mut part = Part::Guilty;
        let mut enough = false;
        for _ in 0..TOGETHER {
            let fixed: Vec<String> = changes.iter().map(|change| change.symbol.clone()).collect();
            let pair = self.isolate(good, bad, &fixed).await?;
            notes.extend(pair.note.clone());
            let mut found = differing(&pair.good, &pair.bad);
            found.retain(|symbol| !fixed.contains(symbol));
            self.order.sort(&mut found);
            let nothing = found.is_empty();
            changes.extend(found.into_iter().map(|symbol| Change {
                good: pair.good.get(&symbol).cloned(),
                bad: pair.bad.get(&symbol).cloned(),
                symbol,
                part,
            }));
            if self.good == pair.good {
                enough = true;
                break;
            }
            if nothing {
                break;
            }
            let symbols: Vec<String> = changes.iter().map(|change| change.symbol.clone()).collect();
            let asked = with(&self.good, &symbols, &pair.bad);
            let alone = self.resolve(&asked).await?;
            let took = symbols.iter().all(|symbol| alone.get(symbol) == pair.bad.get(symbol));
            match self.judge_within_bounds(&alone).await? {
                Some(Finding::Bad) => {
                    enough = true;
                    let others = differing(&alone, &asked);
                    if !others.is_empty() {
                        notes.push(format!("Kconfig changes along: {}", others.join(", ")));
                    }
                    break;
                }
                Some(Finding::Good) => {
                    part = if took { Part::Guilty } else { Part::Enables };
                    good = alone;
                    bad = pair.bad;
                }
                Some(Finding::Skip { reason }) => {
                    notes
                        .push(format!("the good config with only these cannot be tried: {reason}"));
                    break;
                }
                None => {
                    notes.push(self.spent());
                    break;
                }
            }
        }
        Ok(ConfigOutcome::Found { changes, enough, notes })
    }

    /// Brings a good and a bad config together. `fixed` symbols are asked for with the
    /// bad side's values throughout and are no longer looked at.
    async fn isolate(
        &mut self,
        mut good: Config,
        mut bad: Config,
        fixed: &[String],
    ) -> Result<Pair, Fault> {
        let count = |a: &Config, b: &Config| {
            differing(a, b).iter().filter(|&symbol| !fixed.contains(symbol)).count()
        };
        let mut skips = 0;
        'closer: loop {
            let mut left = differing(&good, &bad);
            left.retain(|symbol| !fixed.contains(symbol));
            self.order.sort(&mut left);
            if left.len() < 2 {
                return Ok(Pair { good, bad, note: None });
            }
            // Resolved mixes that would bring the sides nearer, whatever is found.
            let mut nearer: Vec<(usize, Config)> = Vec::new();
            for mix in self.order.mixes(&left) {
                let asked = with(&with(&good, mix, &bad), fixed, &bad);
                let resolved = self.resolve(&asked).await?;
                let worst = count(&resolved, &good).max(count(&resolved, &bad));
                let skipped = self
                    .known(&resolved)
                    .is_some_and(|finding| matches!(finding, Finding::Skip { .. }));
                if worst >= left.len() || skipped {
                    continue;
                }
                nearer.push((worst, resolved));
                // A part of a third or more is good enough to stop looking.
                if worst * 3 <= left.len() * 2 + 1 {
                    break;
                }
            }
            let Some((_, resolved)) = nearer.into_iter().min_by_key(|(worst, _)| *worst) else {
                let note = match skips {
                    0 => format!("Kconfig sets these only together: {}", left.join(", ")),
                    _ => format!("what lies between cannot be tried: {}", left.join(", ")),
                };
                return Ok(Pair { good, bad, note: Some(note) });
            };
            match self.judge_within_bounds(&resolved).await? {
                Some(Finding::Good) => good = resolved,
                Some(Finding::Bad) => bad = resolved,
                Some(Finding::Skip { .. }) if skips < SKIPS => {
                    skips += 1;
                    continue 'closer;
                }
                Some(Finding::Skip { reason }) => {
                    let note = format!(
                        "too many configs in between cannot be tried, the last one: {reason}"
                    );
                    return Ok(Pair { good, bad, note: Some(note) });
                }
                None => return Ok(Pair { good, bad, note: Some(self.spent()) }),
            }
            skips = 0;
        }
    }

    fn spent(&self) -> String {
        format!("not narrowed further: the {} builds that were allowed are spent", self.most)
    }

    async fn resolve(&mut self, request: &Config) -> Result<Config, Fault> {
        self.cost.resolved += 1;
        self.trial.resolve(request).await
    }

    fn known(&self, config: &Config) -> Option<&Finding> {
        let digest = digest(config);
        self.steps.iter().find(|step| step.config == digest).map(|step| &step.finding)
    }

    /// `None` when no build is left.
    async fn judge_within_bounds(&mut self, config: &Config) -> Result<Option<Finding>, Fault> {
        match self.known(config) {
            None if self.cost.builds >= self.most => Ok(None),
            _ => self.judge(config).await.map(Some),
        }
    }

    /// What a resolved config is: known, or built and run.
    async fn judge(&mut self, config: &Config) -> Result<Finding, Fault> {
        if let Some(finding) = self.known(config) {
            return Ok(finding.clone());
        }
        self.cost.builds += 1;
        let mut image = None;
        let mut same = false;
        let seen = match skipping(self.trial.build(config).await)? {
            Err(seen) => seen,
            Ok(Built::Decided { finding, evidence }) => Seen { finding, evidence },
            Ok(Built::Image(key)) => {
                let earlier = self.steps.iter().find(|step| step.image.as_ref() == Some(&key));
                let seen = match earlier {
                    Some(step) => {
                        same = true;
                        Seen { finding: step.finding.clone(), evidence: step.evidence.clone() }
                    }
                    None => {
                        self.cost.runs += 1;
                        skipping(self.trial.run(config, &key).await)?.unwrap_or_else(|skip| skip)
                    }
                };
                image = Some(key);
                seen
            }
        };
        let step = ConfigStep {
            config: digest(config),
            changed: differing(&self.good, config),
            finding: seen.finding.clone(),
            evidence: bounded(seen.evidence),
            image,
            same,
        };
        self.journal.keep(&ConfigEntry::Trial(step.clone()))?;
        self.steps.push(step);
        Ok(seen.finding)
    }
}
