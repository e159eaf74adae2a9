// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a search of commits or patches finds, how many builds and runs it takes, and
//! whether its confidence is honest. Every random number is seeded.

#[path = "bisect/dice.rs"]
mod dice;
#[path = "bisect/fakes.rs"]
mod fakes;

use std::collections::BTreeSet;

use dice::Dice;
use fakes::{Fake, candidate, line, number};
use kvet::bisect::history::{Candidate, Commit, History, Role};
use kvet::bisect::log::{Entry, Start, replay};
use kvet::bisect::outcome::Outcome;
use kvet::bisect::rates::{DEFAULT_ERROR, Rates, Rule};
use kvet::bisect::search::{Next, Search};
use kvet::fault::{Blame, Fault};

/// Runs of the two ends, which are verified before anything is searched.
const ENDS: u32 = 2;

fn stated(false_positive: f64, false_negative: f64, error: f64) -> Rule {
    Rule::noisy(Rates::Stated { false_positive, false_negative }, error).unwrap()
}

fn found(outcome: &Outcome) -> (usize, f64) {
    match outcome {
        Outcome::Found { first_bad, confidence } => (number(first_bad), confidence.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_exact_search_of_64_finds_every_position_with_the_optimum_of_runs() {
    for first in 1..=64 {
        for rule in [Rule::EXACT, stated(0.0, 0.0, 0.01)] {
            let fake = Fake::new(first, 64);
            let (outcome, cost) = fake.search_line(64, rule);
            assert_eq!(found(&outcome), (first, 1.0));
            assert_eq!((cost.builds, cost.runs), (ENDS + 6, ENDS + 6), "first bad {first}");
            let different: BTreeSet<usize> = fake.ran.take().into_iter().collect();
            assert_eq!(different.len() as u32, cost.runs, "nothing is run twice");
        }
    }
}

#[test]
fn an_exact_search_of_any_length_is_within_the_optimum() {
    for length in 1..=40_usize {
        for first in 1..=length {
            let (outcome, cost) = Fake::new(first, length).search_line(length, Rule::EXACT);
            assert_eq!(found(&outcome).0, first);
            let optimum = length.next_power_of_two().trailing_zeros();
            assert!(cost.runs - ENDS <= optimum, "{first} of {length}: {}", cost.runs);
        }
    }
}

#[test]
fn two_that_do_not_build_and_an_oops_near_the_bad_one_cost_at_most_three_builds() {
    let (mut worst, mut sets, mut searches) = (0, 0, 0);
    for first in [1, 2, 5, 15, 16, 17, 24, 31, 32, 33, 34, 47, 50, 60, 63, 64_i64] {
        for a in -4..=4_i64 {
            for b in a + 1..=4 {
                for oops in (-4..=4).filter(|&oops| oops != a && oops != b) {
                    let near = |offset: i64| usize::try_from(first + offset).unwrap_or(0);
                    if ![a, b, oops].iter().all(|&offset| (1..64).contains(&near(offset))) {
                        continue;
                    }
                    let mut fake = Fake::new(first as usize, 64);
                    fake.unbuildable = [near(a), near(b)].into();
                    fake.oopses = [near(oops)].into();
                    let (outcome, cost) = fake.search_line(64, Rule::EXACT);
                    worst = worst.max(cost.builds);
                    searches += 1;
                    let skipped =
                        |at: usize| fake.unbuildable.contains(&at) || fake.oopses.contains(&at);
                    // What cannot be told from the first bad one: it and those before
                    // and after it that are parted from it by skipped ones only.
                    let mut low = first as usize;
                    while skipped(low - 1) {
                        low -= 1;
                    }
                    let mut high = first as usize;
                    while skipped(high) {
                        high += 1;
                    }
                    match outcome {
                        Outcome::Found { first_bad, confidence } => {
                            assert_eq!((number(&first_bad), confidence.0), (first as usize, 1.0));
                            assert_eq!((low, high), (first as usize, first as usize));
                        }
                        Outcome::Among { candidates, .. } => {
                            sets += 1;
                            let set: Vec<usize> = candidates.iter().map(number).collect();
                            assert_eq!(set, (low..=high).collect::<Vec<_>>());
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }
    println!("{searches} searches, {sets} of them end with a set, at most {worst} builds");
    assert!(worst <= 11, "{worst} builds with the ends");
    assert!(sets > 500 && sets < searches);
}

/// What the ends of a simulated line are.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// What they are called.
    Right,
    /// Each of them wrong as often as the search believes before the first trial.
    Believed,
}

/// Share of right answers, mean stated confidence and mean runs of seeded searches.
fn simulate(searches: u64, ends: Ends, rule: Rule, lies: (f64, f64)) -> (f64, f64, f64) {
    const WRONG: f64 = 0.05 / 1.1;
    let (mut right, mut stated, mut runs, mut builds) = (0.0, 0.0, 0.0, 0.0);
    for seed in 0..searches {
        let dice = Dice::new(0x5eed_0000 + seed);
        let end = dice.share();
        let first = match ends {
            Ends::Believed if end < WRONG => 0,
            Ends::Believed if end < 2.0 * WRONG => 65,
            _ => 1 + dice.below(64),
        };
        let mut fake = Fake::new(first, 64);
        (fake.lies, fake.dice) = (lies, dice);
        let (outcome, cost) = fake.search_line(64, rule);
        let (answer, confidence) = match &outcome {
            Outcome::Found { .. } => found(&outcome),
            Outcome::GoodEndIsBad { confidence, .. } => (0, confidence.0),
            Outcome::BadEndIsGood { confidence, .. } => (65, confidence.0),
            other => panic!("{other:?}"),
        };
        right += f64::from(u8::from(answer == first));
        stated += confidence;
        runs += f64::from(cost.runs);
        builds += f64::from(cost.builds);
    }
    let mean = |sum: f64| sum / searches as f64;
    let (right, stated, runs, builds) = (mean(right), mean(stated), mean(runs), mean(builds));
    println!(
        "{rule:?}, lies {lies:?}: right {right:.4}, stated {stated:.4}, {runs:.1} runs, {builds:.1} builds"
    );
    (right, stated, runs)
}

#[test]
fn with_one_lie_in_ten_it_is_right_in_99_of_100_searches() {
    let rule = stated(0.1, 0.1, DEFAULT_ERROR);
    let (right, stated, runs) = simulate(500, Ends::Right, rule, (0.1, 0.1));
    assert!(right >= 0.99, "{right}");
    assert!(stated - right <= 0.01, "stated {stated}, right {right}");
    // A run that lies in 10% tells 0.53 bits at most: 11.3 runs for 6 bits, and the
    // ends and the certainty of 10 bits more.
    assert!(runs < 30.0, "{runs} runs");
}

#[test]
fn the_stated_confidence_is_the_share_of_right_answers() {
    for (lies, error) in
        [((0.1, 0.1), 0.05), ((0.0, 0.6), 0.05), ((0.2, 0.05), 0.05), ((0.3, 0.3), 0.1)]
    {
        let (right, stated, ..) =
            simulate(600, Ends::Believed, stated(lies.0, lies.1, error), lies);
        // Three standard deviations of a share of 600.
        let margin = 3.0 * (stated * (1.0 - stated) / 600.0).sqrt();
        assert!((stated - right).abs() <= margin, "{lies:?}: stated {stated}, right {right}");
        assert!(stated >= 1.0 - error, "{lies:?}: {stated}");
    }
}

#[test]
fn rates_that_have_to_be_estimated_leave_the_confidence_honest() {
    let rule = Rule::noisy(Rates::Estimated { trials: 10 }, 0.01).unwrap();
    for lies in [(0.0, 0.0), (0.1, 0.1), (0.0, 0.5), (0.02, 0.3)] {
        let (right, stated, ..) = simulate(300, Ends::Right, rule, lies);
        assert!(stated - right <= 0.015, "{lies:?}: stated {stated}, right {right}");
        assert!(right >= 0.985, "{lies:?}: {right}");
    }
}

#[test]
fn a_bad_end_that_never_shows_the_fault_is_told_so() {
    let rule = Rule::noisy(Rates::Estimated { trials: 10 }, 0.01).unwrap();
    let (outcome, cost) = Fake::of(BTreeSet::new()).search_line(64, rule);
    assert!(matches!(outcome, Outcome::NotReproduced { trials: 10, .. }), "{outcome:?}");
    assert_eq!((cost.builds, cost.runs), (1, 10));
}

#[test]
fn a_long_broken_stretch_is_left_behind() {
    let mut fake = Fake::new(50, 64);
    fake.unbuildable = (22..42).collect();
    let (outcome, cost) = fake.search_line(64, Rule::EXACT);
    assert_eq!(found(&outcome).0, 50);
    assert!(cost.builds <= ENDS + 6 + 6, "{}", cost.builds);
}

#[test]
fn a_noisy_search_passes_what_cannot_be_tried() {
    let mut sets = 0;
    for seed in 0..60 {
        let dice = Dice::new(seed);
        let first = 3 + dice.below(58);
        let mut fake = Fake::new(first, 64);
        let near = |offset: usize| first + offset - 2;
        fake.unbuildable = [near(dice.below(5)), near(dice.below(5))].into();
        fake.oopses = [near(dice.below(5))].into();
        fake.lies = (0.1, 0.1);
        fake.dice = dice;
        let (outcome, _) = fake.search_line(64, stated(0.1, 0.1, 1e-6));
        let set = match &outcome {
            Outcome::Found { first_bad, .. } => vec![number(first_bad)],
            Outcome::Among { candidates, .. } => candidates.iter().map(number).collect(),
            other => panic!("{other:?}"),
        };
        assert!(set.contains(&first), "{first} is not in {set:?}");
        let unknown =
            set.iter().filter(|at| !fake.unbuildable.contains(at) && !fake.oopses.contains(at));
        assert!(unknown.count() <= 1, "{set:?} can be told apart");
        sets += usize::from(set.len() > 1);
    }
    assert!(sets > 10);
}

#[test]
fn ends_that_are_not_what_they_are_called_end_the_search_before_it_begins() {
    let (outcome, cost) = Fake::of(BTreeSet::new()).search_line(64, Rule::EXACT);
    assert!(matches!(&outcome, Outcome::BadEndIsGood { end, .. } if end == &candidate(64)));
    assert_eq!(cost.runs, 1);
    let (outcome, cost) = Fake::new(0, 64).search_line(64, Rule::EXACT);
    assert!(
        matches!(&outcome, Outcome::GoodEndIsBad { end, role: Role::Good, .. } if end == &candidate(0))
    );
    assert_eq!(cost.runs, ENDS);
    let mut fake = Fake::new(9, 64);
    fake.unbuildable = [64].into();
    let (outcome, _) = fake.search_line(64, Rule::EXACT);
    assert!(
        matches!(&outcome, Outcome::EndUntestable { reason, .. } if reason == "series fault: does not build")
    );
    for seed in 0..50 {
        let mut fake = Fake::of(BTreeSet::new());
        (fake.lies, fake.dice) = ((0.1, 0.1), Dice::new(seed));
        let (outcome, _) = fake.search_line(64, stated(0.1, 0.1, DEFAULT_ERROR));
        assert!(matches!(outcome, Outcome::BadEndIsGood { .. }), "{outcome:?}");
        let mut fake = Fake::new(0, 64);
        (fake.lies, fake.dice) = ((0.1, 0.1), Dice::new(seed));
        let (outcome, _) = fake.search_line(64, stated(0.1, 0.1, DEFAULT_ERROR));
        assert!(matches!(outcome, Outcome::GoodEndIsBad { .. }), "{outcome:?}");
    }
}

#[test]
fn an_identical_image_is_not_run_twice() {
    // Changes of documentation: every odd number is the image before it.
    for first in (2..=64).step_by(2) {
        let mut fake = Fake::new(first, 64);
        fake.same = (1..64).step_by(2).map(|odd| (odd, odd - 1)).collect();
        let (outcome, cost) = fake.search_line(64, Rule::EXACT);
        assert_eq!(found(&outcome).0, first);
        let images: BTreeSet<usize> = fake.ran.take().into_iter().map(|ran| ran & !1).collect();
        assert_eq!(images.len() as u32, cost.runs, "first bad {first}");
        assert!(cost.builds <= ENDS + 7);
    }
    let mut fake = Fake::new(1, 64);
    fake.same = [(0, 64)].into();
    let (outcome, cost) = fake.search_line(64, Rule::EXACT);
    assert!(matches!(outcome, Outcome::EndsIdentical { .. }));
    assert_eq!((cost.builds, cost.runs), (2, 1));
}

#[test]
fn a_change_that_was_taken_back_and_made_again_is_found() {
    // 1 and 3 make it, 2 takes it back: kernels 0 = 2 and 1 = 3 = 4.
    let mut fake = Fake::of([1, 3, 4].into());
    fake.same = [(2, 0), (3, 1), (4, 1)].into();
    let (outcome, _) = fake.search_line(4, Rule::EXACT);
    assert!([1, 3].contains(&found(&outcome).0));
    let mut noisy = Fake::of([1, 3, 4].into());
    (noisy.same, noisy.lies) = ([(2, 0), (3, 1), (4, 1)].into(), (0.1, 0.1));
    let (outcome, _) = noisy.search_line(4, stated(0.1, 0.1, DEFAULT_ERROR));
    assert!([1, 3].contains(&found(&outcome).0), "{outcome:?}");
}

#[test]
fn what_an_exact_search_builds_next_was_named_ahead() {
    for first in 1..=64 {
        let fake = Fake { looks_ahead: true, ..Fake::new(first, 64) };
        fake.search_line(64, Rule::EXACT);
        let (built, ahead) = (fake.built.take(), fake.ahead.take());
        for (now, next) in built.iter().zip(&built[1..]).skip(1) {
            let at = built.iter().position(|built| built == now).unwrap();
            let likely = ahead[at].iter().find(|ahead| number(&ahead.candidate) == *next);
            let probability = likely.unwrap_or_else(|| panic!("{next} after {now}")).probability;
            let uniform = if *now == 0 { 1.0 } else { 0.5 };
            assert!((probability - uniform).abs() < 0.3, "{next} after {now}: {probability}");
        }
    }
    let mut search = Search::new(line(8), Rule::EXACT).unwrap();
    Fake::new(3, 8).until(&mut search, 2).0.unwrap();
    assert_eq!(search.next(), Next::Try(candidate(4)));
    let ahead: Vec<_> =
        search.ahead(6).iter().map(|ahead| (number(&ahead.candidate), ahead.probability)).collect();
    assert_eq!(ahead, [(2, 0.5), (6, 0.5), (1, 0.25), (3, 0.25), (5, 0.25), (7, 0.25)]);
}

#[test]
fn a_fault_of_the_host_stops_the_search_and_the_log_goes_on() {
    let rule = stated(0.1, 0.1, DEFAULT_ERROR);
    let whole = || {
        let mut fake = Fake::new(23, 64);
        (fake.lies, fake.dice) = ((0.1, 0.1), Dice::new(7));
        fake
    };
    let (expected, expected_log, _) = whole().search(&mut Search::new(line(64), rule).unwrap());
    for (at, fault) in
        [(1, Fault::interrupted()), (5, Fault::infra("disk full")), (11, Fault::interrupted())]
    {
        let mut fake = whole();
        fake.fault_at = Some((at, fault.clone()));
        let (result, mut log, _) = fake.until(&mut Search::new(line(64), rule).unwrap(), 2000);
        assert_eq!(result.unwrap_err(), fault);
        assert_eq!(log.pop(), Some(Entry::Stopped { fault }));
        assert_eq!(log, expected_log[..at - 1]);
        log.insert(0, Entry::Start(Start::new(&line(64), rule, "a race")));
        let mut resumed = replay(&log, "log", line(64), rule).unwrap();
        assert_eq!(resumed.trials() as usize, at - 1);
        // The fake forgets its built images as a new process would: images of the log
        // are run without being built.
        fake.fault_at = None;
        fake.built.take();
        let (outcome, rest, _) = fake.search(&mut resumed);
        assert_eq!(outcome, expected);
        assert_eq!([&log[1..], &rest].concat(), expected_log);
    }
    let mut fake = whole();
    fake.fault_at = Some((4, Fault::kernel("panic")));
    let (_, log, _) = fake.search(&mut Search::new(line(64), rule).unwrap());
    assert!(!log.iter().any(|entry| matches!(entry, Entry::Stopped { .. })), "a panic skips");
}

#[test]
fn a_search_that_may_not_go_on_says_what_is_likely() {
    let mut search = Search::new(line(64), Rule::EXACT).unwrap();
    let (outcome, ..) = Fake::new(23, 64).until(&mut search, 5);
    let Outcome::Undecided { likely, trials: 5 } = outcome.unwrap() else { panic!() };
    assert_eq!(likely.len(), 8);
    assert!(likely.iter().all(|likely| (17..=24).contains(&number(&likely.candidate))));
    assert!(likely.iter().all(|likely| likely.probability == 0.125));
}

#[test]
fn a_bad_merge_base_is_told_from_a_regression() {
    let commit = |id: &str, parents: &[&str]| Commit {
        candidate: Candidate::new(id, "s"),
        parents: parents.iter().map(ToString::to_string).collect(),
    };
    // 1 - 2 - 3 (bad end), and 1 - 4 with the fix (good end).
    let commits =
        vec![commit("1", &[]), commit("2", &["1"]), commit("3", &["2"]), commit("4", &["1"])];
    let history = || History::graph(commits.clone(), "3", &["4".to_owned()]).unwrap();
    let (outcome, ..) =
        Fake::of([1, 2, 3].into()).search(&mut Search::new(history(), Rule::EXACT).unwrap());
    assert!(matches!(outcome, Outcome::GoodEndIsBad { role: Role::MergeBase, .. }), "{outcome:?}");
    let (outcome, ..) =
        Fake::of([3].into()).search(&mut Search::new(history(), Rule::EXACT).unwrap());
    assert_eq!(found(&outcome).0, 3);
}

/// A random history with merges: its commits and, for each, what it reaches.
fn random_history(dice: &Dice, length: usize) -> (History, Vec<BTreeSet<usize>>) {
    let mut commits = vec![Commit { candidate: candidate(0), parents: Vec::new() }];
    let mut reach: Vec<BTreeSet<usize>> = vec![[0].into()];
    for at in 1..=length {
        let mut parents: BTreeSet<usize> = [at - 1 - dice.below(at.min(4))].into();
        if dice.below(3) == 0 || at == length {
            parents.insert(at - 1 - dice.below(at.min(6)));
        }
        let mut below: BTreeSet<usize> = [at].into();
        parents.iter().for_each(|&parent| below.extend(&reach[parent]));
        reach.push(below);
        let parents = parents.iter().map(ToString::to_string).collect();
        commits.push(Commit { candidate: candidate(at), parents });
    }
    let bad = length.to_string();
    (History::graph(commits, &bad, &["0".to_owned()]).unwrap(), reach)
}

#[test]
fn with_merges_the_first_bad_one_is_found_exactly_and_with_lies() {
    let mut wrong = 0;
    for seed in 0..150 {
        let dice = Dice::new(seed);
        let length = 8 + dice.below(40);
        let (history, reach) = random_history(&dice, length);
        let suspects = history.suspects().len();
        let first = number(&history.suspects()[dice.below(suspects)]);
        let bad: BTreeSet<usize> = (0..=length).filter(|&at| reach[at].contains(&first)).collect();
        let (outcome, _, cost) =
            Fake::of(bad.clone()).search(&mut Search::new(history.clone(), Rule::EXACT).unwrap());
        assert_eq!(found(&outcome).0, first, "seed {seed}");
        assert!(cost.runs - ENDS <= suspects as u32);
        let mut fake = Fake::of(bad);
        (fake.lies, fake.dice) = ((0.1, 0.1), dice);
        let (outcome, ..) =
            fake.search(&mut Search::new(history, stated(0.1, 0.1, DEFAULT_ERROR)).unwrap());
        wrong += u32::from(found(&outcome).0 != first);
    }
    assert!(wrong <= 2, "{wrong} of 150");
}

#[test]
fn a_kernel_release_of_commits_is_searched_in_seconds() {
    // 15,000 commits and 1,200 merges, as between two releases of Linux.
    let dice = Dice::new(3);
    let mut commits: Vec<Commit> = Vec::new();
    for at in 0..15_000_usize {
        let mut parents: Vec<String> = Vec::new();
        if at > 0 {
            parents.push((at - 1 - dice.below(at.min(3))).to_string());
        }
        if at > 200 && at % 12 == 0 {
            parents.push((at - 1 - dice.below(200)).to_string());
        }
        commits.push(Commit { candidate: candidate(at), parents });
    }
    let began = std::time::Instant::now();
    let history = History::graph(commits, "14999", &["0".to_owned()]).unwrap();
    let first = number(&history.suspects()[history.suspects().len() / 3]);
    let mut fake = Fake::of(BTreeSet::new());
    fake.bad = {
        let above = history.above(history.point(&first.to_string()).unwrap());
        let suspects = history.suspects().iter().zip(above);
        suspects.filter(|(_, above)| *above).map(|(candidate, _)| number(candidate)).collect()
    };
    let suspects = history.suspects().len();
    let (outcome, _, cost) = fake.search(&mut Search::new(history, Rule::EXACT).unwrap());
    assert_eq!(found(&outcome).0, first);
    println!("{suspects} suspects, {} runs, {:?}", cost.runs, began.elapsed());
    assert!(cost.runs <= 20);
}

#[test]
fn a_stop_is_blamed_on_whom_it_is_of() {
    let mut fake = Fake::new(9, 16);
    fake.fault_at = Some((2, Fault::infra("QEMU is gone")));
    let (result, log, _) = fake.until(&mut Search::new(line(16), Rule::EXACT).unwrap(), 2000);
    assert_eq!(result.unwrap_err().blame, Blame::Infra);
    assert_eq!(log.len(), 2, "one trial and the stop");
}
