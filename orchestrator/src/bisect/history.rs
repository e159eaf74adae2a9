// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is searched: a line of variants or a range of commits with merges, and the
//! ends between which something changed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// Something that can be tried: a commit, or a prefix of a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// What it is known by: for a commit its full hash.
    pub id: String,
    /// First line of its message; untrusted.
    pub subject: String,
}

impl Candidate {
    /// A candidate of this name and subject.
    #[must_use]
    pub fn new(id: impl Into<String>, subject: impl Into<String>) -> Self {
        Self { id: id.into(), subject: subject.into() }
    }
}

/// A commit as it stands in a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// What it is.
    pub candidate: Candidate,
    /// Its parents' names; those that the range does not hold are passed over.
    pub parents: Vec<String>,
}

/// Why a candidate that has to be good has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It was named as good.
    Good,
    /// It is a merge base of the bad end and a good end that is none of its
    /// ancestors. If it is bad, the good end holds a fix rather than the bad end a
    /// regression; git tests merge bases first for the same reason
    /// (`check_merge_bases` in its bisect.c).
    MergeBase,
}

/// A candidate that has to be good for the search to have a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// What it is.
    pub candidate: Candidate,
    /// Why it has to be good.
    pub role: Role,
}

/// The suspects, parents before children, and the ends.
///
/// A *point* is the index of something that can be tried: suspects come first, the
/// last of them being the bad end, and the good ends after them.
#[derive(Debug, Clone)]
pub struct History {
    suspects: Vec<Candidate>,
    /// Parents of each suspect that are suspects, as lower indices.
    parents: Vec<Vec<usize>>,
    ends: Vec<End>,
    points: BTreeMap<String, usize>,
}

impl History {
    /// A line: its first candidate is the good end, its last the bad one.
    ///
    /// # Errors
    /// A `plan` fault when there are fewer than two, or one occurs twice.
    pub fn line(candidates: Vec<Candidate>) -> Result<Self, Fault> {
        let ends = candidates.first().zip(candidates.last());
        let Some((good, bad)) = ends.map(|(good, bad)| (good.id.clone(), bad.id.clone())) else {
            return Err(Fault::plan("nothing to search: the line is empty"));
        };
        let mut before: Option<String> = None;
        let commits = candidates.into_iter().map(|candidate| {
            let parents = before.replace(candidate.id.clone()).into_iter().collect();
            Commit { candidate, parents }
        });
        Self::graph(commits.collect(), &bad, &[good])
    }

    /// A range: suspects are what the bad end reaches and no good end does, as
    /// `git rev-list BAD ^GOOD...` lists them. `commits`, in any order, hold them and
    /// all ends, and for good ends that are not ancestors of the bad end also what
    /// lies down to the merge bases.
    ///
    /// # Errors
    /// A `plan` fault when an end is missing, a commit occurs twice or is its own
    /// ancestor, or no commit is a suspect.
    pub fn graph(commits: Vec<Commit>, bad: &str, goods: &[String]) -> Result<Self, Fault> {
        let (commits, parents) = sorted(commits)?;
        let place = |id: &str| commits.iter().position(|commit| commit.candidate.id == id);
        let missing = |id: &str| {
            Fault::plan(format!("the range does not hold its end {id}"))
                .help("name ends that git rev-list knows, and hand over their history")
        };
        let tip = place(bad).ok_or_else(|| missing(bad))?;
        let below_tip = reached(&parents, tip);
        let mut good_side = vec![false; commits.len()];
        let mut ends: BTreeMap<usize, Role> = BTreeMap::new();
        if goods.is_empty() {
            return Err(Fault::plan("no good end").help("name a commit that is known to be good"));
        }
        for good in goods {
            let at = place(good).ok_or_else(|| missing(good))?;
            let below = reached(&parents, at);
            if at == tip {
                return Err(Fault::plan(format!("both ends are {good}"))
                    .help("name an older commit, which is good"));
            }
            if below[tip] {
                return Err(Fault::plan(format!(
                    "the bad end {bad} is an ancestor of the good end {good}"
                ))
                .help(
                    "exchange the ends; to find what fixed something, call the fixed state bad",
                ));
            }
            ends.insert(at, Role::Good);
            if !below_tip[at] {
                let common = (0..commits.len()).map(|at| below[at] && below_tip[at]).collect();
                for base in maximal(&parents, common) {
                    ends.entry(base).or_insert(Role::MergeBase);
                }
            }
            good_side.iter_mut().zip(below).for_each(|(side, below)| *side |= below);
        }
        let mut local = vec![None; commits.len()];
        let mut history = Self {
            suspects: Vec::new(),
            parents: Vec::new(),
            ends: Vec::new(),
            points: BTreeMap::new(),
        };
        for at in (0..commits.len()).filter(|&at| below_tip[at] && !good_side[at]) {
            local[at] = Some(history.suspects.len());
            history.suspects.push(commits[at].candidate.clone());
            history.parents.push(parents[at].iter().filter_map(|&parent| local[parent]).collect());
        }
        history.ends = ends
            .into_iter()
            .map(|(at, role)| End { candidate: commits[at].candidate.clone(), role })
            .collect();
        let names = history.suspects.iter().chain(history.ends.iter().map(|end| &end.candidate));
        history.points =
            names.enumerate().map(|(point, candidate)| (candidate.id.clone(), point)).collect();
        Ok(history)
    }

    /// The suspects, parents first; the bad end is the last.
    #[must_use]
    pub fn suspects(&self) -> &[Candidate] {
        &self.suspects
    }

    /// What has to be good.
    #[must_use]
    pub fn ends(&self) -> &[End] {
        &self.ends
    }

    /// The bad end.
    #[must_use]
    pub fn bad(&self) -> usize {
        self.suspects.len() - 1
    }

    /// How many points there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.suspects.len() + self.ends.len()
    }

    /// Never: there is a bad end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.suspects.is_empty()
    }

    /// The candidate at a point.
    #[must_use]
    pub fn candidate(&self, point: usize) -> &Candidate {
        match point.checked_sub(self.suspects.len()) {
            None => &self.suspects[point],
            Some(end) => &self.ends[end].candidate,
        }
    }

    /// The point of a name.
    #[must_use]
    pub fn point(&self, id: &str) -> Option<usize> {
        self.points.get(id).copied()
    }

    /// For each suspect whether it is this one or an ancestor of it.
    #[must_use]
    pub fn below(&self, suspect: usize) -> Vec<bool> {
        reached(&self.parents, suspect)
    }

    /// For each suspect whether it is this one or descends from it.
    #[must_use]
    pub fn above(&self, suspect: usize) -> Vec<bool> {
        let mut above = vec![false; self.suspects.len()];
        above[suspect] = true;
        for at in suspect + 1..above.len() {
            above[at] = self.parents[at].iter().any(|&parent| above[parent]);
        }
        above
    }

    /// For each wanted suspect the sum of the weights of itself and its ancestors;
    /// anything for the others.
    ///
    /// As git counts (`do_find_bisection` in its bisect.c): where there is one parent
    /// the sum is the parent's and its own; only below a merge it has to be walked,
    /// and only where there are weights. O(suspects + merges * suspects) at worst.
    #[must_use]
    pub fn sums(&self, weights: &[f64], wanted: impl Fn(usize) -> bool) -> Vec<f64> {
        let count = self.suspects.len();
        // Whether it or an ancestor has a weight; whether it or a descendant is wanted.
        let mut heavy = vec![false; count];
        let mut needed: Vec<bool> = (0..count).map(wanted).collect();
        for (at, parents) in self.parents.iter().enumerate() {
            heavy[at] = weights[at] != 0.0 || parents.iter().any(|&parent| heavy[parent]);
        }
        for (at, parents) in self.parents.iter().enumerate().rev() {
            if needed[at] {
                parents.iter().for_each(|&parent| needed[parent] = true);
            }
        }
        let mut sums = vec![0.0; count];
        let mut seen = vec![usize::MAX; count];
        let mut stack = Vec::new();
        for at in (0..count).filter(|&at| needed[at] && heavy[at]) {
            sums[at] = match self.parents[at][..] {
                [] => weights[at],
                [parent] => sums[parent] + weights[at],
                _ => {
                    let mut sum = 0.0;
                    stack.push(at);
                    while let Some(next) = stack.pop() {
                        sum += weights[next];
                        for &parent in &self.parents[next] {
                            if heavy[parent] && seen[parent] != at {
                                seen[parent] = at;
                                stack.push(parent);
                            }
                        }
                    }
                    sum
                }
            };
        }
        sums
    }

    /// For each suspect the number of edges, in either direction, to the nearest of
    /// some; `None` where there is no way.
    #[must_use]
    pub fn distances(&self, from: &[usize]) -> Vec<Option<u32>> {
        let mut children = vec![Vec::new(); self.suspects.len()];
        for (at, parents) in self.parents.iter().enumerate() {
            parents.iter().for_each(|&parent| children[parent].push(at));
        }
        let mut distances = vec![None; self.suspects.len()];
        let mut ring: Vec<usize> = from.to_vec();
        let mut distance = 0;
        while !ring.is_empty() {
            let mut wider = Vec::new();
            for at in ring {
                if distances[at].is_none() {
                    distances[at] = Some(distance);
                    wider.extend(self.parents[at].iter().chain(&children[at]));
                }
            }
            ring = wider;
            distance += 1;
        }
        distances
    }

    /// BLAKE3 over names and edges: two histories with the same are searched alike.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (candidate, parents) in self.suspects.iter().zip(&self.parents) {
            hasher.update(format!("{} {parents:?}\n", candidate.id).as_bytes());
        }
        for end in &self.ends {
            hasher.update(format!("{:?} {}\n", end.role, end.candidate.id).as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// The commits with parents first, and their parents as indices.
fn sorted(commits: Vec<Commit>) -> Result<(Vec<Commit>, Vec<Vec<usize>>), Fault> {
    let mut rank = BTreeMap::new();
    for (at, commit) in commits.iter().enumerate() {
        if rank.insert(commit.candidate.id.as_str(), at).is_some() {
            let twice = format!("{} occurs twice in the range", commit.candidate.id);
            return Err(Fault::plan(twice).help("list every commit once"));
        }
    }
    let parents_of = |commit: &Commit| -> Vec<usize> {
        let mut known: Vec<usize> =
            commit.parents.iter().filter_map(|id| rank.get(id.as_str()).copied()).collect();
        known.sort_unstable();
        known.dedup();
        known
    };
    let parents: Vec<Vec<usize>> = commits.iter().map(parents_of).collect();
    let mut children = vec![Vec::new(); commits.len()];
    let mut waiting: Vec<usize> = parents.iter().map(Vec::len).collect();
    for (at, parents) in parents.iter().enumerate() {
        parents.iter().for_each(|&parent| children[parent].push(at));
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..commits.len()).filter(|&at| waiting[at] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(commits.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for &child in &children[at] {
            waiting[child] -= 1;
            if waiting[child] == 0 {
                ready.push(Reverse(child));
            }
        }
    }
    if order.len() < commits.len() {
        return Err(Fault::plan("a commit of the range is its own ancestor"));
    }
    let mut place = vec![0; commits.len()];
    order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
    let moved = |old: usize| parents[old].iter().map(|&parent| place[parent]).collect();
    let parents = order.iter().map(|&old| moved(old)).collect();
    let commits = order.iter().map(|&old| commits[old].clone()).collect();
    Ok((commits, parents))
}

/// What a commit reaches, itself included.
fn reached(parents: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut seen = vec![false; parents.len()];
    let mut stack = vec![from];
    seen[from] = true;
    while let Some(at) = stack.pop() {
        for &parent in &parents[at] {
            if !std::mem::replace(&mut seen[parent], true) {
                stack.push(parent);
            }
        }
    }
    seen
}

/// Those of a set, closed under parents, that are no other member's parent.
fn maximal(parents: &[Vec<usize>], set: Vec<bool>) -> Vec<usize> {
    let mut top = set.clone();
    for (at, parents) in parents.iter().enumerate().filter(|&(at, _)| set[at]) {
        debug_assert!(parents.iter().all(|&parent| parent < at));
        parents.iter().for_each(|&parent| top[parent] = false);
    }
    (0..top.len()).filter(|&at| top[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(text: &str) -> Commit {
        let mut words = text.split(' ').map(str::to_owned);
        let id = words.next().unwrap();
        Commit { candidate: Candidate::new(id, "s"), parents: words.collect() }
    }

    fn graph(commits: &[&str], bad: &str, goods: &[&str]) -> Result<History, Fault> {
        let goods: Vec<String> = goods.iter().map(ToString::to_string).collect();
        History::graph(commits.iter().map(|text| commit(text)).collect(), bad, &goods)
    }

    fn names<'a>(of: impl IntoIterator<Item = &'a Candidate>) -> Vec<&'a str> {
        of.into_iter().map(|candidate| candidate.id.as_str()).collect()
    }

    #[test]
    fn a_merge_counts_what_both_sides_share_once() {
        let history = graph(&["m b c", "c a", "b a", "a g", "g"], "m", &["g"]).unwrap();
        assert_eq!(names(history.suspects()), ["a", "c", "b", "m"]);
        assert_eq!(history.sums(&[1.0; 4], |_| true), [1.0, 2.0, 2.0, 4.0]);
        assert_eq!(history.below(2), [true, false, true, false]);
        assert_eq!(history.above(1), [false, true, false, true]);
        assert_eq!(history.sums(&[0.0, 1.0, 0.0, 0.0], |at| at == 3)[3], 1.0);
        assert_eq!(history.distances(&[1]), [Some(1), Some(0), Some(2), Some(1)]);
    }

    #[test]
    fn a_good_end_on_another_branch_brings_its_merge_base() {
        let history = graph(&["r", "a r", "b a", "x a", "y x"], "b", &["y"]).unwrap();
        assert_eq!(names(history.suspects()), ["b"]);
        let ends: Vec<_> =
            history.ends().iter().map(|end| (end.candidate.id.as_str(), end.role)).collect();
        assert_eq!(ends, [("a", Role::MergeBase), ("y", Role::Good)]);
    }

    #[test]
    fn ends_that_make_no_sense_are_refused() {
        let what = |result: Result<History, Fault>| result.unwrap_err().what;
        assert!(what(graph(&["a", "b a"], "a", &["b"])).contains("ancestor of the good end b"));
        assert!(what(graph(&["a", "b a"], "b", &["b"])).contains("both ends are b"));
        assert!(what(graph(&["a", "b a"], "b", &["z"])).contains("does not hold its end z"));
        assert!(what(graph(&["a", "a"], "a", &["a"])).contains("twice"));
        assert!(what(graph(&["a b", "b a"], "a", &["b"])).contains("own ancestor"));
        assert!(what(graph(&["a"], "a", &[])).contains("no good end"));
        assert!(what(History::line(Vec::new())).contains("empty"));
    }
}
