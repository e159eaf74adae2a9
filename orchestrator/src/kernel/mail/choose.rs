// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the mails are the series.

use std::collections::{BTreeMap, HashMap};

use super::checks;
use super::entry::{Entry, Version};
use super::group::{Group, chains, groups};
use super::reading::{ProblemKind, Reason};
use super::rfc;

/// Most series that a message lists.
const MAX_LISTED: usize = 8;

/// The mails of the series by their indices, and what became of all others.
#[derive(Debug, Default)]
pub struct Choice {
    /// The patches with their numbers.
    pub patches: Vec<(u32, usize)>,
    /// The cover letter.
    pub cover: Option<usize>,
    /// The version.
    pub version: Option<Version>,
    /// The total.
    pub total: Option<u32>,
    /// The missing numbers.
    pub missing: Vec<u32>,
    /// Problems: the mail that they are about, and what is wrong.
    pub problems: Vec<(Option<usize>, ProblemKind, String)>,
    /// Notes for the whole series.
    pub notes: Vec<String>,
}

/// Chooses; writes into each mail that is not chosen why it was passed over.
#[must_use]
pub fn choose(entries: &mut [Entry]) -> Choice {
    let mut choice = Choice::default();
    formal_replies(entries);
    rerolls(entries);
    duplicates(entries);
    let groups = groups(entries);
    let chains = chains(&groups, entries);
    let mut newest: Vec<usize> = Vec::new();
    let mut undecided = false;
    for chain in &chains {
        let (rfcs, posted) = rfc::decide(chain, &groups, entries, &mut choice.notes);
        undecided |= !rfcs.is_empty() && !posted.is_empty();
        for part in [rfcs, posted] {
            newest.extend(newest_of(&part, &groups, entries, &mut choice));
        }
    }
    drop_others(&mut newest, &groups, entries);
    let numbered: Vec<usize> =
        newest.iter().copied().filter(|&group| groups[group].is_numbered()).collect();
    let singles: Vec<usize> =
        newest.iter().copied().filter(|&group| !groups[group].is_numbered()).collect();
    match (numbered.as_slice(), singles.as_slice()) {
        ([], []) => nothing(entries, &mut choice),
        _ if undecided && newest.len() > 1 => {
            ambiguous(&newest, &groups, entries, &mut choice);
        }
        ([], singles) if unrelated(singles, &groups, entries) => {
            ambiguous(singles, &groups, entries, &mut choice);
        }
        ([], singles) => sequence(singles, &groups, entries, &mut choice),
        (&[group], singles) => {
            let outside = strays(group, singles, &groups, entries);
            if outside.is_empty() {
                let chain = chains.iter().find(|chain| chain.contains(&group));
                let older: Vec<usize> = chain.into_iter().flatten().copied().collect();
                numbered_series(group, &older, &groups, entries, &mut choice);
            } else {
                let mut all = vec![group];
                all.extend(outside);
                ambiguous(&all, &groups, entries, &mut choice);
            }
        }
        (_, _) => {
            let mut all = newest.clone();
            all.sort_unstable();
            ambiguous(&all, &groups, entries, &mut choice);
        }
    }
    checks::run(entries, &mut choice);
    pass_the_rest(entries, &choice);
    choice
}

/// Where something is for a kernel tree, passes over what is for none.
fn drop_others(newest: &mut Vec<usize>, groups: &[Group], entries: &mut [Entry]) {
    let is_other = |group: &usize, entries: &[Entry]| {
        groups[*group].members.iter().all(|&at| entries[at].outside.is_some())
    };
    if newest.iter().all(|group| is_other(group, entries)) {
        return;
    }
    newest.retain(|group| {
        let other = is_other(group, entries);
        for &at in groups[*group].members.iter().filter(|_| other) {
            let path = entries[at].outside.clone().unwrap_or_default();
            let detail = format!("its diff touches only {path}");
            entries[at].passed.get_or_insert((Reason::NotKernel, detail));
        }
        !other
    });
}

/// A patch in a reply counts only where there is no other.
fn formal_replies(entries: &mut [Entry]) {
    if !entries.iter().any(|entry| entry.is_patch() && !entry.formal_reply) {
        return;
    }
    for entry in entries.iter_mut().filter(|entry| entry.formal_reply && entry.is_patch()) {
        entry.passed = Some((Reason::Reply, "with a patch of its own".to_owned()));
    }
}

/// A new version of one patch, sent without a number as an answer to the old one,
/// has the old one's number.
fn rerolls(entries: &mut [Entry]) {
    let by_id: HashMap<String, usize> = entries
        .iter()
        .enumerate()
        .filter_map(|(index, entry)| Some((entry.message_id.clone()?, index)))
        .collect();
    for index in 0..entries.len() {
        let entry = &entries[index];
        if !entry.is_patch() || entry.number().is_some() {
            continue;
        }
        let Some(&parent) = entry.references.first().and_then(|id| by_id.get(id)) else {
            continue;
        };
        let old = &entries[parent];
        if old.is_patch()
            && old.sender == entry.sender
            && old.subject.text == entry.subject.text
            && old.version() < entry.version()
            && let Some(number) = old.subject.number
        {
            entries[index].subject.number = Some(number);
        }
    }
}

/// Passes over what is there already: the same mail, or the same patch with the
/// same number and version.
fn duplicates(entries: &mut [Entry]) {
    let mut by_id: HashMap<(String, usize), usize> = HashMap::new();
    type Key = ([u8; 16], Version, Option<u32>, bool, Option<String>);
    let mut by_content: HashMap<Key, usize> = HashMap::new();
    for index in 0..entries.len() {
        let entry = &entries[index];
        if entry.passed.is_some() {
            continue;
        }
        let mut same = None;
        if let Some(id) = &entry.message_id {
            same = same.or(by_id.get(&(id.clone(), entry.nth)).copied());
            by_id.entry((id.clone(), entry.nth)).or_insert(index);
        }
        if !entry.cover {
            let (rfc, target) = (entry.subject.rfc, entry.target.clone());
            let key = (entry.content, entry.version(), entry.number(), rfc, target);
            same = same.or(by_content.get(&key).copied());
            by_content.entry(key).or_insert(index);
        }
        let Some(first) = same else {
            continue;
        };
        // Of two copies of one mail, the one that arrived whole.
        let (keep, pass) =
            if entries[first].damaged && !entry.damaged { (index, first) } else { (first, index) };
        if entries[pass].passed.is_none() {
            let line = entries[keep].line;
            entries[pass].passed = Some((Reason::Duplicate, format!("of the mail in line {line}")));
        }
    }
}

/// The newest of a chain's versions. Patches without a number beside a numbered
/// series of their version are none of it.
fn newest_of(
    chain: &[usize],
    groups: &[Group],
    entries: &mut [Entry],
    choice: &mut Choice,
) -> Vec<usize> {
    let with_patches: Vec<usize> =
        chain.iter().copied().filter(|&group| !groups[group].members.is_empty()).collect();
    let Some(version) = with_patches.iter().map(|&group| groups[group].version).max() else {
        return Vec::new();
    };
    let mut older = Vec::new();
    for &group in chain {
        if groups[group].version < version {
            if !older.contains(&groups[group].version) && !groups[group].members.is_empty() {
                older.push(groups[group].version);
            }
            for &at in &groups[group].members {
                let detail = format!("{} is there", name(version));
                entries[at].passed.get_or_insert((Reason::Superseded, detail));
            }
            for &at in &groups[group].covers {
                let detail = format!("of {}", name(groups[group].version));
                entries[at].passed.get_or_insert((Reason::Cover, detail));
            }
        }
    }
    if !older.is_empty() {
        let older: Vec<String> = older.into_iter().map(name).collect();
        choice.notes.push(format!("{} is the newest; older: {}", name(version), older.join(", ")));
    }
    with_patches.into_iter().filter(|&group| groups[group].version == version).collect()
}

pub(super) fn name((version, resend): Version) -> String {
    format!("v{version}{}", if resend { " (resent)" } else { "" })
}

fn nothing(entries: &[Entry], choice: &mut Choice) {
    // A cover letter that is all there is says so itself.
    if let Some(at) = entries.iter().position(|entry| entry.cover && entry.diff.is_some()) {
        choice.cover = Some(at);
        return;
    }
    let other = entries
        .iter()
        .any(|entry| matches!(entry.passed, Some((Reason::NotKernel | Reason::Reply, _))));
    let what = match (entries.len(), other, entries.iter().any(|entry| entry.diff.is_some())) {
        (0, ..) => "there is no mail and no diff",
        (_, true, _) => "no mail is a patch for a kernel tree",
        (_, _, true) => "no mail with a diff is a patch; each says why",
        _ => "no mail has a diff",
    };
    choice.problems.push((None, ProblemKind::Nothing, what.to_owned()));
}

/// Whether patches without numbers are of more than one series: for other kernels,
/// or mails of threads of their own by others or of other versions.
fn unrelated(singles: &[usize], groups: &[Group], entries: &[Entry]) -> bool {
    let heads =
        || singles.iter().filter_map(|&group| Some((group, *groups[group].members.first()?)));
    let Some((first, head)) = heads().next() else {
        return false;
    };
    let sent = |at: usize| entries[at].message_id.is_some();
    heads().any(|(group, at)| {
        groups[group].target != groups[first].target
            || groups[group].thread != groups[first].thread
                && (groups[group].version != groups[first].version
                    || entries[at].sender != entries[head].sender && sent(at) && sent(head))
    })
}

/// Patches without numbers, in the order of the input, as `git am` takes them.
fn sequence(singles: &[usize], groups: &[Group], entries: &mut [Entry], choice: &mut Choice) {
    let mut members: Vec<usize> =
        singles.iter().flat_map(|&group| groups[group].members.clone()).collect();
    members.sort_unstable();
    // What somebody else sent as an answer to one of them is no part of it.
    let ids: HashMap<String, usize> =
        members.iter().filter_map(|&at| Some((entries[at].message_id.clone()?, at))).collect();
    let mut taken = Vec::new();
    for &at in &members {
        let parent = entries[at].references.iter().find_map(|id| ids.get(id));
        match parent {
            Some(&parent) if entries[parent].sender != entries[at].sender => {
                let detail = format!("answers the one in line {}", entries[parent].line);
                entries[at].passed = Some((Reason::Stray, detail));
            }
            _ => taken.push(at),
        }
    }
    if taken.len() > 1 {
        let what = format!("{} patches without numbers, in the order of the input", taken.len());
        choice.notes.push(what);
    }
    choice.version = taken.iter().map(|&at| entries[at].version()).max();
    choice.total = u32::try_from(taken.len()).ok();
    choice.patches = (1..).zip(taken).collect();
    choice.cover = singles.iter().find_map(|&group| groups[group].covers.first().copied());
}

/// Single patches beside a numbered series: those in its thread, and answers to
/// what is not there, are passed over; gives the others.
fn strays(series: usize, singles: &[usize], groups: &[Group], entries: &mut [Entry]) -> Vec<usize> {
    let mut outside = Vec::new();
    for &single in singles {
        let group = &groups[single];
        let answers = group.members.iter().all(|&at| !entries[at].references.is_empty());
        if group.thread == groups[series].thread || answers {
            for &at in &group.members {
                let detail = "has no number of the series".to_owned();
                entries[at].passed.get_or_insert((Reason::Stray, detail));
            }
        } else {
            outside.push(single);
        }
    }
    outside
}

fn ambiguous(all: &[usize], groups: &[Group], entries: &mut [Entry], choice: &mut Choice) {
    let mut listed = Vec::new();
    for &index in all.iter().take(MAX_LISTED) {
        let group = &groups[index];
        let head = group.covers.first().or(group.members.first());
        let subject = head.map_or("", |&at| entries[at].subject.text.as_str());
        let line = head.map_or(0, |&at| entries[at].line);
        let total = group.total.unwrap_or(1);
        let patches = if total == 1 { "patch" } else { "patches" };
        let mut words = name(group.version);
        words.push_str(if group.rfc { " RFC" } else { "" });
        if let Some(target) = &group.target {
            words = format!("{words} for {target}");
        }
        listed.push(format!("{words} of {total} {patches}, line {line}: {subject:?}"));
    }
    if all.len() > MAX_LISTED {
        listed.push(format!("{} more", all.len() - MAX_LISTED));
    }
    let what = format!("{} series, not one: {}", all.len(), listed.join("; "));
    choice.problems.push((None, ProblemKind::Ambiguous, what));
    for &group in all {
        for &at in groups[group].members.iter().chain(&groups[group].covers) {
            entries[at].passed.get_or_insert((Reason::OtherSeries, String::new()));
        }
    }
}

fn numbered_series(
    index: usize,
    chain: &[usize],
    groups: &[Group],
    entries: &mut [Entry],
    choice: &mut Choice,
) {
    let group = &groups[index];
    let total = group.total.unwrap_or(1);
    let sender = group.sender(entries).to_owned();
    let mut by_number: BTreeMap<u32, usize> = BTreeMap::new();
    for &at in &group.members {
        let number = entries[at].number().unwrap_or(1);
        if number > total {
            let what = format!("this is {number} of {total}");
            choice.problems.push((Some(at), ProblemKind::Conflict, what));
            entries[at].passed = Some((Reason::Stray, format!("{number} of {total}")));
            continue;
        }
        let Some(&first) = by_number.get(&number) else {
            by_number.insert(number, at);
            continue;
        };
        let (one, other) = (entries[first].sender == sender, entries[at].sender == sender);
        if one == other {
            let what = format!(
                "two different mails are {number} of {total}: here and in line {}",
                entries[first].line
            );
            choice.problems.push((Some(at), ProblemKind::Conflict, what));
        }
        let (keep, pass) = if other && !one { (at, first) } else { (first, at) };
        by_number.insert(number, keep);
        let detail = format!("also {number} of {total}; see line {}", entries[keep].line);
        entries[pass].passed = Some((Reason::Stray, detail));
    }
    fill_from_older(index, chain, groups, entries, &mut by_number, choice);
    choice.missing = (1..=total).filter(|number| !by_number.contains_key(number)).collect();
    if !choice.missing.is_empty() {
        let missing = ranges(&choice.missing);
        let what = format!("{} of {total} patches: {missing} missing", by_number.len());
        choice.problems.push((None, ProblemKind::Incomplete, what));
    }
    choice.version = Some(group.version);
    choice.total = Some(total);
    choice.cover = cover(group, groups, entries);
    choice.patches = by_number.into_iter().collect();
}

/// A new version of some patches only, each sent as an answer to the old one: the
/// others are still those of the version before.
fn fill_from_older(
    index: usize,
    chain: &[usize],
    groups: &[Group],
    entries: &mut [Entry],
    by_number: &mut BTreeMap<u32, usize>,
    choice: &mut Choice,
) {
    let total = groups[index].total.unwrap_or(1);
    let complete = |by_number: &BTreeMap<u32, usize>| by_number.len() == total as usize;
    let older = chain.iter().rev().copied().filter(|&other| {
        groups[other].version < groups[index].version && groups[other].total == Some(total)
    });
    let older: Vec<usize> = older.collect();
    for other in older {
        if complete(by_number) {
            return;
        }
        let ids: HashMap<&str, u32> = groups[other]
            .members
            .iter()
            .filter_map(|&at| Some((entries[at].message_id.as_deref()?, entries[at].number()?)))
            .collect();
        let covers: Vec<&str> = groups[other]
            .covers
            .iter()
            .filter_map(|&at| entries[at].message_id.as_deref())
            .collect();
        let renews = |number: u32, at: usize| {
            groups[other].members.iter().any(|&old| {
                entries[old].number() == Some(number)
                    && entries[old].subject.text == entries[at].subject.text
            })
        };
        let answers = groups[index].covers.is_empty()
            && by_number.iter().all(|(&number, &at)| {
                let Some(parent) = entries[at].references.first().map(String::as_str) else {
                    return false;
                };
                // One patch alone that answers the cover letter: of a whole series,
                // only the first does, and the others answer that.
                let alone = by_number.len() == 1 && number > 1;
                ids.get(parent) == Some(&number)
                    || alone && covers.contains(&parent) && renews(number, at)
            });
        if !answers {
            continue;
        }
        let mut filled = Vec::new();
        for &at in &groups[other].members {
            let number = entries[at].number().unwrap_or(1);
            let superseded = matches!(entries[at].passed, Some((Reason::Superseded, _)));
            if number <= total && superseded && !by_number.contains_key(&number) {
                by_number.insert(number, at);
                entries[at].passed = None;
                filled.push(number);
            }
        }
        if !filled.is_empty() {
            filled.sort_unstable();
            choice.notes.push(format!(
                "{} has some patches only, as answers to what they replace; {} from {}",
                name(groups[index].version),
                ranges(&filled),
                name(groups[other].version)
            ));
        }
    }
}

/// The group's cover letter, or a mail without a diff that all patches answer.
fn cover(group: &Group, groups: &[Group], entries: &mut [Entry]) -> Option<usize> {
    let sender = group.sender(entries).to_owned();
    if let Some(&cover) = group.covers.first() {
        return Some(cover);
    }
    // One whose total is another: somebody counted wrong.
    let other = groups.iter().find(|other| {
        other.thread == group.thread
            && other.version == group.version
            && other.members.is_empty()
            && other.sender(entries) == sender
    });
    if let Some(&cover) = other.and_then(|other| other.covers.first()) {
        return Some(cover);
    }
    let root = entries.iter().position(|entry| {
        matches!(entry.passed, Some((Reason::NoDiff, _)))
            && !entry.subject.reply
            && entry.sender == sender
            && entry.message_id.as_ref().is_some_and(|id| {
                group.members.iter().all(|&at| entries[at].references.contains(id))
            })
    })?;
    entries[root].passed = None;
    Some(root)
}

fn pass_the_rest(entries: &mut [Entry], choice: &Choice) {
    let mut chosen: Vec<bool> = vec![false; entries.len()];
    for &(_, at) in &choice.patches {
        chosen[at] = true;
    }
    if let Some(cover) = choice.cover {
        chosen[cover] = true;
    }
    for (entry, chosen) in entries.iter_mut().zip(chosen) {
        if !chosen {
            let reason = if entry.cover { Reason::Cover } else { Reason::Stray };
            entry.passed.get_or_insert((reason, String::new()));
        }
    }
}

/// `1-3, 5`.
#[must_use]
pub fn ranges(numbers: &[u32]) -> String {
    let mut out: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match out.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => out.push((number, number)),
        }
    }
    let text = |(from, to): &(u32, u32)| match to - from {
        0 => from.to_string(),
        1 => format!("{from}, {to}"),
        _ => format!("{from}-{to}"),
    };
    out.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
