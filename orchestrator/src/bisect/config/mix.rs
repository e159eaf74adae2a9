// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configs between two others: how they differ, and which mixes to ask for.

use std::collections::{BTreeMap, BTreeSet};

use super::Config;

/// How many mixes are resolved before one step gives up.
const MIXES: usize = 48;

/// The symbols in which two configs differ, sorted.
#[must_use]
pub fn differing(a: &Config, b: &Config) -> Vec<String> {
    let symbols: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    symbols.into_iter().filter(|&symbol| a.get(symbol) != b.get(symbol)).cloned().collect()
}

/// BLAKE3 of a config: what it is known by in a log.
#[must_use]
pub fn digest(config: &Config) -> String {
    let mut hasher = blake3::Hasher::new();
    for (symbol, value) in config {
        // Lengths part them, whatever they contain.
        hasher.update(format!("{} {} {symbol}={value}\n", symbol.len(), value.len()).as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// A config with some symbols' values from another.
pub(super) fn with<'a>(
    config: &Config,
    symbols: impl IntoIterator<Item = &'a String>,
    from: &Config,
) -> Config {
    let mut mixed = config.clone();
    for symbol in symbols {
        match from.get(symbol) {
            Some(value) => mixed.insert(symbol.clone(), value.clone()),
            None => mixed.remove(symbol),
        };
    }
    mixed
}

/// An order of symbols in which those that depend on each other stand together.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// Group and place of each symbol.
    places: BTreeMap<String, (usize, usize)>,
}

impl Order {
    /// The order in which groups and their symbols are given. Symbols of no group
    /// come last, each on its own, by name.
    #[must_use]
    pub fn of(groups: &[Vec<String>]) -> Self {
        let mut order = Self::default();
        for (group, symbols) in groups.iter().enumerate() {
            for (place, symbol) in symbols.iter().enumerate() {
                order.places.entry(symbol.clone()).or_insert((group, place));
            }
        }
        order
    }

    fn place(&self, symbol: &str) -> (usize, usize) {
        self.places.get(symbol).copied().unwrap_or((usize::MAX, 0))
    }

    /// Sorts symbols.
    pub(super) fn sort(&self, symbols: &mut [String]) {
        symbols.sort_by(|a, b| self.place(a).cmp(&self.place(b)).then_with(|| a.cmp(b)));
    }

    /// Where sorted symbols can be parted without parting a group.
    fn boundaries(&self, symbols: &[String]) -> BTreeSet<usize> {
        let group = |at: usize| self.place(&symbols[at]).0;
        let parted = |&at: &usize| group(at) == usize::MAX || group(at - 1) != group(at);
        (1..symbols.len()).filter(parted).collect()
    }

    /// The mixes to ask for, best first: of the sorted symbols the first half, the
    /// other half, then other parts and what they leave, ever finer.
    pub(super) fn mixes<'a>(&self, symbols: &'a [String]) -> Vec<&'a [String]> {
        let boundaries = self.boundaries(symbols);
        let mut cuts: Vec<usize> = Vec::new();
        let mut parts = 2;
        while cuts.len() < symbols.len() - 1 && cuts.len() * 2 < MIXES {
            for odd in (1..parts).step_by(2) {
                // The half goes up: of a dependency and what needs it, the lower
                // part takes the first.
                let exact = (symbols.len() * odd).div_ceil(parts).clamp(1, symbols.len() - 1);
                let cut = snap(exact, &boundaries, symbols.len() / (4 * parts));
                if !cuts.contains(&cut) {
                    cuts.push(cut);
                }
            }
            parts *= 2;
            if parts > 4 * symbols.len() {
                break;
            }
        }
        cuts.into_iter().flat_map(|cut| [&symbols[..cut], &symbols[cut..]]).take(MIXES).collect()
    }
}

/// The nearest boundary at most `slack` away, or the place itself.
fn snap(place: usize, boundaries: &BTreeSet<usize>, slack: usize) -> usize {
    let near = boundaries.range(place.saturating_sub(slack)..=place + slack);
    near.min_by_key(|boundary| boundary.abs_diff(place)).copied().unwrap_or(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("S{at:03}")).collect()
    }

    #[test]
    fn configs_differ_in_values_and_in_what_is_set() {
        let config = |text: &str| -> Config {
            text.split(' ')
                .filter_map(|word| word.split_once('='))
                .map(|(symbol, value)| (symbol.to_owned(), value.to_owned()))
                .collect()
        };
        let (a, b) = (config("A=y B=y C=1"), config("A=y C=2 D=m"));
        assert_eq!(differing(&a, &b), ["B", "C", "D"]);
        assert_eq!(with(&a, &differing(&a, &b), &b), b);
        assert_ne!(digest(&a), digest(&b));
        assert_eq!(digest(&a), digest(&with(&b, &differing(&a, &b), &a)));
    }

    #[test]
    fn a_cut_spares_groups_where_that_costs_little() {
        let symbols = names(12);
        let groups = [symbols[..5].to_vec(), symbols[5..7].to_vec(), symbols[7..].to_vec()];
        let order = Order::of(&groups);
        assert_eq!(order.mixes(&symbols)[0].len(), 5);
        assert_eq!(Order::default().mixes(&symbols)[0].len(), 6);
        let one = Order::of(std::slice::from_ref(&symbols));
        assert_eq!(one.mixes(&symbols)[0].len(), 6);
    }

    #[test]
    fn mixes_are_parts_and_every_cut_of_a_few_symbols_is_there() {
        for count in 2..20 {
            let symbols = names(count);
            let mixes = Order::default().mixes(&symbols);
            assert!(mixes.iter().all(|mix| !mix.is_empty() && mix.len() < count));
            assert_eq!(mixes.len(), 2 * (count - 1), "{count}");
        }
        assert!(Order::default().mixes(&names(300)).len() <= MIXES);
    }
}
