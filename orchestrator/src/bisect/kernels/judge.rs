// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether what one kernel came to is bad, good, or says nothing.

use kvet_records::TICK_METRIC;
use serde::{Deserialize, Serialize};

use super::facts::{Booted, Facts, errors};
use super::predicate::{Past, Predicate};
use crate::bisect::drive::Seen;
use crate::bisect::step::Finding;
use crate::compare::metrics::INTERRUPTS;
use crate::compare::splats::matches;
use crate::fault::{Fault, escape};
use crate::transport::virtio::Sample;

/// Timer ticks that one window may hold more than another, at either end.
const TICKS: f64 = 2.0;
/// The least difference of two figures that are looked between, in percent: what phases
/// of the timer make of equal ones is below it.
const LEAST_PERCENT: f64 = 0.1;
/// Most names that a message lists.
const NAMED: usize = 20;

/// What the ends came to, where that was looked at first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ends {
    /// The good end.
    pub good: Option<Facts>,
    /// The bad end.
    pub bad: Option<Facts>,
}

impl Ends {
    fn good(&self) -> Option<&Booted> {
        booted(self.good.as_ref())
    }

    fn bad(&self) -> Option<&Booted> {
        booted(self.bad.as_ref())
    }

    /// Whether the predicate can be judged with these ends at all.
    ///
    /// # Errors
    /// A `plan` fault for an observation that neither end makes, with those that are
    /// made.
    pub fn check(&self, predicate: &Predicate) -> Result<(), Fault> {
        let complete = |end: Option<&Booted>| end.is_some_and(|end| end.fault.is_none());
        let ends = || self.good().into_iter().chain(self.bad());
        if !complete(self.good()) || !complete(self.bad()) {
            return Ok(());
        }
        match predicate {
            Predicate::Observation { name, .. }
                if ends().all(|end| !end.observations.contains_key(name)) =>
            {
                let names = ends().flat_map(|end| end.observations.keys().cloned());
                Err(missing("neither end makes", "observation", name, names.collect()))
            }
            _ => Ok(()),
        }
    }
}

/// What is missing, and what is there.
fn missing(who: &str, kind: &str, what: &str, mut names: Vec<String>) -> Fault {
    names.sort();
    names.dedup();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let list = escape(&names.join(", "));
    let help = match (names.is_empty(), more) {
        (true, _) => format!("the test makes no {kind} there: name another with -t"),
        (false, 0) => format!("there are: {list}"),
        (false, more) => format!("there are: {list}, and {more} more"),
    };
    Fault::plan(format!("{who} the {kind} {what:?}")).help(help)
}

impl Facts {
    /// Whether a figure that is searched for can be judged by this end: one that it does
    /// not make, or makes several times, cannot be judged at all.
    ///
    /// # Errors
    /// A `plan` fault with the figures that are made.
    pub fn check(&self, predicate: &Predicate) -> Result<(), Fault> {
        let (Predicate::Metric { name, .. }, Self::Booted(end)) = (predicate, self) else {
            return Ok(());
        };
        if end.fault.is_some() || end.failure.is_some() || end.skipped.is_some() {
            return Ok(());
        }
        let shown = |sample: &Sample| {
            let pairs: Vec<String> =
                sample.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{}{{{}}}", sample.metric, pairs.join(","))
        };
        let names = || end.samples.iter().map(shown).collect::<Vec<String>>();
        match figure(predicate, end) {
            Figure::One(_) => Ok(()),
            Figure::None => Err(missing("the test does not make", "figure", name, names())),
            Figure::Several => Err(Fault::plan(format!("more than one figure fits {name:?}"))
                .help(format!("add its parameters; there are: {}", escape(&names().join(", "))))),
        }
    }
}

fn booted(facts: Option<&Facts>) -> Option<&Booted> {
    match facts {
        Some(Facts::Booted(booted)) => Some(booted),
        Some(Facts::Built | Facts::Unbuilt { .. }) | None => None,
    }
}

/// Judges one kernel.
#[must_use]
pub fn judge(predicate: &Predicate, ends: &Ends, facts: &Facts) -> Seen {
    let seen = match (predicate, facts) {
        (Predicate::Build, Facts::Built | Facts::Booted(_)) => good("it builds"),
        (Predicate::Build, Facts::Unbuilt { fault }) => unbuilt(ends, fault),
        (_, Facts::Unbuilt { fault }) => Seen {
            finding: Finding::Skip {
                reason: format!("it does not build: {}", escape(&fault.what)),
            },
            evidence: told(fault),
        },
        (_, Facts::Built) => skip("it was not booted"),
        (_, Facts::Booted(booted)) => boot(predicate, ends, booted),
    };
    match facts {
        Facts::Booted(booted) => {
            Seen { evidence: format!("{}\nboot: {}", seen.evidence, booted.folder), ..seen }
        }
        Facts::Built | Facts::Unbuilt { .. } => seen,
    }
}

/// What a fault says, without the places of this host: it may be sent to somebody.
fn told(fault: &Fault) -> String {
    let evidence = fault.evidence.iter().map(|line| format!("\n{line}"));
    format!("{}{}", escape(&fault.what), evidence.collect::<String>())
}

fn good(evidence: impl Into<String>) -> Seen {
    Seen { finding: Finding::Good, evidence: evidence.into() }
}

fn bad(evidence: impl Into<String>) -> Seen {
    Seen { finding: Finding::Bad, evidence: evidence.into() }
}

fn skip(reason: impl Into<String>) -> Seen {
    let reason = reason.into();
    Seen { evidence: reason.clone(), finding: Finding::Skip { reason } }
}

/// A failed build, which is the one that is searched for only if it fails as the bad end.
fn unbuilt(ends: &Ends, fault: &Fault) -> Seen {
    let evidence = told(fault);
    match &ends.bad {
        Some(Facts::Unbuilt { fault: wanted }) if errors(wanted).is_disjoint(&errors(fault)) => {
            let why = fault.evidence.first().map_or(fault.what.as_str(), String::as_str);
            let reason = format!("it does not build for another reason: {}", escape(why));
            Seen { finding: Finding::Skip { reason }, evidence }
        }
        _ => bad(evidence),
    }
}

fn boot(predicate: &Predicate, ends: &Ends, booted: &Booted) -> Seen {
    if let Predicate::Splat(pattern) = predicate {
        return splat(pattern, ends, booted);
    }
    if *predicate == Predicate::Fail {
        return failure(ends, booted);
    }
    if let Some(fault) = &booted.fault {
        let reason = format!("{} fault: {}", fault.blame, escape(&fault.what));
        return Seen { finding: Finding::Skip { reason }, evidence: told(fault) };
    }
    if let Some(why) = &booted.skipped {
        return skip(format!("the test cannot run there: {}", escape(why)));
    }
    match predicate {
        Predicate::Observation { name, value } => observation(name, value.as_deref(), ends, booted),
        Predicate::Metric { .. } => metric(predicate, ends, booted),
        Predicate::Splat(_) | Predicate::Build | Predicate::Fail => skip("nothing was asked"),
    }
}

fn splat(pattern: &str, ends: &Ends, booted: &Booted) -> Seen {
    let title =
        |splat: &super::SplatSeen| format!("{} ({})", escape(&splat.title), splat.fingerprint);
    let fits =
        |splat: &&super::SplatSeen| splat.fingerprint == pattern || matches(pattern, &splat.title);
    if let Some(found) = booted.splats.iter().find(fits) {
        return bad(title(found));
    }
    if let Some(fault) = &booted.fault {
        let reason = format!("another {} fault: {}", fault.blame, escape(&fault.what));
        return Seen { finding: Finding::Skip { reason }, evidence: told(fault) };
    }
    if let Some(why) = &booted.skipped {
        return skip(format!("the test cannot run there: {}", escape(why)));
    }
    // After a first report some checkers are silent (lockdep turns itself off), unless
    // it is one that the good end has, too.
    let known = |splat: &&super::SplatSeen| {
        ends.good().is_none_or(|good| {
            good.splats.iter().any(|other| other.fingerprint == splat.fingerprint)
        })
    };
    match booted.splats.iter().find(|splat| !known(splat)) {
        Some(other) => skip(format!("another splat: {}", title(other))),
        None => good("no such splat"),
    }
}

fn failure(ends: &Ends, booted: &Booted) -> Seen {
    let evidence =
        || booted.fault.as_ref().map_or(String::new(), |fault| format!("\n{}", told(fault)));
    match (&booted.failure, ends.bad().and_then(|bad| bad.failure.as_ref())) {
        (None, _) => match &booted.skipped {
            Some(why) => skip(format!("the test cannot run there: {}", escape(why))),
            None => good("the test ended as it should"),
        },
        (Some(how), Some(wanted)) if how != wanted => {
            let reason = format!("it fails in another way: {}", escape(how));
            Seen { evidence: format!("{reason}{}", evidence()), finding: Finding::Skip { reason } }
        }
        (Some(how), _) => bad(format!("{}{}", escape(how), evidence())),
    }
}

fn observation(name: &str, value: Option<&str>, ends: &Ends, booted: &Booted) -> Seen {
    let of = |booted: &Booted| booted.observations.get(name).map(ToString::to_string);
    let shown = |value: &Option<String>| escape(value.as_deref().unwrap_or("nothing"));
    let now = of(booted);
    let line = format!("{} = {}", escape(name), shown(&now));
    if let Some(value) = value {
        return match now {
            None => skip(format!("the test did not observe {}", escape(name))),
            Some(now) if now == value => bad(line),
            Some(_) => good(line),
        };
    }
    let (Some(good_end), Some(bad_end)) = (ends.good(), ends.bad()) else {
        return skip("the ends' values are not known");
    };
    match (now == of(good_end), now == of(bad_end)) {
        (true, _) => good(line),
        (false, true) => bad(line),
        (false, false) => skip(format!(
            "{line}, which is neither the good end's value ({}) nor the bad end's ({})",
            shown(&of(good_end)),
            shown(&of(bad_end))
        )),
    }
}

/// The figure that a predicate means.
enum Figure<'a> {
    None,
    Several,
    One(&'a Sample),
}

fn figure<'a>(predicate: &Predicate, booted: &'a Booted) -> Figure<'a> {
    let Predicate::Metric { name, parameters, .. } = predicate else { return Figure::None };
    let fits = |sample: &&Sample| {
        sample.metric == *name
            && parameters.iter().all(|(name, value)| {
                sample.parameters.get(name).is_some_and(|found| found.to_string() == *value)
            })
    };
    let mut found = booted.samples.iter().filter(fits);
    match (found.next(), found.next()) {
        (None, _) => Figure::None,
        (Some(sample), None) => Figure::One(sample),
        (Some(_), Some(_)) => Figure::Several,
    }
}

fn metric(predicate: &Predicate, ends: &Ends, booted: &Booted) -> Seen {
    let one = |booted| match figure(predicate, booted) {
        Figure::One(sample) => Some(sample),
        Figure::None | Figure::Several => None,
    };
    let Some(now) = one(booted) else { return skip("it does not make the figure, or several") };
    let Predicate::Metric { past, .. } = predicate else {
        return skip("no figure was asked for");
    };
    let own = format!("{} = {} {}", escape(&now.metric), now.value, escape(&now.unit));
    let good_end = ends.good().and_then(one);
    let line = match good_end {
        Some(end) => format!(
            "{own} ({:+.2}% of the good end's {})",
            (now.value - end.value) / end.value.abs().max(f64::MIN_POSITIVE) * 100.0,
            end.value
        ),
        None => own,
    };
    let (threshold, above) = match (past, good_end, ends.bad().and_then(one)) {
        (Past::Above(value), ..) => (*value, true),
        (Past::Below(value), ..) => (*value, false),
        (Past::Percent(percent), Some(end), Some(_)) => {
            (end.value + end.value.abs() * percent / 100.0, *percent > 0.0)
        }
        (Past::HalfWay, Some(good_end), Some(bad_end)) => {
            let apart = bad_end.value - good_end.value;
            if apart.abs() <= good_end.value.abs() * LEAST_PERCENT / 100.0 {
                // The bad end is then good, which ends the search.
                return good(format!("{line}; the ends differ by no more than {LEAST_PERCENT}%"));
            }
            (good_end.value + apart / 2.0, apart > 0.0)
        }
        _ => return skip("the ends' figures are not known"),
    };
    let ticked = std::iter::once(now)
        .chain(good_end)
        .any(|sample| sample.beside.get(INTERRUPTS).is_some_and(|&count| count > 0));
    let tick = booted.samples.iter().filter(|sample| sample.metric == TICK_METRIC);
    let margin = match ticked {
        true => TICKS * tick.map(|sample| sample.value).fold(0.0, f64::max),
        false => 0.0,
    };
    if margin > 0.0 && (now.value - threshold).abs() <= margin {
        return skip(format!(
            "{line}, nearer to the threshold {threshold} than what timer ticks add ({margin})"
        ));
    }
    match (now.value > threshold) == above && now.value != threshold {
        true => bad(line),
        false => good(line),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kvet_records::{Better, Value};

    use super::super::facts::SplatSeen;
    use super::*;

    fn observed(value: i64) -> Facts {
        let observations = BTreeMap::from([("kicks".to_owned(), Value::Integer(value))]);
        Facts::Booted(Booted { observations, ..Booted::default() })
    }

    fn broken(title: &str, fault: Option<Fault>) -> Facts {
        let splats = vec![SplatSeen {
            fingerprint: format!("of {title}"),
            title: title.to_owned(),
            fatal: fault.is_some(),
        }];
        let failure = fault.as_ref().map(|_| title.to_owned());
        Facts::Booted(Booted { splats, fault, failure, ..Booted::default() })
    }

    fn counted(value: f64, interrupts: i64) -> Facts {
        let sample = |metric: &str, value| Sample {
            metric: metric.to_owned(),
            unit: "instructions".to_owned(),
            better: Better::Lower,
            parameters: BTreeMap::new(),
            value,
            beside: BTreeMap::from([(INTERRUPTS.to_owned(), interrupts)]),
        };
        let samples = vec![sample("madvise", value), sample(TICK_METRIC, 10.0)];
        Facts::Booted(Booted { samples, ..Booted::default() })
    }

    fn word(predicate: &Predicate, ends: &Ends, facts: &Facts) -> &'static str {
        judge(predicate, ends, facts).finding.word()
    }

    fn ends(good: Facts, bad: Facts) -> Ends {
        Ends { good: Some(good), bad: Some(bad) }
    }

    #[test]
    fn a_third_value_is_skipped() {
        let predicate = Predicate::observation("kicks").unwrap();
        let ends = ends(observed(5), observed(9));
        let words = [5, 9, 7].map(|value| word(&predicate, &ends, &observed(value)));
        assert_eq!(words, ["good", "bad", "skip"]);
        let explicit = Predicate::observation("kicks=9").unwrap();
        assert_eq!(word(&explicit, &Ends::default(), &observed(7)), "good");
        assert_eq!(word(&explicit, &Ends::default(), &counted(1.0, 0)), "skip");
        let panicked = broken("panic", Some(Fault::kernel("x")));
        assert_eq!(word(&explicit, &Ends::default(), &panicked), "skip");
    }

    #[test]
    fn only_the_splat_that_is_searched_for_is_bad() {
        let predicate = Predicate::Splat("WARNING in f*".to_owned());
        let ends = ends(broken("WARNING in old", None), broken("WARNING in f", None));
        let fault = || Some(Fault::kernel("x"));
        let of = |title, fault| word(&predicate, &ends, &broken(title, fault));
        assert_eq!(of("WARNING in f", None), "bad");
        assert_eq!(of("WARNING in f2", fault()), "bad");
        assert_eq!(of("WARNING in old", None), "good");
        assert_eq!(of("WARNING in g", None), "skip");
        assert_eq!(of("NULL deref in g", fault()), "skip");
        assert_eq!(word(&predicate, &ends, &observed(1)), "good");
    }

    #[test]
    fn a_failure_of_another_kind_is_skipped() {
        let fault = || Some(Fault::kernel("x"));
        let ends = ends(observed(1), broken("panic in f", fault()));
        let of = |facts: &Facts| word(&Predicate::Fail, &ends, facts);
        assert_eq!(of(&broken("panic in f", fault())), "bad");
        assert_eq!(of(&broken("panic in g", fault())), "skip");
        assert_eq!(of(&broken("WARNING in g", None)), "good");
        assert_eq!(of(&Facts::Unbuilt { fault: Fault::series("y") }), "skip");
    }

    #[test]
    fn a_build_fails_for_the_reason_or_for_another() {
        let unbuilt = |text: &str| Facts::Unbuilt { fault: Fault::series("x").evidence(text) };
        let ends = ends(Facts::Built, unbuilt("a.c:1:2: error: bad"));
        let of = |facts: &Facts| word(&Predicate::Build, &ends, facts);
        assert_eq!(of(&Facts::Built), "good");
        assert_eq!(of(&unbuilt("a.c:7:2: error: bad")), "bad");
        assert_eq!(of(&unbuilt("b.c:7:2: error: other")), "skip");
    }

    #[test]
    fn a_figure_near_the_threshold_is_skipped_where_ticks_may_have_made_it() {
        let ends = ends(counted(1000.0, 1), counted(1100.0, 1));
        let half = Predicate::metric("madvise").unwrap();
        let of = |predicate: &Predicate, value| word(predicate, &ends, &counted(value, 1));
        assert_eq!(
            [1000.0, 1029.0, 1031.0, 1069.0, 1071.0].map(|value| of(&half, value)),
            ["good", "good", "skip", "skip", "bad"]
        );
        let above = Predicate::metric("madvise:3%").unwrap();
        assert_eq!(of(&above, 1051.0), "bad");
        let below = Predicate::metric("madvise:-3%").unwrap();
        assert_eq!([of(&below, 1051.0), of(&below, 940.0)], ["good", "bad"]);
        let alike = Ends { good: Some(counted(1000.0, 0)), bad: Some(counted(1000.5, 0)) };
        assert_eq!(word(&half, &alike, &counted(1000.5, 0)), "good");
    }

    #[test]
    fn a_threshold_of_its_own_is_judged_without_ends() {
        let above = Predicate::metric("madvise>1000").unwrap();
        let below = Predicate::metric("madvise<1000").unwrap();
        for (value, when_above, when_below) in
            [(999.0, "good", "bad"), (1000.0, "good", "good"), (1001.0, "bad", "good")]
        {
            let facts = counted(value, 0);
            assert_eq!(word(&above, &Ends::default(), &facts), when_above, "{value}");
            assert_eq!(word(&below, &Ends::default(), &facts), when_below, "{value}");
        }
        assert_eq!(word(&above, &Ends::default(), &counted(1010.0, 1)), "skip");
        assert_eq!(
            word(&Predicate::metric("madvise").unwrap(), &Ends::default(), &counted(1.0, 0)),
            "skip"
        );
    }

    #[test]
    fn what_nobody_makes_is_an_error_that_lists_what_is_made() {
        let ends = ends(observed(1), observed(2));
        let wrong = Predicate::observation("kick").unwrap();
        let fault = ends.check(&wrong).unwrap_err();
        assert!(fault.help.unwrap().contains("kicks"));
        assert!(ends.check(&Predicate::observation("kicks=3").unwrap()).is_ok());
        let metric = |text| counted(1.0, 0).check(&Predicate::metric(text).unwrap());
        let fault = metric("x").unwrap_err();
        assert!(fault.help.unwrap().contains("madvise"), "{}", fault.what);
        assert!(metric("madvise").is_ok());
        // A test that was skipped there says nothing of what it makes elsewhere.
        let skipped = Booted { skipped: Some("no swap".to_owned()), ..Booted::default() };
        assert!(Facts::Booted(skipped).check(&Predicate::metric("x").unwrap()).is_ok());
    }
}
