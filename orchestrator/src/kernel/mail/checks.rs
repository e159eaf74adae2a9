// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has to be said of the mails that were chosen for the series.

use super::choose::Choice;
use super::damage::DamageKind;
use super::entry::Entry;
use super::reading::{ProblemKind, Reason};

/// Adds the problems and notes of the chosen mails.
pub fn run(entries: &[Entry], choice: &mut Choice) {
    outside(entries, choice);
    cover_diff(entries, choice);
    cut_messages(entries, choice);
    kernels(entries, choice);
}

/// Says of the chosen patches which are for no kernel tree.
fn outside(entries: &[Entry], choice: &mut Choice) {
    let others: Vec<(u32, usize, &String)> = choice
        .patches
        .iter()
        .filter_map(|&(number, at)| Some((number, at, entries[at].outside.as_ref()?)))
        .collect();
    if let Some(&(_, at, path)) = others.first()
        && others.len() == choice.patches.len()
    {
        let what = format!("no file of a kernel tree is touched, only {path}");
        choice.problems.push((Some(at), ProblemKind::NotKernel, what));
        return;
    }
    for (number, _, path) in others {
        choice.notes.push(format!("patch {number} touches nothing of a kernel tree, only {path}"));
    }
}

/// A diff in a mail that is numbered 0 would be left out. Only one between two
/// versions, as `git format-patch --interdiff` writes it, belongs there: it has no
/// `---` above it, and all patches are there.
fn cover_diff(entries: &[Entry], choice: &mut Choice) {
    let covers: Vec<usize> = match choice.cover {
        Some(cover) => vec![cover],
        None if choice.patches.is_empty() => Vec::new(),
        None => (0..entries.len()).filter(|&at| entries[at].cover).collect(),
    };
    for at in covers {
        let Some(separated) = entries[at].diff else {
            continue;
        };
        if entries[at].passed.is_some() {
            continue;
        }
        if !separated && choice.missing.is_empty() && !choice.patches.is_empty() {
            let what = "the cover letter has a diff, taken for one between two versions";
            choice.notes.push(what.to_owned());
        } else {
            let what = "the cover letter has a diff of its own".to_owned();
            choice.problems.push((Some(at), ProblemKind::CoverDiff, what));
        }
    }
}

/// A line `From NAME DATE` in a message, followed by one like a field, ends a mail
/// for git too. What follows is the diff, but without the patch's author and subject.
fn cut_messages(entries: &[Entry], choice: &mut Choice) {
    for &(number, at) in &choice.patches {
        let Some(before) = at.checked_sub(1).map(|before| &entries[before]) else {
            continue;
        };
        if entries[at].from.is_none()
            && entries[at].sent.is_none()
            && before.input == entries[at].input
            && before.subject.patch
            && before.from.is_some()
            && matches!(before.passed, Some((Reason::NoDiff, _)))
        {
            let what = format!(
                "patch {number} has no sender: a line `From ...` in the message of line {} ends that mail",
                before.line
            );
            choice.problems.push((Some(at), ProblemKind::Damaged(DamageKind::Joined), what));
        }
    }
}

/// Says where `v6.1` was taken for a kernel and not for a version.
fn kernels(entries: &[Entry], choice: &mut Choice) {
    let chosen = choice.patches.iter().map(|&(_, at)| &entries[at]);
    let Some(entry) = chosen.into_iter().find(|entry| entry.target.is_some()) else {
        return;
    };
    let tag = entry.subject.tags.iter().find(|tag| tag.starts_with(['v', 'V']));
    if let (Some(tag), Some(kernel)) = (tag, &entry.target)
        && tag.contains(kernel.as_str())
    {
        choice.notes.push(format!("{tag} is taken for the kernel that it is for, not a version"));
    }
}
