// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patches that were sent together, and the versions of one series.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::entry::{Entry, Version};
use super::threads::{Sets, threads};

/// Patches of one version of one series; a patch without a number is alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The thread, as [`threads`] numbers it.
    pub thread: usize,
    /// The version.
    pub version: Version,
    /// It asks for comments only.
    pub rfc: bool,
    /// The kernel that it is for, where it says one.
    pub target: Option<String>,
    /// How many patches the series says that it has.
    pub total: Option<u32>,
    /// The mails, in the order of the input.
    pub members: Vec<usize>,
    /// The cover letters, likewise.
    pub covers: Vec<usize>,
}

impl Group {
    /// Whether it is one of several patches.
    #[must_use]
    pub fn is_numbered(&self) -> bool {
        self.total.is_some_and(|total| total > 1)
    }

    /// The numbers that are there.
    pub fn numbers(&self, entries: &[Entry]) -> HashSet<u32> {
        self.members.iter().map(|&at| entries[at].number().unwrap_or(1)).collect()
    }

    /// The sender of most of it.
    #[must_use]
    pub fn sender<'a>(&self, entries: &'a [Entry]) -> &'a str {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for &at in self.members.iter().chain(&self.covers) {
            *counts.entry(&entries[at].sender).or_default() += 1;
        }
        counts.into_iter().max_by_key(|&(_, count)| count).map_or("", |(sender, _)| sender)
    }
}

/// The groups of all patches and cover letters, in the order of the input.
#[must_use]
pub fn groups(entries: &[Entry]) -> Vec<Group> {
    let threads = threads(entries);
    let mut groups: Vec<Group> = Vec::new();
    let mut by_key: HashMap<(usize, Version, u32), usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.passed.is_some() {
            continue;
        }
        let total = entry.total();
        let new = || Group {
            thread: threads[index],
            version: entry.version(),
            rfc: entry.subject.rfc,
            target: entry.target.clone(),
            total,
            members: Vec::new(),
            covers: Vec::new(),
        };
        let at = match total {
            Some(total) => {
                *by_key.entry((threads[index], entry.version(), total)).or_insert_with(|| {
                    groups.push(new());
                    groups.len() - 1
                })
            }
            None => {
                groups.push(new());
                groups.len() - 1
            }
        };
        if entry.cover {
            groups[at].covers.push(index);
        } else {
            groups[at].members.push(index);
        }
    }
    let mut groups: Vec<Group> =
        groups.into_iter().flat_map(|group| parted(group, entries)).collect();
    unite_unthreaded(&mut groups, entries);
    groups
}

/// One series may say `RFC`, or the kernel that it is for, in some of its subjects
/// only. If a number comes twice, these words part two series of one thread.
fn parted(mut group: Group, entries: &[Entry]) -> Vec<Group> {
    let head = group.covers.first().or(group.members.first()).copied();
    if let Some(head) = head {
        group.target.clone_from(&entries[head].target);
        group.rfc = entries[head].subject.rfc;
    }
    if group.covers.is_empty() {
        group.rfc = group.members.iter().all(|&at| entries[at].subject.rfc);
    }
    let distinct = group.numbers(entries).len() == group.members.len() && group.covers.len() < 2;
    let key = |at: usize| (entries[at].subject.rfc, entries[at].target.clone());
    let mut parts: BTreeMap<(bool, Option<String>), Group> = BTreeMap::new();
    for (cover, &at) in
        group.covers.iter().map(|at| (true, at)).chain(group.members.iter().map(|at| (false, at)))
    {
        let (rfc, target) = key(at);
        let part = parts.entry((rfc, target.clone())).or_insert_with(|| Group {
            rfc,
            target,
            members: Vec::new(),
            covers: Vec::new(),
            ..group
        });
        if cover { &mut part.covers } else { &mut part.members }.push(at);
    }
    // Words of one mail alone do not make a second series of what is one otherwise.
    if distinct || parts.len() < 2 { vec![group] } else { parts.into_values().collect() }
}

/// A series that was sent, or saved, without any reference from one mail to
/// another: the same sender, version and total, and no number twice.
fn unite_unthreaded(groups: &mut Vec<Group>, entries: &[Entry]) {
    type Key = (String, Version, bool, Option<String>, u32);
    let mut first: HashMap<Key, usize> = HashMap::new();
    let mut emptied = HashSet::new();
    for index in 0..groups.len() {
        let group = &groups[index];
        let Some(total) = group.total else {
            continue;
        };
        let alone =
            group.members.iter().chain(&group.covers).all(|&at| entries[at].references.is_empty());
        if !alone {
            continue;
        }
        let sender = group.sender(entries).to_owned();
        let key = (sender, group.version, group.rfc, group.target.clone(), total);
        let Some(&into) = first.get(&key) else {
            first.insert(key, index);
            continue;
        };
        let disjoint = groups[into].numbers(entries).is_disjoint(&group.numbers(entries))
            || groups[into].members.is_empty()
            || group.members.is_empty();
        if disjoint && (groups[into].covers.is_empty() || group.covers.is_empty()) {
            let group = groups[index].clone();
            groups[into].members.extend(group.members);
            groups[into].covers.extend(group.covers);
            emptied.insert(index);
        } else {
            first.insert(key, index);
        }
    }
    let mut index = 0;
    groups.retain(|_| {
        index += 1;
        !emptied.contains(&(index - 1))
    });
}

/// Sets of groups that are versions of one series, oldest version first: they
/// share a thread and a sender, or a subject and a sender.
#[must_use]
pub fn chains(groups: &[Group], entries: &[Entry]) -> Vec<Vec<usize>> {
    let mut sets = Sets::new(groups.len());
    let mut by_thread: HashMap<(usize, &str), Vec<usize>> = HashMap::new();
    let mut by_subject: HashMap<(&str, &str, &Option<String>), usize> = HashMap::new();
    for (index, group) in groups.iter().enumerate() {
        let sender = group.sender(entries);
        for &other in by_thread.entry((group.thread, sender)).or_default().iter() {
            let other_rfc = groups[other].rfc != group.rfc
                && groups[other].is_numbered() == group.is_numbered();
            if groups[other].target == group.target
                && (groups[other].version != group.version || other_rfc)
            {
                sets.unite(index, other);
            }
        }
        if let Some(same) = by_thread.get_mut(&(group.thread, sender))
            && same.len() < 64
        {
            same.push(index);
        }
        for &at in group.members.iter().chain(&group.covers) {
            let subject = entries[at].subject.text.as_str();
            if subject.is_empty() {
                continue;
            }
            let key = (sender, subject, &group.target);
            let other = *by_subject.entry(key).or_insert(index);
            if groups[other].version != group.version || groups[other].rfc != group.rfc {
                sets.unite(index, other);
            }
        }
    }
    let mut chains: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in 0..groups.len() {
        chains.entry(sets.find(index)).or_default().push(index);
    }
    let mut chains: Vec<Vec<usize>> = chains.into_values().collect();
    for chain in &mut chains {
        chain.sort_by_key(|&index| groups[index].version);
    }
    chains
}
