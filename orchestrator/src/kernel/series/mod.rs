// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applies patches to a source, exactly and in order, inside the object store of
//! its repository: no work tree is touched, and nothing is half applied.

mod diagnose;
mod index;
mod nearby;
mod refusal;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::git;
use super::source::Source;
use crate::fault::Fault;
use crate::plan::manifest::{Direction, VariantName};
use crate::plan::{PatchFile, Series};
use crate::store::{Store, key, write_atomically};
use index::{Index, Problem};

/// Changes to how trees are made from patches change this.
const RECIPE: &str = "apply/2";

/// A variant's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Commit that holds it.
    pub commit: String,
    /// Its id: equal trees have equal ids, whatever led to them.
    pub tree: String,
}

/// The trees of a series' variants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trees {
    /// One for each variant.
    pub variants: BTreeMap<VariantName, Tree>,
    /// Hunks that git found in another line than their patch says.
    #[serde(default)]
    pub moved: Vec<MovedHunk>,
    /// The series changes no file.
    #[serde(default)]
    pub unchanged: bool,
}

/// A hunk that applied in another line than it says. git asks for all of a
/// hunk's context (it has no fuzz), so nothing else about it may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedHunk {
    /// The patch.
    pub patch: String,
    /// The file.
    pub file: String,
    /// Which of the file's hunks, from 1.
    pub hunk: u32,
    /// The line of the source where it applied.
    pub line: u32,
    /// How many lines further down than the patch says; negative for up.
    pub offset: i64,
    /// After the patch it would apply once more: the lines that it looks for
    /// are in more than one place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
}

/// Makes the trees of a series' variants: one for each of its prefixes.
///
/// # Errors
/// A `series` fault with file, hunk and reason where a patch does not apply; a
/// `plan` fault where a prerequisite does not.
pub async fn apply(source: &Source, series: &Series, store: &Store) -> Result<Trees, Fault> {
    let direction = format!("{:?}", series.direction);
    let strips: Vec<Vec<u8>> = (0..10u8).map(|strip| vec![strip]).collect();
    let mut parts: Vec<&[u8]> =
        vec![RECIPE.as_bytes(), source.commit.as_bytes(), direction.as_bytes()];
    let sets = series.prerequisites.iter().map(|set| (&set.name, &set.patches));
    for (name, patches) in sets.chain([(&series.name, &series.patches)]) {
        parts.push(name.as_bytes());
        for patch in patches {
            parts.extend([patch.name.as_bytes(), &strips[patch.strip.min(9)], &patch.bytes]);
        }
    }
    let file = store.path("applied", &format!("{}.json", key(parts)));
    let trees = match read(&file, source).await {
        Some(trees) => trees,
        None => {
            let trees = apply_now(source, series, store).await?;
            write_atomically(&file, &crate::report::json::pretty(&trees))?;
            trees
        }
    };
    Ok(trees)
}

async fn read(file: &Path, source: &Source) -> Option<Trees> {
    let trees: Trees = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    for tree in trees.variants.values() {
        if !git::has_object(&source.git_dir, &tree.commit).await {
            return None;
        }
    }
    Some(trees)
}

async fn apply_now(source: &Source, series: &Series, store: &Store) -> Result<Trees, Fault> {
    let scratch = store.scratch()?;
    let index = Index::new(&source.git_dir, &scratch.path().join("index"));
    index.read(&source.commit).await?;
    let mut base = Tree { commit: source.commit.clone(), tree: source.tree.clone() };
    let mut moved = Vec::new();
    for set in &series.prerequisites {
        for patch in &set.patches {
            let hunks = index.apply(patch, false).await.map_err(|problem| {
                let what = format!("prerequisite {}: {}", set.name, problem.what(&source.origin));
                problem.into_fault(Fault::plan(what).at(patch.path.display()))
            })?;
            moved.extend(hunks);
        }
        base = index.commit(&base.commit, &format!("prerequisite {}", set.name)).await?;
    }
    let total = series.patches.len();
    let reverse = series.direction == Direction::Reverse;
    let mut trees = vec![base.clone()];
    for (done, &at) in order(total, reverse).iter().enumerate() {
        let patch = &series.patches[at];
        let step = async {
            let hunks = index.apply(patch, reverse).await?;
            let parent = &trees[done].commit;
            let tree = index.commit(parent, &format!("{} {}", series.name, patch.name)).await;
            Ok((hunks, tree.map_err(Problem::Host)?))
        };
        match step.await {
            Ok((hunks, tree)) => {
                moved.extend(hunks);
                trees.push(tree);
            }
            Err(problem) => {
                let refused = diagnose::Refused { source, series, index: &index, base: &base, at };
                return Err(refused.fault(problem).await);
            }
        }
    }
    if reverse {
        trees.reverse();
    }
    let unchanged = trees[0].tree == trees[total].tree;
    if !unchanged {
        diagnose::check_belongs(source, series, &index, &trees[0]).await?;
    }
    let mut variants: BTreeMap<VariantName, Tree> = BTreeMap::new();
    for (count, tree) in trees.into_iter().enumerate() {
        variants.insert(VariantName::prefix(count, total), tree);
    }
    if total == 0 {
        variants = [(VariantName::Base, base.clone()), (VariantName::Patched, base)].into();
    }
    Ok(Trees { variants, moved, unchanged })
}

/// The order in which patches are put in or taken out.
fn order(total: usize, reverse: bool) -> Vec<usize> {
    let order = 0..total;
    if reverse { order.rev().collect() } else { order.collect() }
}

/// `patch 2 of 4` for a series of several patches.
fn which(at: usize, patches: &[PatchFile]) -> String {
    match patches.len() {
        0 | 1 => "the patch".to_owned(),
        total => format!("patch {} of {total}", at + 1),
    }
}
