// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a search: one JSON object a line, written as things happen, from which
//! the same state comes again.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::history::{History, Role};
use super::outcome::Outcome;
use super::rates::Rule;
use super::search::Search;
use super::step::{Same, Step};
use crate::fault::Fault;

/// Says what a log is.
pub const LOG_SCHEMA: &str = "kvet/bisect/1";
/// Longest line of a log, in bytes: evidence is cut long before
/// ([`super::step::bounded`]).
const LONGEST: u64 = 1 << 20;
/// Most lines of a log.
const MOST: usize = 100_000;

/// What was searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// [`LOG_SCHEMA`].
    pub schema: String,
    /// What is called bad, in words.
    pub predicate: String,
    /// The bad end.
    pub bad: String,
    /// What has to be good.
    pub good: Vec<String>,
    /// How many suspects there were.
    pub suspects: usize,
    /// [`History::digest`].
    pub range: String,
    /// How often trials lie.
    pub rule: Rule,
}

impl Start {
    /// What a search is about.
    #[must_use]
    pub fn new(history: &History, rule: Rule, predicate: &str) -> Self {
        Self {
            schema: LOG_SCHEMA.to_owned(),
            predicate: predicate.to_owned(),
            bad: history.candidate(history.bad()).id.clone(),
            good: history
                .ends()
                .iter()
                .filter(|end| end.role == Role::Good)
                .map(|end| end.candidate.id.clone())
                .collect(),
            suspects: history.suspects().len(),
            range: history.digest(),
            rule,
        }
    }
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// What is searched; the first line.
    Start(Start),
    /// A trial.
    Trial(Step),
    /// A candidate that needed none.
    Same(Same),
    /// Why nothing more was tried: a resumed search goes on after it.
    Stopped {
        /// The fault.
        fault: Fault,
    },
    /// How it ended.
    Outcome(Outcome),
}

/// Takes a log's lines as they come.
pub trait Journal<E = Entry> {
    /// Keeps one entry, so that it outlives kvet.
    ///
    /// # Errors
    /// An `infra` fault when it cannot be kept.
    fn keep(&mut self, entry: &E) -> Result<(), Fault>;
}

impl<E: Clone> Journal<E> for Vec<E> {
    fn keep(&mut self, entry: &E) -> Result<(), Fault> {
        self.push(entry.clone());
        Ok(())
    }
}

/// A log in a file.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    path: PathBuf,
}

impl LogFile {
    /// Opens a log to add to it, or begins one. Half a line at its end, which a killed
    /// kvet left, is removed.
    ///
    /// # Errors
    /// An `infra` fault.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let fault = |error: &std::io::Error| Fault::io(format!("open {}", path.display()), error);
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| fault(&error))?;
        let mut text = Vec::new();
        let most = LONGEST.saturating_mul(64);
        (&mut file).take(most).read_to_end(&mut text).map_err(|error| fault(&error))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() && (text.len() as u64) < most {
            file.set_len(whole as u64).map_err(|error| fault(&error))?;
        }
        Ok(Self { file, path: path.to_owned() })
    }
}

impl<E: Serialize> Journal<E> for LogFile {
    fn keep(&mut self, entry: &E) -> Result<(), Fault> {
        let mut line = serde_json::to_vec(entry).map_err(|error| {
            Fault::infra(format!("an entry cannot be written: {error}")).at(self.path.display())
        })?;
        line.push(b'\n');
        if line.len() as u64 >= LONGEST {
            return Err(Fault::infra("an entry of the log is too long").at(self.path.display()));
        }
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|error| Fault::io(format!("write {}", self.path.display()), &error))
    }
}

/// Reads a log. A last line without an end, which a killed kvet left, is passed over.
/// `name` is what errors call the log.
///
/// # Errors
/// A `plan` fault with the line that is no entry, or an `infra` fault.
pub fn read<E: DeserializeOwned>(log: impl Read, name: &str) -> Result<Vec<E>, Fault> {
    let mut log = BufReader::new(log);
    let mut entries = Vec::new();
    for number in 1.. {
        let mut line = Vec::new();
        let taken = (&mut log).take(LONGEST).read_until(b'\n', &mut line);
        taken.map_err(|error| Fault::io(format!("read {name}"), &error))?;
        let wrong = |what: String| {
            Fault::plan(what)
                .at(format!("{name}:{number}"))
                .help("remove that line and all after it, and what is before is used")
        };
        match line.pop() {
            None => break,
            Some(b'\n') => {}
            Some(_) if line.len() as u64 + 1 >= LONGEST => {
                return Err(wrong("a line of a log cannot be this long".to_owned()));
            }
            Some(_) => break,
        }
        if number > MOST {
            return Err(wrong(format!("a log cannot have more than {MOST} lines")));
        }
        let entry = serde_json::from_slice(&line);
        entries.push(entry.map_err(|error| wrong(format!("no entry of a log: {error}")))?);
    }
    Ok(entries)
}

/// The state that a log leads to.
///
/// # Errors
/// A `plan` fault that names the line which does not fit the range, the rule or what
/// is before it.
pub fn replay(
    entries: &[Entry],
    name: &str,
    history: History,
    rule: Rule,
) -> Result<Search, Fault> {
    let at = |index: usize, fault: Fault| fault.at(format!("{name}:{}", index + 1));
    let mut search = Search::new(history, rule)?;
    for (index, entry) in entries.iter().enumerate() {
        let fits = match (index, entry) {
            (0, Entry::Start(start)) => starts(start, &search),
            (0, _) => Err(Fault::plan("a log begins with what was searched")),
            (_, Entry::Start(_)) => Err(Fault::plan("a second search begins here")),
            (_, Entry::Trial(step)) => trial(step, &mut search),
            (_, Entry::Same(same)) => search.record_same(same).and_then(|applied| match applied {
                true => Ok(()),
                false => Err(Fault::plan(format!(
                    "{} cannot be the same as {} after the trials before it",
                    same.candidate.id, same.as_id
                ))),
            }),
            (_, Entry::Stopped { .. } | Entry::Outcome(_)) => Ok(()),
        };
        fits.map_err(|fault| at(index, fault))?;
    }
    Ok(search)
}

fn trial(step: &Step, search: &mut Search) -> Result<(), Fault> {
    let earlier = search.record(&step.candidate.id).map_or(0, super::search::Record::tried);
    if step.repeat != earlier + 1 {
        let (repeat, id) = (step.repeat, &step.candidate.id);
        return Err(Fault::plan(format!("trial {repeat} of {id} follows {earlier} of it"))
            .help("a line is missing or there twice"));
    }
    search.record_step(step)
}

fn starts(start: &Start, search: &Search) -> Result<(), Fault> {
    let ours = Start::new(search.history(), *search.rule(), &start.predicate);
    let differs = [
        ("schema", start.schema != ours.schema),
        ("bad end", start.bad != ours.bad),
        ("good ends", start.good != ours.good),
        ("range", start.range != ours.range || start.suspects != ours.suspects),
        ("rule", !start.rule.same(&ours.rule)),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        None => Ok(()),
        Some((what, _)) => {
            Err(Fault::plan(format!("the log is of another search: its {what} differs"))
                .help("resume with the arguments that the search was started with"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::git_log::git_log;
    use super::super::history::Candidate;
    use super::super::rates::Rates;
    use super::super::step::Finding;
    use super::*;

    fn history(length: usize) -> History {
        History::line((0..length).map(|at| Candidate::new(format!("c{at}"), "s")).collect())
            .unwrap()
    }

    fn step(id: &str, finding: Finding, repeat: u32) -> Entry {
        let candidate = Candidate::new(id, "s");
        Entry::Trial(Step { candidate, finding, repeat, evidence: "seen".into(), image: None })
    }

    fn log() -> Vec<Entry> {
        vec![
            Entry::Start(Start::new(&history(9), Rule::EXACT, "kicks.cold is 9")),
            step("c8", Finding::Bad, 1),
            step("c0", Finding::Good, 1),
            step("c4", Finding::Skip { reason: "does not build".into() }, 1),
            Entry::Stopped { fault: Fault::interrupted() },
        ]
    }

    fn text(entries: &[Entry]) -> String {
        entries.iter().map(|entry| serde_json::to_string(entry).unwrap() + "\n").collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = text(&log());
        assert_eq!(read::<Entry>(text.as_bytes(), "log").unwrap(), log());
        let torn = format!("{text}{{\"entry\":\"tri");
        assert_eq!(read::<Entry>(torn.as_bytes(), "log").unwrap(), log());
    }

    #[test]
    fn entries_have_the_documented_form() {
        insta::assert_snapshot!(text(&log()));
    }

    #[test]
    fn a_file_loses_half_a_line_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bisect.jsonl");
        let mut file = LogFile::open(&path).unwrap();
        log().iter().for_each(|entry| file.keep(entry).unwrap());
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [whole.as_slice(), b"{\"ent"].concat()).unwrap();
        let mut file = LogFile::open(&path).unwrap();
        file.keep(&step("c6", Finding::Bad, 1)).unwrap();
        let entries: Vec<Entry> = read(File::open(&path).unwrap(), "log").unwrap();
        assert_eq!(entries[..5], log());
        assert_eq!(entries.len(), 6);
    }

    #[test]
    fn an_entry_that_does_not_fit_is_named_with_its_line() {
        let place = |entries: &[Entry], history, rule| {
            let fault = replay(entries, "log", history, rule).unwrap_err();
            format!("{} {}", fault.place.unwrap_or_default(), fault.what)
        };
        let mut entries = log();
        assert!(
            place(&entries, history(8), Rule::EXACT).starts_with("log:1 the log is of another")
        );
        entries[2] = step("elsewhere", Finding::Good, 1);
        assert!(
            place(&entries, history(9), Rule::EXACT).starts_with("log:3 elsewhere is no suspect")
        );
        entries[2] = step("c8", Finding::Good, 2);
        assert!(place(&entries, history(9), Rule::EXACT).starts_with("log:3 c8 cannot be good"));
        entries[2] = step("c0", Finding::Good, 2);
        assert!(place(&entries, history(9), Rule::EXACT).starts_with("log:3 trial 2 of c0"));
        assert!(place(&entries[1..], history(9), Rule::EXACT).starts_with("log:1 a log begins"));
        let bad = read::<Entry>(&b"{}\n"[..], "log").unwrap_err();
        assert_eq!(bad.place.as_deref(), Some("log:1"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read::<Entry>(&bytes[..], "log");
        }

        #[test]
        fn no_steps_make_a_replay_panic(
            steps in proptest::collection::vec((0..11_u32, 0..4_u32, 0..3_u32, 0..11_u32), 0..24),
            exact in any::<bool>(),
        ) {
            let rule = match exact {
                true => Rule::EXACT,
                false => Rule::noisy(Rates::Estimated { trials: 2 }, 0.01).unwrap(),
            };
            let mut entries = vec![Entry::Start(Start::new(&history(9), rule, "p"))];
            for (id, kind, repeat, other) in steps {
                let id = format!("c{id}");
                entries.push(match kind {
                    0 => step(&id, Finding::Good, repeat),
                    1 => step(&id, Finding::Bad, repeat),
                    2 => step(&id, Finding::Skip { reason: "r".into() }, repeat),
                    _ => Entry::Same(Same {
                        candidate: Candidate::new(id, "s"),
                        as_id: format!("c{other}"),
                        image: "i".into(),
                    }),
                });
            }
            match replay(&entries, "log", history(9), rule) {
                Ok(search) => {
                    let _ = (search.next(), search.ahead(6), git_log(&search), search.undecided());
                }
                Err(fault) => {
                    let place = fault.place.unwrap();
                    let line: usize = place.strip_prefix("log:").unwrap().parse().unwrap();
                    prop_assert!((1..=entries.len()).contains(&line));
                    // Without that line and what follows the log is whole.
                    prop_assert!(replay(&entries[..line - 1], "log", history(9), rule).is_ok());
                }
            }
        }
    }
}
