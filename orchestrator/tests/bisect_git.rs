// SPDX-License-Identifier: MIT OR Apache-2.0
//! A search against git's own: the same first bad commit in random histories with
//! merges, and logs that `git bisect replay` takes.

#[path = "bisect/dice.rs"]
mod dice;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use dice::Dice;
use futures_util::FutureExt;
use kvet::bisect::drive::{Built, Cost, Seen, Trial, drive};
use kvet::bisect::git_log::git_log;
use kvet::bisect::history::{Candidate, Commit, History};
use kvet::bisect::log::Entry;
use kvet::bisect::outcome::Outcome;
use kvet::bisect::rates::{DEFAULT_ERROR, Rates, Rule};
use kvet::bisect::search::Search;
use kvet::bisect::step::Finding;
use kvet::fault::Fault;

/// Tests what a commit's file says, as a script of `git bisect run` would.
const SCRIPT: &str = "case $(cat state) in good*) exit 0;; bad*) exit 1;; *) exit 125;; esac";

fn git(folder: &Path, arguments: &[&str]) -> Output {
    let mut git = Command::new("git");
    git.current_dir(folder).args(arguments).stdin(Stdio::null());
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C");
    git.output().unwrap()
}

fn words(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A repository with commits 0 to the last, the parents and the state of each given.
struct Repository {
    folder: tempfile::TempDir,
    /// Hashes by number.
    ids: Vec<String>,
}

impl Repository {
    fn new(parents: &[Vec<usize>], state: impl Fn(usize) -> &'static str) -> Self {
        let mut stream = String::new();
        for (at, parents) in parents.iter().enumerate() {
            let message = format!("change {at} of 'something'\n");
            let text = format!("{} {at}\n", state(at));
            let _ = write!(
                stream,
                "commit refs/heads/main\nmark :{}\ncommitter Ada Example <ada@example.org> {} +0000\ndata {}\n{message}",
                at + 1,
                1_700_000_000 + at,
                message.len()
            );
            for (place, parent) in parents.iter().enumerate() {
                let word = if place == 0 { "from" } else { "merge" };
                let _ = writeln!(stream, "{word} :{}", parent + 1);
            }
            let _ = write!(stream, "M 644 inline state\ndata {}\n{text}\n", text.len());
        }
        let folder = tempfile::tempdir().unwrap();
        words(&git(folder.path(), &["init", "--quiet", "--initial-branch=main"]));
        let mut import = Command::new("git")
            .current_dir(folder.path())
            .args(["fast-import", "--quiet", "--force", "--export-marks=marks"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        import.stdin.take().unwrap().write_all(stream.as_bytes()).unwrap();
        assert!(import.wait().unwrap().success());
        words(&git(folder.path(), &["checkout", "--quiet", "main"]));
        let marks = std::fs::read_to_string(folder.path().join("marks")).unwrap();
        std::fs::remove_file(folder.path().join("marks")).unwrap();
        let ids: BTreeMap<usize, String> = marks
            .lines()
            .map(|line| line[1..].split_once(' ').unwrap())
            .map(|(mark, id)| (mark.parse::<usize>().unwrap(), id.to_owned()))
            .collect();
        Self { folder, ids: ids.into_values().collect() }
    }

    fn git(&self, arguments: &[&str]) -> Output {
        git(self.folder.path(), arguments)
    }

    fn number(&self, id: &str) -> usize {
        self.ids.iter().position(|known| known == id).unwrap()
    }

    /// The history as git lists it.
    fn history(&self, bad: usize, goods: &[usize]) -> History {
        let list = words(&self.git(&["log", "--all", "--format=%H%x00%P%x00%s"]));
        let commits = list.lines().map(|line| {
            let fields: Vec<&str> = line.split('\0').collect();
            Commit {
                candidate: Candidate::new(fields[0], fields[2]),
                parents: fields[1].split(' ').map(str::to_owned).collect(),
            }
        });
        let goods: Vec<String> = goods.iter().map(|&good| self.ids[good].clone()).collect();
        History::graph(commits.collect(), &self.ids[bad], &goods).unwrap()
    }

    /// What `git bisect run` ends with: its bad end, and whether it is certain.
    fn bisect_run(&self, bad: usize, goods: &[usize]) -> (usize, bool) {
        let mut start = vec!["bisect", "start", &self.ids[bad]];
        start.extend(goods.iter().map(|&good| self.ids[good].as_str()));
        words(&self.git(&start));
        let output = self.git(&["bisect", "run", "sh", "-c", SCRIPT]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = self.bad_end();
        words(&self.git(&["bisect", "reset"]));
        (found, text.contains("is the first bad commit"))
    }

    fn bad_end(&self) -> usize {
        self.number(&words(&self.git(&["rev-parse", "refs/bisect/bad"])))
    }

    /// Replays a log; git's own log afterwards.
    fn replay(&self, log: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), log).unwrap();
        let output = self.git(&["bisect", "replay", file.path().to_str().unwrap()]);
        let text = String::from_utf8_lossy(&output.stdout);
        // git's status is 2 when what is left was skipped.
        let skipped = output.status.code() == Some(2) && text.contains("only 'skip'ped commits");
        assert!(output.status.success() || skipped, "{text}{output:?}\n{log}");
        words(&self.git(&["bisect", "log"]))
    }
}

/// Finds what the files say, with lies.
struct Fake<'a> {
    repository: &'a Repository,
    bad: &'a BTreeSet<usize>,
    skip: &'a BTreeSet<usize>,
    lies: f64,
    dice: Dice,
}

impl Trial for Fake<'_> {
    async fn build(&self, candidate: &Candidate, _: &Search) -> Result<Built, Fault> {
        match self.skip.contains(&self.repository.number(&candidate.id)) {
            true => Err(Fault::series("does not build")),
            false => Ok(Built::Image(candidate.id.clone())),
        }
    }

    async fn run(&self, candidate: &Candidate, _: &str, _: &Search) -> Result<Seen, Fault> {
        let truly = self.bad.contains(&self.repository.number(&candidate.id));
        let bad = truly != (self.dice.share() < self.lies);
        let finding = if bad { Finding::Bad } else { Finding::Good };
        Ok(Seen { finding, evidence: String::new() })
    }
}

/// Random parents: mostly the commit before, sometimes an older one or a merge. The
/// last commit merges what has no child.
fn random_parents(dice: &Dice, count: usize) -> Vec<Vec<usize>> {
    let mut parents: Vec<Vec<usize>> = vec![Vec::new()];
    for at in 1..count - 1 {
        let mut of: BTreeSet<usize> = [at - 1 - dice.below(at.min(5))].into();
        if dice.below(3) == 0 {
            of.insert(at - 1 - dice.below(at.min(8)));
        }
        parents.push(of.into_iter().rev().collect());
    }
    let childless = |at: &usize| !parents.iter().any(|of| of.contains(at));
    parents.push((0..count - 1).filter(childless).collect());
    parents
}

fn reach(parents: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
    let mut reach: Vec<BTreeSet<usize>> = Vec::new();
    for (at, of) in parents.iter().enumerate() {
        let mut below: BTreeSet<usize> = [at].into();
        of.iter().for_each(|&parent| below.extend(&reach[parent]));
        reach.push(below);
    }
    reach
}

struct Case {
    repository: Repository,
    tip: usize,
    first: usize,
    bad: BTreeSet<usize>,
    skip: BTreeSet<usize>,
}

fn case(dice: &Dice, skips: usize) -> Case {
    let count = 10 + dice.below(25);
    let (parents, tip) = (random_parents(dice, count), count - 1);
    let reach = reach(&parents);
    let first = 1 + dice.below(tip);
    let bad: BTreeSet<usize> = (0..count).filter(|&at| reach[at].contains(&first)).collect();
    let skip: BTreeSet<usize> = (0..skips).map(|_| 1 + dice.below(tip - 1)).collect();
    let repository = Repository::new(&parents, |at| match bad.contains(&at) {
        _ if skip.contains(&at) => "broken",
        true => "bad",
        false => "good",
    });
    Case { repository, tip, first, bad, skip }
}

fn search(case: &Case, rule: Rule, lies: f64) -> (Search, Outcome) {
    search_from(case, &[0], rule, lies)
}

fn search_from(case: &Case, goods: &[usize], rule: Rule, lies: f64) -> (Search, Outcome) {
    let history = case.repository.history(case.tip, goods);
    let mut search = Search::new(history, rule).unwrap();
    let fake = Fake {
        repository: &case.repository,
        bad: &case.bad,
        skip: &case.skip,
        lies,
        dice: Dice::new(5),
    };
    let mut log: Vec<Entry> = Vec::new();
    let mut cost = Cost::default();
    let outcome = drive(&mut search, &fake, &mut log, 2000, &mut cost).now_or_never().unwrap();
    (search, outcome.unwrap())
}

#[test]
fn random_histories_give_the_commit_that_git_bisect_run_gives() {
    for seed in 0..12 {
        let case = case(&Dice::new(seed), 0);
        let (search, outcome) = search(&case, Rule::EXACT, 0.0);
        let Outcome::Found { first_bad, .. } = outcome else { panic!("{outcome:?}") };
        let ours = case.repository.number(&first_bad.id);
        assert_eq!((ours, true), (case.first, true), "seed {seed}");
        assert_eq!(case.repository.bisect_run(case.tip, &[0]), (ours, true), "seed {seed}");
        let log = case.repository.replay(&git_log(&search));
        let ends_with = format!("# first bad commit: [{}]", first_bad.id);
        assert!(log.contains(&ends_with), "seed {seed}: {log}");
        assert_eq!(case.repository.bad_end(), ours);
    }
}

#[test]
fn with_skips_both_name_the_first_bad_commit_or_a_set_that_holds_it() {
    let mut sets = 0;
    for seed in 100..112 {
        let case = case(&Dice::new(seed), 5);
        let (search, outcome) = search(&case, Rule::EXACT, 0.0);
        let ours: Vec<usize> = match &outcome {
            Outcome::Found { first_bad, .. } => vec![case.repository.number(&first_bad.id)],
            Outcome::Among { candidates, .. } => {
                candidates.iter().map(|one| case.repository.number(&one.id)).collect()
            }
            other => panic!("{other:?}"),
        };
        assert!(ours.contains(&case.first), "seed {seed}");
        let testable = ours.iter().filter(|at| !case.skip.contains(at));
        assert!(testable.count() <= 1, "seed {seed}: {ours:?}");
        let (_, certain) = case.repository.bisect_run(case.tip, &[0]);
        assert_eq!(certain, ours.len() == 1, "seed {seed}: {ours:?}");
        // git lists the same set when it is given our steps.
        let log = case.repository.replay(&git_log(&search));
        let possible: BTreeSet<usize> = log
            .lines()
            .filter_map(|line| line.strip_prefix("# possible first bad commit: ["))
            .map(|line| case.repository.number(line.split(']').next().unwrap()))
            .collect();
        if ours.len() > 1 {
            sets += 1;
            assert_eq!(possible, ours.into_iter().collect(), "seed {seed}: {log}");
        }
    }
    assert!(sets >= 3, "{sets}");
}

#[test]
fn a_good_end_on_another_branch_is_handled_as_git_does() {
    // 0 - 1 - 2 - 3 - 4 is bad from 3 on, the good end 6 branches off at 1.
    let parents = [vec![], vec![0], vec![1], vec![2], vec![3], vec![1], vec![5], vec![4, 6]];
    let case = Case {
        repository: Repository::new(
            &parents,
            |at| if [3, 4, 7].contains(&at) { "bad" } else { "good" },
        ),
        tip: 4,
        first: 3,
        bad: [3, 4, 7].into(),
        skip: BTreeSet::new(),
    };
    let (search, outcome) = search_from(&case, &[6], Rule::EXACT, 0.0);
    let Outcome::Found { first_bad, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(case.repository.number(&first_bad.id), case.first);
    assert_eq!(case.repository.bisect_run(4, &[6]), (case.first, true));
    let text = git_log(&search);
    assert!(text.contains(&format!("git bisect good {}", case.repository.ids[1])), "{text}");
    let log = case.repository.replay(&text);
    assert!(log.contains(&format!("# first bad commit: [{}]", first_bad.id)), "{log}");
}

#[test]
fn a_search_with_lies_can_be_replayed_by_git() {
    let lies = Rates::Stated { false_positive: 0.1, false_negative: 0.1 };
    for seed in 200..206 {
        let case = case(&Dice::new(seed), 1);
        let (search, outcome) = search(&case, Rule::noisy(lies, DEFAULT_ERROR).unwrap(), 0.1);
        let text = git_log(&search);
        case.repository.replay(&text);
        let Outcome::Found { first_bad, .. } = outcome else { continue };
        assert_eq!(case.repository.number(&first_bad.id), case.first, "seed {seed}");
        assert!(case.bad.contains(&case.repository.bad_end()), "seed {seed}: {text}");
    }
}

#[test]
fn a_log_has_the_form_that_git_writes() {
    let line: Vec<Vec<usize>> =
        (0..9_usize).map(|at| at.checked_sub(1).into_iter().collect()).collect();
    let case = Case {
        repository: Repository::new(&line, |_| "any"),
        tip: 8,
        first: 6,
        bad: (6..9).collect(),
        skip: [4].into(),
    };
    let mut log = git_log(&search(&case, Rule::EXACT, 0.0).0);
    for (number, id) in case.repository.ids.iter().enumerate() {
        log = log.replace(id, &format!("{{{number}}}"));
    }
    insta::assert_snapshot!(log, @r"
    # bad: [{8}] change 8 of 'something'
    # good: [{0}] change 0 of 'something'
    git bisect start '{8}' '{0}'
    # skip: [{4}] change 4 of 'something'
    git bisect skip {4}
    # good: [{3}] change 3 of 'something'
    git bisect good {3}
    # good: [{5}] change 5 of 'something'
    git bisect good {5}
    # bad: [{6}] change 6 of 'something'
    git bisect bad {6}
    # first bad commit: [{6}] change 6 of 'something'
    ");
}
