// SPDX-License-Identifier: MIT OR Apache-2.0
//! A search as `git bisect log` writes it, for `git bisect replay` (builtin/bisect.c).

use std::fmt::Write as _;

use super::history::{Candidate, Role};
use super::outcome::Outcome;
use super::search::{Next, Search};
use crate::fault::escape;

/// The log: for each candidate what is believed of it now, in the order in which they
/// were first tried. A candidate that a noisy predicate has not settled yet is a
/// comment. git takes the last bad one for the end of its range, so a bad one that is
/// no ancestor of the one before is a comment, too.
///
/// git knows no merge bases that were verified: they are good, like any other.
#[must_use]
pub fn git_log(search: &Search) -> String {
    let history = search.history();
    let tip = history.candidate(history.bad());
    let goods: Vec<&Candidate> = history
        .ends()
        .iter()
        .filter(|end| end.role == Role::Good)
        .map(|end| &end.candidate)
        .collect();
    let mut log = String::new();
    // git 2.47 ends a replay at a start from which it would go on to a merge base, so
    // then the ends come one by one, of which it thinks nothing before the last line.
    if history.ends().len() == goods.len() {
        comment(&mut log, "bad", tip);
        goods.iter().for_each(|good| comment(&mut log, "good", good));
        let _ = write!(log, "git bisect start '{}'", tip.id);
        goods.iter().for_each(|good| {
            let _ = write!(log, " '{}'", good.id);
        });
        log.push('\n');
    } else {
        log.push_str("git bisect start\n");
        mark(&mut log, "bad", tip);
        goods.iter().for_each(|good| mark(&mut log, "good", good));
    }
    let mut bad = history.bad();
    for (point, verdict) in search.verdicts() {
        let candidate = history.candidate(point);
        if candidate == tip || goods.contains(&candidate) {
            continue;
        }
        let below = |point: usize| point < history.suspects().len() && history.below(bad)[point];
        match verdict {
            Some("bad") if !below(point) => comment(&mut log, "also bad", candidate),
            None => comment(&mut log, "undecided", candidate),
            Some(word) => {
                mark(&mut log, word, candidate);
                if word == "bad" {
                    bad = point;
                }
            }
        }
    }
    match search.next() {
        Next::Done(Outcome::Found { first_bad, .. }) => {
            comment(&mut log, "first bad commit", &first_bad);
        }
        Next::Done(Outcome::Among { candidates, .. }) => {
            candidates
                .iter()
                .for_each(|candidate| comment(&mut log, "possible first bad commit", candidate));
        }
        Next::Done(_) | Next::Try(_) => {}
    }
    log
}

fn mark(log: &mut String, word: &str, candidate: &Candidate) {
    comment(log, word, candidate);
    let _ = writeln!(log, "git bisect {word} {}", candidate.id);
}

fn comment(log: &mut String, word: &str, candidate: &Candidate) {
    let _ = writeln!(log, "# {word}: [{}] {}", escape(&candidate.id), escape(&candidate.subject));
}
