// SPDX-License-Identifier: MIT OR Apache-2.0
//! The warnings of a build tree by the step that gave them. An incremental build
//! repeats only the steps of what changed; the others' warnings still hold, and
//! stand in the record.
//!
//! Only a build that ends well is recorded. One that does not leaves its marker,
//! and whatever it compiled is thrown away and compiled again by the next.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::kernel::warning::{Reader, Warning};
use crate::store::write_atomically;

/// Most warnings of one step; the rest of a flood says nothing new.
const MAX_OF_STEP: usize = 1000;
/// Longest name of a step that is kept, and most steps: an allyesconfig kernel has
/// some 35,000.
const MAX_STEP_CHARS: usize = 300;
const MAX_STEPS: usize = 100_000;
/// Most warnings of an image. A build with `W=1` has some thousands.
const MAX_OF_IMAGE: usize = 50_000;

/// Warnings by step, such as `CC mm/madvise.o`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    steps: BTreeMap<String, Vec<Warning>>,
    /// The objects that the last build linked, where the kernel lists them.
    linked: BTreeSet<String>,
}

impl Record {
    /// The record of a tree; `None` where there is none that can be read, so that
    /// what the tree's untouched objects had to say is not known.
    #[must_use]
    pub fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }

    /// Keeps the record with its tree.
    ///
    /// # Errors
    /// An `infra` fault when it cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), Fault> {
        write_atomically(file, &crate::report::json::pretty(self))
    }

    /// Takes over what a build's run said: its steps' warnings in the place of
    /// what they said before.
    pub fn update(&mut self, run: Heard) {
        for step in run.seen {
            self.steps.remove(&step);
        }
        let kept = run.warnings.into_iter().filter(|(_, warnings)| !warnings.is_empty());
        self.steps.extend(kept);
    }

    /// Forgets steps whose object is no longer a part of the tree: it was linked
    /// before and is not now. Where the kernel has no list of what it links
    /// (before 6.1), what counts is whether object and source are still there.
    pub fn forget_gone(&mut self, folder: &Path, now: BTreeSet<String>) {
        let before = std::mem::take(&mut self.linked);
        self.steps.retain(|step, _| {
            let Some((tool, object)) = step.rsplit_once(' ') else {
                return true;
            };
            if !object.ends_with(".o") || !object.contains('/') {
                return true;
            }
            if !now.is_empty() {
                return now.contains(object) || !before.contains(object);
            }
            let stem = object.trim_end_matches("o");
            let source = |extension: &&str| folder.join(format!("{stem}{extension}")).exists();
            let compiled = tool.starts_with("CC") || tool.starts_with("AS");
            folder.join(object).exists() && (!compiled || ["c", "S"].iter().any(source))
        });
        self.linked = now;
    }

    /// Whether it knows what the last build linked.
    #[must_use]
    pub fn has_list(&self) -> bool {
        !self.linked.is_empty()
    }

    /// All warnings, each once: a header's warning comes from many objects.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let all: BTreeSet<&Warning> = self.steps.values().flatten().collect();
        all.into_iter().take(MAX_OF_IMAGE).cloned().collect()
    }
}

/// What a run of `make` said, step by step. `make -O` keeps each step's output
/// together, so that a warning belongs to the step before it.
#[derive(Debug)]
pub struct Heard {
    current: String,
    seen: HashSet<String>,
    warnings: BTreeMap<String, Vec<Warning>>,
    reader: Reader,
}

impl Heard {
    /// `run` names what is run; it stands for the step of warnings before the first.
    #[must_use]
    pub fn new(run: &str) -> Self {
        let current = format!("make {run}");
        Self {
            seen: HashSet::from([current.clone()]),
            current,
            warnings: BTreeMap::new(),
            reader: Reader::default(),
        }
    }

    /// A step's line, such as `  CC      mm/madvise.o`.
    pub fn step(&mut self, line: &str) {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        self.current = words.chars().take(MAX_STEP_CHARS).collect();
        if self.seen.len() < MAX_STEPS {
            self.seen.insert(self.current.clone());
        }
        self.reader.step();
    }

    /// Any other line.
    pub fn line(&mut self, line: &str) {
        if let Some(warning) = self.reader.line(line) {
            if self.warnings.len() >= MAX_STEPS {
                return;
            }
            let warnings = self.warnings.entry(self.current.clone()).or_default();
            if warnings.len() < MAX_OF_STEP {
                warnings.push(warning);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Heard {
        let mut heard = Heard::new("bzImage");
        for line in lines {
            match line.starts_with("  ") {
                true => heard.step(line),
                false => heard.line(line),
            }
        }
        heard
    }

    fn texts(record: &Record) -> Vec<String> {
        record.warnings().into_iter().map(|warning| warning.identity.text).collect()
    }

    #[test]
    fn a_step_that_is_repeated_replaces_what_it_said_and_others_stay() {
        let mut record = Record::default();
        record.update(heard(&[
            "  CC      mm/a.o",
            "mm/a.c:1:1: warning: one [-Wx]",
            "  CC      mm/b.o",
            "mm/b.c:1:1: warning: two [-Wx]",
            "mm/h.h:1:1: warning: shared [-Wx]",
            "  CC      mm/c.o",
            "mm/h.h:1:1: warning: shared [-Wx]",
        ]));
        assert_eq!(texts(&record), ["one", "two", "shared"]);
        record.update(heard(&["  CC      mm/b.o"]));
        assert_eq!(texts(&record), ["one", "shared"]);
        record.update(heard(&["  CC      mm/c.o"]));
        assert_eq!(texts(&record), ["one"]);
    }

    #[test]
    fn what_is_no_longer_linked_or_has_no_source_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("mm")).unwrap();
        for name in ["a.c", "a.o", "b.c", "b.o", "c.o"] {
            std::fs::write(folder.path().join("mm").join(name), "").unwrap();
        }
        let mut record = Record::default();
        record.update(heard(&[
            "  CC      mm/a.o",
            "mm/a.c:1:1: warning: one [-Wx]",
            "  CC      mm/b.o",
            "mm/b.c:1:1: warning: two [-Wx]",
            "  CC      mm/c.o",
            "mm/c.c:1:1: warning: three [-Wx]",
        ]));
        let linked = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut unlinked = record.clone();
        unlinked.forget_gone(folder.path(), linked(&["mm/a.o", "mm/b.o"]));
        unlinked.forget_gone(folder.path(), linked(&["mm/a.o"]));
        // What was never linked (a tool's object) is none of the list's.
        assert_eq!(texts(&unlinked), ["one", "three"]);
        record.forget_gone(folder.path(), linked(&[]));
        assert_eq!(texts(&record), ["one", "two"]);
    }
}
