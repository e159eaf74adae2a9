// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which symbols a search of two configs finds, and how many builds it takes, with a
//! Kconfig of a few rules. The two ends are counted among the builds.

#[path = "bisect/dice.rs"]
mod dice;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use dice::Dice;
use futures_util::FutureExt;
use kvet::bisect::config::{
    Config, ConfigEntry, ConfigOutcome, ConfigStart, ConfigTrial, Configs, Cost, Part, digest,
    drive, replay,
};
use kvet::bisect::drive::{Built, Seen};
use kvet::bisect::log::{Journal, LogFile, read};
use kvet::bisect::step::Finding;
use kvet::fault::Fault;

const SYMBOLS: usize = 300;
const ENDS: u32 = 2;

/// A kernel that is bad when all guilty symbols are set, and a Kconfig with `depends`
/// and `select`.
#[derive(Default)]
struct Fake {
    guilty: BTreeSet<String>,
    /// A symbol and what it depends on.
    depends: Vec<(String, String)>,
    /// A symbol and what it selects.
    selects: Vec<(String, String)>,
    /// With all of these set it does not build.
    unbuildable: BTreeSet<String>,
    /// Symbols that are not in any image.
    inert: BTreeSet<String>,
    /// The build of this count, from 1, is interrupted.
    interrupted_at: Option<usize>,
    built: RefCell<Vec<String>>,
}

fn name(number: usize) -> String {
    format!("S{number:03}")
}

fn on(config: &Config, symbol: &str) -> bool {
    config.get(symbol).is_some_and(|value| value == "y")
}

impl ConfigTrial for Fake {
    async fn resolve(&self, request: &Config) -> Result<Config, Fault> {
        let mut config = request.clone();
        for _ in 0..8 {
            for (symbol, needed) in &self.depends {
                if !on(&config, needed) {
                    config.remove(symbol);
                }
            }
            for (symbol, selected) in &self.selects {
                if on(&config, symbol) {
                    config.insert(selected.clone(), "y".to_owned());
                }
            }
        }
        Ok(config)
    }

    async fn build(&self, config: &Config) -> Result<Built, Fault> {
        assert_eq!(&self.resolve(config).await?, config, "only resolved configs are built");
        let key = digest(config);
        assert!(!self.built.borrow().contains(&key), "nothing is built twice");
        self.built.borrow_mut().push(key);
        if self.interrupted_at == Some(self.built.borrow().len()) {
            return Err(Fault::interrupted());
        }
        if !self.unbuildable.is_empty() && self.unbuildable.iter().all(|symbol| on(config, symbol))
        {
            return Err(Fault::series("does not build"));
        }
        let mut linked = config.clone();
        linked.retain(|symbol, _| !self.inert.contains(symbol));
        Ok(Built::Image(digest(&linked)))
    }

    async fn run(&self, config: &Config, _: &str) -> Result<Seen, Fault> {
        let bad = self.guilty.iter().all(|symbol| on(config, symbol));
        let finding = if bad { Finding::Bad } else { Finding::Good };
        Ok(Seen { finding, evidence: "ran".to_owned() })
    }
}

/// The good end has none of 300 symbols, the bad one all; both share others.
fn ends() -> Configs {
    let shared: Config = [("SMP".to_owned(), "y".to_owned())].into();
    let mut bad = shared.clone();
    bad.extend((0..SYMBOLS).map(|number| (name(number), "y".to_owned())));
    Configs { good: shared, bad, groups: Vec::new(), known: Vec::new(), most: 200 }
}

fn search(fake: &Fake, configs: Configs) -> (Result<ConfigOutcome, Fault>, Vec<ConfigEntry>, Cost) {
    let mut log: Vec<ConfigEntry> = Vec::new();
    let mut cost = Cost::default();
    let result = drive(configs, fake, &mut log, &mut cost).now_or_never().unwrap();
    assert_eq!(cost.builds as usize, fake.built.borrow().len());
    (result, log, cost)
}

/// What was found, and whether it was shown to be enough.
fn found(fake: &Fake, configs: Configs) -> (BTreeMap<String, Part>, bool, Vec<String>, Cost) {
    let (result, _, cost) = search(fake, configs);
    let ConfigOutcome::Found { changes, enough, notes } = result.unwrap() else { panic!() };
    (changes.into_iter().map(|change| (change.symbol, change.part)).collect(), enough, notes, cost)
}

fn guilty(numbers: &[usize]) -> Fake {
    Fake { guilty: numbers.iter().map(|&number| name(number)).collect(), ..Fake::default() }
}

fn names(numbers: &[usize], part: Part) -> BTreeMap<String, Part> {
    numbers.iter().map(|&number| (name(number), part)).collect()
}

#[test]
fn one_guilty_symbol_of_300_takes_at_most_10_builds_beyond_the_ends() {
    let mut most = 0;
    for number in 0..SYMBOLS {
        let (symbols, enough, notes, cost) = found(&guilty(&[number]), ends());
        assert_eq!(symbols, names(&[number], Part::Guilty));
        assert!(enough && notes.is_empty(), "{notes:?}");
        most = most.max(cost.builds);
    }
    assert!(most <= ENDS + 10, "{most}");
    println!("one guilty symbol: at most {} builds beyond the ends", most - ENDS);
}

#[test]
fn two_symbols_that_matter_only_together_are_both_found() {
    let mut most = 0;
    for a in (0..SYMBOLS).step_by(23) {
        for b in (a + 1..SYMBOLS).step_by(17) {
            let (symbols, enough, _, cost) = found(&guilty(&[a, b]), ends());
            assert_eq!(symbols, names(&[a, b], Part::Guilty));
            assert!(enough);
            most = most.max(cost.builds);
        }
    }
    assert!(most <= ENDS + 2 * 10, "{most}");
    let (symbols, enough, ..) = found(&guilty(&[7, 150, 299]), ends());
    assert_eq!(symbols, names(&[7, 150, 299], Part::Guilty));
    assert!(enough);
}

#[test]
fn a_symbol_that_needs_others_is_found_with_them() {
    for (symbol, needed) in [(40, 41), (41, 40), (10, 290), (290, 10), (149, 150)] {
        let mut fake = guilty(&[symbol]);
        fake.depends = vec![(name(symbol), name(needed))];
        let (symbols, enough, _, cost) = found(&fake, ends());
        assert_eq!(symbols[&name(symbol)], Part::Guilty, "{symbol} needs {needed}: {symbols:?}");
        assert!(symbols.contains_key(&name(needed)), "{symbol} needs {needed}: {symbols:?}");
        assert_eq!(symbols.len(), 2);
        assert!(enough);
        assert!(cost.builds <= ENDS + 20, "{}", cost.builds);
    }
}

#[test]
fn a_symbol_that_forces_others_along_is_told_from_them() {
    for (symbol, forced) in [(3, 250), (250, 3), (100, 101)] {
        let mut fake = guilty(&[symbol]);
        fake.selects = vec![(name(symbol), name(forced)), (name(symbol), "OUTSIDE".to_owned())];
        let (symbols, _, notes, _) = found(&fake, ends());
        assert!(symbols.contains_key(&name(symbol)), "{symbols:?}");
        assert!(symbols.len() <= 3, "{symbols:?} {notes:?}");
        // Guilty is what is forced: setting the other is as good as setting it.
        let mut fake = guilty(&[forced]);
        fake.selects = vec![(name(symbol), name(forced))];
        let (symbols, enough, ..) = found(&fake, ends());
        assert!(symbols.contains_key(&name(symbol)) || symbols.contains_key(&name(forced)));
        assert!(enough && symbols.len() <= 2, "{symbols:?}");
    }
}

#[test]
fn chains_of_dependencies_in_any_order_do_not_hide_the_guilty_symbol() {
    for guilty_number in (0..SYMBOLS).step_by(37) {
        let mut fake = guilty(&[guilty_number]);
        // Each tenth symbol is a menu on which the nine before it depend.
        fake.depends = (0..SYMBOLS)
            .filter(|number| number % 10 != 9)
            .map(|number| (name(number), name(number / 10 * 10 + 9)))
            .collect();
        let mut configs = ends();
        configs.groups = (0..SYMBOLS / 10)
            .map(|menu| (0..10).map(|place| name(menu * 10 + (place + 9) % 10)).collect())
            .collect();
        let (symbols, enough, notes, cost) = found(&fake, configs);
        assert_eq!(symbols[&name(guilty_number)], Part::Guilty);
        assert!(enough, "{symbols:?} {notes:?}");
        assert!(symbols.len() <= 2, "{symbols:?}");
        assert!(cost.builds <= ENDS + 20, "{}", cost.builds);
    }
}

#[test]
fn what_is_called_enough_is_enough_whatever_kconfig_forces() {
    let (mut enough_ones, mut most) = (0, 0);
    for seed in 0..80 {
        let dice = Dice::new(seed);
        let symbol = || name(dice.below(SYMBOLS));
        let guilty: BTreeSet<String> =
            (0..=(dice.share() * 3.0) as usize).map(|_| symbol()).collect();
        // No cycles: a symbol depends on a lower one and selects a higher one, or the
        // other way around.
        let pair = || {
            let (a, b) = (dice.below(SYMBOLS), dice.below(SYMBOLS));
            (name(a.max(b)), name(a.min(b)))
        };
        let mut fake = Fake { guilty, ..Fake::default() };
        fake.depends = (0..40).map(|_| pair()).filter(|(a, b)| a != b).collect();
        fake.selects = (0..20).map(|_| pair()).filter(|(a, b)| a != b).collect();
        let configs = ends();
        let (result, _, cost) = search(&fake, configs.clone());
        let ConfigOutcome::Found { changes, enough, notes } = result.unwrap() else {
            panic!("seed {seed}")
        };
        most = most.max(cost.builds);
        if enough {
            enough_ones += 1;
            let mut asked = configs.good.clone();
            asked.extend(
                changes
                    .iter()
                    .filter_map(|change| Some((change.symbol.clone(), change.bad.clone()?))),
            );
            let resolved = fake.resolve(&asked).now_or_never().unwrap().unwrap();
            assert!(
                fake.guilty.iter().all(|symbol| on(&resolved, symbol)),
                "seed {seed}: {changes:?} {notes:?}"
            );
        }
    }
    println!("{enough_ones} of 80 shown to be enough, at most {most} builds");
    assert!(enough_ones >= 70, "{enough_ones}");
}

#[test]
fn symbols_that_cannot_be_parted_are_named_together() {
    let mut fake = guilty(&[60]);
    fake.depends = vec![(name(60), name(61))];
    fake.selects = vec![(name(61), name(60))];
    let (symbols, enough, notes, _) = found(&fake, ends());
    assert_eq!(symbols, names(&[60, 61], Part::Guilty));
    assert!(enough);
    assert_eq!(notes, ["Kconfig sets these only together: S060, S061"]);
}

#[test]
fn mixes_that_do_not_build_are_passed_or_told() {
    let mut passed = 0;
    for number in (0..SYMBOLS).step_by(29) {
        let mut fake = guilty(&[number]);
        fake.unbuildable = [name(149)].into();
        let (result, ..) = search(&fake, ends());
        assert!(matches!(result, Ok(ConfigOutcome::EndUntestable { .. })));
        fake.built.take();
        fake.unbuildable = [name(20), name(149), "ODD".to_owned()].into();
        // The good end has what makes them fail, the bad one has not.
        let mut configs = ends();
        configs.good.insert("ODD".to_owned(), "y".to_owned());
        let (symbols, _, notes, _) = found(&fake, configs);
        assert!(symbols.contains_key(&name(number)), "{number}: {symbols:?} {notes:?}");
        passed += usize::from(symbols.len() == 1);
    }
    assert!(passed >= 8, "{passed} of 11");
}

#[test]
fn ends_that_are_not_what_they_are_called_are_told() {
    let nobody = Fake { guilty: ["NOBODY".to_owned()].into(), ..Fake::default() };
    assert_eq!(search(&nobody, ends()).0.unwrap(), ConfigOutcome::BadEndIsGood);
    let everybody = Fake { guilty: ["SMP".to_owned()].into(), ..Fake::default() };
    assert_eq!(search(&everybody, ends()).0.unwrap(), ConfigOutcome::GoodEndIsBad);
    let never = Fake {
        depends: (0..SYMBOLS).map(|number| (name(number), "NEVER".to_owned())).collect(),
        ..guilty(&[5])
    };
    assert_eq!(search(&never, ends()).0.unwrap(), ConfigOutcome::EndsIdentical);
}

#[test]
fn a_config_with_an_image_that_was_run_is_not_run_again() {
    let mut fake = guilty(&[250]);
    fake.inert = (0..200).map(name).collect();
    let (result, log, cost) = search(&fake, ends());
    assert!(matches!(result, Ok(ConfigOutcome::Found { enough: true, .. })));
    assert!(cost.runs < cost.builds, "{cost:?}");
    let same = log.iter().filter(|entry| matches!(entry, ConfigEntry::Trial(step) if step.same));
    assert_eq!(same.count() as u32, cost.builds - cost.runs);
}

#[test]
fn an_interrupted_search_goes_on_from_its_log() {
    let (expected, expected_log, whole) = search(&guilty(&[123, 200]), ends());
    for at in [1, 2, 7, 15] {
        let fake = Fake { interrupted_at: Some(at), ..guilty(&[123, 200]) };
        let (result, mut log, _) = search(&fake, ends());
        assert_eq!(result.unwrap_err(), Fault::interrupted());
        let start = ConfigStart::new(&ends().good, &ends().bad, "a test");
        log.insert(0, ConfigEntry::Start(start.clone()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bisect.jsonl");
        let mut file = LogFile::open(&path).unwrap();
        log.iter().for_each(|entry| file.keep(entry).unwrap());
        let read: Vec<ConfigEntry> = read(std::fs::File::open(&path).unwrap(), "log").unwrap();
        assert_eq!(read, log);
        let known = replay(&read, "log", &start).unwrap();
        assert_eq!(known.len(), at - 1);
        let (result, rest, cost) = search(&guilty(&[123, 200]), Configs { known, ..ends() });
        assert_eq!(result, expected);
        assert_eq!(cost.builds, whole.builds - (at as u32 - 1));
        assert_eq!([&log[1..at], &rest].concat(), expected_log);
    }
    let other = ConfigStart::new(&ends().bad, &ends().good, "a test");
    let log = [ConfigEntry::Start(ConfigStart::new(&ends().good, &ends().bad, "a test"))];
    assert_eq!(replay(&log, "log", &other).unwrap_err().place.as_deref(), Some("log:1"));
}

#[test]
fn a_search_that_may_build_no_more_says_what_is_left() {
    let (symbols, enough, notes, cost) = found(&guilty(&[9]), Configs { most: ENDS + 5, ..ends() });
    assert_eq!(cost.builds, ENDS + 5);
    assert!(symbols.contains_key(&name(9)) && symbols.len() < 12);
    let last = ConfigOutcome::Found { changes: Vec::new(), enough, notes }.to_string();
    assert!(last.contains("the 7 builds that were allowed are spent"), "{last}");
}
