// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes a series out of mails, as `kernel/mail` reads them.

use std::path::{Path, PathBuf};

use super::PatchFile;
use super::input::Taken;
use crate::fault::Fault;
use crate::kernel::mail;
use crate::kernel::mail::reading::{Patch, Problem, Reading};

/// Most mails that are named because they are no part of the series.
const MAX_NAMED: usize = 20;

/// How a line begins that is no reason for passing over something but a note.
pub(super) const NOTE: &str = "note: ";

/// The one series that the mails hold.
///
/// # Errors
/// A `plan` fault when they cannot be read; a `series` fault when a patch is
/// missing or damaged, or when there is not one series.
pub(super) fn read(place: &Path) -> Result<Taken, Fault> {
    let inputs = mail::input::open(place)?;
    let reading = mail::read(&inputs).map_err(|error| {
        Fault::plan(format!("cannot be read: {error}")).at(place.display()).help("check the path")
    })?;
    // What may be the file's own is left to git, which has the file.
    let (doubts, wrong): (Vec<&Problem>, Vec<&Problem>) =
        reading.problems.iter().partition(|problem| problem.may_apply());
    if let Some(first) = wrong.first() {
        let at = first.place.as_ref().map_or(place.display().to_string(), ToString::to_string);
        let others: Vec<String> =
            wrong[1..].iter().take(MAX_NAMED).map(|problem| shown(problem)).collect();
        return Err(Fault::series(first.what.clone())
            .at(at)
            .evidence(&others.join("\n"))
            .help(first.help));
    }
    let note = |text: &str| format!("{NOTE}{text}");
    let mut passed_over: Vec<String> = reading.notes.iter().map(|text| note(text)).collect();
    passed_over.extend(doubts.iter().map(|problem| note(&shown(problem))));
    passed_over.extend(left_out(&reading));
    let title = reading.cover.as_ref().map(|cover| cover.subject.clone());
    let patches = reading.patches.into_iter().map(patch_file).collect();
    Ok(Taken { patches, passed_over, title })
}

fn shown(problem: &Problem) -> String {
    match &problem.place {
        Some(place) => format!("{place}: {}", problem.what),
        None => problem.what.clone(),
    }
}

fn left_out(reading: &Reading) -> Vec<String> {
    let all = &reading.passed_over;
    let line = |mail: &mail::reading::Passed| {
        format!("{}: {:?}: {}", mail.place, mail.subject, mail.reason.words())
    };
    let mut lines: Vec<String> = all.iter().take(MAX_NAMED).map(line).collect();
    if all.len() > MAX_NAMED {
        lines.push(format!("{} more mails", all.len() - MAX_NAMED));
    }
    lines
}

fn patch_file(patch: Patch) -> PatchFile {
    PatchFile {
        name: format!("{:04}", patch.number),
        path: PathBuf::from(patch.place.to_string()),
        subject: Some(patch.subject),
        strip: patch.strip,
        bytes: patch.diff,
    }
}
