// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a series applies that does not apply here: the newest of a clone's last
//! tags. Only the files that the series touches are looked at, so that a tag
//! takes milliseconds.

use std::collections::BTreeSet;
use std::time::Duration;

use super::index::Index;
use super::order;
use crate::fault::Fault;
use crate::host::process::check;
use crate::host::temporary::Temporary;
use crate::kernel::patch;
use crate::kernel::source::Source;
use crate::plan::Series;
use crate::plan::manifest::Direction;

/// Tags that are tried: the release candidates of about two kernels.
const TAGS: usize = 20;
/// The search is help for a refused series, not worth a longer wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came of a search.
pub(super) enum Nearby {
    /// There is nowhere to search, or it failed: it is only help.
    Unknown,
    /// It was not found, in words.
    Nowhere(String),
    /// It was found, in words.
    At(String),
}

/// Searches the newest tag of the source's clone where the series applies.
pub(super) async fn search(source: &Source, series: &Series) -> Nearby {
    match tokio::time::timeout(PATIENCE, newest_tag(source, series)).await {
        Ok(found) => found.unwrap_or(Nearby::Unknown),
        Err(_) => Nearby::Nowhere(format!(
            "the search for a tag where it applies was given up after {} s",
            PATIENCE.as_secs()
        )),
    }
}

async fn newest_tag(source: &Source, series: &Series) -> Result<Nearby, Fault> {
    let Some(clone) = &source.clone else {
        return Ok(Nearby::Unknown);
    };
    let tags = clone.newest_tags(TAGS)?;
    if tags.is_empty() {
        return Ok(Nearby::Unknown);
    }
    let scratch = Temporary::new().map_err(|error| Fault::io("make a folder", &error))?;
    let sets = series.prerequisites.iter().flat_map(|set| &set.patches);
    let files: BTreeSet<String> = sets
        .chain(&series.patches)
        .flat_map(|patch| patch::files(&patch.bytes, patch.strip))
        .collect();
    let index = Index::borrowing(&source.git_dir, &scratch.path().join("index"), clone);
    for (name, commit) in &tags {
        if applies(&index, commit, &files, series).await? {
            let of = tags.len();
            return Ok(Nearby::At(format!(
                "it applies to {name}, the newest tag of the last {of} where it does"
            )));
        }
    }
    Ok(Nearby::Nowhere(format!("it applies to none of the last {} tags", tags.len())))
}

async fn applies(
    index: &Index,
    commit: &str,
    files: &BTreeSet<String>,
    series: &Series,
) -> Result<bool, Fault> {
    check(index.git().args(["read-tree", "--empty"]), b"").await?;
    let mut list = index.git();
    list.args(["--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", commit, "--"]);
    // A tag may name something else than a commit.
    let Ok(entries) = check(list.args(files), b"").await else {
        return Ok(false);
    };
    let mut update = index.git();
    check(update.args(["update-index", "-z", "--index-info"]), &entries.stdout).await?;
    for patch in series.prerequisites.iter().flat_map(|set| &set.patches) {
        if index.apply(patch, false).await.is_err() {
            return Ok(false);
        }
    }
    let reverse = series.direction == Direction::Reverse;
    for at in order(series.patches.len(), reverse) {
        if index.apply(&series.patches[at], reverse).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}
