// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which mails belong to one thread.

use std::collections::HashMap;

use super::entry::Entry;

/// Sets of numbers that can be united.
#[derive(Debug, Default)]
pub struct Sets {
    parents: Vec<usize>,
}

impl Sets {
    /// Every number below `count` alone.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { parents: (0..count).collect() }
    }

    /// A new number, alone.
    pub fn add(&mut self) -> usize {
        self.parents.push(self.parents.len());
        self.parents.len() - 1
    }

    /// The number that stands for a set.
    pub fn find(&mut self, mut at: usize) -> usize {
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    /// Makes one set of two; the smaller number stands for it.
    pub fn unite(&mut self, one: usize, other: usize) {
        let (one, other) = (self.find(one), self.find(other));
        let (low, high) = (one.min(other), one.max(other));
        self.parents[high] = low;
    }
}

/// For each mail, the number of its thread. Mails are in one thread if they name
/// each other, or the same third one, even if that is not there.
#[must_use]
pub fn threads(entries: &[Entry]) -> Vec<usize> {
    let mut sets = Sets::new(entries.len());
    let mut ids: HashMap<&str, usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        for id in entry.message_id.iter().chain(&entry.references) {
            let node = *ids.entry(id).or_insert_with(|| sets.add());
            sets.unite(index, node);
        }
    }
    (0..entries.len()).map(|index| sets.find(index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_root_holds_a_thread_together() {
        let entry = |id: &str, references: &[&str]| Entry {
            message_id: Some(id.to_owned()),
            references: references.iter().map(ToString::to_string).collect(),
            ..Entry::default()
        };
        let entries =
            [entry("a", &["root"]), entry("x", &[]), entry("b", &["root"]), entry("c", &["b"])];
        let threads = threads(&entries);
        assert_eq!([threads[0], threads[2], threads[3]], [0, 0, 0]);
        assert_eq!(threads[1], 1);
    }
}
