// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commits of a range in somebody's clone, which is only read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::trial::Origin;
use crate::bisect::history::{Candidate, Commit, History};
use crate::fault::Fault;
use crate::host::clone::UserClone;
use crate::kernel::series::{Tree, Trees};
use crate::kernel::source;
use crate::plan::manifest::{GitEntry, VariantName};
use crate::run::event::Events;
use crate::store::Store;

/// Most commits of a range: more than between two releases of Linux, ten times.
const MAX_COMMITS: usize = 200_000;
/// Longest subject and name that are kept, in characters.
const MAX_TEXT: usize = 200;
/// Length of an id that people read.
const SHORT: usize = 12;

/// Who wrote a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// Name; untrusted.
    pub name: String,
    /// Address; untrusted.
    pub mail: String,
}

/// The commits of a range.
#[derive(Debug)]
pub struct Range {
    /// What is searched.
    pub history: History,
    /// The authors of its commits, by id.
    pub authors: BTreeMap<String, Author>,
    /// Their parents, by id.
    pub parents: BTreeMap<String, Vec<String>>,
    /// The good ends' ids, in the order in which they were named.
    pub good: Vec<String>,
    /// The bad end's id.
    pub bad: String,
}

/// Reads what `git bisect` would search between `good` and `bad`.
///
/// # Errors
/// A `plan` fault for a revision that is none, when nothing lies between the ends, or
/// when they have nothing in common.
pub fn read(clone: &UserClone, good: &[String], bad: &str) -> Result<Range, Fault> {
    let commit = |revision: &String| match revision.starts_with('-') {
        true => Err(Fault::plan(format!("{revision:?} is not a revision"))),
        false => clone.commit(revision),
    };
    let bad_id = commit(&bad.to_owned())?;
    let goods = good.iter().map(commit).collect::<Result<Vec<String>, Fault>>()?;
    let mut range = Range {
        history: History::line(vec![Candidate::new("good", ""), Candidate::new("bad", "")])?,
        authors: BTreeMap::new(),
        parents: BTreeMap::new(),
        good: goods.clone(),
        bad: bad_id.clone(),
    };
    let mut commits: BTreeMap<String, Commit> = BTreeMap::new();
    let mut take = |arguments: &[String], range: &mut Range| -> Result<(), Fault> {
        for (found, author) in list(clone, arguments)? {
            let id = found.candidate.id.clone();
            range.authors.insert(id.clone(), author);
            range.parents.insert(id.clone(), found.parents.clone());
            commits.insert(id, found);
        }
        Ok(())
    };
    let no_walk = |ids: &[String]| [&["--no-walk=unsorted".to_owned()], ids].concat();
    let not: Vec<String> = goods.iter().map(|id| format!("^{id}")).collect();
    take(&[std::slice::from_ref(&bad_id), not.as_slice()].concat(), &mut range)?;
    take(&no_walk(&[goods.as_slice(), std::slice::from_ref(&bad_id)].concat()), &mut range)?;
    for good in &goods {
        let bases = clone.merge_bases(good, &bad_id)?;
        if bases.is_empty() {
            return Err(Fault::plan("the ends have no commit in common")
                .at(clone.path().display())
                .help("name ends of one history; in a shallow clone, `git fetch --unshallow`"));
        }
        if !bases.contains(good) {
            // Down to the merge bases, which have to be good, too.
            take(&[good.clone(), format!("^{bad_id}")], &mut range)?;
            take(&no_walk(&bases), &mut range)?;
        }
    }
    range.history = History::graph(commits.into_values().collect(), &bad_id, &goods)
        .map_err(|fault| fault.at(clone.path().display()))?;
    Ok(range)
}

/// The commits that `git rev-list` gives for these arguments.
fn list(clone: &UserClone, arguments: &[String]) -> Result<Vec<(Commit, Author)>, Fault> {
    let most = format!("--max-count={}", MAX_COMMITS + 1);
    let format = "--format=%H%x00%P%x00%an%x00%ae%x00%s";
    let text = clone.rev_list(&[&[most, format.to_owned()], arguments].concat())?;
    let cut = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
    let mut found = Vec::new();
    // Before each commit there is a line with nothing but its id.
    for line in text.lines().filter(|line| !line.starts_with("commit ")) {
        let fields: Vec<&str> = line.splitn(5, '\0').collect();
        let [id, parents, name, mail, subject] = fields[..] else {
            return Err(Fault::infra("git lists commits in another form than it was asked for")
                .at(clone.path().display()));
        };
        let commit = Commit {
            candidate: Candidate::new(id, cut(subject)),
            parents: parents.split(' ').filter(|id| !id.is_empty()).map(str::to_owned).collect(),
        };
        found.push((commit, Author { name: cut(name), mail: cut(mail) }));
    }
    if found.len() > MAX_COMMITS {
        return Err(Fault::plan(format!("the range holds more than {MAX_COMMITS} commits"))
            .at(clone.path().display())
            .help("name a good end that is nearer"));
    }
    Ok(found)
}

/// An id as people read it.
#[must_use]
pub fn short(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

/// The commits of a clone, as kernels.
#[derive(Debug)]
pub struct Commits {
    /// The clone.
    pub repository: PathBuf,
    /// What progress calls it.
    pub kernel: String,
    /// Where trees go.
    pub store: Store,
    /// Where progress goes.
    pub events: Events,
}

impl Commits {
    /// The source that is one of its commits.
    ///
    /// # Errors
    /// As [`source::prepare`].
    pub async fn source(&self, id: &str) -> Result<source::Source, Fault> {
        let entry = GitEntry { repository: self.repository.clone(), revision: id.to_owned() };
        source::prepare_revision(&entry, false, &self.kernel, &self.store, &self.events).await
    }

    /// The tree of one of its commits.
    ///
    /// # Errors
    /// As [`source::prepare`].
    pub async fn tree(&self, id: &str) -> Result<Tree, Fault> {
        let source::Source { commit, tree, .. } = self.source(id).await?;
        Ok(Tree { commit, tree })
    }
}

impl Origin for Commits {
    async fn trees(&self, candidate: &Candidate) -> Result<(Trees, VariantName), Fault> {
        let tree = self.tree(&candidate.id).await?;
        let variants = [(VariantName::Patched, tree)].into();
        Ok((Trees { variants, ..Trees::default() }, VariantName::Patched))
    }

    fn name(&self, candidate: &Candidate) -> String {
        short(&candidate.id).to_owned()
    }
}
